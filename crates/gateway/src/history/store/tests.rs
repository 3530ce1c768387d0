//! The file: rows overwritten in place, the size bound over a year, and other files under its name.

use super::*;
use crate::history::aggregate::{Aggregate, Spread};
use crate::history::archive::{Consolidator, Second};
use crate::history::tests::Scratch;

fn data(scope: Scope, value: f32) -> Aggregate {
    Aggregate { seconds: 1, values: vec![Spread::one(value); scope.metrics().len()] }
}

fn row(archive: usize, series: &Series, at: u64, value: f32) -> Row {
    Row { archive, at, series: series.clone(), data: data(series.scope(), value) }
}

fn read_all(path: &Path, archive: usize, series: &Series, span: Range<u64>) -> Vec<(u64, f32)> {
    let reader = Reader::open(path).unwrap();
    let mut found = Vec::new();
    let layout = reader.layouts().of(series.scope());
    reader.read(archive, series, span, |at, bytes| found.push((at, layout.figure(bytes, 0).max))).unwrap();
    found.sort_by_key(|(at, _)| *at);
    found
}

#[test]
fn the_newest_row_overwrites_the_oldest() {
    let dir = Scratch::new();
    let mut store = Store::open(&dir.file(), 8).unwrap();
    for (archive, Archive { step, rows }) in ARCHIVES.iter().enumerate() {
        // A little more than one turn of the ring in one write: a reader finds the last turn.
        let first = 1_000_000_000 / step * step;
        let all: Vec<Row> = (0..rows + 10)
            .map(|i| row(archive, &Series::all(), first + i * step, i as f32))
            .chain([row(archive, &Series::gate(), first, -1.0)])
            .collect();
        store.write(first, &all).unwrap();
        let end = first + (rows + 10) * step;
        let found = read_all(&dir.file(), archive, &Series::all(), 0..end);
        assert_eq!(found.len() as u64, *rows);
        assert_eq!((found[0], found.last().unwrap().1), ((first + 10 * step, 10.0), (rows + 9) as f32));
        let part = read_all(&dir.file(), archive, &Series::all(), end - 20 * step..end - 5 * step);
        assert_eq!(
            part.iter().map(|(at, _)| *at).collect::<Vec<_>>(),
            Vec::from_iter((5..20).rev().map(|i| end - (i + 1) * step))
        );
        assert_eq!(read_all(&dir.file(), archive, &Series::gate(), 0..end), [(first, -1.0)]);
        assert_eq!(read_all(&dir.file(), archive, &Series::class("none"), 0..end), []);
    }
}

/// A year in which every archive's ring is filled; fewer seconds where only the coarser ones are not full
/// yet.
fn year(first: u64) -> impl Iterator<Item = u64> {
    let phases = [(1, 16_000), (60, 3 * 86_400), (600, 31 * 86_400), (3600, 370 * 86_400)];
    let mut from = first;
    phases.into_iter().flat_map(move |(step, span)| {
        let phase = (from..from + span).step_by(step);
        from += span;
        phase
    })
}

#[test]
fn a_year_stays_within_the_stated_bound_and_then_grows_no_more() {
    let dir = Scratch::new();
    let mut store = Store::open(&dir.file(), 8).unwrap();
    let mut consolidator = Consolidator::default();
    let (first, mut rows, mut last) = (1_700_000_000, Vec::new(), 0);
    let of = |at: u64| {
        let mut series = vec![Series::gate(), Series::all(), Series::class("default")];
        // A class is added when the finest archives are full: its rows are inserted between others.
        if at > first + 7_500 {
            series.push(Series::class("late"));
        }
        let values = |s: &Series| vec![(at % 1_000) as f32; s.scope().metrics().len()];
        Second {
            at,
            series: series
                .into_iter()
                .map(|s| {
                    let v = values(&s);
                    (s, v)
                })
                .collect(),
        }
    };
    for at in year(first) {
        consolidator.push(&of(at), &mut rows);
        if rows.len() > 20_000 {
            store.write(at, rows.drain(..).as_slice()).unwrap();
        }
        last = at;
    }
    store.write(last, &rows).unwrap();
    let size = |store: &Store| {
        store.db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        std::fs::metadata(dir.file()).unwrap().len()
    };
    let (bytes, most) = (size(&store), most_bytes(4));
    assert!(bytes <= most, "{bytes} of at most {most}");
    assert!(bytes > most / 4, "the bound says something: {bytes} of {most}");
    let hours = read_all(&dir.file(), 4, &Series::all(), last - 364 * 86_400..last);
    assert!(hours.len() >= 364 * 24 - 1, "{}", hours.len());
    rows.clear();
    for at in last + 1..last + 8_000 {
        consolidator.push(&of(at), &mut rows);
    }
    store.write(last + 8_000, &rows).unwrap();
    assert_eq!(size(&store), bytes);
}

