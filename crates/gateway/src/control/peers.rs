//! The link between several tokenchecks: carries claims to the owners of tickets, and answers those of others
//! (`tidegate_core::room::OwnerAnswer`). JSON over the admin listeners.
//!
//! ```text
//! POST /v1/claims  {"count": TOKENCHECKS, "to": NUMBER, "from": NUMBER,
//!                   "claims": [[DUE_MS, ARRIVED_MS, NONCE, CLAIM], ...], "releases": [the same, ...]}
//! answer           {"answers": ["granted", "used" or "unknown", ...]}
//! ```
//!
//! One message is under way to each tokencheck; what is asked meanwhile goes with the next. A tokencheck that
//! does not answer is not asked again until it does: visitors whose tickets it owns are told at once to come
//! again. Releases are kept for it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use tidegate_core::room::{Claim, OwnerAnswer};
use tidegate_core::units::Timestamp;
use tokio::sync::oneshot;

use crate::shared::Shared;
use crate::shared::peers::PeerMessage;
use crate::upstream::body::BoxError;
use crate::upstream::client::{Call, at_path};
use crate::upstream::tls::ClientTls;
use tidegate_core::admission::Admission;
use tidegate_settings::Role;

/// Longest time of one exchange: a visitor waits for it.
const TIMEOUT: Duration = Duration::from_secs(1);
/// A tokencheck that did not answer is tried again so often.
const RETRY: Duration = Duration::from_millis(500);
/// Claims and releases in one message, which is then smaller than what the admin API takes.
const MAX_ROWS: usize = 256;
/// Releases kept for a tokencheck that does not answer. Tickets of further ones are lost to their visitors.
const MAX_RELEASES: usize = 10_000;
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// What became of claims, in their order.
#[derive(Serialize, JsonSchema)]
pub struct ClaimAnswers {
    /// Of each claim: "granted", "used" or "unknown".
    answers: Vec<&'static str>,
}

/// The owner's side.
///
/// # Errors
/// What is wrong with the message.
pub fn receive(shared: &Shared, message: &Value) -> Result<ClaimAnswers, String> {
    let (Admission::Checker { checker, .. }, Some(peers)) = (&shared.admission, &shared.peers) else {
        return Err("this process is not one of several tokenchecks (tokencheck.peers)".into());
    };
    let own = peers.member;
    let number = |name: &str| message.get(name).and_then(Value::as_u64);
    if (number("count"), number("to")) != (Some(own.count.into()), Some(own.number.into())) {
        return Err(format!(
            "expected a message to tokencheck {} of {}: tokencheck.peers and number must be the same list and \
             the position in it everywhere; got one to {} of {}",
            own.number, own.count, message["to"], message["count"]
        ));
    }
    let rows = |name: &str| parse(message, name);
    let (Some(claims), Some(releases)) = (rows("claims"), rows("releases")) else {
        return Err(format!(
            "expected {{\"count\": N, \"to\": N, \"from\": N, \"claims\": [[DUE_MS, ARRIVED_MS, NONCE, CLAIM], ...], \
             \"releases\": [...]}}; got {message}"
        ));
    };
    let now = shared.clock.now();
    releases.iter().for_each(|claim| checker.release(claim));
    let answers = claims.iter().map(|claim| {
        let answer = checker.grant(claim, now);
        if answer == OwnerAnswer::Granted {
            // Before the answer goes out: it outlives this process.
            shared.redeemed.note_granted(claim);
        }
        name(answer)
    });
    Ok(ClaimAnswers { answers: answers.collect() })
}

const NAMES: [(OwnerAnswer, &str); 3] =
    [(OwnerAnswer::Granted, "granted"), (OwnerAnswer::Used, "used"), (OwnerAnswer::Unknown, "unknown")];

fn name(answer: OwnerAnswer) -> &'static str {
    NAMES.iter().find(|(known, _)| *known == answer).map_or("unknown", |(_, name)| name)
}

fn parse(message: &Value, name: &str) -> Option<Vec<Claim>> {
    let by = u16::try_from(message.get("from")?.as_u64()?).ok()?;
    let row = |row: &Value| {
        let [due, arrived, nonce, number] = row.as_array()?.as_slice() else { return None };
        let millis = |value: &Value| Some(Timestamp::from_millis(value.as_u64()?));
        let (due, arrived) = (millis(due)?, millis(arrived)?);
        Some(Claim { due, arrived, nonce: nonce.as_u64()?, by, number: number.as_u64()? })
    };
    message.get(name)?.as_array()?.iter().map(row).collect()
}

