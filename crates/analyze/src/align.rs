//! One time axis for a log and a figure: intervals, and the difference between the clocks of the two.

use tidegate_core::correlate::{Correlation, pearson};

use crate::figures::Series;

/// Equal intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    pub start_us: i64,
    pub interval_us: i64,
    pub count: usize,
}

impl Grid {
    pub fn index(&self, at_us: i64) -> Option<usize> {
        let index = (at_us - self.start_us).div_euclid(self.interval_us);
        usize::try_from(index).ok().filter(|index| *index < self.count)
    }

    /// The index of the interval, also of one outside.
    pub fn position(&self, at_us: i64) -> i64 {
        (at_us - self.start_us).div_euclid(self.interval_us)
    }

    pub fn time_us(&self, index: usize) -> i64 {
        self.start_us + self.interval_us * index as i64
    }

    /// The figure in each interval: the mean of its samples, NaN where there is none. A sample says what has
    /// been since the one before: it belongs to the interval that holds the middle of that time.
    pub fn values(&self, series: &Series, step_us: i64) -> Vec<f64> {
        let mut sums = vec![(0.0, 0_u32); self.count];
        for (at, value) in &series.points {
            if let Some(index) = self.index(at - step_us / 2) {
                sums[index].0 += value;
                sums[index].1 += 1;
            }
        }
        sums.iter().map(|(sum, count)| if *count > 0 { sum / f64::from(*count) } else { f64::NAN }).collect()
    }
}

/// What the cross-correlation of requests with the figure says of the two clocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shift {
    /// Intervals by which the figure's times are ahead of the log's.
    pub intervals: i64,
    /// The strongest correlation when that is taken back, and as the files are.
    pub r: f64,
    pub r_before: f64,
}

/// How much better a shift must explain the figure before it is believed: a tenth of r. A day's slow rise
/// and fall alone makes neighbouring shifts differ by hundredths.
const GAIN: f64 = 0.1;
/// Below this the requests explain too little of the figure to tell anything about clocks.
const LEAST_R: f64 = 0.3;
/// Probability of a false alarm, over all the shifts tried.
const ALPHA: f64 = 0.01;

/// Looks for a difference of the clocks of up to `most` intervals, by the strongest correlation of any column
/// of requests with the figure: all requests together say little where few of them load the bottleneck. What
/// is not known is NaN. Up to `max_lag` intervals the figure may follow the requests: that is no difference.
/// `None`: the files agree as they are, or nothing can be told.
pub fn find_shift(columns: &[Vec<f64>], figure: &[f64], most: usize, max_lag: usize) -> Option<Shift> {
    let (most, lag) = (i64::try_from(most).ok()?, i64::try_from(max_lag).ok()?);
    let strongest = |range: &mut dyn Iterator<Item = i64>| {
        let of_shift = |shift: i64| {
            let found = columns.iter().filter_map(move |column| shifted(column, figure, shift));
            found.map(move |found| (shift, found.r, found.p))
        };
        range.flat_map(of_shift).max_by(|a, b| a.1.total_cmp(&b.1))
    };
    let before = strongest(&mut (0..=lag)).map_or(0.0, |found| found.1);
    let (intervals, r, p) = strongest(&mut (-most..=most).filter(|shift| !(0..=lag).contains(shift)))?;
    let tried = (2 * most + 1) as f64 * columns.len() as f64;
    (r >= LEAST_R && r - before >= GAIN && p * tried <= ALPHA).then_some(Shift {
        intervals,
        r,
        r_before: before,
    })
}

/// Requests with the figure of so many intervals later.
fn shifted(requests: &[f64], figure: &[f64], shift: i64) -> Option<Correlation> {
    let from = usize::try_from(shift.unsigned_abs()).ok()?;
    if shift >= 0 { pearson(requests, figure.get(from..)?) } else { pearson(requests.get(from..)?, figure) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests without a pattern that repeats, and a figure that follows them by `shift` intervals.
    fn data(shift: i64) -> (Vec<Vec<f64>>, Vec<f64>) {
        let mixed = |at: i64, of: u64| {
            let x = (at.unsigned_abs() + 1_000_000 * of).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            ((x ^ (x >> 27)) % 64) as f64
        };
        let requests = |at| mixed(at, 0);
        let noise = |at| mixed(at, 1) / 4.0;
        let unrelated = (500..800).map(|at| mixed(at, 2) * 10.0).collect();
        let (requests, figure) =
            (500..800).map(|at| (requests(at), requests(at - shift) + noise(at))).unzip();
        (vec![unrelated, requests], figure)
    }

    #[test]
    fn a_difference_of_clocks_is_found() {
        for shift in [-40, -7, -1, 6, 33] {
            let (requests, figure) = data(shift);
            let found = find_shift(&requests, &figure, 60, 5).expect("a difference");
            assert_eq!(found.intervals, shift);
            assert!(found.r > 0.8 && found.r_before < 0.4, "{found:?}");
        }
    }

    #[test]
    fn a_figure_that_follows_by_its_lag_needs_no_shift() {
        for lag in [0, 2, 5] {
            let (requests, figure) = data(lag);
            assert_eq!(find_shift(&requests, &figure, 60, 5), None, "{lag}");
        }
        let (requests, _) = data(0);
        let (_, unrelated) = data(200);
        assert_eq!(find_shift(&requests, &unrelated, 60, 5), None, "nothing in common");
        assert_eq!(find_shift(&requests, &[1.0; 300], 60, 5), None, "constant");
        assert_eq!(find_shift(&requests, &unrelated[..2], 60, 5), None, "too short");
    }

    #[test]
    fn samples_belong_to_the_time_before_them() {
        let grid = Grid { start_us: 10_000_000, interval_us: 2_000_000, count: 4 };
        let points = [(11, 1.0), (12, 3.0), (13, 5.0), (18, 7.0)].map(|(s, value)| (s * 1_000_000, value));
        let values = grid.values(&Series { name: "a".into(), points: points.to_vec() }, 1_000_000);
        assert_eq!(values[..2], [2.0, 5.0]);
        assert!(values[2].is_nan());
        assert_eq!(values[3], 7.0);
        assert_eq!(
            (grid.index(9_999_999), grid.index(10_000_000), grid.index(18_000_000)),
            (None, Some(0), None)
        );
        assert_eq!((grid.position(9_999_999), grid.time_us(1)), (-1, 12_000_000));
    }
}
