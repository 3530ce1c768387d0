//! Samples of finished requests for the capacity estimator, kept from one tick to the next. The estimator
//! learns from single requests, because a mean over a tick hides the effect of the limit.

use crate::capacity::Sample;
use crate::units::MAX_CLASSES;

/// Samples kept between two ticks: 160,000 requests per second at a tick of 100 ms. Further samples are
/// merged into the last one of their kind.
const MAX_SAMPLES: usize = 16 << 10;

/// Samples of one kind share the class and whether the origin served them.
const KINDS: usize = 2 * MAX_CLASSES;

fn kind(sample: &Sample) -> usize {
    2 * sample.class.index() + usize::from(sample.ok)
}

pub(super) struct Samples {
    kept: Vec<Sample>,
    /// By kind: index of the last sample plus 1; 0: none is kept. It saves a search when the store is full,
    /// which every finished request would make under the gate's lock.
    last: Box<[u32; KINDS]>,
}

impl Default for Samples {
    fn default() -> Self {
        Self { kept: Vec::new(), last: Box::new([0; KINDS]) }
    }
}

impl Samples {
    pub(super) fn add(&mut self, sample: Sample) {
        let last = &mut self.last[kind(&sample)];
        if self.kept.len() < MAX_SAMPLES {
            self.kept.push(sample);
            *last = self.kept.len() as u32;
        } else if let Some(at) = last.checked_sub(1) {
            self.kept[at as usize].absorb(&sample);
        }
    }

    /// Appends the samples to `into`. Exchanges the two if it is empty: nothing is copied under the gate's
    /// lock, and no memory is allocated once both are large enough.
    pub(super) fn take(&mut self, into: &mut Vec<Sample>) {
        self.last.fill(0);
        if into.is_empty() {
            std::mem::swap(into, &mut self.kept);
        } else {
            into.append(&mut self.kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::units::{ClassId, Cost, Timestamp};

    fn sample(class: u8, ok: bool, ms: u64) -> Sample {
        Sample {
            class: ClassId(class),
            cost: Cost::ONE,
            count: 1,
            ended: Timestamp::from_millis(ms),
            response: Duration::from_millis(ms),
            lingered: Duration::ZERO,
            in_flight: 1,
            ok,
            backlog: true,
        }
    }

    /// Reference implementation: a search from the end.
    fn searching(kept: &mut Vec<Sample>, sample: Sample) {
        if kept.len() < MAX_SAMPLES {
            kept.push(sample);
        } else if let Some(last) =
            kept.iter_mut().rev().find(|s| s.class == sample.class && s.ok == sample.ok)
        {
            last.absorb(&sample);
        }
    }

    #[test]
    fn samples_beyond_the_bound_are_merged_into_the_last_of_their_kind() {
        let (mut samples, mut expected) = (Samples::default(), Vec::new());
        for round in 0..3_u64 {
            for n in 0..MAX_SAMPLES as u64 + 5_000 {
                // Kinds that come only early, only late, and always; a different mix in every round.
                let class = match n {
                    _ if n % 3 == 0 => 255,
                    0..1_000 => 7,
                    1_000..18_000 => (n % (5 + round)) as u8,
                    _ => 100 + (n % 9) as u8,
                };
                let one = sample(class, n % 4 != round, n);
                samples.add(one);
                searching(&mut expected, one);
            }
            let mut taken = Vec::new();
            samples.take(&mut taken);
            assert_eq!(taken.len(), MAX_SAMPLES);
            assert!(taken == expected, "round {round}");
            expected.clear();
        }
    }

    #[test]
    fn samples_are_handed_over_and_not_copied() {
        let (mut samples, mut taken) = (Samples::default(), Vec::with_capacity(8));
        let mut buffers = Vec::new();
        for round in 1..=4 {
            samples.add(sample(1, true, round));
            taken.clear();
            let (ours, theirs) = (taken.as_ptr(), samples.kept.as_ptr());
            samples.take(&mut taken);
            assert_eq!((taken.as_ptr(), samples.kept.as_ptr()), (theirs, ours), "round {round}");
            buffers.push(theirs);
        }
        assert_eq!((buffers[0], buffers[1]), (buffers[2], buffers[3]), "the same two all the time");
        samples.add(sample(1, true, 5));
        samples.take(&mut taken);
        assert_eq!(taken.iter().map(|s| s.ended.as_millis()).collect::<Vec<_>>(), [4, 5]);
    }
}
