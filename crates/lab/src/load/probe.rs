//! Response times of an idle service: a few requests, one after another.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::Instant;

use super::LoadError;
use super::script::local;
use crate::answer::{self, Answer};
use crate::client::{Client, Connections, Order, Place, Reply};
use crate::visitor_events::{Failure, RequestKind};

/// Response times of `n` requests for `path` at `url`, one after another over one connection: what an
/// unloaded service takes. Blocks; asks on a thread of its own.
///
/// # Errors
/// The target cannot be reached, or an answer is not the page.
pub fn probe(url: &str, path: &str, n: usize) -> Result<Vec<Duration>, LoadError> {
    let client = Client::new(Place::find(url)?, Connections::Keep);
    let uri = local(path).ok_or_else(|| LoadError::Probe(format!("{path:?} is no path")))?;
    let order = Order::get(RequestKind::Page, uri);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    // The caller may be inside another runtime, where this one could not run.
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let client = Arc::clone(&client);
            runtime.block_on(async move {
                let mut times = Vec::with_capacity(n);
                for _ in 0..n {
                    let start = Instant::now();
                    check(client.send(order.clone()).await)?;
                    times.push(start.elapsed());
                }
                Ok(times)
            })
        });
        asked.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn check(outcome: Result<Reply, Failure>) -> Result<(), LoadError> {
    let wrong = |what: String| Err(LoadError::Probe(what));
    match outcome {
        Ok(Reply { status, headers, body }) => {
            match answer::read(RequestKind::Page, status, &headers, &body, 0).answer {
                Answer::Served => Ok(()),
                Answer::Wait { .. } | Answer::TurnedAway { .. } => {
                    wrong("a waiting room instead of the page".into())
                }
                _ => wrong(format!("{status} instead of the page")),
            }
        }
        Err(failure) => wrong(format!("no answer: {failure:?}")),
    }
}
