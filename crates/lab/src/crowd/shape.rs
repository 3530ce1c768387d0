//! The curve of a rate over a phase, and when arrivals come that follow it.
//!
//! With rate r(t), its integral is R(t) = ∫₀ᵗ r. Arrivals of a Poisson process with that rate are those of a
//! process of rate 1, seen through the inverse of R (Çinlar: Introduction to Stochastic Processes, 1975,
//! 4.7); evenly spaced ones are the points where R passes 0.5, 1.5, 2.5, ... A constant rate and a ramp have
//! their inverse in closed form:
//!
//! ```text
//!   r(t) = a + s t     R(t) = a t + s t²/2     R⁻¹(m) = 2m / (a + √(a² + 2 s m))
//! ```
//!
//! which, unlike the textbook's root, loses no digits for small s. Nothing accumulates: an arrival's time is
//! computed from the phase's begin. At the border of a phase the gap is drawn anew, as a memoryless process
//! allows.
//!
//! A day has no closed inverse. Its Poisson arrivals are thinned (Lewis and Shedler, 1979): candidates come
//! at a rate never below r, and each is kept with probability r(t) / candidates' rate. With one bound for the
//! whole day, half of them would be thrown away and each would cost a cosine. So a busy day is cut into cells
//! with bounds of their own, and the cosine is only computed when the draw falls between the bounds of its
//! cell, one time in a hundred. Its even spacing is found by Newton's method.

use std::f64::consts::TAU;
use std::time::Duration;

use rand::Rng;
use rand_distr::{Distribution, Exp1};

use crate::scenario::{Phase, Shape};

/// Cells of a day: the bounds of neighbours differ by at most 1.2 % of the most.
const CELLS: f64 = 256.0;
/// Candidates in a cell below which cutting costs more than it spares.
const MIN_PER_CELL: f64 = 8.0;

/// A shape over a phase, and how far it has been played. Times in seconds since the phase's begin.
#[derive(Clone, Debug)]
pub(super) struct RateCurve {
    law: Law,
    /// Length of the phase; infinite if it does not end.
    lasts: f64,
    /// Time of the last arrival or candidate.
    now: f64,
    /// R(now), where it is needed.
    mass: f64,
    /// R(lasts): the expected number of arrivals. Infinite if the phase does not end, unless nobody comes.
    pub(super) expected: f64,
}

#[derive(Clone, Debug)]
enum Law {
    Flat { rate: f64, gap: f64 },
    Ramp { from: f64, slope: f64 },
    Day(Day),
}

impl RateCurve {
    pub(super) fn new(phase: &Phase) -> Self {
        let lasts = if phase.lasts == Duration::MAX { f64::INFINITY } else { phase.lasts.as_secs_f64() };
        let law = match phase.rate {
            Shape::Ramp(from, to) if from != to && lasts.is_finite() => {
                Law::Ramp { from, slope: (to - from) / lasts }
            }
            Shape::Flat(rate) | Shape::Ramp(rate, _) => Law::Flat { rate, gap: 1.0 / rate },
            Shape::Diurnal { low, high, period } => Law::Day(Day::new(low, high, period.as_secs_f64())),
        };
        let expected = match &law {
            Law::Flat { rate: 0.0, .. } => 0.0,
            Law::Flat { rate, .. } => rate * lasts,
            Law::Ramp { from, slope } => (from + slope * lasts / 2.0) * lasts,
            Law::Day(day) if lasts.is_finite() => day.integral(lasts),
            Law::Day(day) => day.expected_for_good(),
        };
        Self { law, lasts, now: 0.0, mass: 0.0, expected }
    }

    /// The next arrival of a Poisson process; `None`: not in this phase.
    pub(super) fn next_poisson(&mut self, rng: &mut impl Rng) -> Option<f64> {
        match &mut self.law {
            Law::Flat { gap, .. } => {
                let draw: f64 = Exp1.sample(rng);
                // A draw of exactly zero times an infinite gap is no number, and none is below the end.
                self.now += draw * *gap;
            }
            Law::Ramp { from, slope } => {
                let draw: f64 = Exp1.sample(rng);
                self.mass += draw;
                self.now = ramp_inverse(*from, *slope, self.mass);
            }
            Law::Day(day) => self.now = day.next_poisson(self.now, self.lasts, rng),
        }
        (self.now < self.lasts).then_some(self.now)
    }

