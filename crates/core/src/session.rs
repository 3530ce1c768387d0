//! Sessions (WAC 2, 3.1 (f), 4): an admitted visitor keeps the service; only whole sessions are refused.
//!
//! "If the server does not respond to one of the requests [...] the requests that were responded correctly
//! have become useless". So a visitor is admitted once, with a *session slot*, and holds it until no request
//! came for [`SessionConfig::timeout`] and none was in progress, or until the session reaches its greatest
//! age. Requests of admitted sessions go first and are never refused for load. [`SessionConfig::cap`] sets
//! the number of slots; tiers may have slots of their own besides the common ones.
//!
//! ```text
//! request ─► touch ─┬─ Admitted ───────────────────────────────────► gate, in the lane of admitted sessions
//!                   └─ New, Ended ─► admission ─► admit ─┬─ a slot ► gate, likewise
//!                                                        └─ none ─► waiting room, or refused
//! finish (the last byte of the response is sent) ─► inactivity counts from here on
//! void (never reached the origin), end (origin, operator), leave (connection closed), tick ─► a free slot
//!
//! begun + readmitted == open + ended       slots taken == sessions open       after every step
//! ```
//!
//! **Parts.** `session/table.rs` has the sessions in 64 locked shards; a million entries take less than 128
//! MiB. `session/slot_pool.rs` has the slots, one word a pool, so that asking for a free slot takes no lock.
//! `session/cap_controller.rs` learns the cap, `session/turnover.rs` how fast slots become free. A session
//! that a request asks about expires to the millisecond, all others on the tick by a lazy timer wheel.
//!
//! **Ended early.** A session's pass is signed, so the visitor still has it. The key is therefore kept until
//! the pass has expired, without a slot, with the status [`SessionStatus::Ended`]. [`Sessions::readmit`] does
//! not bring it back, but it may begin anew. Without passes (sessions by an application's cookie or by
//! address) nothing has to be voided and nothing is kept ([`SessionConfig::remembers_ended`]).
//!
//! **Restart.** A valid pass of a session that the table does not know was given by another process. The
//! session is readmitted even beyond the cap, and no new session begins until the number is below the cap.
//!
//! Rejected: counting sessions by passes issued and expired only (no session could be ended early, and a slot
//! would be free only when its pass has expired); Eddie's rate of new sessions (WAC 2.2): sessions of another
//! length make another load of the same rate.

use std::sync::Mutex;
use std::time::Duration;

use crate::capacity::Trust;
use crate::decaying::DecayingRatio;
use crate::detect::SessionCount;
use crate::policies::TierId;
use crate::sync::{AtomicBool, AtomicF64, AtomicU64, Ordering, lock};
use crate::units::{Cost, Timestamp};

mod cap_controller;
mod entries;
mod entry;
mod forecast;
mod lower_bound;
pub mod slot_pool;
mod table;
mod turnover;
mod types;

use cap_controller::{CapController, Tick};
use entry::State;
pub use forecast::ExpectedSessions;
use forecast::{Forecast, ForecastSample};
use slot_pool::{PoolId, UNBOUNDED};
use table::{EndCause, SHARDS, Sums, Table};
use turnover::Scan;

pub use entry::SessionRequest;
pub use types::{
    Cap, Ender, Endings, LearnedSessions, NoSessionSlot, PoolState, SessionConfig, SessionInputs, SessionKey,
    SessionLine, SessionPace, SessionPage, SessionStatus, SessionsState,
};

/// Positions of a slab that are examined while its shard is locked.
const STRETCH: usize = 1_024;
/// Sessions on a page.
const MAX_PAGE: usize = 1_000;

/// All sessions of a process, shared by all workers.
pub struct Sessions {
    table: Table,
    begun: AtomicU64,
    readmitted: AtomicU64,
    refused: AtomicU64,
    /// The controller's [`SessionPace::per_s`] and [`SessionPace::next_s`] for readers without a lock.
    per_s: AtomicF64,
    next_s: AtomicF64,
    /// The controller's [`CapController::is_blind`], likewise.
    is_blind: AtomicBool,
    control: Mutex<Control>,
}

