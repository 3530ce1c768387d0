//! The plan of levels: the ramp that finds the knee, the cruise that holds it, and the probes on either side.
//!
//! ```text
//! ramp     L = 1, 4, ×2, ×2, ... for a round each, until the fit shows a knee below L; back a level where
//!          requests do not come back, or where a round takes too long and the fit shows no knee yet
//! cruise   L = the best level (level.rs), fitted anew after every round; now and then a round
//!            up     above the cruise: can the origin do more by now?
//!            down   below the knee: how long does a response take without a wait? (unless that is known)
//! ```
//!
//! A round is a number of completions of requests that were sent in it: each level is judged by its own.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// Growing until the knee is passed.
    Ramp,
    Cruise,
    /// Above the cruise for a round.
    Up,
    /// Below the knee for a round.
    Down,
    /// Unchanged since the origin became slower, until the new speed is measured.
    Hold,
}

impl Purpose {
    /// What the room lets in over the capacity: enough to fill the limit while it grows. `round_s` is the
    /// length of a ramp's round at the present level, in seconds; `None` while nothing is known of it.
    pub fn gain(self, round_s: Option<f64>) -> f64 {
        match self {
            Self::Ramp => ramp_gain(round_s),
            Self::Up => 1.3,
            Self::Cruise | Self::Down | Self::Hold => 1.05,
        }
    }
}

/// Seconds from the admission of a visitor to the request: a waiting page polls about that often.
const TRANSIT_S: f64 = 1.0;
/// Most that a ramp lets in over the throughput. Visitors who are on their way when the knee is found
/// queue for long: with 4 and an initial estimate of 40, the 99th percentile of a first crowd's response
/// times at ten workers was 3.5 times the unloaded one, now it is below 3. With 12 it was 1.5 s at 100
/// workers of 50 ms.
const MOST_GAIN: f64 = 3.0;
/// Growth per round of a ramp: far from the knee; once the throughput lags behind; and with known contention.
pub(super) const DOUBLE: f64 = 2.0;
const CAREFUL: f64 = 1.6;
const GENTLE: f64 = 1.3;
/// Slowdown from which a ramp is careful.
const LAGGING: f64 = 1.15;
/// Most doublings at once, and the round trips that justify each. A fast origin is looked at every tick only,
/// and ten round trips at one level say as much of it as rounds at several levels would have.
const DOUBLINGS: u32 = 3;
const TRIPS_PER_DOUBLING: f64 = 3.0;
/// Completions of the first round, in which requests are sent one at a time: what a response takes without
/// any others, so that a collapse at the next level is recognised.
const ALONE: f64 = 2.0;
/// Completions in a round of a ramp beyond one for each request in flight. Rejected: 1 and 3 (one percent
/// less goodput on drawn origins), and three completions for each, which costs slow origins with many workers
/// most.
const RAMP_MORE: f64 = 2.0;
/// Requests are overdue where nothing has ended for so many responses, and for the time of so many
/// completions: less is common where workers serve in step, or where a few requests are long.
pub(super) const OVERDUE_RESPONSES: f64 = 3.0;
pub(super) const OVERDUE_COMPLETIONS: f64 = 8.0;
/// A round of a ramp is cut once its slots were taken for so many responses, as they were at lower levels,
/// and so many seconds, if at most so many times the work of lower levels ends in that time. At twice the
/// level requests wait for two responses at most, for more only with contention, and then the rest of the
/// round may take as long as all before it. Seconds: five ticks, in which a fast origin has answered anyway.
/// Mean and worst goodput of the drawn origins 1 to 60, 101 to 160 and 201 to 280 with 2.5, 3, 4 and 6
/// responses: .934 and .552, .938 and .573, .936 and .476, .932 and .418; never cut .926 and .283. However
/// much ends: .937 and .564, but of pages with parts at 160 workers in step 89 % were served instead of 98.
pub(super) const LONG_RESPONSES: f64 = 3.0;
pub(super) const LONG_S: f64 = 0.5;
pub(super) const LONG_SERVED: f64 = 2.0;
/// Completions per round: at dispersion 0, and in addition at dispersion 1.
const ROUND_LEAST: f64 = 10.0;
const ROUND_NOISE: f64 = 20.0;
/// Least time to hold where the origin became slower, in seconds. Neighbours and checkpoints are gone by
/// then; a probe down costs goodput, while holding costs response time only.
pub(super) const HOLD_SECONDS: f64 = 5.0;
/// Least length of a round of the cruise, in seconds.
const ROUND_SECONDS: f64 = 0.03;
/// Rounds between two probes up; where service varies so little that a short probe is enough; and with
/// contention, where they cost goodput.
const UP_EVERY: u32 = 7;
const UP_EVERY_QUIET: u32 = 4;
const QUIET: f64 = 0.3;
const UP_EVERY_CONTENDING: u32 = 20;
/// How far beyond the cruise they go at a dispersion of at least 1 (two fifths of it at 0); with contention.
const UP: f64 = 0.4;
const UP_CONTENDING: f64 = 1.25;
/// Rounds of a new cruise after which it is probed down, and then the period.
pub(super) const DOWN_AT: [u32; 3] = [3, 8, 16];
const DOWN_EVERY: u32 = 150;
/// The round with which a cruise continues at a new speed: two before a probe down, six before one up.
pub(super) const AT_NEW_SPEED: u32 = DOWN_AT[2] - 2;
/// Relative standard error of the response time without a wait below which no probe down is needed: a fifth
/// of what [`DOWN`] goes down by. Goodput of the named scenarios: .9827 with 0.02, .9834 with this.
pub(super) const KNOWN_BELOW: f64 = 0.05;
/// Least share of the knee for a probe down, and its contrast: 0.8 from a dispersion of 0.25 on, 0.88 at 0.
pub(super) const DOWN: f64 = 0.8;
pub(super) const DOWN_CONTRAST: f64 = 0.45;
/// The same after a fall, relative to the knee that remains if workers left. At a share x of the old knee,
/// responses take 1/x times as long if all workers became slower, and as long as at the old knee if some
/// left. For an origin that varies little 0.7 is enough.
pub(super) const FALLEN: f64 = 0.9;
pub(super) const FALLEN_CONTRAST: f64 = 1.27;
/// Share of the knee for a probe down where there are hardly any samples below it.
pub(super) const DOWN_AT_EDGE: f64 = 0.7;

