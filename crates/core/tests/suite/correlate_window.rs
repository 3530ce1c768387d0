//! The sliding window finds what a computation over all of its intervals finds.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidegate_core::correlate::{Correlation, MIN_INTERVALS, Settings, Window, analyse, pearson};

/// The same history, kept whole.
#[derive(Default)]
struct History {
    counts: Vec<Vec<u64>>,
    figure: Vec<Option<f64>>,
}

impl History {
    fn push(&mut self, window: &mut Window, counts: Vec<u64>, figure: Option<f64>) {
        window.push(&counts, figure);
        self.counts.push(counts);
        self.figure.push(figure);
    }

    /// The last intervals: counts by type, and the figure.
    fn last(&self, intervals: usize) -> (Vec<Vec<f64>>, Vec<f64>) {
        let from = self.counts.len().saturating_sub(intervals);
        let types = self.counts.iter().map(Vec::len).max().unwrap_or(0);
        let column =
            |k| self.counts[from..].iter().map(|row| row.get(k).copied().unwrap_or(0) as f64).collect();
        let figure = self.figure[from..].iter().map(|figure| figure.unwrap_or(f64::NAN)).collect();
        ((0..types).map(column).collect(), figure)
    }
}

fn assert_same(found: &[Option<Correlation>], counts: &[Vec<f64>], figure: &[f64], when: usize) {
    assert_eq!(found.len(), counts.len());
    for (k, (found, column)) in found.iter().zip(counts).enumerate() {
        let expected = pearson(column, figure).filter(|expected| expected.n >= MIN_INTERVALS);
        match (found, expected) {
            (None, None) => {}
            (Some(a), Some(b)) if a.n == b.n && (a.r - b.r).abs() < 1e-9 && (a.p - b.p).abs() < 1e-9 => {}
            _ => panic!("type {k} after {when} pushes: {found:?}, at once {expected:?}"),
        }
    }
}

#[test]
fn equals_the_computation_at_once_after_thousands_of_pushes() {
    for seed in 0..30 {
        let mut random = StdRng::seed_from_u64(seed);
        let intervals = random.random_range(1..80);
        let offset = [0.0, 1.0, 1e6, -1e4][random.random_range(0..4)];
        let (mut window, mut history) = (Window::new(intervals), History::default());
        let mut types = 1;
        for pushed in 1..=10_000 {
            // Types come one by one; phases are silent, constant, or without a figure.
            if types < 12 && random.random_bool(0.01) {
                types += 1;
            }
            let phase = pushed / 200 % 4;
            let counts: Vec<u64> = (0..types)
                .map(|k| if phase == 1 { 5 } else { random.random_range(0..10 + 20 * k) })
                .collect();
            let noise = if phase == 2 { 0.0 } else { random.random_range(-20.0..20.0) };
            let is_known = !random.random_bool(if phase == 3 { 0.5 } else { 0.05 });
            let figure = is_known.then(|| offset + noise + if phase == 2 { 0.0 } else { counts[0] as f64 });
            history.push(&mut window, counts, figure);
            if pushed % 37 == 0 || pushed < 100 {
                let (counts, figure) = history.last(intervals);
                assert_same(&window.correlations(), &counts, &figure, pushed);
            }
        }
        assert_eq!(window.intervals(), intervals);
    }
}

#[test]
fn a_huge_figure_is_forgotten_with_its_interval() {
    let mut random = StdRng::seed_from_u64(1);
    let (mut window, mut history) = (Window::new(50), History::default());
    for pushed in 0..2_000 {
        let count = random.random_range(0..20);
        // Sums that subtract would have lost all digits of the others' squares.
        let figure = if pushed % 500 == 100 { 1e15 } else { count as f64 + random.random_range(0.0..10.0) };
        history.push(&mut window, vec![count], Some(figure));
        let (counts, figure) = history.last(50);
        assert_same(&window.correlations(), &counts, &figure, pushed);
    }
}

#[test]
fn its_findings_are_those_of_its_intervals() {
    let mut random = StdRng::seed_from_u64(2);
    let (mut window, mut history) = (Window::default(), History::default());
    for _ in 0..1_000 {
        let counts: Vec<u64> = (0..5).map(|_| random.random_range(0..30)).collect();
        let figure = 3.0 * counts[2] as f64 + random.random_range(-20.0..20.0);
        history.push(&mut window, counts, Some(figure).filter(|_| random.random_bool(0.9)));
    }
    let settings = Settings { max_lag: 3, ..Settings::default() };
    let (counts, figure) = history.last(300);
    let findings = window.findings(&settings);
    assert_eq!(findings, analyse(&counts, &figure, &settings));
    assert!(findings[2].is_culprit);
}

#[test]
fn a_type_that_is_forgotten_begins_anew() {
    let mut random = StdRng::seed_from_u64(3);
    let (mut window, mut history) = (Window::new(40), History::default());
    for pushed in 0..300 {
        let counts: Vec<u64> = (0..3).map(|_| random.random_range(0..30)).collect();
        let figure = Some(counts[1] as f64 + random.random_range(0.0..10.0));
        history.push(&mut window, counts, figure);
        if pushed % 70 == 69 {
            window.forget(1);
            window.forget(7);
            history.counts.iter_mut().for_each(|row| row[1] = 0);
        }
        let (counts, figure) = history.last(40);
        assert_same(&window.correlations(), &counts, &figure, pushed);
    }
}