struct Control {
    cap: CapController,
    scan: Scan,
    forecast: Forecast,
    /// As of the last tick.
    sums: Sums,
    begun: u64,
    readmitted: u64,
    last: Timestamp,
}

impl Sessions {
    /// An empty table.
    pub fn new(config: &SessionConfig, now: Timestamp) -> Self {
        let control = Control {
            cap: CapController::new(config.cap),
            scan: Scan::default(),
            forecast: Forecast::default(),
            sums: Sums::default(),
            begun: 0,
            readmitted: 0,
            last: now,
        };
        let sessions = Self {
            table: Table::new(config, now),
            begun: AtomicU64::new(0),
            readmitted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            per_s: AtomicF64::new(0.0),
            next_s: AtomicF64::new(0.0),
            is_blind: AtomicBool::new(false),
            control: Mutex::new(control),
        };
        sessions.configure_cap(config.cap);
        sessions
    }

    /// Changes the configuration. Open sessions keep their slots, also beyond a lowered cap; those that are
    /// over by the new lifetimes end.
    pub fn configure(&self, config: &SessionConfig, now: Timestamp) {
        self.table.configure(config, now);
        self.configure_cap(config.cap);
    }

    /// The clock has stepped ahead to `now`: the machine was suspended, or its clock was wrong. Nobody could
    /// ask for anything in the time that was left out, so no session ends by it.
    pub fn clock_stepped(&self, now: Timestamp) {
        self.table.lifetimes.clock_stepped(now);
    }

    fn configure_cap(&self, cap: Cap) {
        let controller = &mut lock(&self.control).cap;
        controller.configure(cap, self.table.lifetimes.get().timeout);
        self.publish(controller);
    }

    fn publish(&self, controller: &CapController) {
        let limit = controller.limit(self.table.max_entries());
        self.table.pools.common().set(limit);
        // The pace is that of all slots being taken.
        let taken = self.table.pools.common().occupancy().taken;
        self.is_blind.store(controller.is_blind(), Ordering::Relaxed);
        let is_bound = !limit.is_closed && limit.bound != UNBOUNDED;
        self.per_s.store(controller.per_s(if is_bound { taken.max(limit.bound) } else { taken }));
        self.next_s.store(controller.next_s());
    }

    /// A request arrives: the status of its session. A request of an admitted session keeps the session alive
    /// until it ends, and its work is counted.
    pub fn touch(
        &self,
        key: SessionKey,
        cost: Cost,
        now: Timestamp,
    ) -> (SessionStatus, Option<SessionRequest>) {
        match self.table.lock(key, now).begin(key, cost) {
            Ok(request) => (SessionStatus::Admitted, Some(request)),
            Err(status) => (status, None),
        }
    }

    /// Whether the table has as many entries as it may: no session begins.
    pub fn is_table_full(&self) -> bool {
        !self.table.has_room()
    }

    /// The status that [`Sessions::touch`] would return; changes nothing.
    pub fn status(&self, key: SessionKey, now: Timestamp) -> SessionStatus {
        match self.table.lock(key, now).peek(key) {
            Some(entry) if entry.is_open() => SessionStatus::Admitted,
            Some(_) => SessionStatus::Ended,
            None => SessionStatus::New,
        }
    }

    /// The first request of a session: takes a slot for it, one of its tier before a common one. Of two first
    /// requests at once the second joins the session of the first.
    ///
    /// # Errors
    /// No slot is free, or the table is full.
    pub fn admit(
        &self,
        key: SessionKey,
        tier: TierId,
        cost: Cost,
        now: Timestamp,
    ) -> Result<SessionRequest, NoSessionSlot> {
        let admitted = self.admit_with(key, tier, cost, now, || self.table.pools.take(tier));
        if admitted.is_err() {
            self.count_refused();
        }
        admitted
    }

