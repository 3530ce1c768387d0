//! The history's file: size after a year, time to write a second and to query. `cargo bench -p
//! tidegate-gateway --bench history`.

use std::path::Path;
use std::time::Instant;

use tidegate_gateway::history::aggregate::{Aggregate, Spread};
use tidegate_gateway::history::archive::{ARCHIVES, Consolidator, Row, Second, Series};
use tidegate_gateway::history::memory::Memory;
use tidegate_gateway::history::query::{Query, answer};
use tidegate_gateway::history::store::{Reader, Store, most_bytes};

const NOW: u64 = 1_700_000_000;

fn main() {
    for classes in [1, 16] {
        let path =
            std::env::temp_dir().join(format!("tidegate-history-bench-{}-{classes}.db", std::process::id()));
        year(&path, classes);
        for tail in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{tail}", path.display()));
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn now() -> Instant {
    Instant::now()
}

/// Fills all archives, then measures the writing of seconds, then queries.
fn year(path: &Path, classes: usize) {
    let names = (0..classes).map(|i| Series::class(&format!("class{i}")));
    let series: Vec<Series> = [Series::all(), Series::gate()].into_iter().chain(names).collect();
    let mut store = Store::open(path, 64).expect("a file");
    // Coarsest first, because a series begins with its first row.
    for (archive, a) in ARCHIVES.iter().enumerate().rev() {
        let ats = (a.oldest(NOW)..=a.start(NOW)).step_by(a.step as usize);
        let row = |at: u64, series: &Series| {
            let spread = Spread { average: (at % 977) as f32, min: 0.0, max: 1e3 };
            let values = vec![spread; series.scope().metrics().len()];
            Row { archive, at, series: series.clone(), data: Aggregate { seconds: a.step as u32, values } }
        };
        let rows: Vec<Row> = ats.flat_map(|at| series.iter().map(move |s| row(at, s))).collect();
        store.write(NOW, &rows).expect("rows");
    }
    drop(store);
    let bytes = std::fs::metadata(path).expect("the file").len();
    println!("{classes:2} classes: {:6.1} MB, at most {:6.1} MB", mb(bytes), mb(most_bytes(series.len())));
    seconds(path, &series);
    queries(path);
}

/// An hour of seconds, one transaction each, with the checkpoints that fall in it.
fn seconds(path: &Path, series: &[Series]) {
    let mut store = Store::open(path, 64).expect("the file");
    let mut consolidator = Consolidator::default();
    let mut times: Vec<u128> = (NOW + 1..NOW + 3_601)
        .map(|at| {
            let values = |s: &Series| (s.clone(), vec![(at % 977) as f32; s.scope().metrics().len()]);
            let second = Second { at, series: series.iter().map(values).collect() };
            let (start, mut rows) = (now(), Vec::new());
            consolidator.push(&second, &mut rows);
            store.write(at, &rows).expect("rows");
            start.elapsed().as_micros()
        })
        .collect();
    let mean = times.iter().sum::<u128>() / times.len() as u128;
    times.sort_unstable();
    println!(
        "   a second: mean {mean} µs, median {} µs, 99 % {} µs, longest {} µs",
        times[times.len() / 2],
        times[times.len() * 99 / 100],
        times[times.len() - 1]
    );
}

fn queries(path: &Path) {
    let now_s = NOW + 3_600;
    for (what, ago) in
        [("15 min", 900), ("2 h", 7_200), ("2 d", 172_800), ("30 d", 2_592_000), ("1 y", 31_536_000)]
    {
        let (metric, from) = ("response_p99".into(), now_s - ago);
        let query = Query { metric, series: Series::all(), from, to: now_s, step: None };
        let mut times = Vec::new();
        let (mut n, mut step) = (0, 0);
        for _ in 0..21 {
            // A new connection each time, so that SQLite's cache is empty, as for a first query.
            let start = now();
            let reader = Reader::open(path).expect("the file");
            let points =
                answer(&query, Some(&reader), &Memory::default(), now_s).expect("rows").expect("points");
            (n, step) = (points.points.len(), points.step);
            std::hint::black_box(points);
            times.push(start.elapsed().as_micros());
        }
        times.sort_unstable();
        println!(
            "   {what:>6}: {n:5} intervals of {:4} s in {:6} µs, longest {:6} µs",
            step, times[10], times[20]
        );
    }
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
