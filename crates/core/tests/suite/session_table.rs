//! Sessions for tests: times, keys, and requests that end at once.

use std::time::Duration;

use tidegate_core::gate::Totals;
use tidegate_core::policies::TierId;
use tidegate_core::session::*;
use tidegate_core::units::{Cost, Rate, Timestamp};

pub const START: Timestamp = Timestamp::from_secs(1_800_000_000);
pub const TIER: TierId = TierId(0);

pub fn at(ms: u64) -> Timestamp {
    START + Duration::from_millis(ms)
}

pub fn key(n: u128) -> SessionKey {
    SessionKey(n.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

pub fn admit(sessions: &Sessions, n: u128, tier: TierId, now: Timestamp) -> Result<(), NoSessionSlot> {
    sessions.admit(key(n), tier, Cost::ONE, now).map(|request| sessions.finish(request, now))
}

pub fn touch(sessions: &Sessions, n: u128, now: Timestamp) -> SessionStatus {
    let (status, request) = sessions.touch(key(n), Cost::ONE, now);
    request.into_iter().for_each(|request| sessions.finish(request, now));
    status
}

/// A tick at an idle gate, with one visitor waiting or none.
pub fn tick(sessions: &Sessions, waiting: u64, now: Timestamp) {
    let gate = Totals::default();
    sessions.tick(&SessionInputs { capacity: Rate::MAX, is_measured: true, gate: &gate, waiting }, now);
}