    /// When R passes `mass`; `None`: not in this phase. Never earlier than the last answer.
    pub(super) fn next_even(&mut self, mass: f64) -> Option<f64> {
        if mass >= self.expected {
            return None;
        }
        let at = match &self.law {
            Law::Flat { gap, .. } => mass * gap,
            Law::Ramp { from, slope } => ramp_inverse(*from, *slope, mass),
            Law::Day(day) => day.inverse(mass, self.now, self.lasts),
        };
        self.now = at.max(self.now).min(self.lasts);
        Some(self.now)
    }
}

/// When the integral of a + s t reaches m; infinite if it never does.
fn ramp_inverse(a: f64, s: f64, m: f64) -> f64 {
    let square = a * a + 2.0 * s * m;
    if square < 0.0 { f64::INFINITY } else { 2.0 * m / (a + square.sqrt()) }
}

/// r(t) = middle − swing cos(2πt / period).
#[derive(Clone, Debug)]
struct Day {
    high: f64,
    middle: f64,
    swing: f64,
    /// 2π / period.
    turn: f64,
    /// Length of a cell; infinite: not cut.
    cell: f64,
    /// The present cell's end and bounds.
    cell_ends: f64,
    least: f64,
    most: f64,
}

impl Day {
    fn new(low: f64, high: f64, period: f64) -> Self {
        let cut = high * period / CELLS >= MIN_PER_CELL;
        let cell = if cut { period / CELLS } else { f64::INFINITY };
        let mut day = Self {
            high,
            middle: (low + high) / 2.0,
            swing: (high - low) / 2.0,
            turn: TAU / period,
            cell,
            cell_ends: 0.0,
            least: low,
            most: high,
        };
        day.enter(0.0);
        day
    }

    fn rate(&self, t: f64) -> f64 {
        self.middle - self.swing * (self.turn * t).cos()
    }

    fn integral(&self, t: f64) -> f64 {
        self.middle * t - self.swing / self.turn * (self.turn * t).sin()
    }

    fn expected_for_good(&self) -> f64 {
        if self.high > 0.0 { f64::INFINITY } else { 0.0 }
    }

    /// Goes to the `number`th cell. The rate is monotonous within: cells come in even numbers to a day, so
    /// that its top and its bottom lie on borders. A hair is added for the rounding of the border's own
    /// place.
    fn enter(&mut self, number: f64) {
        if self.cell == f64::INFINITY {
            self.cell_ends = f64::INFINITY;
            return;
        }
        let (begin, end) = (number * self.cell, (number + 1.0) * self.cell);
        let (a, b) = (self.rate(begin), self.rate(end));
        let hair = self.high * 1e-9;
        (self.least, self.most) = (a.min(b) - hair, a.max(b) + hair);
        self.cell_ends = end;
    }

    /// The first arrival after `now`; not below `end` if there is none before.
    fn next_poisson(&mut self, now: f64, end: f64, rng: &mut impl Rng) -> f64 {
        let mut t = now;
        while t < end {
            let draw: f64 = Exp1.sample(rng);
            t += draw / self.most;
            if t >= self.cell_ends {
                t = self.cell_ends;
                self.enter((t / self.cell).round());
                continue;
            }
            let u = rng.random::<f64>() * self.most;
            if u < self.least || u < self.rate(t) {
                return t;
            }
        }
        f64::INFINITY
    }

    /// When the integral reaches `mass`, which it does between `now` and `end`. Newton's method from the last
    /// arrival, kept between bounds for the nights in which nobody comes; to a ten-thousandth of a gap.
    fn inverse(&self, mass: f64, now: f64, end: f64) -> f64 {
        // The mean rate reaches `mass` a day earlier at the latest.
        let surely_by = mass / self.middle + TAU / self.turn;
        let (mut below, mut above) = (now, if end.is_finite() { end } else { surely_by });
        let mut t = (now + 1.0 / self.rate(now)).clamp(below, above);
        // Halving alone would need 60 steps to the last bit.
        for _ in 0..100 {
            let off = self.integral(t) - mass;
            if off.abs() < 1e-4 {
                return t;
            }
            if off > 0.0 {
                above = t
            } else {
                below = t
            }
            let newton = t - off / self.rate(t);
            t = if newton > below && newton < above { newton } else { (below + above) / 2.0 };
        }
        t
    }
}
