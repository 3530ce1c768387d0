//! The link of the two-process form: tokencheck reports what it saw, tokengen answers with a control update
//! (WebQ III-B). JSON over tokengen's admin listener, twice a second. `tidegate_core::room` defines the
//! contents and merges reports, `feedback/wire.rs` the JSON.
//!
//! A report that does not arrive is merged into the next, which then covers a longer time; a report without
//! that time covers one interval. Without control updates the checker follows the wall clock, which is WebQ's
//! own schedule, and keeps its in-flight limit.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use serde_json::Value;
use tidegate_core::room::{ControlUpdate, Feedback, REPORT_EVERY};
use tidegate_core::units::{ClassId, Cost};

use crate::config::ClassTag;
use crate::shared::Shared;
use crate::upstream::body::BoxError;
use crate::upstream::client::{Call, at_path};
use crate::upstream::tls::ClientTls;
use tidegate_core::admission::Admission;
use tidegate_settings::Role;

mod wire;

pub use wire::UpdateMessage;

/// Longest time of one exchange.
const TIMEOUT: Duration = Duration::from_secs(2);
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// Tokengen's side: takes in a report and returns a control update.
pub fn receive(shared: &Shared, report: &Value) -> Result<UpdateMessage, String> {
    let Admission::Room(room) = &shared.admission else {
        return Err("this process keeps no schedule: report to the tokengen process".into());
    };
    let mut feedback = wire::parse(report).ok_or_else(|| {
        format!("expected {{\"admitted\": N, \"over_ms\": MS, \"queued\": N, \"shown\": [[SECOND, N], ...]}} with N in hundredths; \
             got {report}")
    })?;
    let live = shared.config.load();
    // Class ids differ between the processes; tags do not.
    let id_of = |mark: ClassId| live.marked(ClassTag(mark.0)).unwrap_or(ClassId(u8::MAX));
    feedback.samples.iter_mut().for_each(|sample| sample.class = id_of(sample.class));
    let learned = room.costs().learned().filter_map(|(id, cost)| {
        let class = live.class(id);
        (!class.is_gone).then_some((class.mark, cost))
    });
    Ok(wire::write_update(&room.feedback(&feedback), learned))
}

/// Tokencheck's side: reports until the process ends. Does nothing in the other roles.
pub async fn run(shared: Arc<Shared>) {
    let Admission::Checker { checker, capacity } = &shared.admission else { return };
    // Tells several tokenchecks of one tokengen apart: no two start in the same microsecond.
    let from = shared.clock.now().as_micros();
    let mut unsent = Feedback::default();
    let mut reachable = true;
    loop {
        tokio::time::sleep(REPORT_EVERY).await;
        let live = shared.config.load_full();
        let Role::TokenCheck { feedback_url, link_token, .. } = &live.settings.role else { return };
        let mut report = checker.report(&shared.gate.totals(), shared.clock.now());
        report.samples.iter_mut().for_each(|sample| sample.class = ClassId(live.class(sample.class).mark.0));
        unsent.merge(Feedback { from, ..report });
        match exchange(feedback_url, live.calls_tls.as_deref(), link_token, &unsent).await {
            Ok((update, costs)) => {
                unsent = Feedback::default();
                checker.follow(update, shared.clock.now());
                let live = shared.config.load();
                let here = costs.into_iter().filter_map(|(tag, cost)| Some((live.marked(tag)?, cost)));
                checker.follow_costs(here);
                *capacity.lock().unwrap_or_else(|e| e.into_inner()) = update.capacity;
                if !reachable {
                    tracing::info!("tokengen is back");
                }
                reachable = true;
            }
            Err(error) => {
                if reachable {
                    tracing::warn!(%error, url = %feedback_url, "tokengen cannot be reached: going by the clock");
                }
                reachable = false;
            }
        }
    }
}

async fn exchange(
    url: &str,
    tls: Option<&ClientTls>,
    token: &str,
    report: &Feedback,
) -> Result<(ControlUpdate, Vec<(ClassTag, Cost)>), BoxError> {
    let url = at_path(url, "/v1/feedback")?;
    let mut request = Request::post(url).header(CONTENT_TYPE, "application/json");
    if !token.is_empty() {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(Bytes::from(wire::write(report).to_string()))?;
    let call = Call { request, replica: None, tls, timeout: TIMEOUT, max_body: Some(MAX_ANSWER_BYTES) };
    let (answer, bytes) = call.send().await?.into_parts();
    if !answer.status.is_success() {
        return Err(format!("{}: {}", answer.status, String::from_utf8_lossy(&bytes)).into());
    }
    let update: Value = serde_json::from_slice(&bytes)?;
    let read = wire::read_update(&update).zip(wire::read_costs(&update));
    read.ok_or_else(|| format!("not a control update: {update}").into())
}
