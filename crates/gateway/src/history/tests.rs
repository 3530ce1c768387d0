//! The writer with faulty disks, other gateways and clock jumps; without its thread, in virtual time.

use std::sync::atomic::AtomicU32;

use super::metrics::Scope;
use super::query::Points;
use super::writer::Writer;
use super::*;

/// A directory of its own, removed at the end.
pub(super) struct Scratch(pub(super) PathBuf);

impl Scratch {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Relaxed);
        let path = std::env::temp_dir().join(format!("tidegate-history-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(super) fn file(&self) -> PathBuf {
        self.0.join(writer::FILE)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A writer in a directory, driven second by second.
pub(super) struct TestStore {
    pub(super) inner: Arc<Inner>,
    pub(super) writer: Writer,
}

impl TestStore {
    pub(super) fn new(dir: &Path) -> Self {
        let inner = Arc::new(Inner::new(Arc::new(Clock::new()), dir.join(writer::FILE)));
        let mut writer = Writer::new(inner.clone(), dir.to_path_buf(), 8);
        writer.open();
        Self { inner, writer }
    }

    /// Writes these seconds, each with its own number as goodput.
    pub(super) fn play(&mut self, seconds: impl IntoIterator<Item = u64>) {
        for at in seconds {
            let values = |s: Series| {
                let n = s.scope().metrics().len();
                (s, vec![at as f32; n])
            };
            self.writer.take(Second { at, series: vec![values(Series::all()), values(Series::gate())] });
        }
    }

    pub(super) fn on_disk(&self) -> bool {
        self.inner.on_disk.load(Relaxed)
    }

    pub(super) fn ask(&self, from: u64, to: u64, step: Option<u64>, now: u64) -> Points {
        let query = Query { metric: "goodput".into(), series: Series::all(), from, to, step };
        self.inner.look(|reader, memory| query::answer(&query, reader, memory, now)).unwrap()
    }

    /// What the file has, without memory.
    pub(super) fn in_file(&self, archive: usize, to: u64) -> Vec<u64> {
        let reader = Reader::open(&self.inner.path).unwrap();
        let mut found = Vec::new();
        reader.read(archive, &Series::all(), 0..to, |at, _| found.push(at)).unwrap();
        found.sort_unstable();
        found
    }
}

#[test]
fn seconds_are_kept_and_found_after_a_restart() {
    let dir = Scratch::new();
    let mut store = TestStore::new(&dir.0);
    store.play(7_200..9_000);
    assert!(store.on_disk());
    // As after kill -9: nothing was closed.
    std::mem::forget(std::mem::replace(
        &mut store.writer,
        Writer::new(store.inner.clone(), dir.0.join("x"), 8),
    ));
    let copy = Scratch::new();
    for name in ["history.db", "history.db-wal"] {
        std::fs::copy(dir.0.join(name), copy.0.join(name)).unwrap();
    }
    let mut store = TestStore::new(&copy.0);
    store.play(9_600..10_802);
    let points = store.ask(7_200, 10_800, Some(3_600), 10_802);
    let seconds = (7_200..9_000).chain(9_600..10_800);
    let mean = seconds.clone().sum::<u64>() as f32 / seconds.count() as f32;
    let whole = points.whole.unwrap();
    assert!((whole.average - mean).abs() < 0.01, "{whole:?} for {mean}");
    assert_eq!((whole.min, whole.max), (7_200.0, 10_799.0));
    // The gap is the time the gateway was down.
    let minutes = store.ask(8_880, 9_720, Some(60), 10_802);
    let nothing: Vec<u64> = minutes.points.iter().filter(|p| p.value.is_nothing()).map(|p| p.at).collect();
    assert_eq!(nothing, Vec::from_iter((9_000..9_600).step_by(60)));
}

/// A detector that comes later is a series that the file did not have.
#[test]
fn a_detector_added_later_is_kept_beside_the_classes_and_found_after_a_restart() {
    let dir = Scratch::new();
    let mut store = TestStore::new(&dir.0);
    let second = |at: u64, series: &[Series]| {
        let values = |s: &Series| (s.clone(), vec![at as f32; s.scope().metrics().len()]);
        Second { at, series: series.iter().map(values).collect() }
    };
    let mut all = vec![Series::gate(), Series::all()];
    (7_200..7_500).for_each(|at| store.writer.take(second(at, &all)));
    all.push(Series::detector("cpu"));
    (7_500..7_860).for_each(|at| store.writer.take(second(at, &all)));
    drop(store);
    let store = TestStore::new(&dir.0);
    assert_eq!(Reader::open(&store.inner.path).unwrap().series().unwrap().len(), 3);
    let ask = |metric: &str, series: &Series, step| {
        let query = Query { metric: metric.into(), series: series.clone(), from: 7_200, to: 7_800, step };
        store.inner.look(|reader, memory| query::answer(&query, reader, memory, 7_860)).unwrap()
    };
    let points = ask("detector_reading", &Series::detector("cpu"), Some(1)).points;
    let known = points.iter().filter(|point| !point.value.is_nothing());
    assert_eq!(known.map(|point| point.at).collect::<Vec<_>>(), Vec::from_iter(7_500..7_800));
    let minutes = ask("detector_level", &Series::detector("cpu"), Some(60)).points;
    let minute = aggregate::Spread { average: 7_529.5, min: 7_500.0, max: 7_559.0 };
    assert_eq!(minutes.iter().find(|point| point.at == 7_500).map(|point| point.value), Some(minute));
    assert_eq!(ask("goodput", &Series::all(), None).points.len(), 600);
}

#[test]
fn an_unwritable_directory_means_memory_until_it_is_writable() {
    let dir = Scratch::new();
    let place = dir.0.join("place");
    std::fs::write(&place, "a file where the directory should be").unwrap();
    let mut store = TestStore::new(&place);
    store.play(1_000..3_000);
    assert!(!store.on_disk() && store.inner.failures.load(Relaxed) >= 2);
    assert_eq!(store.ask(2_970, 3_000, None, 3_000).points.len(), 30, "from memory");
    std::fs::remove_file(&place).unwrap();
    store.play(3_000..3_015);
    assert!(store.on_disk());
    // What was in memory is written: a quarter of an hour of seconds, more of the coarser archives.
    let [seconds, fives, minutes] = [0, 1, 2].map(|archive| store.in_file(archive, 9_000));
    assert!(seconds.len() >= 900 && seconds == Vec::from_iter(seconds[0]..3_015), "{seconds:?}");
    assert!(
        fives[0] + 200 < seconds[0] && fives == Vec::from_iter((fives[0]..3_010).step_by(5)),
        "{fives:?}"
    );
    assert_eq!(minutes, Vec::from_iter((960..2_990).step_by(60)), "all of them");
}

#[test]
fn a_disk_that_is_full_for_a_while_loses_nothing() {
    let dir = Scratch::new();
    let mut store = TestStore::new(&dir.0);
    store.play(1_000..1_010);
    store.writer.fill_disk();
    let filled = (1_010..2_000).find(|at| {
        store.play([*at]);
        !store.on_disk()
    });
    let filled = filled.expect("it is full at last");
    store.play(filled + 1..filled + 15);
    assert!(store.on_disk() && store.inner.failures.load(Relaxed) >= 1);
    assert_eq!(store.in_file(0, 9_000), Vec::from_iter(1_000..filled + 15));
}

#[test]
fn two_gates_do_not_share_a_file() {
    let dir = Scratch::new();
    let mut first = TestStore::new(&dir.0);
    let mut second = TestStore::new(&dir.0);
    first.play(100..110);
    second.play(100..110);
    assert!(first.on_disk() && !second.on_disk());
    assert_eq!(second.ask(100, 110, None, 110).points.len(), 10);
    drop(first);
    second.play(110..125);
    assert!(second.on_disk(), "the first is gone");
}

#[test]
fn a_damaged_file_is_set_aside() {
    let dir = Scratch::new();
    std::fs::write(dir.file(), "rubbish".repeat(2_000)).unwrap();
    let mut store = TestStore::new(&dir.0);
    store.play(100..105);
    assert!(store.on_disk());
    assert!(std::fs::read(dir.0.join("history.db.damaged")).unwrap().starts_with(b"rubbish"));
    assert_eq!(store.in_file(0, 200), [100, 101, 102, 103, 104]);
    for name in ["history.db", "history.db-wal"] {
        let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(dir.0.join(name)).unwrap());
        assert_eq!(mode & 0o077, 0, "{name} is private");
    }
    drop(store);
    // Its beginning is valid, the rest damaged.
    let mut bytes = std::fs::read(dir.file()).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..].fill(0xa5);
    std::fs::write(dir.file(), &bytes).unwrap();
    let mut store = TestStore::new(&dir.0);
    store.play(105..107);
    assert_eq!(store.in_file(0, 200), [105, 106]);
    assert_eq!(std::fs::read(dir.0.join("history.db.damaged.1")).unwrap(), bytes);
    assert!(std::fs::read(dir.0.join("history.db.damaged")).unwrap().starts_with(b"rubbish"), "still there");
}

