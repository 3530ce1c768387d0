//! How fast places become free: what waits for one are told by.
//!
//! ```text
//! wait of the k-th  =  d + k L / N                            N  places
//! d  =  (R + 1) / (E + 1) * time until the first open session runs out, if it asks for nothing more     R of E ended so
//! L  =  max(M, min(C, timeout + A))                           how long a place is held
//! M  =  (their time + timeout) / (E + 1)                      of the E sessions that ended of late, and one of a timeout
//! C  =  (all time that places were held + timeout) / (E + 1)  open sessions' too
//! A                                                           mean age of open sessions
//! ```
//!
//! `M` alone is wrong at first: those that end first are the short ones, and until one has ended it says that all end after a timeout of
//! which nothing has passed. `C` counts those still open as well, which is the most likely value where sessions end with the same probability at every
//! age (a censored sample of an exponential distribution). They do not: none runs out before its timeout, so `C` is too high by as many times as there are
//! places until the first ones end. But whoever asks for something now has a place for another timeout: open sessions come to `timeout + A` at least, and
//! until there is better evidence that is what they are taken to come to. Once as many have ended as there are places, `M` and `C` agree.
//!
//! `d` is what no mean knows: a table that a crowd has filled gives no place back for a timeout, and then many. It counts as far as sessions
//! run out at all and are not ended by the origin or a logout. `E` is a memory of a hundred sessions.
//!
//! Rejected, with realised over told waits of a crowd of five times the load at 60 places (`lab/tests/sim/sessions.toml`; here: 0.78 to 0.88): `M` without `d`
//! (1.24 to 1.39; at WAC's server with 10 places the first to come waited 7.6 times as long as told, here twice); `C` (0.05 to 0.08: told to wait more than ten times
//! too long); the wait of each by the deadlines of all (a sorted table of them for every wait that is told, and nothing of use beyond a timeout).

use super::ratio::Ratio;

/// Sessions that the means go by.
const ENDED_MEMORY: f64 = 100.0;

/// What a tick has seen, of all sessions.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Turnover {
    /// Ended since the last tick, and how many of them had not run out.
    pub(super) ended: f64,
    pub(super) early: f64,
    /// Seconds that they held their places; and seconds that places were held by anybody since the last tick.
    pub(super) held_s: f64,
    pub(super) open_s: f64,
    /// Their work, in cost units.
    pub(super) work: f64,
    /// Until the first open session runs out, and their mean age.
    pub(super) next_s: f64,
    pub(super) age_s: f64,
}

/// What was learned.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Freed {
    /// Over sessions that ended: seconds, work, seconds of open ones too, and those that had not run out.
    length: Ratio,
    work: Ratio,
    held: Ratio,
    early: Ratio,
    next_s: f64,
    age_s: f64,
}

impl Freed {
    pub(super) fn learn(&mut self, seen: &Turnover) {
        let keep = ENDED_MEMORY / (ENDED_MEMORY + seen.ended);
        self.length.add(keep, seen.held_s, seen.ended);
        self.work.add(keep, seen.work, seen.ended);
        self.held.add(keep, seen.open_s, seen.ended);
        self.early.add(keep, seen.early, seen.ended);
        (self.next_s, self.age_s) = (seen.next_s, seen.age_s);
    }

    /// Places that become free per second, of so many.
    pub(super) fn per_s(&self, places: u32, timeout_s: f64) -> f64 {
        let ended = self.length.over + 1.0;
        let mean_s = (self.length.sum + timeout_s) / ended;
        let likely_s = (self.held.sum + timeout_s) / ended;
        let length_s = mean_s.max(likely_s.min(timeout_s + self.age_s));
        f64::from(places) / length_s.max(1e-3)
    }

    /// Seconds before the first of them can.
    pub(super) fn next_s(&self) -> f64 {
        let ended = self.early.over + 1.0;
        self.next_s * (ended - self.early.sum) / ended
    }

    /// Mean length of those that ended; `None`: none has.
    pub(super) fn length_s(&self) -> Option<f64> {
        self.length.get()
    }

    pub(super) fn work(&self) -> Option<f64> {
        self.work.get()
    }
}