    /// As [`Sessions::admit`], also beyond the cap.
    ///
    /// # Errors
    /// The table is full.
    pub(crate) fn admit_beyond(
        &self,
        key: SessionKey,
        tier: TierId,
        cost: Cost,
        now: Timestamp,
    ) -> Result<SessionRequest, NoSessionSlot> {
        self.admit_with(key, tier, cost, now, || Some(self.table.pools.take_beyond(tier)))
    }

    /// As [`Sessions::admit`], with the tier's own slots only and without counting a refusal.
    pub(crate) fn admit_to_own(
        &self,
        key: SessionKey,
        tier: TierId,
        cost: Cost,
        now: Timestamp,
    ) -> Result<SessionRequest, NoSessionSlot> {
        if PoolId::own(tier) == PoolId::COMMON {
            return Err(NoSessionSlot::Taken);
        }
        self.admit_with(key, tier, cost, now, || self.table.pools.take_own(tier))
    }

    fn admit_with(
        &self,
        key: SessionKey,
        tier: TierId,
        cost: Cost,
        now: Timestamp,
        take: impl FnOnce() -> Option<PoolId>,
    ) -> Result<SessionRequest, NoSessionSlot> {
        let mut shard = self.table.lock(key, now);
        match shard.begin(key, cost) {
            Ok(request) => return Ok(request),
            Err(SessionStatus::New) if !self.table.has_room() => return Err(NoSessionSlot::TableFull),
            Err(_) => {}
        }
        let pool = take().ok_or(NoSessionSlot::Taken)?;
        self.begun.fetch_add(1, Ordering::Relaxed);
        Ok(shard.open(key, tier, pool, now, cost))
    }

    /// A request shows a valid pass of a session that is unknown here (after a restart, or of another
    /// process). The session is readmitted, also beyond the cap. `begun`: its first request. `None`: the
    /// session was ended early, is too old or finds the table full; it is new.
    pub fn readmit(
        &self,
        key: SessionKey,
        tier: TierId,
        begun: Timestamp,
        now: Timestamp,
    ) -> Option<SessionRequest> {
        let mut shard = self.table.lock(key, now);
        match shard.begin(key, Cost::ZERO) {
            Ok(request) => return Some(request),
            Err(SessionStatus::Ended) => return None,
            Err(_) => {}
        }
        if now.since(begun) > self.table.lifetimes.get().max_age || !self.table.has_room() {
            return None;
        }
        self.readmitted.fetch_add(1, Ordering::Relaxed);
        Some(shard.open(key, tier, self.table.pools.take_beyond(tier), begun.min(now), Cost::ZERO))
    }

    /// A request is over: the last byte of its response is sent, or its visitor has left. If no other one is
    /// in progress, the inactivity of its session counts from here on.
    pub fn finish(&self, mut request: SessionRequest, now: Timestamp) {
        let mut shard = self.table.lock_of(&mut request, now);
        shard.live(request.key());
        if let Some(entry) = shard.session_of(&request) {
            entry.finish(&request, now);
        }
    }

    /// A request never reached the origin. If it was the only one of its session, the slot is free at once
    /// and nothing is learned from the session.
    pub fn void(&self, mut request: SessionRequest, now: Timestamp) {
        let mut shard = self.table.lock_of(&mut request, now);
        shard.live(request.key());
        if shard.session_of(&request).is_some_and(|entry| !entry.void(&request, now)) {
            shard.remove(request.key(), EndCause::Void);
        }
    }

    /// The application renames a request's session. All requests in progress go along. If the new key is a
    /// session's already, the two become one; if that was ended early, so is this one. `false`: it is over.
    pub fn rename(&self, request: &mut SessionRequest, to: SessionKey, now: Timestamp) -> bool {
        let mut shards = self.table.lock_both(request, to, now);
        shards.from.live(request.key());
        let is_open = shards.from.session_of(request).is_some();
        if is_open && request.key() != to {
            shards.move_to(request, to);
        }
        is_open
    }

