//! A decaying sum over the equally decaying sum of something else.

#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Ratio {
    pub(super) sum: f64,
    pub(super) over: f64,
}

impl Ratio {
    /// `keep`: what is left of what was added before.
    pub(super) fn add(&mut self, keep: f64, sum: f64, over: f64) {
        self.sum = self.sum * keep + sum;
        self.over = self.over * keep + over;
    }

    pub(super) fn get(self) -> Option<f64> {
        (self.over > 0.0).then(|| self.sum / self.over)
    }
}
