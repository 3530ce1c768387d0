//! Killed processes, files that become available late, and other files under the history's name.

use super::metrics::Scope;
use super::store::Reader;
use super::tests::{Scratch, TestStore};
use super::*;

#[test]
fn a_file_that_is_opened_late_is_continued_without_a_loss() {
    // The first process ends within an hour, ten minutes, a minute and five seconds. The next one continues
    // to measure, and opens the file only after each of these, or at once. The file's hours and minutes
    // always include all seconds.
    for late in [4, 14, 60, 640, 4_000] {
        let dir = Scratch::new();
        let mut first = TestStore::new(&dir.0);
        first.play(7_200..9_023);
        let mut second = TestStore::new(&dir.0);
        assert!(!second.on_disk(), "taken");
        second.play(9_023..9_023 + late);
        // The same seconds again are not counted twice.
        first.play(9_023..9_030);
        drop(first);
        second.play(9_023 + late..14_500);
        assert!(second.on_disk());
        let reader = Reader::open(&dir.file()).unwrap();
        for (archive, step) in [(1, 5), (2, 60), (3, 600), (4, 3_600)] {
            let (span, layout) = (7_200..14_400, reader.layouts().of(Scope::Class));
            let mut whole = 0;
            let check = |at: u64, bytes: &[u8]| {
                let (seconds, value) = (layout::Layout::seconds(bytes), layout.figure(bytes, 0));
                let mean = at as f32 + (step - 1) as f32 / 2.0;
                let right = (step as u32, mean, at as f32, (at + step - 1) as f32);
                assert_eq!(
                    (seconds, value.average, value.min, value.max),
                    right,
                    "{step} s at {at}, {late} s late"
                );
                whole += 1;
            };
            reader.read(archive, &Series::all(), span, check).unwrap();
            // The finest archives have the last two hours, and twenty minutes of those measured in memory.
            assert!(whole >= if step == 5 { 800 } else { 7_200 / step }, "{whole} of {step} s");
        }
    }
}

/// Writes seconds one after another and prints each when it is written, until the process is killed.
fn measure_until_killed(dir: &Path, from: u64) -> ! {
    let mut store = TestStore::new(dir);
    for at in from.. {
        store.play([at]);
        println!("\n{at}");
    }
    unreachable!("there is no last second")
}

#[test]
fn a_killed_process_loses_at_most_its_last_second_in_every_archive() {
    const CHILD: &str = "TIDEGATE_TEST_KILLED";
    const NAME: &str = "history::trouble::a_killed_process_loses_at_most_its_last_second_in_every_archive";
    if let Ok(told) = std::env::var(CHILD) {
        let (from, dir) = told.split_once(' ').expect("where and from when");
        measure_until_killed(Path::new(dir), from.parse().expect("a second"));
    }
    let dir = Scratch::new();
    let (mut next, mut measured) = (7_200, Vec::new());
    // Kills within five seconds, a minute and ten minutes; some with a gap after them.
    for (seconds, gap) in [(2, 0), (9, 2), (50, 0), (130, 7), (333, 0), (701, 61), (1_500, 0)] {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([NAME, "--exact", "--nocapture"])
            .env(CHILD, format!("{next} {}", dir.0.display()))
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
        let mut told = 0;
        for line in lines {
            let Ok(at) = line.unwrap().parse::<u64>() else { continue };
            told = at;
            if at >= next + seconds - 1 {
                // SIGKILL; what the process has printed is still to be read.
                child.kill().unwrap();
            }
        }
        assert!(!child.wait().unwrap().success() && told >= next + seconds - 1, "{told}");
        let store = TestStore::new(&dir.0);
        assert!(store.on_disk());
        let last = *store.in_file(0, 100_000).last().expect("seconds");
        assert!(last == told || last == told + 1, "{told} was told of, {last} is there");
        measured.extend(next..=last);
        next = last + 1 + gap;
    }
    let mut store = TestStore::new(&dir.0);
    store.play(next..18_001);
    measured.extend(next..18_001);
    let reader = Reader::open(&dir.file()).unwrap();
    let layout = reader.layouts().of(Scope::Class);
    for (archive, archive::Archive { step, .. }) in archive::ARCHIVES.iter().enumerate() {
        let mut rows = 0;
        let check = |at: u64, bytes: &[u8]| {
            let of: Vec<f64> =
                measured.iter().filter(|s| (at..at + step).contains(*s)).map(|s| *s as f64).collect();
            let (value, seconds) = (layout.figure(bytes, 0), layout::Layout::seconds(bytes));
            assert_eq!(seconds as usize, of.len(), "{step} s at {at}");
            let mean = of.iter().sum::<f64>() / of.len() as f64;
            assert!((f64::from(value.average) - mean).abs() < 0.01, "{step} s at {at}: {value:?}, {mean}");
            assert_eq!(
                (f64::from(value.min), f64::from(value.max)),
                (of[0], of[of.len() - 1]),
                "{step} s at {at}"
            );
            rows += 1;
        };
        reader.read(archive, &Series::all(), 7_200..18_000, check).unwrap();
        assert!(rows >= 3, "{rows} of {step} s");
    }
}

