//! What every request took, kept from one tick to the next.

use crate::capacity::Sample;

/// Samples kept between two ticks: at a tick of 100 ms, those of 160,000 requests per second. Further ones are added to
/// the last of their kind.
const MAX_SAMPLES: usize = 16 << 10;

#[derive(Default)]
pub(super) struct Samples(Vec<Sample>);

impl Samples {
    pub(super) fn note(&mut self, sample: Sample) {
        if self.0.len() < MAX_SAMPLES {
            self.0.push(sample);
        } else if let Some(last) =
            self.0.iter_mut().rev().find(|s| s.class == sample.class && s.ok == sample.ok)
        {
            last.absorb(&sample);
        }
    }

    pub(super) fn take(&mut self, into: &mut Vec<Sample>) {
        into.append(&mut self.0);
    }
}
