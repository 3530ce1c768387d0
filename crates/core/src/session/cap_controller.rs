//! How many sessions there may be.
//!
//! WAC (4.3) sets the cap at 90 % of Little's law: sessions that the server can handle per minute times the mean session length.
//! With `C` the capacity, `w` the mean work of a session and `T` the mean time that it holds a place:
//!
//! ```text
//! cap  =  0.9 (C / w) T  =  0.9 C / g          g = w / T: work per second of an open session
//! ```
//!
//! Little's law holds for any mean over the same time, so `g` is learned as work of all sessions over the time that all of them were
//! open, over the last minute: known after a second, not after the first sessions have ended. The paper's experiment (4.2) shows
//! what is wrong with the number alone: "limiting the maximum number of simultaneous sessions at 10 appears to be too
//! restrictive". The capacity may be wrong by as much, so the gate's queue is the judge:
//!
//! ```text
//! W   seconds of admitted sessions' work that wait at the gate
//! W*  1.4 times what the room keeps there (`queue_target.rs`): 1.1 s at 3.5 requests a second, 0.29 s at 100, 0.18 s at 1,000; twice it,
//!     1.6, 0.41 and 0.26 s, where those beyond are refused; no more than a tenth of the longest wait there, nor less than two requests
//! hold        from W > 1.5 W* on until W < W*: no place is given
//! cap         k * (1 - 0.15 e) * 0.9 C / g, what levels of service have of their own included
//! e           W~ / W* - 1, at most 2
//! k' = -0.3 k e / T          while W~ > W*, or people are turned away or wait and all places are taken
//! k  -> 1 in ten minutes     while nobody is turned away
//! k' = -0.3 k s / T          instead of a rise, and down to 1 at most, while s = 2 (S - 1.5 S0) / W*, at most 2, is above 1
//! S, S0                      mean time of a request at the origin, of late and at its lowest
//! ```
//!
//! W* is what it takes to keep the origin busy: a tenth of a second, and a deviation of the requests that come in a second. More of it where whoever
//! finds no place is lost to the origin for a while, not at its door: a place too few costs more there. W~ is W over twenty requests, two seconds at
//! least. `k` follows it in a session's length, since what a session asks for comes over all of it. The queue adds up what is too much, and `k` adds
//! that up again: two integrals in a row swing unless something follows the error itself, as the 0.15 do. The hold is for crowds. From one
//! tick to the next no more places are given than the origin serves requests in W*, or ten: before anything is known a crowd would all
//! be admitted between two looks at the queue, and every one of them comes back.
//!
//! Where the gate lets too many requests to the origin at once, they wait there and not at the gate: `S`, by Little's law what is in flight
//! over what leaves, tells. It counts against the `e` below zero, and takes back what `k` was raised by, and no more: at `k` = 1 the cap is the paper's, and an origin that has
//! become slower, or whose requests differ, is not punished for it. `S0` is forgotten in ten minutes while nobody is turned away.
//! Where `C` is a guess (`session/belief.rs`), `s` above 1 refutes it: it is twice the best that was served, `B`, at most, and `k` may go down
//! to `B / C`. Once `C` is measured, `k` begins anew at 1.
//!
//! Before anything is learned there is no bound but the queue's. The cap is never below one nor above what the table holds.
//! A number fixed by the operator is that number: the law only learns how fast places become free (`session/freed.rs`).
//!
//! Lost: mean length times mean work of sessions that ended (the short ones end first: with a length of half an hour the cap stays
//! at a fraction of it for as long); refusing by the queue alone (it fills the origin to the brim, and every session that begins
//! then waits W* with each of its requests, where 90 % wait next to nothing); a cap that goes up whenever the queue is empty,
//! whether or not somebody is turned away (it is without bound after a calm night, and the morning's crowd finds it so); a dead band
//! from a tenth of W* to W*, with a fast fall above and a slow rise below (one short queue takes a third of the places, and it takes minutes
//! to give them back: 0.8 of the goodput that the damped law has at the paper's service); no damping (the same); as much waiting at an origin whose
//! capacity is a guess as at the gate (up to 29 good sessions per minute where it has 25, and 17 as often).