    /// Ends a session early and frees its slot. The key has the status [`SessionStatus::Ended`] until its
    /// pass has expired, or is forgotten ([`SessionConfig::remembers_ended`]). `false`: it was not open.
    pub fn end(&self, key: SessionKey, by: Ender, now: Timestamp) -> bool {
        let mut shard = self.table.lock(key, now);
        let is_open = shard.peek(key).is_some_and(|entry| entry.is_open());
        if is_open {
            shard.end(key, by);
        }
        is_open
    }

    /// The response to a request ends its session, but no other that has begun under the same key since.
    /// `false`: the session was not open any more.
    pub fn end_of(&self, request: &mut SessionRequest, by: Ender, now: Timestamp) -> bool {
        let mut shard = self.table.lock_of(request, now);
        let is_open = shard.session_of(request).is_some() && shard.peek(request.key()).is_some();
        if is_open {
            shard.end(request.key(), by);
        }
        is_open
    }

    /// The operator ends all open sessions; returns how many.
    pub fn end_all(&self, now: Timestamp) -> u64 {
        let mut ended = 0;
        for number in 0..SHARDS {
            for from in (0..).step_by(STRETCH) {
                let mut shard = self.table.lock_number(number, now);
                let Some(stretch) = shard.stretch(from, STRETCH) else { break };
                let open: Vec<_> = stretch.iter().filter(|e| e.is_open()).map(|e| e.key()).collect();
                ended += open.len() as u64;
                open.into_iter().for_each(|key| shard.end(key, Ender::Operator));
            }
        }
        ended
    }

    /// The key cannot come again (its connection is closed): its session ends as if it had expired, and is
    /// forgotten. `false`: it was not open.
    pub fn leave(&self, key: SessionKey, now: Timestamp) -> bool {
        let mut shard = self.table.lock(key, now);
        let is_open = shard.live(key).is_some_and(|entry| entry.is_open());
        if is_open {
            shard.remove(key, EndCause::Left);
        }
        is_open
    }

    /// A reload has renumbered the tiers: `tier_now` returns the new number of a tier, 0 where it is gone.
    /// Sessions keep their slots, which belong to the pool of the new number from now on.
    pub fn renumber(&self, tier_now: impl Fn(TierId) -> TierId) {
        for number in 0..SHARDS {
            let mut shard = self.table.lock_number(number, Timestamp::default());
            // Under one lock: a second batch would renumber sessions again that began in between.
            for entry in shard.stretch(0, usize::MAX).unwrap_or_default() {
                let tier = tier_now(entry.tier);
                if entry.state == State::Unused || tier == entry.tier {
                    continue;
                }
                let before = entry.pool();
                entry.set_tier(tier);
                if entry.is_open() && entry.pool() != before {
                    self.table.pools.transfer(before, entry.pool());
                }
            }
        }
    }

    /// A page of open sessions from where the last ended (0: first); those that begin or end may be missing.
    pub fn list(&self, from: u64, limit: usize) -> SessionPage {
        let limit = limit.clamp(1, MAX_PAGE);
        let mut sessions = Vec::new();
        let (mut number, mut position) = ((from >> 32) as usize, (from & u64::from(u32::MAX)) as usize);
        while number < SHARDS {
            let mut shard = self.table.lock_number(number, Timestamp::default());
            let Some(stretch) = shard.stretch(position, STRETCH) else {
                (number, position) = (number + 1, 0);
                continue;
            };
            for entry in stretch {
                if sessions.len() == limit {
                    return SessionPage { sessions, next: Some((number as u64) << 32 | position as u64) };
                }
                position += 1;
                if entry.is_open() {
                    sessions.push(entry.line());
                }
            }
        }
        SessionPage { sessions, next: None }
    }

    /// Whether a new session of that tier would get a slot. Takes no lock.
    pub fn has_slot(&self, tier: TierId) -> bool {
        self.table.pools.has_own(tier) || self.table.pools.has_common()
    }

    /// Whether the tier has a free slot of its own while all common ones are taken.
    pub(crate) fn has_own_slot_only(&self, tier: TierId) -> bool {
        self.table.pools.has_own(tier) && !self.table.pools.has_common()
    }

