//! The link between the halves of the two-process form: tokencheck reports what it saw, tokengen answers with what
//! to go by (WebQ III-B). JSON over tokengen's admin listener, twice a second.
//!
//! A report that does not arrive is merged into the next, so nothing is lost, and says what time it covers: most of its work is
//! done by then. A sender that does not say so reports of one interval. Orders that do not arrive leave the
//! checker with the clock, which is WebQ's own schedule.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Request, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tidegate_core::hand::HandValue;
use tidegate_core::room::{Feedback, Orders, REPORT_EVERY};
use tidegate_core::units::{Cost, Rate, Timestamp};
use tokio::net::TcpStream;

use crate::driver::Control;
use crate::settings::Role;
use tidegate_core::desk::Desk;

/// Longest an exchange may take before the next one is due anyway.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Longest time a report is believed to cover: a night with tokengen down.
const MAX_OVER: Duration = Duration::from_secs(24 * 3600);
/// Answers are far smaller.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// Tokengen's side: takes a report in, gives orders out.
///
/// # Errors
/// The report is not of the expected form, or this process keeps no schedule.
pub fn receive(control: &Control, report: &Value) -> Result<Value, String> {
    let Desk::Room(room) = &control.shared.desk else {
        return Err("this process keeps no schedule: report to the tokengen process".into());
    };
    let feedback = parse(report).ok_or_else(|| {
        format!("expected {{\"admitted\": N, \"over_ms\": MS, \"queued\": N, \"shown\": [[SECOND, N], ...]}} with N in hundredths; \
             got {report}")
    })?;
    let orders = room.feedback(&feedback);
    Ok(json!({
        "capacity": orders.capacity.get(),
        "hand_us": orders.hand.at.as_micros(),
        "follows_clock": orders.hand.follows_clock,
    }))
}

fn parse(report: &Value) -> Option<Feedback> {
    let cost = |v: &Value| v.as_u64().map(Cost::from_hundredths);
    let shown = report.get("shown")?.as_array()?;
    let shown = shown.iter().map(|pair| Some((pair.get(0)?.as_u64()?, cost(pair.get(1)?)?)));
    let over = match report.get("over_ms") {
        Some(ms) => Duration::from_millis(ms.as_u64()?).min(MAX_OVER),
        None => REPORT_EVERY,
    };
    Some(Feedback {
        admitted: cost(report.get("admitted")?)?,
        over,
        queued: cost(report.get("queued")?)?,
        shown: shown.collect::<Option<_>>()?,
    })
}

