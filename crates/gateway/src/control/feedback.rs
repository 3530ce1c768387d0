//! The link between the halves of the two-process form: tokencheck reports what it saw, tokengen answers with what
//! to go by (WebQ III-B). JSON over tokengen's admin listener, twice a second; what is told and how it is merged is the
//! core's (`tidegate_core::room`), how it is written `feedback/wire.rs`'s.
//!
//! A report that does not arrive is merged into the next, so nothing is lost, and says what time it covers: most of its work is
//! done by then. A sender that does not say so reports of one interval. Orders that do not arrive leave the
//! checker with the clock, which is WebQ's own schedule, and with the in-flight limit it has.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Request, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tidegate_core::room::{ControlUpdate, Feedback, REPORT_EVERY};
use tidegate_core::units::ClassId;
use tokio::net::TcpStream;

use crate::config::ClassTag;
use crate::shared::Shared;
use tidegate_core::admission::Admission;
use tidegate_settings::Role;

mod wire;

/// Longest an exchange may take before the next one is due anyway.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Answers are far smaller.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// Tokengen's side: takes a report in, gives orders out.
///
/// # Errors
/// The report is not of the expected form, or this process keeps no schedule.
pub fn receive(shared: &Shared, report: &Value) -> Result<Value, String> {
    let Admission::Room(room) = &shared.admission else {
        return Err("this process keeps no schedule: report to the tokengen process".into());
    };
    let mut feedback = wire::parse(report).ok_or_else(|| {
        format!("expected {{\"admitted\": N, \"over_ms\": MS, \"queued\": N, \"shown\": [[SECOND, N], ...]}} with N in hundredths; \
             got {report}")
    })?;
    let live = shared.config.load();
    // Ids are this process's own.
    let named = |mark: ClassId| live.marked(ClassTag(mark.0)).unwrap_or(ClassId(u8::MAX));
    feedback.samples.iter_mut().for_each(|sample| sample.class = named(sample.class));
    Ok(wire::write_orders(&room.feedback(&feedback)))
}

/// Tokencheck's side: reports until the process ends. Does nothing in the other roles.
pub async fn run(shared: Arc<Shared>) {
    let Admission::Checker { checker, capacity } = &shared.admission else { return };
    // One tokengen may have several tokenchecks: no two of them start in the same microsecond.
    let from = shared.clock.now().as_micros();
    let mut unsent = Feedback::default();
    let mut reachable = true;
    loop {
        tokio::time::sleep(REPORT_EVERY).await;
        let live = shared.config.load_full();
        let Role::TokenCheck { feedback_url, feedback_token, .. } = &live.settings.role else { return };
        let mut report = checker.report(&shared.gate.totals(), shared.clock.now());
        report.samples.iter_mut().for_each(|sample| sample.class = ClassId(live.class(sample.class).mark.0));
        unsent.merge(Feedback { from, ..report });
        let sent = tokio::time::timeout(TIMEOUT, exchange(feedback_url, feedback_token, &unsent));
        match sent.await.unwrap_or_else(|_| Err("no answer in time".into())) {
            Ok(orders) => {
                unsent = Feedback::default();
                checker.follow(orders, shared.clock.now());
                *capacity.lock().unwrap_or_else(|e| e.into_inner()) = orders.capacity;
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

type BoxError = Box<dyn std::error::Error + Send + Sync>;

async fn exchange(url: &str, token: &str, report: &Feedback) -> Result<ControlUpdate, BoxError> {
    let uri: Uri = url.parse()?;
    let authority = uri.authority().ok_or("the URL has no host")?.as_str().to_owned();
    let address = if uri.port().is_some() { authority.clone() } else { format!("{authority}:80") };
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let mut request =
        Request::post("/v1/feedback").header(HOST, authority).header(CONTENT_TYPE, "application/json");
    if !token.is_empty() {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    let answer =
        sender.send_request(request.body(Full::new(Bytes::from(wire::write(report).to_string())))?).await?;
    let status = answer.status();
    let bytes = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await?.to_bytes();
    driver.abort();
    if !status.is_success() {
        return Err(format!("{status}: {}", String::from_utf8_lossy(&bytes)).into());
    }
    let orders: Value = serde_json::from_slice(&bytes)?;
    wire::read_orders(&orders).ok_or_else(|| format!("not orders: {orders}").into())
}