    pub(crate) fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// How fast new sessions may begin; `None`: without a bound, or it is not known yet.
    pub fn pace(&self) -> Option<SessionPace> {
        if self.is_blind.load(Ordering::Relaxed) {
            return None;
        }
        let free = self.table.pools.common().occupancy().free()?;
        Some(SessionPace { free: Some(free), per_s: self.per_s.load(), next_s: self.next_s.load() })
    }

    /// What open sessions will ask for, as of the last tick; `None`: too little is known.
    pub fn expected(&self) -> Option<ExpectedSessions> {
        lock(&self.control).forecast.expected
    }

    /// When a refused visitor should try again: when a slot becomes free, between a second and a minute.
    pub fn retry_after(&self) -> Duration {
        let wait_s = self.next_s.load() + 1.0 / self.per_s.load();
        let wait = Duration::try_from_secs_f64(wait_s).unwrap_or(Duration::MAX);
        wait.clamp(Duration::from_secs(1), Duration::from_secs(60))
    }

    /// Sessions open now, and begun since the start.
    pub fn count(&self) -> SessionCount {
        SessionCount { open: self.table.pools.taken(), begun: self.begun.load(Ordering::Relaxed) }
    }

    /// The control tick, every 100 ms or so: ends sessions that are over, and learns how many there may be.
    pub fn tick(&self, inputs: &SessionInputs<'_>, now: Timestamp) {
        self.table.expire_all(now);
        let control = &mut *lock(&self.control);
        let Control { cap, scan, forecast, sums: before, last, .. } = control;
        let (begun_before, readmitted_before) = (&mut control.begun, &mut control.readmitted);
        let dt_s = now.since(*last).as_secs_f64();
        *last = now.max(*last);
        let begun = self.begun.load(Ordering::Relaxed);
        let readmitted = self.readmitted.load(Ordering::Relaxed);
        let open_sessions = scan.tick(&self.table, forecast.pause_s(), begun, now);
        let sums = self.table.sums();
        let returned = |sums: &Sums| sums.work.saturating_sub(sums.first_page_work);
        let units = |now: u64, before: u64| now.saturating_sub(before) as f64 / 100.0;
        forecast.tick(&ForecastSample {
            dt_s,
            returns: (sums.returns - before.returns) as f64,
            pauses: (sums.pauses - before.pauses) as f64,
            pauses_s: (sums.pauses_ms - before.pauses_ms) as f64 / 1e3,
            begun: begun.saturating_sub(*begun_before) as f64,
            readmitted: readmitted.saturating_sub(*readmitted_before) as f64,
            first_page_work: units(sums.first_page_work, before.first_page_work),
            first_work: units(sums.first_work, before.first_work),
            work: units(returned(&sums), returned(before)),
            active: open_sessions.active + begun.saturating_sub(open_sessions.begun) as f64,
            remeasured: open_sessions.remeasured,
        });
        let begun_now = begun.saturating_sub(*begun_before) as f64;
        (*before, *begun_before, *readmitted_before) = (sums, begun, readmitted);
        cap.tick(&Tick {
            now,
            dt_s,
            begun: begun_now,
            inputs: *inputs,
            sums,
            open: self.table.pools.common().occupancy().taken,
            elsewhere: self.table.pools.taken_own(),
            open_sessions,
            refused: self.refused.load(Ordering::Relaxed),
            timeout: self.table.lifetimes.get().timeout,
            expected: forecast.expected,
        });
        self.publish(cap);
    }

    /// Figures of the sessions.
    pub fn state(&self) -> SessionsState {
        let cap = &lock(&self.control).cap;
        SessionsState {
            count: self.count(),
            readmitted: self.readmitted.load(Ordering::Relaxed),
            ended: self.table.sums().endings,
            refused: self.refused.load(Ordering::Relaxed),
            pools: self.table.pools.state(),
            entries: self.table.entries(),
            length_s: cap.turnover.length.get(),
            work: cap.turnover.work.get(),
            per_s: self.per_s.load(),
            is_held: cap.is_held(),
            correction: cap.correction,
        }
    }