#[test]
fn a_removed_file_is_created_again() {
    let dir = Scratch::new();
    let mut store = TestStore::new(&dir.0);
    store.play(1_000..1_070);
    for name in ["history.db", "history.db-wal", "history.db-shm"] {
        std::fs::remove_file(dir.0.join(name)).unwrap();
    }
    store.play(1_070..1_200);
    assert!(store.on_disk());
    assert!(store.in_file(0, 1_200).ends_with(&Vec::from_iter(1_121..1_200)));
}

#[test]
fn a_clock_that_jumps_back_and_on_again_damages_nothing() {
    let dir = Scratch::new();
    let mut store = TestStore::new(&dir.0);
    store.play((10_000..10_100).chain(5_000..5_100).chain(10_200..10_210));
    assert!(store.on_disk());
    let points = store.ask(10_190, 10_210, None, 10_210);
    assert_eq!(points.whole.unwrap().min, 10_200.0);
    let old = store.in_file(0, 20_000);
    let expected: Vec<u64> = (5_000..5_100).chain(10_000..10_100).chain(10_200..10_210).collect();
    assert!(old.iter().all(|at| expected.contains(at)), "{old:?}");
    drop(store);
    TestStore::new(&dir.0).play(10_300..10_310);
}

#[test]
fn a_full_queue_drops_and_counts() {
    let (queue, seconds) = sync_channel(2);
    let history = History {
        inner: Arc::new(Inner::new(Arc::new(Clock::new()), PathBuf::new())),
        queue: Mutex::new(Some(queue)),
        ended: Mutex::default(),
    };
    (0..5).for_each(|at| history.record(Second { at, series: Vec::new() }));
    assert_eq!(history.health().dropped, 3);
    assert_eq!(seconds.try_iter().map(|s| s.at).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn the_writer_ends_with_everything_written_and_tuners_get_their_peak() {
    let dir = Scratch::new();
    let clock = Arc::new(Clock::new());
    let settings = tidegate_settings::History::default();
    let history = History::start(&settings, &dir.0, clock.clone());
    let now = clock.now().second();
    for at in now - 40..now {
        let values = vec![(at + 100 - now) as f32; Scope::Class.metrics().len()];
        history.record(Second {
            at,
            series: vec![(Series::all(), values.clone()), (Series::class("a"), values)],
        });
    }
    history.close();
    assert_eq!(history.health().dropped, 0);
    let ask = |class| {
        (
            history.peak("goodput", class, Duration::from_secs(60)),
            history.peak("nonsense", class, Duration::from_secs(60)),
        )
    };
    assert_eq!(ask("a"), (Some(99.0), None));
    assert_eq!(ask("all"), (Some(99.0), None));
    assert_eq!(ask("b"), (None, None));
    let mean = history.mean("arrivals", "a", Duration::from_secs(60)).unwrap();
    assert!((mean - 79.5).abs() < 1e-3, "{mean}");
    let again = History::start(&settings, &dir.0, clock);
    again.close();
    assert_eq!(again.peak("goodput", "all", Duration::from_secs(60)), Some(99.0));
}
