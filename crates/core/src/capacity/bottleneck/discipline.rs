//! Whether the origin serves requests in line (first come, first served) or all at once (processor sharing).
//!
//! In line a request waits for those that were sent before it: its response time goes with the number in
//! flight when it was sent. An origin that serves all at once, as one processor with many threads does, is
//! slowed down by those that were sent later too: there it goes with the number over the whole life
//! (in_flight.rs). As long as the limit stays the same, the two numbers are equal. A probe's last requests,
//! though, are served among another number than they were sent among. Counted at the latter, the response
//! times of a shared origin rise too little with the number in flight, and the present limit looks like the
//! knee.
//!
//! So every sample is counted at both numbers, both curves are fitted, and the likelier one holds. During a
//! search all are in line: while the limit grows, slow requests see a higher mean than fast ones, so that
//! responses seem to rise with it at any origin. With 500 workers the search would end too soon, and the
//! capacity would be off by 9 % after 5 s.
//!
//! Goodput and response time of 280 drawn origins: in line only .9577 and 1.541, over the life only .9540 and
//! 1.474, the likelier one .9561 and 1.478.

use super::fit::{Curve, FURTHER_NATS, Hinge, Point};

/// Requests among which a sample was served.
#[derive(Clone, Copy, Debug)]
pub(super) struct Among {
    /// In flight when it was sent, itself included.
    pub at_sending: f64,
    /// In flight on average until it ended.
    pub over_life: f64,
}

impl Among {
    /// As many all the time.
    pub const fn always(n: f64) -> Self {
        Self { at_sending: n, over_life: n }
    }

    /// Without `n` of the others.
    pub fn without(self, n: f64) -> Self {
        let left = |all: f64| (all - n).max(1.0);
        Self { at_sending: left(self.at_sending), over_life: left(self.over_life) }
    }
}

/// The response times over the number in flight under both disciplines.
pub(super) struct Curves {
    in_line: Curve,
    shared: Curve,
    is_shared: bool,
}

impl Curves {
    pub fn new() -> Self {
        Self { in_line: Curve::new(), shared: Curve::new(), is_shared: false }
    }

    /// The number that the response time of a sample goes with.
    pub const fn n(&self, among: Among) -> f64 {
        if self.is_shared { among.over_life } else { among.at_sending }
    }

    /// The curve under the likelier discipline.
    pub const fn likelier(&self) -> &Curve {
        if self.is_shared { &self.shared } else { &self.in_line }
    }

    /// The likeliest hinge at a dispersion under the likelier discipline; `None` without samples.
    pub fn fit(&mut self, dispersion: f64, may_share: bool) -> Option<Hinge> {
        let in_line = self.in_line.fit(dispersion)?;
        self.is_shared = false;
        if !may_share {
            return Some(in_line);
        }
        let shared = self.shared.fit(dispersion)?;
        self.is_shared = shared.gain > in_line.gain + FURTHER_NATS * dispersion;
        Some(if self.is_shared { shared } else { in_line })
    }

    /// The points that the last fit was made to.
    pub fn fitted_points(&self) -> &[Point] {
        self.likelier().fitted_points()
    }

    /// A hinge with another knee, and the base that fits best with it.
    pub fn fit_at(&mut self, knee: f64, hinge: Hinge) -> Hinge {
        if self.is_shared { &mut self.shared } else { &mut self.in_line }.fit_at(knee, hinge)
    }

    /// `count` requests of `units` work each took `response_s` each.
    pub fn add(&mut self, among: Among, count: f64, units: f64, response_s: f64) {
        self.in_line.add(among.at_sending, count, units, response_s);
        self.shared.add(among.over_life, count, units, response_s);
    }

    /// `count` failed requests took `response_s` each.
    pub fn add_failed(&mut self, among: Among, count: f64, response_s: f64) {
        self.in_line.add_failed(among.at_sending, count, response_s);
        self.shared.add_failed(among.over_life, count, response_s);
    }

    /// Requests sent among `n` have been open for so long in all, for the next fit.
    pub fn add_open(&mut self, n: f64, open_s: f64) {
        self.both().for_each(|curve| curve.add_open(n, open_s));
    }

    pub fn clear_open(&mut self) {
        self.both().for_each(Curve::clear_open);
    }

    pub fn clear(&mut self) {
        self.both().for_each(Curve::clear);
    }

    /// Forgets all samples with more than `n` in flight.
    pub fn clear_above(&mut self, n: f64) {
        self.both().for_each(|curve| curve.clear_above(n));
    }

    /// Fades the samples on both sides of a knee: see [`Curve::fade`].
    pub fn fade(&mut self, knee: f64, most: f64) {
        self.both().for_each(|curve| curve.fade(knee, most));
    }

    fn both(&mut self) -> impl Iterator<Item = &mut Curve> {
        [&mut self.in_line, &mut self.shared].into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The curves of ten workers, from samples sent among 8 and among 12 in turn, and served among others.
    fn curves(goes_with: fn(&Among) -> f64) -> Curves {
        let truth = Hinge { base_s: 0.1, knee: 10.0, contention: 0.0, gain: 0.0 };
        let mut curves = Curves::new();
        for i in 0..200 {
            let at_sending = if i % 20 < 10 { 8.0 } else { 12.0 };
            let among = Among { at_sending, over_life: 10.0 + (at_sending - 10.0) * f64::from(i % 10) / 9.0 };
            curves.add(among, 1.0, 1.0, truth.base_s * truth.slowdown(goes_with(&among)));
        }
        curves
    }

    #[test]
    fn the_curve_that_explains_the_samples_holds() {
        for (is_shared, goes_with) in
            [(false, (|among| among.at_sending) as fn(&Among) -> f64), (true, |among| among.over_life)]
        {
            let mut curves = curves(goes_with);
            let hinge = curves.fit(0.01, true).expect("there are samples");
            assert_eq!(curves.is_shared, is_shared);
            assert!((9.8..10.2).contains(&hinge.knee), "{hinge:?}");
        }
    }

    #[test]
    fn where_the_number_never_changes_requests_are_served_in_line() {
        let mut curves = Curves::new();
        (1..20).for_each(|n| curves.add(Among::always(f64::from(n)), 9.0, 1.0, f64::from(n.max(10)) / 100.0));
        assert!(curves.fit(0.01, true).is_some());
        assert!(!curves.is_shared);
    }
}
