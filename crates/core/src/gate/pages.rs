//! Whether a newcomer may go: the first request of a session ([`Lane::Newcomer`](crate::queue::Lane)).
//!
//! When a page has come, the browser requests all of its parts. So the pages whose first requests are at the
//! origin now tell what the origin will have to do one response time from now. Newcomers who go whenever an
//! in-flight slot is free leave no slots for their own parts, which then queue behind each other; meanwhile
//! no newcomer can go, and one response time later the slots are empty. Where all slots are in use, the first
//! requests of pages hold a fixed share of them (Little's law). Newcomers fill that share up, and no more:
//!
//! ```text
//! a newcomer goes while  P < max(2, s L)
//! P    requests at the origin that begin a page: of newcomers, and of sessions that had paused
//! L    in-flight slots
//! s    time that such requests spend at the origin, over that of all requests, over a minute
//! ```
//!
//! Requests of sessions under way count in `P` and never wait for it: the more pages they begin, the fewer
//! newcomers go. Where requests have no parts `s` is 1, and newcomers go whenever a slot is free. The law
//! needs no rate and no estimate of the capacity, and what was missed is made up for as soon as `P` is low
//! again. With few slots the parts of one page occupy all of them for several response times; the 2 is there
//! so that the next page has come by then.
//!
//! Rejected: newcomers at so much time from each other that their rate is a multiple of what visits can last
//! (`docs/sessions.md` has the figures: at five times the rate, bursts; at one, a lost slot is lost); a share
//! of newcomers alone (sessions begin two pages of three, by chance, and their parts come on top); 1.1 or
//! 1.25 times the share (no more goodput, newcomers wait less); a share of the slots that are free besides
//! (up to 5 % less goodput: each newcomer brings its parts a response time later, when the slots are taken).

use crate::decaying::{DecayingRatio, keep};
use crate::queue::Lane;
use crate::units::Timestamp;

/// Pages that may begin however few slots there are.
const LEAST: f64 = 2.0;
/// Memory of the share of slots, in seconds; what is older is forgotten once a second.
const MEMORY_S: f64 = 60.0;
const FORGET_EVERY_S: f64 = 1.0;

/// First requests of pages at the origin.
pub(super) struct Pages {
    /// `P`.
    at_origin: u32,
    /// `s`: slot-seconds of first requests of pages, over those of all requests.
    share: DecayingRatio,
    /// Until when the slot-seconds are counted, and when the old ones were forgotten.
    counted: Timestamp,
    forgotten: Timestamp,
    is_open: bool,
}

impl Default for Pages {
    fn default() -> Self {
        let (counted, forgotten) = (Timestamp::default(), Timestamp::default());
        Self { at_origin: 0, share: DecayingRatio::default(), counted, forgotten, is_open: true }
    }
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

    /// How many may be at the origin while a newcomer goes: `max(2, s L)`; `None`: any number.
    pub(super) fn most(&self, slots: Option<u32>) -> Option<f64> {
        let share = self.share.get().unwrap_or(1.0);
        slots.map(|slots| (share * f64::from(slots)).max(LEAST))
    }

    /// Decides anew whether a newcomer may go. `false`: as before.
    pub(super) fn decide(&mut self, slots: Option<u32>) -> bool {
        let is_open = self.most(slots).is_none_or(|most| f64::from(self.at_origin) < most);
        std::mem::replace(&mut self.is_open, is_open) != is_open
    }

    /// Whether a newcomer may go, as decided last.
    pub(super) fn are_open(&self) -> bool {
        self.is_open
    }
}
