//! Aggregates several seconds of one series: average, minimum and maximum of every figure.
//!
//! Averages of rates and states weigh every second alike. Averages of times weigh every second by its
//! requests, so that `response_mean` over an hour is exactly the mean over the hour's requests. Percentiles
//! cannot be computed from percentiles: over longer intervals the average of `response_p99` is the mean of
//! the seconds' 99th percentiles, weighted by requests, and its maximum is the worst second's. Rejected: a
//! histogram per interval (3.5 kB instead of 12 bytes).

use super::metrics::Scope;

/// Average, minimum and maximum; all three are NaN if nothing is known.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    pub average: f32,
    /// Minimum one-second value.
    pub min: f32,
    /// Maximum one-second value.
    pub max: f32,
}

impl Spread {
    pub const NOTHING: Self = Self { average: f32::NAN, min: f32::NAN, max: f32::NAN };

    /// Of one second.
    pub const fn one(value: f32) -> Self {
        Self { average: value, min: value, max: value }
    }

    pub fn is_nothing(&self) -> bool {
        self.average.is_nan()
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Aggregate {
    /// Seconds of the interval that were measured.
    pub seconds: u32,
    /// Every figure, in the order of [`Scope::metrics`].
    pub values: Vec<Spread>,
}

impl Aggregate {
    pub fn second(values: &[f32]) -> Self {
        Self { seconds: 1, values: values.iter().copied().map(Spread::one).collect() }
    }

    pub fn join(&mut self, scope: Scope, other: &Self) {
        let mut sum = Sum::new(scope);
        sum.add(self);
        sum.add(other);
        *self = sum.aggregate();
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    weighted: f64,
    weight: f64,
    /// Weighted by seconds: the average where no second had requests.
    plain: f64,
    seconds: f64,
    min: f32,
    max: f32,
}

impl Part {
    pub(super) const NOTHING: Self =
        Self { weighted: 0.0, weight: 0.0, plain: 0.0, seconds: 0.0, min: f32::NAN, max: f32::NAN };

    /// Adds an interval; `requests` per second where they are the weight (NaN: none).
    pub(super) fn add(&mut self, value: Spread, seconds: f64, requests: Option<f32>) {
        if value.is_nothing() {
            return;
        }
        let weight = match requests {
            None => seconds,
            Some(requests) if requests > 0.0 => f64::from(requests) * seconds,
            Some(_) => 0.0,
        };
        self.weighted += f64::from(value.average) * weight;
        self.weight += weight;
        self.plain += f64::from(value.average) * seconds;
        self.seconds += seconds;
        // `min` and `max` of floats ignore NaN.
        self.min = self.min.min(value.min);
        self.max = self.max.max(value.max);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.weighted += other.weighted;
        self.weight += other.weight;
        self.plain += other.plain;
        self.seconds += other.seconds;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// The aggregate; nothing is known if nothing was added.
    pub(super) fn spread(&self) -> Spread {
        if self.seconds == 0.0 {
            return Spread::NOTHING;
        }
        let average = if self.weight > 0.0 { self.weighted / self.weight } else { self.plain / self.seconds };
        // Rounding must not put the average outside the bounds.
        Spread { average: (average as f32).max(self.min).min(self.max), min: self.min, max: self.max }
    }
}

#[derive(Clone, Debug)]
pub struct Sum {
    scope: Scope,
    seconds: u64,
    parts: Vec<Part>,
}

impl Sum {
    pub fn new(scope: Scope) -> Self {
        Self { scope, seconds: 0, parts: vec![Part::NOTHING; scope.metrics().len()] }
    }

    /// Adds an interval. Figures that it lacks (written by an older version) stay unknown.
    pub fn add(&mut self, interval: &Aggregate) {
        self.seconds += u64::from(interval.seconds);
        for ((part, value), by) in self.parts.iter_mut().zip(&interval.values).zip(self.scope.weights()) {
            let requests = by.map(|by| interval.values.get(by).map_or(f32::NAN, |v| v.average));
            part.add(*value, f64::from(interval.seconds), requests);
        }
    }

    pub fn merge(&mut self, other: &Self) {
        self.seconds += other.seconds;
        self.parts.iter_mut().zip(&other.parts).for_each(|(mine, theirs)| mine.merge(theirs));
    }

    pub fn aggregate(&self) -> Aggregate {
        Aggregate {
            seconds: u32::try_from(self.seconds).unwrap_or(u32::MAX),
            values: self.parts.iter().map(Part::spread).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::metrics::find;
    use super::*;

    fn second(figures: &[(&str, f32)]) -> Aggregate {
        let mut values = vec![f32::NAN; Scope::Class.metrics().len()];
        figures.iter().for_each(|(name, value)| values[find(name).unwrap().1] = *value);
        Aggregate::second(&values)
    }

    fn value(a: &Aggregate, name: &str) -> Spread {
        a.values[find(name).unwrap().1]
    }

    #[test]
    fn rates_weigh_seconds_and_times_weigh_requests() {
        let mut sum = Sum::new(Scope::Class);
        sum.add(&second(&[("goodput", 90.0), ("response_mean", 10.0), ("response_p99", 40.0)]));
        sum.add(&second(&[("goodput", 10.0), ("response_mean", 20.0), ("response_p99", 80.0)]));
        sum.add(&second(&[("goodput", 0.0)]));
        let all = sum.aggregate();
        assert_eq!(all.seconds, 3);
        let rate = value(&all, "goodput");
        assert!((rate.average - 100.0 / 3.0).abs() < 1e-4);
        assert_eq!((rate.min, rate.max), (0.0, 90.0));
        assert_eq!(value(&all, "response_mean"), Spread { average: 11.0, min: 10.0, max: 20.0 });
        assert_eq!(value(&all, "response_p99"), Spread { average: 44.0, min: 40.0, max: 80.0 });
        assert!(value(&all, "wait_mean").is_nothing());
    }

    #[test]
    fn aggregates_of_aggregates_equal_the_aggregate_of_all_seconds() {
        let seconds: Vec<_> = (0..60)
            .map(|i| {
                let i = i as f32;
                second(&[("goodput", i % 7.0), ("response_mean", 5.0 + i), ("in_flight", i)])
            })
            .collect();
        let mut once = Sum::new(Scope::Class);
        seconds.iter().for_each(|s| once.add(s));
        let mut steps = Sum::new(Scope::Class);
        for five in seconds.chunks(5) {
            let mut sum = Sum::new(Scope::Class);
            five.iter().for_each(|s| sum.add(s));
            steps.add(&sum.aggregate());
        }
        let (once, steps) = (once.aggregate(), steps.aggregate());
        for name in ["goodput", "response_mean", "in_flight"] {
            let (a, b) = (value(&once, name), value(&steps, name));
            assert!((a.average / b.average - 1.0).abs() < 1e-5, "{name}: {a:?} {b:?}");
            assert_eq!((a.min, a.max), (b.min, b.max), "{name}");
        }
    }

    #[test]
    fn a_time_that_no_request_weighs_is_not_lost() {
        // A request that was answered before the second began to count it.
        let mut sum = Sum::new(Scope::Class);
        sum.add(&second(&[("goodput", 0.0), ("response_mean", 7.0)]));
        assert_eq!(value(&sum.aggregate(), "response_mean"), Spread::one(7.0));
    }
}
