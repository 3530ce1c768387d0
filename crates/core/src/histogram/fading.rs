//! A histogram with exponential fading: a time that is one period old counts 1/e of a new one.

use std::time::Duration;

use super::{BUCKETS, Histogram, bucket, edges};

/// Exponentially weighted times. Each weighs 1 when it is added: the statistics are averages over requests.
#[derive(Clone, Debug)]
pub struct Fading {
    /// The recorders at the last update.
    seen: Box<[u64]>,
    seen_sum_us: u64,
    buckets: Box<[f64]>,
    count: f64,
    sum_us: f64,
}

/// A weight below this counts as zero.
const NOTHING: f64 = 1e-6;

impl Fading {
    /// An empty histogram; the times in `start` do not count.
    pub fn new(start: &Histogram) -> Self {
        Self {
            seen: start.buckets.clone(),
            seen_sum_us: start.sum_us,
            buckets: vec![0.0; BUCKETS].into(),
            count: 0.0,
            sum_us: 0.0,
        }
    }

    /// Multiplies all weights by `keep`, and adds the times counted since the last update. `now` is a later
    /// snapshot of the same recorders; counters that went back count as unchanged. Returns how many are new.
    pub fn take_in(&mut self, now: &Histogram, keep: f64) -> u64 {
        let (mut came, mut count) = (0, 0.0);
        for ((weight, seen), n) in self.buckets.iter_mut().zip(&mut self.seen).zip(&now.buckets) {
            let new = n.saturating_sub(*seen);
            *weight = *weight * keep + new as f64;
            came += new;
            count += *weight;
            *seen = *n;
        }
        self.count = count;
        self.sum_us = self.sum_us * keep + now.sum_us.saturating_sub(self.seen_sum_us) as f64;
        self.seen_sum_us = now.sum_us;
        came
    }

    /// The same together with times that are not over: each counts once, and only here.
    #[must_use]
    pub fn with(&self, unfinished: impl Iterator<Item = (Duration, u64)>) -> Self {
        let mut sum = self.clone();
        for (time, count) in unfinished {
            let us = super::micros(time);
            sum.buckets[bucket(us)] += count as f64;
            sum.count += count as f64;
            sum.sum_us += us as f64 * count as f64;
        }
        sum
    }

    /// Mean; `None`: nothing was counted.
    pub fn mean(&self) -> Option<Duration> {
        (self.count > NOTHING).then(|| micros(self.sum_us / self.count))
    }

    /// As [`Histogram::quantile`].
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        if self.count <= NOTHING {
            return None;
        }
        let rank = q.clamp(0.0, 1.0) * self.count;
        let mut seen = 0.0;
        let filled = self.buckets.iter().enumerate().filter(|(_, weight)| **weight > 0.0);
        let mut last = None;
        for (at, weight) in filled {
            seen += weight;
            last = Some(at);
            if seen >= rank {
                break;
            }
        }
        last.map(|at| micros(middle(at)))
    }

    /// Standard deviation, computed from the buckets' middles (within 1.6 %).
    pub fn deviation(&self) -> Option<Duration> {
        if self.count <= NOTHING {
            return None;
        }
        let moment = |power: i32, about: f64| -> f64 {
            let each = self.buckets.iter().enumerate().filter(|(_, weight)| **weight > 0.0);
            each.map(|(at, weight)| weight * (middle(at) - about).powi(power)).sum::<f64>() / self.count
        };
        // About the mean of the middles: with the exact mean, equal times would have a deviation.
        Some(micros(moment(2, moment(1, 0.0)).max(0.0).sqrt()))
    }
}

fn middle(bucket: usize) -> f64 {
    let (low, high) = edges(bucket);
    (low + (high - low) / 2) as f64
}

fn micros(us: f64) -> Duration {
    Duration::from_micros(us.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::super::Recorder;
    use super::*;

    fn copy(recorder: &Recorder) -> Histogram {
        let mut copy = Histogram::default();
        copy.absorb(recorder);
        copy
    }

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn is_near(got: Option<Duration>, wanted: Duration) -> bool {
        let got = got.unwrap().as_secs_f64();
        (got / wanted.as_secs_f64() - 1.0).abs() < 0.02
    }

    #[test]
    fn new_times_outweigh_old_ones() {
        let recorder = Recorder::default();
        let mut fading = Fading::new(&copy(&recorder));
        assert_eq!((fading.mean(), fading.quantile(0.5), fading.deviation()), (None, None, None));
        (0..100).for_each(|_| recorder.record(ms(100)));
        assert_eq!(fading.take_in(&copy(&recorder), 1.0), 100);
        assert_eq!(fading.mean(), Some(ms(100)));
        assert!(is_near(fading.quantile(0.99), ms(100)));
        assert_eq!(fading.deviation(), Some(Duration::ZERO));
        // As many again, with half of the first forgotten: 50 of 100 ms and 100 of 400 ms.
        (0..100).for_each(|_| recorder.record(ms(400)));
        assert_eq!(fading.take_in(&copy(&recorder), 0.5), 100);
        assert_eq!(fading.mean(), Some(ms(300)));
        assert!(is_near(fading.quantile(0.3), ms(100)) && is_near(fading.quantile(0.4), ms(400)));
        // sqrt(1/3 * 200^2 + 2/3 * 100^2)
        assert!(is_near(fading.deviation(), Duration::from_micros(141_421)));
    }

    #[test]
    fn the_start_does_not_count_and_old_times_are_forgotten() {
        let recorder = Recorder::default();
        recorder.record(ms(1));
        let mut fading = Fading::new(&copy(&recorder));
        assert_eq!((fading.take_in(&copy(&recorder), 1.0), fading.mean()), (0, None));
        recorder.record(ms(5));
        fading.take_in(&copy(&recorder), 1.0);
        (0..20).for_each(|_| _ = fading.take_in(&copy(&recorder), 0.37));
        assert_eq!((fading.mean(), fading.quantile(0.5)), (None, None));
        // New shards.
        assert_eq!(fading.take_in(&Histogram::default(), 1.0), 0);
        assert_eq!(fading.mean(), None);
    }
}
