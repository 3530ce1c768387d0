//! When a newcomer may go: the first request of a session ([`Lane::Newcomer`](crate::queue::Lane)).
//!
//! When a page has come, the browser requests all of its parts. So the pages whose first requests are at the
//! origin now tell what the origin will have to do one response time from now. Newcomers who go whenever an
//! in-flight slot is free leave no slots for their own parts, which then queue behind each other; meanwhile
//! no newcomer can go, and one response time later the slots are empty. Where all slots are in use, the first
//! requests of pages hold a fixed share of them (Little's law). Newcomers fill that share up, and no more:
//!
//! ```text
//! a newcomer goes while  P < max(2, s (L - Q / 2)):
//!     in order of arrival with the requests of sessions while  Q < max(4, (1 - s) L / 2),
//!     else after all of them
//! P    requests at the origin that begin a page: of newcomers, and of sessions that had paused
//! L    in-flight slots
//! s    time that such requests spend at the origin, over that of all requests, over a minute
//! Q    requests of sessions that wait for a slot
//! ```
//!
//! How many parts come in a response time varies by chance. Newcomers who always go last can make up for few
//! parts only a response time too late; until then slots are empty while newcomers wait. So they go in their
//! turn as long as that costs little: where parts hold `(1 - s) L` slots, half as many requests that wait are
//! served within half a response time. `docs/sessions.md` has what that is worth. Where few slots are in use,
//! that is no request at all, and newcomers starved: with two slots a first page took longer than 5 s so
//! often that WAC's server had 24 to 25 good sessions a minute (`wac-fig6-7`, 40 clients). With four requests
//! it has 28 to 29, as in order of arrival; with three 26 to 28.
//!
//! Requests that wait are work for the slots, too. Where all requests last equally long and end in step,
//! those `Q` take the slots that the parts of a newcomer who goes now would get. Where they end at any time
//! the `Q` have gone when its parts come. So half of them count. Without that, whenever the estimator had
//! tried a higher limit, more and more requests of sessions waited until no newcomer could go, and one
//! response time later slots were empty. With it sessions wait 10 to 25 % less (p99) at the same goodput.
//!
//! Requests of sessions under way count in `P` and never wait for it: the more pages they begin, the fewer
//! newcomers go. Where requests have no parts `s` is 1, and newcomers go whenever a slot is free. The law
//! needs no rate and no estimate of the capacity, and what was missed is made up for as soon as `P` is low
//! again. With few slots the parts of one page occupy all of them for several response times; the 2 is there
//! so that the next page has come by then.
//!
//! Rejected: newcomers at so much time from each other that their rate is a multiple of what visits can last
//! (at five times the rate, bursts: sessions wait at the gate for three to ten response times; at one, a lost
//! slot is lost); a share of newcomers alone (sessions begin two pages of three, by chance, and their parts
//! come on top); 1.1 or 1.25 times the share (no more goodput, newcomers wait less); a share of the slots
//! that are free besides (up to 5 % less goodput: each newcomer brings its parts a response time later, when
//! the slots are taken); in order of arrival whatever waits (sessions wait for ten response times with 40
//! slots of 40 ms; also with `Q / 2`: for up to three response times, for .3 % more goodput); all of `Q` (at
//! origins whose service times vary .3 to .5 % less goodput).

use crate::decaying::{DecayingRatio, keep};
use crate::queue::Lane;
use crate::units::Timestamp;

/// Pages that may begin however few slots there are.
const LEAST: f64 = 2.0;
/// Part of the waiting requests of sessions that counts as work for the slots (`Q / 2`).
const WAITING_COUNTS: f64 = 0.5;
/// Share of the slots that parts hold: with so many requests of sessions waiting, newcomers go after them.
/// At 0.3 the goodput is up to 1 % lower, at 0.7 it is the same.
const WAITING_SHARE: f64 = 0.5;
/// So many may wait however few slots there are.
const LEAST_WAITING: f64 = 4.0;
/// Memory of the share of slots, in seconds; what is older is forgotten once a second.
const MEMORY_S: f64 = 60.0;
const FORGET_EVERY_S: f64 = 1.0;

/// When the first requests of sessions may go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Turn {
    /// In order of arrival with the requests of sessions under way.
    InOrder,
    #[default]
    AfterSessions,
    /// Not now: enough pages have begun.
    Never,
}

/// First requests of pages at the origin.
#[derive(Default)]
pub(super) struct Pages {
    /// `P`.
    at_origin: u32,
    /// `s`: slot-seconds of first requests of pages, over those of all requests.
    share: DecayingRatio,
    /// Until when the slot-seconds are counted, and when the old ones were forgotten.
    counted: Timestamp,
    forgotten: Timestamp,
    newcomers: Turn,
}

impl Pages {
    /// Lets time pass with so many requests at the origin.
    pub(super) fn pass(&mut self, in_flight: u32, now: Timestamp) {
        let dt_s = now.since(self.counted).as_secs_f64();
        self.counted = self.counted.max(now);
        if in_flight > 0 {
            self.share.add(f64::from(self.at_origin) * dt_s, f64::from(in_flight) * dt_s);
        }
        let since_s = now.since(self.forgotten).as_secs_f64();
        if since_s >= FORGET_EVERY_S {
            self.share.decay(keep(since_s, MEMORY_S));
            self.forgotten = now;
        }
    }

    /// A request of that lane goes.
    pub(super) fn went(&mut self, lane: Lane) {
        self.at_origin += u32::from(lane.begins_page());
    }

    /// A request of that lane has its answer.
    pub(super) fn answered(&mut self, lane: Lane) {
        self.at_origin = self.at_origin.saturating_sub(u32::from(lane.begins_page()));
    }

    /// `s`; 1 as long as nothing is known.
    fn share(&self) -> f64 {
        self.share.get().unwrap_or(1.0)
    }

    /// How many may be at the origin while a newcomer goes and so many requests of sessions wait:
    /// `max(2, s (L - Q / 2))`; `None`: any number.
    pub(super) fn most(&self, slots: Option<u32>, waiting: usize) -> Option<f64> {
        let taken = WAITING_COUNTS * waiting as f64;
        slots.map(|slots| (self.share() * (f64::from(slots) - taken)).max(LEAST))
    }

    /// How many requests of sessions may wait while newcomers go in order of arrival: fewer than
    /// `max(4, (1 - s) L / 2)`. Without a limit none waits for a slot.
    pub(super) fn most_waiting(&self, slots: Option<u32>) -> f64 {
        let share = WAITING_SHARE * (1.0 - self.share());
        slots.map_or(0.0, |slots| (share * f64::from(slots)).max(LEAST_WAITING))
    }

    /// Decides anew when newcomers may go, while so many requests of sessions wait. `false`: as before.
    pub(super) fn decide(&mut self, slots: Option<u32>, waiting: usize) -> bool {
        let newcomers = if self.most(slots, waiting).is_some_and(|most| f64::from(self.at_origin) >= most) {
            Turn::Never
        } else if (waiting as f64) < self.most_waiting(slots) {
            Turn::InOrder
        } else {
            Turn::AfterSessions
        };
        std::mem::replace(&mut self.newcomers, newcomers) != newcomers
    }

    /// Whether a newcomer may go, as decided last.
    pub(super) fn are_open(&self) -> bool {
        self.newcomers != Turn::Never
    }

    /// Whether requests of that lane go before ordinary ones and in order of arrival with each other, as
    /// decided last: those of sessions always, newcomers at times.
    pub(super) fn goes_first(&self, lane: Lane) -> bool {
        lane.is_of_session() || lane == Lane::Newcomer && self.newcomers == Turn::InOrder
    }
}