/// Tokencheck's side: reports until the process ends. Does nothing in the other roles.
pub async fn run(control: Arc<Control>) {
    let Desk::Checker { checker, capacity } = &control.shared.desk else { return };
    let mut unsent = Feedback::default();
    let mut reachable = true;
    loop {
        tokio::time::sleep(REPORT_EVERY).await;
        let live = control.shared.live.load_full();
        let Role::TokenCheck { feedback_url, feedback_token, .. } = &live.settings.role else { return };
        let report = checker.report(control.shared.gate.totals().queued_cost, control.shared.clock.now());
        merge(&mut unsent, report);
        let sent = tokio::time::timeout(TIMEOUT, exchange(feedback_url, feedback_token, &unsent));
        match sent.await.unwrap_or_else(|_| Err("no answer in time".into())) {
            Ok(orders) => {
                unsent = Feedback::default();
                checker.follow(orders, control.shared.clock.now());
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

/// What could not be sent goes with the next report; the room judges seconds for a minute at least.
pub fn merge(unsent: &mut Feedback, new: Feedback) {
    unsent.admitted += new.admitted;
    unsent.over = unsent.over.saturating_add(new.over);
    unsent.queued = new.queued;
    for (second, cost) in new.shown {
        match unsent.shown.iter_mut().rev().find(|(s, _)| *s == second) {
            Some((_, sum)) => *sum += cost,
            None => unsent.shown.push((second, cost)),
        }
    }
    const KEEP: usize = 2048;
    if unsent.shown.len() > KEEP {
        unsent.shown.drain(..unsent.shown.len() - KEEP);
    }
}

fn write(report: &Feedback) -> Value {
    let shown: Vec<_> = report.shown.iter().map(|(s, c)| json!([s, c.hundredths()])).collect();
    json!({
        "admitted": report.admitted.hundredths(),
        "over_ms": u64::try_from(report.over.as_millis()).unwrap_or(u64::MAX),
        "queued": report.queued.hundredths(),
        "shown": shown,
    })
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

async fn exchange(url: &str, token: &str, report: &Feedback) -> Result<Orders, BoxError> {
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
        sender.send_request(request.body(Full::new(Bytes::from(write(report).to_string())))?).await?;
    let status = answer.status();
    let bytes = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await?.to_bytes();
    driver.abort();
    if !status.is_success() {
        return Err(format!("{status}: {}", String::from_utf8_lossy(&bytes)).into());
    }
    let orders: Value = serde_json::from_slice(&bytes)?;
    read_orders(&orders).ok_or_else(|| format!("not orders: {orders}").into())
}

fn read_orders(orders: &Value) -> Option<Orders> {
    Some(Orders {
        capacity: Rate::per_second(orders.get("capacity")?.as_f64()?)?,
        hand: HandValue {
            at: Timestamp::from_micros(orders.get("hand_us")?.as_u64()?),
            follows_clock: orders.get("follows_clock")?.as_bool()?,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_survive_the_wire_and_a_lost_exchange() {
        let over = Duration::from_millis(500);
        let shown = vec![(5, Cost::ONE), (6, Cost::ONE)];
        let first = Feedback { admitted: Cost::ONE, over, queued: Cost::ONE, shown };
        let shown = vec![(6, Cost::ONE)];
        let second = Feedback { admitted: Cost::ONE, over: 3 * over, queued: Cost::ZERO, shown };
        let mut unsent = Feedback::default();
        merge(&mut unsent, first);
        merge(&mut unsent, second);
        let two = Cost::ONE + Cost::ONE;
        let shown = vec![(5, Cost::ONE), (6, two)];
        let sum = Feedback { admitted: two, over: 4 * over, queued: Cost::ZERO, shown };
        assert_eq!(unsent, sum);
        let wire = json!({ "admitted": 200, "over_ms": 2_000, "queued": 0, "shown": [[5, 100], [6, 200]] });
        assert_eq!(write(&sum), wire);
        assert_eq!(parse(&wire), Some(sum));
        for bad in [json!({}), json!({ "admitted": -1, "queued": 0, "shown": [] }), json!([1]), json!("x")] {
            assert_eq!(parse(&bad), None, "{bad}");
        }
    }

    #[test]
    fn the_time_a_report_covers_is_bounded_and_may_be_missing() {
        let with = |over_ms: Value| json!({ "admitted": 1, "over_ms": over_ms, "queued": 0, "shown": [] });
        let over = |wire: &Value| parse(wire).map(|feedback| feedback.over);
        let old = json!({ "admitted": 1, "queued": 0, "shown": [] });
        assert_eq!(over(&old), Some(REPORT_EVERY), "an old sender");
        assert_eq!(over(&with(json!(0))), Some(Duration::ZERO));
        assert_eq!(over(&with(json!(u64::MAX))), Some(MAX_OVER));
        for bad in [json!(-1), json!(0.5), json!("500"), json!(null)] {
            assert_eq!(over(&with(bad.clone())), None, "{bad}");
        }
        let endless = Feedback { over: Duration::MAX, ..Feedback::default() };
        let mut unsent = endless.clone();
        merge(&mut unsent, endless);
        assert_eq!(over(&write(&unsent)), Some(MAX_OVER));
    }
}
