//! What decays exponentially: means, in time or in samples, and visitors in transit.

/// A decaying sum over the equally decaying sum of something else: a mean; over a sum of seconds, a rate.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub(crate) struct DecayingRatio {
    pub(crate) sum: f64,
    pub(crate) over: f64,
}

impl DecayingRatio {
    /// Leaves a share of `keep` (see [`keep`]) of everything added so far.
    pub(crate) fn decay(&mut self, keep: f64) {
        self.sum *= keep;
        self.over *= keep;
    }

    pub(crate) fn add(&mut self, sum: f64, over: f64) {
        self.sum += sum;
        self.over += over;
    }

    pub(crate) fn decay_and_add(&mut self, keep: f64, sum: f64, over: f64) {
        self.decay(keep);
        self.add(sum, over);
    }

    /// `None` while there is nothing to divide by.
    pub(crate) fn get(self) -> Option<f64> {
        (self.over > 0.0).then(|| self.sum / self.over)
    }
}

/// An exponentially weighted moving average. The first value is the mean.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub(crate) struct Ewma(Option<f64>);

impl Ewma {
    /// Leaves a share of `keep` (see [`keep`]) of the mean; the rest is `value`.
    pub(crate) fn add(&mut self, value: f64, keep: f64) {
        self.0 = Some(self.0.map_or(value, |mean| mean + (value - mean) * (1.0 - keep)));
    }

    /// `None` before the first value.
    pub(crate) fn get(self) -> Option<f64> {
        self.0
    }
}

impl From<f64> for Ewma {
    /// It was `value` all the time.
    fn from(value: f64) -> Self {
        Self(Some(value))
    }
}

/// Visitors in transit, or their work: `P' = admitted * show-up ratio - P / T`, with a mean of `T` from being
/// admitted to being here.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct InTransit(f64);

impl InTransit {
    pub(crate) fn get(self) -> f64 {
        self.0
    }

    pub(crate) fn add(&mut self, admitted: f64) {
        self.0 += admitted;
    }

    /// Lets `dt_s` pass, where visitors take `mean_s` to come. Returns what has come.
    pub(crate) fn pass(&mut self, dt_s: f64, mean_s: f64) -> f64 {
        let came = self.0 * (1.0 - keep(dt_s, mean_s));
        self.0 -= came;
        came
    }
}

/// Share of a value that is left after `dt_s` seconds, with a memory (time constant) of `memory_s` seconds.
pub(crate) fn keep(dt_s: f64, memory_s: f64) -> f64 {
    (-dt_s / memory_s).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_forgets_old_values() {
        let mut mean = DecayingRatio::default();
        assert_eq!(mean.get(), None);
        mean.add(30.0, 10.0);
        assert_eq!(mean.get(), Some(3.0));
        mean.decay(keep(5.0, 10.0));
        assert_eq!(mean.get(), Some(3.0), "both sums decay alike");
        mean.decay(keep(1_000.0, 10.0));
        mean.add(7.0, 7.0);
        assert!((mean.get().unwrap_or_default() - 1.0).abs() < 1e-9, "{mean:?}");
    }
}