#[test]
fn at_most_five_files_are_set_aside_and_none_is_lost() {
    let dir = Scratch::new();
    let put = |text: &str| {
        for tail in ["", "-wal"] {
            std::fs::write(dir.0.join(format!("history.db{tail}")), format!("{text}{tail}").repeat(500))
                .unwrap();
        }
    };
    for n in 0..5 {
        put(&format!("rubbish {n}"));
        let mut store = TestStore::new(&dir.0);
        store.play(100..103);
        assert!(store.on_disk(), "{n}");
    }
    let found = |name: &str| std::fs::read_to_string(dir.0.join(name)).unwrap_or_default();
    for (n, name) in ["", ".1", ".2", ".3", ".4"].into_iter().enumerate() {
        for tail in ["", "-wal"] {
            let text = found(&format!("history.db.damaged{name}{tail}"));
            assert!(text.starts_with(&format!("rubbish {n}{tail}")), "{n}{tail}: {text:.20}");
        }
    }
    put("rubbish 5");
    let mut store = TestStore::new(&dir.0);
    store.play(100..103);
    assert!(!store.on_disk() && found("history.db").starts_with("rubbish 5"), "nothing is thrown away");
    assert_eq!(store.ask(100, 103, None, 103).points.len(), 3, "in memory");
    for tail in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(dir.0.join(format!("history.db.damaged.3{tail}")));
    }
    store.play(103..120);
    assert!(store.on_disk() && found("history.db.damaged.3").starts_with("rubbish 5"));
}

#[test]
fn another_program_s_database_is_set_aside_unchanged() {
    let dir = Scratch::new();
    let theirs = rusqlite::Connection::open(dir.file()).unwrap();
    theirs.pragma_update(None, "journal_mode", "WAL").unwrap();
    theirs.execute_batch("CREATE TABLE precious (x); INSERT INTO precious VALUES (42);").unwrap();
    // As after kill -9: its rows are only in the log.
    let wal = std::fs::read(dir.0.join("history.db-wal")).unwrap();
    assert!(!wal.is_empty());
    let copy = Scratch::new();
    for tail in ["", "-wal"] {
        std::fs::copy(dir.0.join(format!("history.db{tail}")), copy.0.join(format!("history.db{tail}")))
            .unwrap();
    }
    drop(theirs);
    let mut store = TestStore::new(&copy.0);
    store.play(100..103);
    assert!(store.on_disk());
    let kept = rusqlite::Connection::open(copy.0.join("history.db.damaged")).unwrap();
    assert_eq!(kept.query_row("SELECT x FROM precious", [], |row| row.get::<_, i64>(0)).unwrap(), 42);
    // A database that is not in WAL mode stays so.
    let other = Scratch::new();
    let theirs = rusqlite::Connection::open(other.file()).unwrap();
    theirs.execute_batch("CREATE TABLE precious (x);").unwrap();
    drop(theirs);
    let before = std::fs::read(other.file()).unwrap();
    TestStore::new(&other.0).play(100..103);
    assert!(std::fs::read(other.0.join("history.db.damaged")).unwrap() == before, "untouched");
}

#[test]
fn the_reported_size_includes_sqlites_other_files() {
    let dir = Scratch::new();
    let mut store = TestStore::new(&dir.0);
    store.play(100..140);
    let there = || -> u64 {
        let of =
            |tail: &str| std::fs::metadata(dir.0.join(format!("history.db{tail}"))).map_or(0, |m| m.len());
        ["", "-wal", "-shm"].into_iter().map(of).sum()
    };
    assert_eq!(store.inner.bytes.load(Relaxed), there());
    for name in ["history.db", "history.db-wal", "history.db-shm"] {
        std::fs::remove_file(dir.0.join(name)).unwrap();
    }
    store.writer.look(1_000_000);
    assert_eq!((store.on_disk(), store.inner.bytes.load(Relaxed)), (false, 0), "gone");
}
