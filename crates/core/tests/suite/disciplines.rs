//! The disciplines against a plain list, and CoDel against its source.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::queue::{
    CoDel, Discipline, DisciplineKind, Full, Lane, Queue, QueueConfig, QueueHandle, Waiting,
};
use tidegate_core::units::{ClassId, Cost, Timestamp};

const TARGET: Duration = Duration::from_millis(20);
const INTERVAL: Duration = Duration::from_millis(100);
const MAX: usize = 12;

fn ms(ms: u64) -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000 + ms)
}

fn entry(id: u64, since: u64) -> Waiting {
    Waiting {
        id,
        class: ClassId(0),
        lane: Lane::Ordinary,
        cost: Cost::ONE,
        since: ms(since),
        until: None,
        turn: id,
    }
}

fn config(discipline: DisciplineKind) -> QueueConfig {
    QueueConfig { discipline, target: TARGET, interval: INTERVAL, ..QueueConfig::default() }
}

#[derive(Clone, Debug)]
enum Op {
    Push,
    Pop,
    PopOldest,
    /// The n-th waiting request, modulo their number.
    Remove(usize),
    Advance(u64),
    Switch(DisciplineKind),
}

fn kind() -> impl Strategy<Value = DisciplineKind> {
    use DisciplineKind::{AdaptiveLifo, CoDel, Fifo, Lifo};
    prop::sample::select(vec![Fifo, Lifo, AdaptiveLifo, CoDel])
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => Just(Op::Push),
        5 => Just(Op::Pop),
        1 => Just(Op::PopOldest),
        2 => any::<usize>().prop_map(Op::Remove),
        4 => (0u64..30).prop_map(Op::Advance),
        1 => kind().prop_map(Op::Switch),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn a_queue_equals_a_list(first in kind(), ops in prop::collection::vec(op(), 1..200)) {
        let (mut queue, mut kind) = (Queue::new(&config(first), MAX), first);
        let (mut list, mut now, mut next) = (Vec::<(QueueHandle, Waiting)>::new(), 0, 0);
        // Handles of requests that have left: they find no other request.
        let mut stale = Vec::<QueueHandle>::new();
        for op in ops {
            match op {
                Op::Push => {
                    next += 1;
                    let full = list.len() >= MAX;
                    match queue.push(entry(next, now)) {
                        Ok(handle) => {
                            prop_assert!(!full);
                            let is_taken = |(other, _): &(QueueHandle, _)| other.slot() == handle.slot();
                            prop_assert!(handle.slot() < MAX && !list.iter().any(is_taken));
                            list.push((handle, entry(next, now)));
                        }
                        Err(refused) => prop_assert_eq!((full, refused), (true, Full { len: list.len() })),
                    }
                }
                Op::Pop => {
                    let newest = match kind {
                        DisciplineKind::Fifo | DisciplineKind::CoDel => false,
                        DisciplineKind::Lifo => true,
                        DisciplineKind::AdaptiveLifo => {
                            list.first().is_some_and(|(_, w)| ms(now).since(w.since) > TARGET)
                        }
                    };
                    let expected = if newest { list.last() } else { list.first() }.copied();
                    prop_assert_eq!(queue.peek(Lane::Ordinary, ms(now)).copied(), expected.map(|(_, w)| w));
                    prop_assert_eq!(queue.pop(Lane::Ordinary, ms(now)), expected);
                    list.retain(|left| Some(*left) != expected);
                    stale.extend(expected.map(|(handle, _)| handle));
                }
                Op::PopOldest => {
                    let expected = (!list.is_empty()).then(|| list.remove(0));
                    prop_assert_eq!(queue.pop_oldest(), expected);
                    stale.extend(expected.map(|(handle, _)| handle));
                }
                Op::Remove(n) if !list.is_empty() => {
                    let (handle, gone) = list.remove(n % list.len());
                    prop_assert_eq!(queue.remove(handle), Some(gone));
                    stale.push(handle);
                }
                Op::Remove(_) => {}
                Op::Advance(by) => now += by,
                Op::Switch(to) => {
                    kind = to;
                    queue.configure(&config(to), MAX);
                }
            }
            prop_assert_eq!(queue.len(), list.len());
            prop_assert_eq!(queue.oldest(), list.first().map(|(_, w)| w));
            for handle in &stale {
                prop_assert_eq!(queue.remove(*handle), None);
            }
        }
    }

    /// Against `folly/executors/Codel.cpp`, flag by flag.
    #[test]
    fn codel_equals_its_source(steps in prop::collection::vec((0u64..60, 0u64..120), 1..300)) {
        let mut codel = CoDel::new(&config(DisciplineKind::CoDel));
        let (mut interval_end, mut min_delay, mut reset, mut overloaded) = (0, Duration::ZERO, false, false);
        let mut now = 0;
        for (pause, delay) in steps {
            now += pause;
            let (at, delay) = (ms(now).as_micros(), Duration::from_millis(delay));
            if at > interval_end && !reset {
                reset = true;
                interval_end = at + INTERVAL.as_micros() as u64;
                overloaded = min_delay > TARGET;
            }
            let expected = if reset {
                reset = false;
                min_delay = delay;
                false
            } else {
                min_delay = min_delay.min(delay);
                overloaded && delay > 2 * TARGET
            };
            prop_assert_eq!(codel.is_refused(delay, ms(now)), expected);
        }
    }
}