use std::time::Duration;

use super::freed::{Freed, Turnover};
use super::lower_bound::LowerBound;
use super::outlook::{Outlook, View};
use super::ratio::Ratio;
use super::slot_pool::UNBOUNDED;
use super::sums::Sums;
use super::types::{Cap, SessionInputs};
use crate::queue_target::queue_target;
use crate::units::{Cost, Rate, Timestamp};

/// Part of the capacity that sessions may make use of (WAC 4.3).
const SHARE: f64 = 0.9;
/// Mean wait aimed at, as a multiple of the one that the room keeps at the gate: where those beyond wait, and where they are lost.
const TARGET_WAITING: f64 = 1.4;
const TARGET_REFUSED: f64 = 2.0;
/// Not more than this part of the longest wait there.
const TARGET_SHARE: f64 = 0.1;
/// Nor less than so many average requests, where one takes long.
const TARGET_REQUESTS: f64 = 2.0;
/// Memory of the queue's wait and of what leaves it, in seconds; in requests, if that is longer.
const WAIT_MEMORY_S: f64 = 2.0;
const WAIT_MEMORY: f64 = 20.0;
/// No place is given from so many targets' wait on, until it is one.
const HOLD: f64 = 1.5;
/// Memory of the time at the origin, in seconds; in requests, if that is longer.
const STAY_MEMORY_S: f64 = 10.0;
/// Times the lowest, up to which it is no wait there.
const AT_EASE: f64 = 1.5;
/// Wait there that is as much too many, as a part of the one at the gate: it keeps nothing busy.
const THERE: f64 = 0.5;
/// Memory of the sessions' work, in seconds.
const WORK_MEMORY_S: f64 = 60.0;
/// So much work must have been seen, in cost units, and so long an open session, in seconds.
const LEAST_WORK: f64 = 20.0;
const LEAST_OPEN_S: f64 = 10.0;
/// How far the correction goes in a session's length for each target's worth of waiting too many or too few; how many too many count.
const PACE: f64 = 0.3;
const MOST_OVER: f64 = 2.0;
/// Part of the cap that goes at once with each of them.
const DAMPING: f64 = 0.15;
/// A session's length that it goes by, in seconds.
const LENGTH_RANGE: std::ops::RangeInclusive<f64> = 10.0..=300.0;
/// Time in which it is forgotten while nobody is turned away, in seconds.
const REST_S: f64 = 600.0;
const CORRECTION_RANGE: std::ops::RangeInclusive<f64> = 0.1..=10.0;
/// Whoever was turned away so long ago still wants in.
const WANTED: Duration = Duration::from_secs(2);
/// Places given from one tick to the next in any case.
const LEAST_STEP: f64 = 10.0;

/// What a tick sees.
pub(super) struct Ticked<'a> {
    pub(super) seen: SessionInputs<'a>,
    /// Since the start.
    pub(super) sums: Sums,
    /// Everybody's places that are taken, and those of levels with their own.
    pub(super) open: u32,
    pub(super) elsewhere: u32,
    /// What all of them say of the places that become free next.
    pub(super) view: View,
    /// Since the start.
    pub(super) refused: u64,
    pub(super) timeout: Duration,
}