    /// What the cap controller has learned; `None` while too little is known.
    pub fn learned(&self) -> Option<LearnedSessions> {
        let control = lock(&self.control);
        let pair = |ratio: DecayingRatio| (ratio.sum, ratio.over);
        let [pause, work, share, first, first_page] = control.forecast.learned()?.map(pair);
        let (correction, length) = control.cap.learned();
        Some(LearnedSessions { pause, work, share, first, first_page, correction, length: pair(length) })
    }

    /// Begins from what an earlier process has learned. For a new table, before the first visitor.
    pub fn resume(&self, learned: &LearnedSessions, trust: Trust) {
        let LearnedSessions { pause, work, share, first, first_page, correction, length } = *learned;
        let control = &mut *lock(&self.control);
        let ratio = |(sum, over)| DecayingRatio { sum, over };
        let is_sound = [correction, length.0, length.1].iter().all(|x| x.is_finite() && *x >= 0.0);
        if trust != Trust::Forgotten && is_sound {
            control.forecast.resume([pause, work, share, first, first_page].map(ratio), trust);
            control.cap.resume(correction, ratio(length), trust);
            self.publish(&control.cap);
        }
    }

    /// Bytes of the heap that the table uses.
    pub fn bytes(&self) -> usize {
        self.table.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::table::shard_of;
    use super::*;

    #[test]
    fn what_is_asked_for_in_the_first_seconds_is_the_first_page() {
        let start = Timestamp::from_secs(1_800_000_000);
        let sessions = Sessions::new(&SessionConfig::default(), start);
        let (key, at) = (SessionKey(1), |ms: u64| start + Duration::from_millis(ms));
        let admitted = sessions.admit(key, TierId(0), Cost::ONE, start).expect("a slot");
        sessions.finish(admitted, at(100));
        for ms in [200, 3_900, 4_100, 60_000] {
            let request = sessions.touch(key, Cost::from_hundredths(1_000), at(ms)).1.expect("it is open");
            sessions.finish(request, at(ms));
        }
        let sums = sessions.table.sums();
        assert_eq!((sums.work, sums.first_page_work, sums.first_work), (4_100, 2_100, 100));
    }

    #[test]
    fn notes_of_renames_go_with_the_requests_they_are_for() {
        let now = Timestamp::from_secs(1_800_000_000);
        let sessions = Sessions::new(&SessionConfig::default(), now);
        let notes = || sessions.table.notes();
        // In shards of their own and in one.
        let keys = [1, 2, 3, 65].map(SessionKey);
        assert_eq!(shard_of(keys[0]), shard_of(keys[3]));
        let begin = |key| sessions.touch(key, Cost::ONE, now).1.expect("it is open");
        let admit = |key| sessions.admit(key, TierId(0), Cost::ONE, now).expect("a slot");
        let mut login = admit(keys[0]);
        let [stream, poll, left] = [0; 3].map(|_| begin(keys[0]));
        assert_eq!(notes(), 0);
        for (n, to) in [1, 3, 0, 2].into_iter().enumerate() {
            assert!(sessions.rename(&mut login, keys[to], now));
            assert_eq!(notes(), n + 1);
        }
        // A request that follows all notes leaves them to the others; the last one removes them.
        sessions.finish(stream, now);
        assert_eq!(notes(), 4);
        // The session becomes one with another, which then ends.
        let other = admit(keys[1]);
        assert!(sessions.rename(&mut login, keys[1], now));
        assert_eq!(notes(), 5);
        sessions.finish(poll, now);
        assert!(sessions.end_of(&mut login, Ender::Origin, now));
        assert_eq!(notes(), 5);
        sessions.void(left, now);
        assert_eq!(notes(), 0);
        [login, other].into_iter().for_each(|request| sessions.finish(request, now));
        assert_eq!((notes(), sessions.count().open), (0, 0));
    }
}