#[test]
fn an_unused_class_makes_room_and_leaves_no_rows_behind() {
    let dir = Scratch::new();
    let mut store = Store::open(&dir.file(), 3).unwrap();
    let [all, old, new] = [Series::all(), Series::class("old"), Series::class("new")];
    let second = |series: &Series, at| row(0, series, at, at as f32);
    let write = |store: &mut Store, at, series: &[&Series]| {
        let rows: Vec<Row> = series.iter().map(|s| second(s, at)).collect();
        store.write(at, &rows).unwrap()
    };
    for at in 1_000..1_010 {
        assert_eq!(write(&mut store, at, &[&all, &Series::gate(), &old]), 0);
    }
    assert_eq!(write(&mut store, 1_011, &[&all, &Series::gate(), &old, &new]), 1, "all are in use");
    for at in 1_500..1_503 {
        write(&mut store, at, &[&all, &Series::gate(), &new]);
    }
    assert_eq!(
        read_all(&dir.file(), 0, &new, 0..2_000),
        [(1_500, 1_500.0), (1_501, 1_501.0), (1_502, 1_502.0)]
    );
    assert_eq!(read_all(&dir.file(), 0, &old, 0..2_000), []);
    // Rows that the old class wrote before the clock jumped back are not the new one's either.
    drop(store);
    let mut store = Store::open(&dir.file(), 3).unwrap();
    write(&mut store, 1_400, &[&all, &Series::gate()]);
    write(&mut store, 1_800, &[&all, &Series::gate(), &old]);
    assert_eq!(read_all(&dir.file(), 0, &old, 0..3_000), [(1_800, 1_800.0)]);
}

#[test]
fn a_full_disk_is_an_error_and_loses_nothing_written() {
    let dir = Scratch::new();
    let mut store = Store::open(&dir.file(), 8).unwrap();
    store.write(5, &[row(0, &Series::all(), 5, 1.0)]).unwrap();
    store.limit_pages(1).unwrap();
    let many: Vec<Row> = (6..800).map(|at| row(0, &Series::class("x"), at, 2.0)).collect();
    assert!(matches!(store.write(800, &many), Err(StoreError::Sqlite(_))));
    assert_eq!(store.last(), Some(5));
    store.limit_pages(10_000).unwrap();
    store.write(800, &many).unwrap();
    assert_eq!(read_all(&dir.file(), 0, &Series::all(), 0..900), [(5, 1.0)]);
    assert_eq!(read_all(&dir.file(), 0, &Series::class("x"), 0..900).len(), 794);
}

#[test]
fn a_file_that_is_not_ours_is_damaged() {
    let other = |make: &dyn Fn(&Path)| {
        let dir = Scratch::new();
        make(&dir.file());
        let opened = Store::open(&dir.file(), 8);
        assert!(matches!(opened, Err(StoreError::Damaged(_))), "{:?}", opened.err());
    };
    other(&|path| {
        std::fs::write(path, "not a database, but as long as one has to be. ".repeat(100)).unwrap()
    });
    other(&|path| Connection::open(path).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap());
    other(&|path| {
        drop(Store::open(path, 8).unwrap());
        Connection::open(path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    });
    other(&|path| {
        drop(Store::open(path, 8).unwrap());
        Connection::open(path).unwrap().execute_batch("DROP TABLE series").unwrap();
    });
    other(&|path| {
        drop(Store::open(path, 8).unwrap());
        Connection::open(path).unwrap().execute_batch("UPDATE metric SET place = 7").unwrap();
    });
}

#[test]
fn a_figure_that_an_older_file_lacks_is_added() {
    let dir = Scratch::new();
    let all = Series::all();
    drop(Store::open(&dir.file(), 8).unwrap());
    let old = Connection::open(dir.file()).unwrap();
    old.execute_batch(
        "DELETE FROM metric WHERE name = 'arrivals'; INSERT INTO metric VALUES ('class', 'retired', 0)",
    )
    .unwrap();
    drop(old);
    let mut store = Store::open(&dir.file(), 8).unwrap();
    store.write(5, &[row(0, &all, 5, 3.0)]).unwrap();
    assert_eq!(read_all(&dir.file(), 0, &all, 0..10), [(5, 3.0)]);
    let known: i64 = store.db.query_row("SELECT count(*) FROM metric", [], |row| row.get(0)).unwrap();
    let ours = Scope::ALL.map(|s| s.metrics().len()).iter().sum::<usize>();
    assert_eq!(known as usize, ours + 1);
}