/// The law's state.
pub(super) struct CapController {
    cap: Cap,
    last: Timestamp,
    sums: Sums,
    refused: u64,
    /// When somebody was last turned away or waited, and when somebody waited.
    wanted: Option<Timestamp>,
    waited: Option<Timestamp>,
    forwarded: Option<Cost>,
    belief: LowerBound,
    /// Work that leaves the gate's queue per second.
    flow: Ratio,
    /// Seconds of sessions' work that wait, as of late.
    wait_s: f64,
    /// Time of a request at the origin, in seconds: of late, and the lowest.
    stay: Ratio,
    quickest_s: Option<f64>,
    is_held: bool,
    correction: f64,
    /// Part of the cap by the error itself.
    damping: f64,
    /// Work per second of an open session.
    load: Ratio,
    /// Of sessions that ended, and how fast places become free.
    freed: Freed,
    pub(super) outlook: Outlook,
    timeout_s: f64,
    /// Places of everybody; `None`: as many as come.
    bound: Option<f64>,
}

impl CapController {
    pub(super) fn new(cap: Cap, now: Timestamp) -> Self {
        Self {
            cap,
            last: now,
            sums: Sums::default(),
            refused: 0,
            wanted: None,
            waited: None,
            forwarded: None,
            belief: LowerBound::default(),
            flow: Ratio::default(),
            wait_s: 0.0,
            stay: Ratio::default(),
            quickest_s: None,
            is_held: false,
            correction: 1.0,
            damping: 1.0,
            load: Ratio::default(),
            freed: Freed::default(),
            outlook: Outlook::default(),
            timeout_s: 0.0,
            bound: None,
        }
    }

    pub(super) fn configure(&mut self, cap: Cap, timeout: Duration) {
        self.timeout_s = timeout.as_secs_f64();
        if cap != self.cap {
            (self.cap, self.is_held, self.correction, self.damping, self.bound) =
                (cap, false, 1.0, 1.0, None);
        }
    }

    /// Places of everybody, and whether none is given at present.
    pub(super) fn bound(&self, max_entries: usize) -> (u32, bool) {
        let most = u32::try_from(max_entries).unwrap_or(UNBOUNDED).clamp(1, UNBOUNDED - 1);
        match self.cap {
            Cap::None => (UNBOUNDED, false),
            Cap::Fixed(places) => (places.clamp(1, most), false),
            // Before the first tick too: a crowd that is there first meets a law that has seen nothing.
            Cap::Discovered => {
                let bound = self.bound.unwrap_or(LEAST_STEP);
                ((bound as u32).clamp(1, most), self.is_held)
            }
        }
    }

    pub(super) fn tick(&mut self, ticked: &Ticked<'_>, now: Timestamp) {
        let dt_s = now.since(self.last).as_secs_f64();
        self.last = self.last.max(now);
        self.timeout_s = ticked.timeout.as_secs_f64();
        self.learn(ticked, dt_s);
        let is_wanted = self.note_wanted(ticked, now);
        let sent = self.sent(&ticked.seen);
        if self.belief.see(sent, dt_s, ticked.seen.is_measured) {
            self.correction = 1.0;
        }
        let is_waited = self.waited.is_some_and(|at| now.since(at) <= WANTED);
        let target = if is_waited { TARGET_WAITING } else { TARGET_REFUSED };
        let target_s = self.look_at_gate(&ticked.seen, sent, target, dt_s);
        self.look_at_origin(&ticked.seen, sent, is_wanted, dt_s);
        if self.cap != Cap::Discovered || dt_s <= 0.0 {
            return;
        }
        let all = ticked.open + ticked.elsewhere;
        self.correct(target_s, is_wanted, all, ticked.seen.capacity, dt_s);
        let served = self.flow.get().unwrap_or(0.0) * target_s / self.request(&ticked.seen);
        let step = served.max(LEAST_STEP);
        let little = self.little(ticked.seen.capacity).map(|cap| cap - f64::from(ticked.elsewhere));
        let most = f64::from(ticked.open) + step;
        self.bound = Some(little.map_or(most, |little| little.min(most)).max(1.0));
    }