fn row(claim: &Claim) -> Value {
    json!([claim.due.as_millis(), claim.arrived.as_millis(), claim.nonce, claim.number])
}

/// The asker's side: carries messages until the process ends.
pub fn spawn(shared: &Arc<Shared>) {
    let Some(peers) = &shared.peers else { return };
    for number in (1..=peers.member.count).filter(|number| *number != peers.member.number) {
        tokio::spawn(run(shared.clone(), number));
    }
}

type Tell = oneshot::Sender<OwnerAnswer>;

async fn run(shared: Arc<Shared>, number: u16) {
    let Some(peers) = &shared.peers else { return };
    let Some(mut inbox) = peers.take_inbox(number) else { return };
    let (mut releases, mut is_reachable) = (Vec::new(), true);
    loop {
        let mut messages = Vec::new();
        let taken = inbox.recv_many(&mut messages, MAX_ROWS);
        if is_reachable && releases.is_empty() {
            if taken.await == 0 {
                return;
            }
        } else {
            _ = tokio::time::timeout(RETRY, taken).await;
        }
        let mut claims: Vec<(Claim, Tell)> = Vec::new();
        for message in messages {
            match message {
                PeerMessage::Claim(claim, tell) => claims.push((claim, tell)),
                PeerMessage::Release(claim) if releases.len() < MAX_RELEASES => releases.push(claim),
                PeerMessage::Release(_) => {}
            }
        }
        // Its visitor has left.
        claims.retain(|(_, tell)| !tell.is_closed());
        let sent = releases.len().min(MAX_ROWS);
        let live = shared.config.load_full();
        let Role::TokenCheck { peers: urls, link_token, .. } = &live.settings.role else { return };
        let Some(url) = urls.get(usize::from(number - 1)) else { return };
        let message = json!({
            "count": peers.member.count,
            "to": number,
            "from": peers.member.number,
            "claims": claims.iter().map(|(claim, _)| row(claim)).collect::<Vec<_>>(),
            "releases": releases[..sent].iter().map(row).collect::<Vec<_>>(),
        });
        let answered = exchange(url, live.calls_tls.as_deref(), link_token, &message, claims.len()).await;
        is_reachable = answered.is_ok();
        let was_reachable = peers.set_reachable(number, is_reachable);
        match answered {
            Ok(answers) => {
                releases.drain(..sent);
                for ((_, tell), answer) in claims.into_iter().zip(answers) {
                    // Without its visitor the claim is released by its guard.
                    let _ = tell.send(answer);
                }
                if !was_reachable {
                    tracing::info!(number, "tokencheck answers again: its tickets are admitted here");
                }
            }
            // Claims without an answer are not known.
            Err(error) if was_reachable => tracing::warn!(
                %error, number, %url,
                "tokencheck does not answer: visitors whose tickets belong to it wait"
            ),
            Err(_) => {}
        }
    }
}

async fn exchange(
    url: &str,
    tls: Option<&ClientTls>,
    token: &str,
    message: &Value,
    claims: usize,
) -> Result<Vec<OwnerAnswer>, BoxError> {
    let url = at_path(url, "/v1/claims")?;
    let mut request = Request::post(url).header(CONTENT_TYPE, "application/json");
    if !token.is_empty() {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(Bytes::from(message.to_string()))?;
    let call = Call { request, replica: None, tls, timeout: TIMEOUT, max_body: Some(MAX_ANSWER_BYTES) };
    let (answer, bytes) = call.send().await?.into_parts();
    if !answer.status.is_success() {
        return Err(format!("{}: {}", answer.status, String::from_utf8_lossy(&bytes)).into());
    }
    let told: Value = serde_json::from_slice(&bytes)?;
    let rows = told["answers"].as_array().filter(|rows| rows.len() == claims);
    let known = |row: &Value| NAMES.iter().find(|(_, name)| row == name).map(|(answer, _)| *answer);
    let answers = rows.and_then(|rows| rows.iter().map(known).collect());
    answers.ok_or_else(|| format!("expected {claims} answers to as many claims; got {told}").into())
}