/// An origin that serves one request in 5 ms is offered one every `every_us` microseconds for ten seconds.
/// Returns the waits of requests served in the second half, and the number refused.
fn offered(every_us: u64) -> (Vec<Duration>, usize) {
    let mut queue = Queue::new(&config(DisciplineKind::CoDel), 100_000);
    let at = |us: u64| Timestamp::from_micros(1_800_000_000_000_000 + us);
    let (mut waits, mut refused, mut next) = (Vec::new(), 0, 0);
    for served in (0..10_000_000).step_by(5_000) {
        while next * every_us <= served {
            let waiting = Waiting { since: at(next * every_us), ..entry(next, 0) };
            queue.push(waiting).unwrap();
            next += 1;
        }
        while queue.is_refused(at(served)) {
            queue.pop(Lane::Ordinary, at(served));
            refused += 1;
        }
        let waited = queue.pop(Lane::Ordinary, at(served)).map(|(_, w)| at(served).since(w.since));
        waits.extend(waited.filter(|_| served > 5_000_000));
    }
    (waits, refused)
}

#[test]
fn codel_keeps_the_wait_short_and_leaves_a_moving_queue_alone() {
    let (waits, refused) = offered(5_000);
    assert!(refused == 0 && waits.len() > 900, "{refused} refused although the queue moves");
    for every_us in [4_000, 2_500, 1_000] {
        let (waits, refused) = offered(every_us);
        assert!(refused > 0 && waits.len() > 900, "the origin is not idle: {}", waits.len());
        // One request per interval is served however long it has waited.
        let late = waits.iter().filter(|wait| **wait > 2 * TARGET).count();
        assert!(late <= 5_000 / 100 + 1, "{late} of {} waited for more than two targets", waits.len());
    }
}

/// Under overload the requests that LIFO serves have hardly waited, and those of FIFO have waited for too
/// long.
#[test]
fn lifo_serves_in_time_under_overload() {
    let served_in_time = |kind| {
        let mut queue = Queue::new(&config(kind), 100_000);
        let mut in_time = 0;
        for k in 0..2_000 {
            queue.push(entry(2 * k, 5 * k)).unwrap();
            queue.push(entry(2 * k + 1, 5 * k)).unwrap();
            let waited = queue.pop(Lane::Ordinary, ms(5 * k)).map(|(_, w)| ms(5 * k).since(w.since));
            in_time += usize::from(waited.unwrap() < Duration::from_secs(1));
        }
        in_time
    };
    assert!(served_in_time(DisciplineKind::Fifo) < 500);
    assert_eq!(served_in_time(DisciplineKind::AdaptiveLifo), 2_000);
    assert_eq!(served_in_time(DisciplineKind::Lifo), 2_000);
}

#[test]
fn an_empty_queue_resets_codel() {
    codel_is_reset(|queue, _| while queue.pop(Lane::Ordinary, ms(400)).is_some() {});
    codel_is_reset(|queue, _| while queue.pop_oldest().is_some() {});
    codel_is_reset(|queue, handles| handles.iter().for_each(|handle| _ = queue.remove(*handle)));
}

/// `empty` removes all waiting requests.
fn codel_is_reset(empty: impl Fn(&mut Queue, &[QueueHandle])) {
    let mut queue = Queue::new(&config(DisciplineKind::CoDel), 100);
    let mut id = 0;
    // One more request waits all the time, so the queue never runs empty: overloaded for two intervals.
    let mut handles = vec![queue.push(entry(0, 0)).unwrap(), queue.push(entry(1_000, 0)).unwrap()];
    let mut serve = |queue: &mut Queue, since: u64, now: u64| {
        id += 1;
        handles.push(queue.push(entry(id, since)).unwrap());
        let refused = queue.is_refused(ms(now));
        queue.pop(Lane::Ordinary, ms(now));
        refused
    };
    let refused = (1..30).filter(|n| serve(&mut queue, 10 * n, 10 * n + 60)).count();
    assert!(refused > 10, "{refused}");
    assert!(!queue.is_empty());
    empty(&mut queue, &handles);
    assert!(queue.is_empty());
    // An hour later comes a burst that waits for longer than two targets but drains within an interval.
    let hour = 3_600_000;
    for n in 0..5 {
        queue.push(entry(2_000 + n, hour)).unwrap();
    }
    for n in 0..5 {
        let now = ms(hour + 50 + n);
        assert!(!queue.is_refused(now), "request {n} of a burst after an idle hour");
        queue.pop(Lane::Ordinary, now);
    }
}
