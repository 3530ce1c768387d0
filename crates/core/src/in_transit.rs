//! Visitors in transit, or their work: admitted and not here yet. With a mean of `T` from one to the other:
//!
//! ```text
//! P' = admitted * show-up ratio - P / T
//! ```

use crate::decaying::keep;

/// `P`.
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
