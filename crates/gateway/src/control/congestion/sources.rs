//! Asks the sources of host figures, each in a task of its own: one that hangs delays nobody.
//!
//! Answers are bounded in time and size, and parsed on a blocking thread. A failure is noted in [`Readings`];
//! the last reading stays valid for its time to live.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::ACCEPT;
use tokio::task::JoinHandle;

use super::look::{Found, Looker};
use super::readings::Readings;
use crate::config::congestion_plan::Plan;
use crate::shared::Shared;
use crate::upstream::body::BoxError;
use crate::upstream::client::Call;
use crate::upstream::tls::ClientTls;
use tidegate_settings::{Detector, Watched};

/// Largest answer, in bytes: some ten times that of a node_exporter on a large machine.
const MAX_ANSWER_BYTES: usize = 4 << 20;

/// The tasks that ask sources, one for each.
#[derive(Default)]
pub struct Sources {
    plan: Option<Arc<Plan>>,
    running: BTreeMap<String, (Vec<Detector>, JoinHandle<()>)>,
}

impl Sources {
    /// Asks exactly the sources that the configuration in force names. Tasks of unchanged sources go on.
    pub fn follow(&mut self, shared: &Arc<Shared>, readings: &Arc<Readings>) {
        let plan = shared.config.load().plan.clone();
        if self.plan.as_ref().is_some_and(|old| Arc::ptr_eq(old, &plan)) {
            return;
        }
        let mut wanted = BTreeMap::<String, Vec<Detector>>::new();
        for detector in plan.detectors.iter().filter(|detector| detector.kind == Watched::Host) {
            wanted.entry(detector.source.clone()).or_default().push(detector.clone());
        }
        self.running.retain(|source, (detectors, task)| {
            let asks_as = |wanted: &Vec<Detector>| {
                wanted.len() == detectors.len()
                    && wanted.iter().zip(detectors.iter()).all(|(new, old)| new.asks_as(old))
            };
            let stays = wanted.get(source).is_some_and(asks_as);
            if !stays {
                task.abort();
            }
            stays
        });
        for (source, detectors) in wanted {
            self.running.entry(source.clone()).or_insert_with(|| {
                let task = Task { shared: shared.clone(), readings: readings.clone(), source, detectors };
                (task.detectors.clone(), tokio::spawn(task.run()))
            });
        }
        self.plan = Some(plan);
    }
}

struct Task {
    shared: Arc<Shared>,
    readings: Arc<Readings>,
    source: String,
    detectors: Vec<Detector>,
}

impl Task {
    async fn run(self) {
        let detectors = &self.detectors;
        let every = detectors.iter().map(|detector| detector.every).min().unwrap_or(Duration::from_secs(1));
        let timeout = detectors.iter().map(|detector| detector.timeout).max().unwrap_or(every);
        let mut looker = Looker::new(detectors);
        let mut interval = tokio::time::interval(every);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            let answer = match self.source.as_str() {
                "" => Ok(None),
                url => {
                    let tls = self.shared.config.load().calls_tls.clone();
                    fetch(url, tls.as_deref(), timeout).await.map(Some).map_err(|e| e.to_string())
                }
            };
            let now = self.shared.clock.now();
            let found: Found = match answer {
                Ok(answer) => {
                    // Parsing some megabytes takes its time.
                    let look = tokio::task::spawn_blocking(move || {
                        let found = match &answer {
                            Some(answer) => looker.read(answer, now),
                            None => looker.local(now),
                        };
                        (looker, found)
                    });
                    match look.await {
                        Ok((back, found)) => {
                            looker = back;
                            found
                        }
                        Err(e) => {
                            looker = Looker::new(detectors);
                            failed(detectors, &format!("the answer could not be looked into: {e}"))
                        }
                    }
                }
                Err(why) => failed(detectors, &why),
            };
            // A configuration that came meanwhile may mean something else by the name.
            let plan = self.shared.config.load().plan.clone();
            let is_asked = |name: &str| {
                plan.detectors
                    .iter()
                    .any(|one| one.name == name && detectors.iter().any(|old| old.asks_as(one)))
            };
            for (detector, value) in found.into_iter().filter(|(name, _)| is_asked(name)) {
                self.note(&detector, value);
            }
        }
    }

    fn note(&self, detector: &str, value: Option<Result<f64, String>>) {
        let source = self.source.as_str();
        match value {
            Some(Ok(value)) => {
                if self.readings.trouble(detector).is_some() {
                    tracing::info!(detector, source, "the source is back");
                }
                // The detector limits by its own `time_to_live` how long the reading is valid.
                self.readings.say(detector, value, self.shared.clock.now(), Duration::MAX);
            }
            Some(Err(why)) if self.readings.fail(detector, why.clone()) => {
                tracing::warn!(detector, source, "the source cannot be read: {why}");
            }
            // It goes on failing, or the figure needs a second answer.
            Some(Err(_)) | None => {}
        }
    }
}

fn failed(detectors: &[Detector], why: &str) -> Found {
    detectors.iter().map(|detector| (detector.name.clone(), Some(Err(why.to_owned())))).collect()
}

async fn fetch(url: &str, tls: Option<&ClientTls>, timeout: Duration) -> Result<Bytes, BoxError> {
    let request = Request::get(url)
        .header(ACCEPT, "text/plain;version=0.0.4, application/json;q=0.9, */*;q=0.1")
        .body(Bytes::new())?;
    let call = Call { request, replica: None, tls, timeout, max_body: Some(MAX_ANSWER_BYTES) };
    let answer = call.send().await?;
    if !answer.status().is_success() {
        return Err(format!("it answered {}", answer.status()).into());
    }
    Ok(answer.into_body())
}
