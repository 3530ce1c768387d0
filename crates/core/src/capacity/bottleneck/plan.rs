//! The plan of levels: the ramp that finds the knee, the cruise that holds it, and the probes on either side.
//!
//! ```text
//! ramp     L grows until the fit shows a knee below it (ramp.rs)
//! cruise   L = the best level (level.rs), fitted anew after every round; now and then a round
//!            up     above the cruise: can the origin do more by now?
//!            down   below the knee: how long does a response take without a wait? (unless that is known)
//! ```
//!
//! A round is a number of completions of requests that were sent in it: each level is judged by its own. A
//! probe down costs goodput, so that it lasts only until it would show a lower knee. At 400 drawn origins
//! with two seeds each .9484 is served at 1.513, and .9461 at 1.488 where they last as long as those up.

use super::fit;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// Growing until the knee is passed.
    Ramp,
    Cruise,
    /// Above the cruise for a round.
    Up,
    /// Below the knee for a round.
    Down,
}

impl Purpose {
    /// What the room lets in over the capacity: enough to fill the limit while it grows. `is_measured`: the
    /// capacity is a throughput, and not the initial estimate.
    pub fn gain(self, is_measured: bool) -> f64 {
        match self {
            Self::Ramp if is_measured => RAMP_GAIN,
            Self::Ramp => FIRST_GAIN,
            Self::Up => 1.3,
            Self::Cruise | Self::Down => 1.05,
        }
    }
}

/// What a ramp lets in over the throughput. A visitor admitted now arrives about a second later, when the
/// limit may have doubled several times: as many as are needed now would find an empty queue. Those who are
/// on their way when the knee is found queue for long: with 12 the 99th percentile of a first crowd's
/// response times at 100 workers of 50 ms was 1.5 s.
const RAMP_GAIN: f64 = 3.0;
/// The same over the initial estimate. With 3 the 99th percentile of a first crowd's response times at ten
/// workers of 100 ms was 473 ms, with 2 it was 291 ms (24 seeds; 274 ms since the search grows with the first
/// answer).
const FIRST_GAIN: f64 = 2.0;
/// Completions per round: at dispersion 0, and in addition at dispersion 1.
const ROUND_LEAST: f64 = 10.0;
const ROUND_NOISE: f64 = 20.0;
/// Rounds between two probes up; and where service varies so little that a short probe is enough. Goodput and
/// response of the 240 tuning origins and of the named scenarios: .956 and 1.53, .984 and 1.15; with 7 for
/// all .956 and 1.51, .982 and 1.14; with 4 for all .957 and 1.58, .986 and 1.19.
const UP_EVERY: u32 = 7;
const UP_EVERY_QUIET: u32 = 4;
const QUIET: f64 = 0.3;
/// How far beyond the cruise they go at a dispersion of at least 1 (two fifths of it at 0).
const UP: f64 = 0.4;
/// The round of a cruise after which the first probe down follows, and the rounds from one to the next.
///
/// Measured before the period was 14: two classes at ten workers, one of them five times as hard, 200 seeds.
/// After two minutes the knee is off by 10 % (standard deviation) and the ratio of the costs by 13 % with a
/// period of 150, and by 7 and 9 % with one of 46.
const DOWN_FIRST: u32 = 8;
const DOWN_EVERY: u32 = 14;
/// The round with which a cruise continues at a new speed: two before a probe down.
pub(super) const AT_NEW_SPEED: u32 = DOWN_FIRST + DOWN_EVERY - 2;
/// Relative standard error of the response time without a wait below which no probe down is needed: a quarter
/// of what [`DOWN`] goes down by. Goodput of the named scenarios: .9827 with 0.02, .9834 with this.
pub(super) const KNOWN_BELOW: f64 = 0.05;
/// Share of the knee that a probe down goes to.
pub(super) const DOWN: f64 = 0.8;

/// Completions in a round at a limit.
pub(super) fn round_length(purpose: Purpose, limit: f64, dispersion: f64) -> f64 {
    let least = ROUND_LEAST + ROUND_NOISE * dispersion.min(2.0);
    match purpose {
        Purpose::Cruise | Purpose::Ramp => (2.0 * limit).max(least),
        Purpose::Up => ((1.0 + 2.0 * dispersion.min(1.0)) * limit).max(least),
        Purpose::Down => fit::enough(dispersion).min(least),
    }
}

/// The purpose of the round after number `round` of a cruise.
pub(super) fn after(round: u32, dispersion: f64) -> Purpose {
    let up_every = if dispersion < QUIET { UP_EVERY_QUIET } else { UP_EVERY };
    if round % up_every == up_every - 1 {
        Purpose::Up
    } else if round % DOWN_EVERY == DOWN_FIRST {
        Purpose::Down
    } else {
        Purpose::Cruise
    }
}

/// How far up a probe goes, as a multiple of the cruise.
pub(super) fn up(dispersion: f64) -> f64 {
    1.0 + UP * (0.4 + 0.6 * dispersion.min(1.0))
}
