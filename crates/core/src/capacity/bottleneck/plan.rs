//! How many to have in flight next: the ramp that finds the knee, and the cruise that holds it.
//!
//! ```text
//! ramp     L = 4, ×2, ×2, ... a round at each, until the fit shows a knee below L
//! cruise   L = K · headroom, refitted every round; now and then
//!            up     to see whether the origin can do more by now
//!            down   below the knee, to see what a response takes where nobody waits
//! ```
//!
//! A round is a number of completions of requests that were sent in it, so that each level is judged by its own.

use super::Hinge;

/// What the limit is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// Growing until the knee is passed.
    Ramp,
    /// Holding the knee.
    Cruise,
    /// Above it for a round.
    Up,
    /// Below it for a round.
    Down,
    /// Where it stood when the origin became slower, until that is measured.
    Stay,
}

impl Purpose {
    /// What the room lets in over the capacity: enough to fill the limit while it grows. `round_s`: how long a round of a ramp takes at
    /// the present level, in seconds; `None` while nothing is known of it.
    pub fn gain(self, round_s: Option<f64>) -> f64 {
        match self {
            Self::Ramp => ramp_gain(round_s),
            Self::Up => 1.3,
            Self::Cruise | Self::Down | Self::Stay => 1.05,
        }
    }
}

/// Seconds until somebody is there who is called now: a page asks again after about so long.
const CALLED_S: f64 = 1.0;
/// Most that a ramp lets in over what was seen: at 100 requests per second it gained hardly more than 8.
const MOST_GAIN: f64 = 12.0;
/// Growth per round of a ramp: far from the knee, and once the throughput has been seen to lag behind.
const DOUBLE: f64 = 2.0;
const CAREFUL: f64 = 1.6;
/// And where too much is known to hurt.
const GENTLE: f64 = 1.3;
/// Most doublings at once, and the round trips that each of them must have been worth: an origin of milliseconds is looked at
/// every tick only, and ten round trips at one level tell as much of it as rounds at several would have.
const DOUBLINGS: u32 = 3;
const TRIPS_PER_DOUBLING: f64 = 3.0;
/// Completions per round at dispersion 0 and 1.
const ROUND_LEAST: f64 = 10.0;
const ROUND_NOISE: f64 = 20.0;
/// Seconds for which one stays at least where the origin became slower: neighbours and checkpoints are gone by then, and to look below
/// costs goodput, while to stay costs response time only.
pub(super) const STAY_SECONDS: f64 = 5.0;
/// Share of a second that a round lasts at least, when cruising.
const ROUND_SECONDS: f64 = 0.03;
/// Rounds between two probes up; where service varies so little that a short one tells; and under contention, where they cost goodput.
const UP_EVERY: u32 = 7;
const UP_EVERY_QUIET: u32 = 4;
const QUIET: f64 = 0.3;
const UP_EVERY_CONTENDING: u32 = 20;
/// How far beyond the cruise they go at a dispersion of 1 or more; two fifths of it where there is none; and under contention.
const UP: f64 = 0.4;
const UP_CONTENDING: f64 = 1.25;
/// Rounds of a new cruise after which it is probed down, and then the period.
pub(super) const DOWN_AT: [u32; 3] = [3, 8, 16];
const DOWN_EVERY: u32 = 150;
/// The round with which a cruise goes on at a new speed: two before a probe down, six before one up.
pub(super) const AT_NEW_SPEED: u32 = DOWN_AT[2] - 2;
/// Whatever the fit says.
const MOST_HEADROOM: f64 = 1.4;
/// Share of the knee that is probed down to at least, and the contrast wanted of it: 0.8 from a dispersion of 0.25 on, 0.88 where there
/// is none.
pub(super) const DOWN: f64 = 0.8;
pub(super) const DOWN_CONTRAST: f64 = 0.45;
/// The same after a fall, over the knee that there is if workers left: at a share x of the old knee they take 1/x times as long
/// if all became slower, as long as there if some left. Of an origin that varies little 0.7 tells.
pub(super) const FALLEN: f64 = 0.9;
pub(super) const FALLEN_CONTRAST: f64 = 1.27;
/// And where hardly anything was seen below.
pub(super) const DOWN_AT_EDGE: f64 = 0.7;

/// What a ramp lets in over what was seen. Those called now come when it has doubled some more times, and find an empty queue
/// if they are as many as are needed now; with long rounds they would stand at the gate for long if they were more.
fn ramp_gain(round_s: Option<f64>) -> f64 {
    let doublings = 1.0 + round_s.map_or(0.0, |round_s| CALLED_S / round_s);
    DOUBLE.powf(doublings).min(MOST_GAIN)
}

/// How far down a probe goes, as a share of the knee: to `least` where service varies, and where it does not only so far that what is
/// to be seen stands out from the noise, by `contrast` standard deviations of a sample in logarithms.
pub(super) fn depth(least: f64, contrast: f64, dispersion: f64) -> f64 {
    least.max((-contrast * dispersion.max(0.0).sqrt()).exp())
}

/// Completions in a round at a limit.
pub(super) fn round_length(purpose: Purpose, limit: f64, dispersion: f64, per_second: f64) -> f64 {
    let least = ROUND_LEAST + ROUND_NOISE * dispersion.min(2.0);
    match purpose {
        Purpose::Ramp => limit.max(least.min(3.0 * limit)),
        Purpose::Stay => least,
        Purpose::Cruise => (2.0 * limit).max(least).max(ROUND_SECONDS * per_second),
        Purpose::Up | Purpose::Down => {
            ((1.0 + 2.0 * dispersion.min(1.0)) * limit).max(least).max(ROUND_SECONDS * per_second)
        }
    }
}

/// By how much a ramp's next round is larger: not at all while there is some evidence that the knee was passed. `trips`: how often
/// as many requests ended in this one as were in flight.
pub(super) fn ramp_growth(slowdown: f64, passed: bool, contends: bool, trips: f64) -> f64 {
    if passed {
        1.0
    } else if contends {
        GENTLE
    } else if slowdown > 1.15 {
        CAREFUL
    } else {
        // Rounds at L, 2L, ... together: as many completions as 2^n - 1 at L.
        let at_once = (trips / TRIPS_PER_DOUBLING + 1.0).log2().floor();
        DOUBLE.powf(at_once.clamp(1.0, f64::from(DOUBLINGS)))
    }
}

/// What the round after number `round` of a cruise is for.
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

/// The cruise over the knee: what the fit holds for best, and what probes up have shown to be missing where the knee is round; with
/// contention they show nothing of the kind.
pub(super) fn headroom(hinge: &Hinge, adjusted: f64) -> f64 {
    let adjusted = if hinge.contends() { 0.0 } else { adjusted };
    (hinge.headroom + adjusted).min(MOST_HEADROOM)
}
