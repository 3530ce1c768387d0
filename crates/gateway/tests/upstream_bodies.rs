//! The adapters that limit and watch bodies.

mod upstream_support;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt;
use tidegate_gateway::body::{Outcome, RequestBody, Silence, Timed, Watched};
use tokio::time::Instant;
use upstream_support::*;

#[tokio::test(start_paused = true)]
async fn silence_is_counted_from_the_last_byte() {
    let limit = Duration::from_secs(60);
    let (feed, body, _) = fed();
    let mut body = Timed::new(body, limit);
    for _ in 0..5 {
        let late = async {
            tokio::time::sleep(limit - Duration::from_secs(1)).await;
            feed.send(data("abc")).await.unwrap();
        };
        let (frame, ()) = tokio::join!(body.frame(), late);
        assert!(frame.unwrap().is_ok(), "slow is not silent");
        // Nobody asks meanwhile: the receiver's pauses do not count.
        tokio::time::advance(limit * 2).await;
    }
    let asked = Instant::now();
    let end = body.frame().await.unwrap().unwrap_err();
    assert_eq!(end.downcast_ref(), Some(&Silence { limit }));
    assert!(asked.elapsed() >= limit && asked.elapsed() < limit + Duration::from_millis(10));
}

#[test]
fn the_end_of_a_body_is_told_once() {
    worker(async {
        // whole, read as far as, outcome
        let cases = [(true, 2, Outcome::Complete), (true, 1, Outcome::Aborted), (false, 2, Outcome::Failed)];
        for (whole, frames, expected) in cases {
            let (feed, body, _) = fed();
            let told = Rc::new(Cell::new(Vec::new()));
            let note = told.clone();
            let mut body = Watched::new(body, move |bytes, outcome| {
                let mut all = note.take();
                all.push((bytes, outcome));
                note.set(all);
            });
            feed.send(data("abc")).await.unwrap();
            assert!(body.frame().await.unwrap().is_ok());
            if frames == 2 {
                if !whole {
                    feed.send(Err("broken".into())).await.unwrap();
                }
                drop(feed);
                let end = body.frame().await;
                assert_eq!(end.is_some(), !whole);
            }
            drop(body);
            assert_eq!(told.take(), [(3, expected)]);
        }
        let told = Rc::new(Cell::new(None));
        let note = told.clone();
        drop(Watched::new(http_body_util::Empty::<Bytes>::new(), move |n, o| note.set(Some((n, o)))));
        assert_eq!(told.get(), Some((0, Outcome::Complete)));
        assert!(RequestBody::full("").is_end_stream());
    });
}