/// What a ramp lets in over the throughput. Visitors admitted now arrive when the limit has doubled some more
/// times: as many as are needed now would find an empty queue; with long rounds, more would queue for long.
fn ramp_gain(round_s: Option<f64>) -> f64 {
    let doublings = 1.0 + round_s.map_or(0.0, |round_s| TRANSIT_S / round_s);
    DOUBLE.powf(doublings).min(MOST_GAIN)
}

/// How far down a probe goes, as a share of the knee: to `least` where service varies. Elsewhere only so far
/// that the effect exceeds the noise of a sample by `contrast` standard deviations (of logarithms).
pub(super) fn depth(least: f64, contrast: f64, dispersion: f64) -> f64 {
    least.max((-contrast * dispersion.max(0.0).sqrt()).exp())
}

/// Completions in a round at a limit, at a throughput of `per_second` requests.
pub(super) fn round_length(purpose: Purpose, limit: f64, dispersion: f64, per_second: f64) -> f64 {
    let least = ROUND_LEAST + ROUND_NOISE * dispersion.min(2.0);
    match purpose {
        Purpose::Ramp if limit < 2.0 => ALONE,
        Purpose::Ramp => limit.max(least.min(limit + RAMP_MORE)),
        Purpose::Hold => least,
        Purpose::Cruise => (2.0 * limit).max(least).max(ROUND_SECONDS * per_second),
        Purpose::Up | Purpose::Down => {
            ((1.0 + 2.0 * dispersion.min(1.0)) * limit).max(least).max(ROUND_SECONDS * per_second)
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RampRound {
    /// Response time over that without a wait.
    pub slowdown: f64,
    /// There is some evidence that the knee was passed.
    pub may_have_passed: bool,
    /// Contention is known from before.
    pub contends: bool,
    /// Completions per request in flight.
    pub trips: f64,
}

impl RampRound {
    /// The level of the next round as a multiple of this one.
    pub fn growth(&self) -> f64 {
        if self.may_have_passed {
            1.0
        } else if self.contends {
            GENTLE
        } else if self.slowdown > LAGGING {
            CAREFUL
        } else {
            // Rounds at L, 2L, ... need together as many completions as 2^n - 1 rounds at L.
            let at_once = (self.trips / TRIPS_PER_DOUBLING + 1.0).log2().floor();
            DOUBLE.powf(at_once.clamp(1.0, f64::from(DOUBLINGS)))
        }
    }
}

/// The purpose of the round after number `round` of a cruise.
pub(super) fn after(round: u32, contends: bool, dispersion: f64) -> Purpose {
    let up_every = match (contends, dispersion < QUIET) {
        (true, _) => UP_EVERY_CONTENDING,
        (false, true) => UP_EVERY_QUIET,
        (false, false) => UP_EVERY,
    };
    if DOWN_AT.contains(&round) || round % DOWN_EVERY == DOWN_EVERY - 1 {
        Purpose::Down
    } else if round % up_every == up_every - 1 {
        Purpose::Up
    } else {
        Purpose::Cruise
    }
}

/// How far up a probe goes, as a multiple of the cruise.
pub(super) fn up(contends: bool, dispersion: f64) -> f64 {
    if contends { UP_CONTENDING } else { 1.0 + UP * (0.4 + 0.6 * dispersion.min(1.0)) }
}