    /// What sessions are: the load of an open one, the length and the work of a whole one.
    fn learn(&mut self, ticked: &Ticked<'_>, dt_s: f64) {
        let (before, sums) = (std::mem::replace(&mut self.sums, ticked.sums), &ticked.sums);
        let keep = (-dt_s / WORK_MEMORY_S).exp();
        let work = sums.work.saturating_sub(before.work) as f64 / 100.0;
        let open_s = f64::from(ticked.open + ticked.elsewhere) * dt_s;
        self.load.add(keep, work, open_s);
        self.freed.learn(&Turnover {
            ended: sums.whole.saturating_sub(before.whole) as f64,
            early: sums.endings.early().saturating_sub(before.endings.early()) as f64,
            held_s: sums.held_ms.saturating_sub(before.held_ms) as f64 / 1e3,
            open_s,
            work: sums.whole_work.saturating_sub(before.whole_work) as f64 / 100.0,
            next_s: ticked.view.next.as_secs_f64(),
            age_s: ticked.view.age_s,
        });
    }

    fn note_wanted(&mut self, ticked: &Ticked<'_>, now: Timestamp) -> bool {
        let before = std::mem::replace(&mut self.refused, ticked.refused);
        if ticked.refused > before || ticked.seen.waiting > 0 {
            self.wanted = Some(now);
        }
        if ticked.seen.waiting > 0 {
            self.waited = Some(now);
        }
        self.wanted.is_some_and(|at| now.since(at) <= WANTED)
    }

    /// Work that went to the origin since the last tick, in cost units.
    fn sent(&mut self, seen: &SessionInputs<'_>) -> f64 {
        let now = seen.gate.forwarded_cost;
        let before = self.forwarded.replace(now).unwrap_or(now);
        now.saturating_sub(before).units()
    }

    /// What is left after `dt_s` of a memory of so many seconds, or of [`WAIT_MEMORY`] requests if they take longer.
    fn keep(&self, seen: &SessionInputs<'_>, least_s: f64, dt_s: f64) -> f64 {
        let requests_s = WAIT_MEMORY * self.request(seen) / self.flow_per_s(seen).max(1e-3);
        (-dt_s / least_s.max(requests_s).min(WORK_MEMORY_S)).exp()
    }

    /// Sets the hold; returns the wait aimed at, in seconds.
    fn look_at_gate(&mut self, seen: &SessionInputs<'_>, sent: f64, target: f64, dt_s: f64) -> f64 {
        let (gate, request) = (seen.gate, self.request(seen));
        let keep = self.keep(seen, WAIT_MEMORY_S, dt_s);
        self.flow.add(keep, sent, dt_s);
        let per_s = self.flow_per_s(seen).max(1e-6);
        let wait_s = if gate.admitted == 0 { 0.0 } else { gate.admitted_cost.units() / per_s };
        let target_s = target_s(target, gate.max_queue_wait, request, per_s);
        self.wait_s += (wait_s.min(100.0 * target_s) - self.wait_s) * (1.0 - keep);
        self.is_held = wait_s > if self.is_held { target_s } else { HOLD * target_s };
        target_s
    }

    /// How long requests stay at the origin, and how long they would if none waited there.
    fn look_at_origin(&mut self, seen: &SessionInputs<'_>, sent: f64, is_wanted: bool, dt_s: f64) {
        let keep = self.keep(seen, STAY_MEMORY_S, dt_s);
        self.stay.add(keep, seen.gate.in_flight_cost.units() * dt_s, sent);
        // A few requests are no mean.
        let is_known = self.stay.over >= WAIT_MEMORY / 2.0 * self.request(seen);
        let Some(stay_s) = self.stay.get().filter(|_| is_known) else { return };
        let quickest_s = self.quickest_s.get_or_insert(stay_s);
        if stay_s < *quickest_s {
            *quickest_s = stay_s;
        } else if !is_wanted {
            *quickest_s += (stay_s - *quickest_s) * (1.0 - (-dt_s / REST_S).exp());
        }
    }

    /// Wait at the origin, in seconds.
    fn wait_there_s(&self) -> f64 {
        let (Some(stay_s), Some(quickest_s)) = (self.stay.get(), self.quickest_s) else { return 0.0 };
        stay_s - AT_EASE * quickest_s
    }

    /// Work per second that the origin takes: as seen, but not less than a quarter of what is believed. The belief lags behind an
    /// origin that has become slow; the sight is nothing where nobody comes.
    fn flow_per_s(&self, seen: &SessionInputs<'_>) -> f64 {
        let seen_per_s = self.flow.get().unwrap_or(0.0);
        let believed_per_s = self.belief.capacity(seen.capacity.get());
        if seen.capacity >= Rate::MAX { seen_per_s } else { seen_per_s.max(believed_per_s / 4.0) }
    }

    /// An average request that waits, in cost units.
    fn request(&self, seen: &SessionInputs<'_>) -> f64 {
        match seen.gate.admitted {
            0 => Cost::ONE.units(),
            waiting => seen.gate.admitted_cost.units() / waiting as f64,
        }
    }

    fn correct(&mut self, target_s: f64, is_wanted: bool, open: u32, capacity: Rate, dt_s: f64) {
        let over = self.wait_s / target_s - 1.0;
        let is_filled = self.little(capacity).is_some_and(|cap| f64::from(open) + 1.0 > cap);
        let length_s =
            self.length_s().unwrap_or(self.timeout_s).clamp(*LENGTH_RANGE.start(), *LENGTH_RANGE.end());
        let there = self.wait_there_s() / (target_s * THERE);
        // Nothing at the gate is no room for more as far as something waits at the origin.
        let error = if over < 0.0 { (over + there.max(0.0)).min(0.0) } else { over };
        self.damping = 1.0 - DAMPING * error.min(MOST_OVER);
        let (mut least, most) = (*CORRECTION_RANGE.start(), *CORRECTION_RANGE.end());
        let rate = if there > 1.0 && over <= 0.0 {
            // Not below the paper's number on this evidence, for what the origin has shown that it serves.
            self.belief.refute();
            least = self.correction.min(self.belief.certain(capacity.get()));
            -PACE * there.min(MOST_OVER) / length_s
        } else if over > 0.0 || is_wanted && is_filled {
            -PACE * error.min(MOST_OVER) / length_s
        } else if !is_wanted {
            -self.correction.ln() / REST_S
        } else {
            0.0
        };
        self.correction = (self.correction * (rate * dt_s).exp()).clamp(least, most);
    }

    /// The paper's cap, corrected; `None`: too little is known.
    fn little(&self, capacity: Rate) -> Option<f64> {
        let is_known = self.load.sum >= LEAST_WORK && self.load.over >= LEAST_OPEN_S;
        if !is_known || capacity >= Rate::MAX || capacity == Rate::ZERO {
            return None;
        }
        let load = self.load.get().filter(|load| *load > 0.0)?;
        Some(self.damping * self.correction * SHARE * self.belief.capacity(capacity.get()) / load)
    }

    /// Places that become free per second, of so many, and seconds before the first of them can.
    pub(super) fn pace(&self, places: u32) -> (f64, f64) {
        (self.freed.per_s(places, self.timeout_s), self.freed.next_s())
    }

    pub(super) fn length_s(&self) -> Option<f64> {
        self.freed.length_s()
    }

    pub(super) fn work(&self) -> Option<f64> {
        self.freed.work()
    }

    pub(super) fn is_held(&self) -> bool {
        self.is_held && self.cap == Cap::Discovered
    }

    pub(super) fn correction(&self) -> f64 {
        self.correction
    }
}

/// Wait aimed at, in seconds, where requests of so much work each leave the gate at `per_s`, and may wait there for so long; `target`: as a
/// multiple of what the room keeps there.
fn target_s(target: f64, longest: Duration, request: f64, per_s: f64) -> f64 {
    let kept_s = queue_target(per_s, request, f64::MAX) / per_s;
    (target * kept_s).min(longest.as_secs_f64() * TARGET_SHARE).max(TARGET_REQUESTS * request / per_s)
}
