//! Small runs with known figures, and random ones in which every identity must hold.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::outcome::{Outcome, Way};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Asks for the page at `intended`; the answer comes after `response` and means `noted`.
fn ask(
    tally: &mut Tally,
    intended: Duration,
    response: Duration,
    noted: Noted,
    (was, now): (bool, bool),
) -> Duration {
    let at = intended + response;
    tally.sent(RequestKind::Page, intended, intended);
    tally.ended(at);
    tally.noted(&noted, was, now, at);
    at
}

fn served(entered: Duration, response: Duration, waited: Option<Duration>) -> Noted {
    let waited_since = entered - waited.unwrap_or_default();
    Noted::Served { step: 0, entered, response, waited, waited_since }
}

/// A visitor comes at `at`, is served after `response` and leaves.
pub(in crate::tally) fn visit(tally: &mut Tally, at: Duration, response: Duration) {
    tally.arrived(at);
    let now = ask(tally, at, response, served(at, response, None), (false, false));
    tally.left(End::Done, false, now);
}

/// Ten a second for three seconds at a gate that lets five a second in: visitor k comes at 100k ms, is told
/// after 1 ms to wait 100k ms, enters then and is served in 100 ms. The first one is served at once, the last
/// two do not see it through: one does not come back, one is tired after a second.
pub(crate) fn gated() -> Tally {
    let mut tally = Tally::default();
    visit(&mut tally, Duration::ZERO, 100 * MS);
    for k in 1..30 {
        let (at, wait) = (k * 100 * MS, k * 100 * MS);
        tally.arrived(at);
        let told = Noted::ToldToWait { wait: Some(wait), at };
        let now = ask(&mut tally, at, MS, told, (false, true));
        match k {
            28 => tally.left(End::NoShow, true, now),
            29 => tally.left(End::Tired, true, at + SECOND),
            _ => {
                let answer = served(at + wait, 100 * MS, Some(wait));
                let now = ask(&mut tally, at + wait, 100 * MS, answer, (true, false));
                tally.left(End::Done, false, now);
            }
        }
    }
    tally
}

#[track_caller]
pub(in crate::tally) fn expect(outcome: &Outcome, figures: &[(&str, f64)]) {
    for (key, expected) in figures {
        let got = *outcome.summary.get(*key).unwrap_or_else(|| panic!("no {key}"));
        assert!((got - expected).abs() < 1e-9 * expected.max(1.0), "{key}: {got}, expected {expected}");
    }
}

#[test]
fn a_quiet_service() {
    let mut tally = Tally::default();
    (0..10).for_each(|k| visit(&mut tally, k * 500 * MS, 100 * MS));
    let outcome = tally.outcome("quiet", Way::Sim, 1, None);
    expect(
        &outcome,
        &[
            ("offered", 10.0),
            ("done", 10.0),
            ("served", 10.0),
            ("served_share", 1.0),
            ("goodput_rps", 10.0 / 4.6),
            ("goodput_while_waiting_rps", 10.0 / 4.6),
            ("power_ratio", 10.0 / 4.6 / 0.1),
            ("response_mean_ms", 100.0),
            ("response_max_ms", 100.0),
            ("wait_mean_s", 0.0),
            ("peak_waiting", 0.0),
            ("lag_p99_ms", 0.0),
            ("seconds", 4.6),
        ],
    );
    assert_eq!(outcome.series.iter().map(|s| s.served).collect::<Vec<_>>(), [2; 5]);
    assert!(outcome.series.iter().all(|s| s.in_flight == 0 && s.waits == 2 && s.wait_mean_s == 0.0));
}

#[test]
fn a_waiting_room() {
    let outcome = gated().outcome("gated", Way::Real, 1, None);
    // 27 who waited 100 to 2,700 ms; the first entered at 200 ms, the last one at 5,400.
    expect(
        &outcome,
        &[
            ("offered", 30.0),
            ("done", 28.0),
            ("no_shows", 1.0),
            ("tired", 1.0),
            ("present", 0.0),
            ("told_to_wait", 29.0),
            ("requests", 57.0),
            ("served", 28.0),
            ("served_share", 28.0 / 29.0),
            ("wait_mean_s", 1.4),
            ("wait_mean_everyone_s", 27.0 * 1.4 / 28.0),
            ("wait_max_s", 2.7),
            // A visitor waits from 101 to 5,500 ms; counted from the next bin to the one in which it ends.
            ("goodput_while_waiting_rps", 27.0 / 5.4),
            ("seconds", 5.5),
        ],
    );
    let told: Vec<f64> = outcome.series.iter().map(|s| s.wait_told_s).take(3).collect();
    let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
    // Visitors 1 to 9, 10 to 19, 20 to 29 had announced waits; 0 to 9, 10 to 19, 20 to 27 were served.
    assert!(close(told[0], 0.5) && close(told[1], 1.45) && close(told[2], 2.45), "{told:?}");
    let waits: Vec<f64> = outcome.series.iter().map(|s| s.wait_mean_s).take(3).collect();
    assert!(close(waits[0], 0.45) && close(waits[1], 1.45) && close(waits[2], 2.35), "{waits:?}");
    let waiting: Vec<u64> = outcome.series.iter().map(|s| s.waiting).collect();
    // At 1 s visitors 5 to 9 wait, because 5 is served at 1,100 ms; and so on.
    assert_eq!(waiting, [5, 10, 14, 8, 3, 0]);
}

#[test]
fn goodput_while_waiting_leaves_out_when_nobody_does() {
    let mut tally = Tally::default();
    // Two crowds of a second each, ten served a second, and a quiet hour between them.
    for start in [Duration::ZERO, 3600 * SECOND] {
        tally.arrived(start);
        let told = Noted::ToldToWait { wait: None, at: start };
        ask(&mut tally, start, Duration::ZERO, told, (false, true));
        (0..10).for_each(|k| visit(&mut tally, start + k * 100 * MS, 50 * MS));
        tally.left(End::Tired, true, start + SECOND - MS);
        (0..5).for_each(|k| visit(&mut tally, start + 60 * k * SECOND + 5 * SECOND, 50 * MS));
    }
    let goodput = tally.goodput_while_waiting().expect("somebody waited");
    assert!((goodput - 20.0 / 1.98).abs() < 1e-9, "{goodput}");
}

#[test]
fn requests_given_up_count_with_the_time_until_then() {
    let mut tally = Tally::default();
    visit(&mut tally, 100 * MS, 200 * MS);
    tally.arrived(200 * MS);
    tally.sent(RequestKind::Page, 200 * MS, 203 * MS);
    tally.gave_up(200 * MS, 3200 * MS);
    tally.noted(&Noted::Failed(Failure::Patience), false, false, 3200 * MS);
    tally.left(End::Failed(Failure::Patience), false, 3200 * MS);
    visit(&mut tally, 3100 * MS, 400 * MS);
    let outcome = tally.outcome("impatient", Way::Real, 1, None);
    expect(
        &outcome,
        &[
            ("response_mean_ms", 300.0),
            ("response_or_given_up_mean_ms", 1200.0),
            ("response_worst_second_ms", 1700.0),
            ("response_max_ms", 400.0),
            ("given_up", 1.0),
            ("failures_patience", 1.0),
            ("failed", 1.0),
            // Three digits: the upper end of the histogram's bucket.
            ("lag_p99_ms", 3.001),
            ("power_ratio", 2.0 / 3.5 / 0.3),
            ("served_share", 2.0 / 3.0),
        ],
    );
    let second = &outcome.series[3];
    assert_eq!((second.response_mean_ms, second.response_served_ms), (1700.0, 400.0));
    assert_eq!(second.response_max_ms, 3000.0);
    assert_eq!((second.given_up, second.failed, outcome.series[2].in_flight), (1, 1, 1));
}

#[test]
fn sessions_polls_and_attacks() {
    let mut tally = Tally::default();
    tally.arrived(MS);
    for (step, at) in [(0, 1), (1, 1000), (2, 2000)] {
        let entered = at * MS;
        let noted = Noted::Served { step, entered, response: MS, waited: None, waited_since: entered };
        ask(&mut tally, entered, MS, noted, (false, false));
    }
    for asked in [RequestKind::Status, RequestKind::Status, RequestKind::Tampered, RequestKind::Replayed] {
        tally.sent(asked, 2500 * MS, 2500 * MS);
        tally.ended(2510 * MS);
    }
    tally.noted(&Noted::Attack { repelled: true }, false, false, 2510 * MS);
    tally.noted(&Noted::Attack { repelled: false }, false, false, 2510 * MS);
    tally.noted(&Noted::ToldFull, false, false, 2510 * MS);
    let outcome = tally.outcome("session", Way::Sim, 1, Some("stopped".into()));
    expect(
        &outcome,
        &[
            ("served", 3.0),
            ("done", 0.0),
            ("present", 1.0),
            ("served_share", 0.0),
            ("requests", 7.0),
            ("polls", 2.0),
            ("attacks_sent", 2.0),
            ("attacks_let_in", 1.0),
            ("full", 1.0),
        ],
    );
    // Only the first step counts as an arrival.
    assert_eq!(outcome.series.iter().map(|s| s.waits).collect::<Vec<_>>(), [1, 0, 0]);
    assert_eq!(outcome.partial.as_deref(), Some("stopped"));
}

#[test]
fn nothing_happened() {
    let outcome = Tally::default().outcome("nothing", Way::Sim, 1, None);
    assert!(outcome.series.is_empty() && outcome.summary.values().all(|value| *value == 0.0), "{outcome:?}");
}

#[test]
fn a_clock_gone_wild_takes_no_memory() {
    let mut tally = Tally::default();
    visit(&mut tally, Duration::MAX - SECOND, SECOND);
    assert_eq!((tally.offered, tally.done, tally.rows.iter().count()), (1, 1, 0));
    assert_eq!(tally.outcome("wild", Way::Sim, 1, None).series.len(), 0);
}

#[test]
fn every_figure_is_explained() {
    let text = include_str!("../../../../docs/figures.md");
    let outcome = gated().outcome("gated", Way::Sim, 1, None);
    let columns = outcome.csv();
    let columns = columns.lines().next().unwrap_or_default().split(',');
    for key in outcome.summary.keys().map(String::as_str).chain(columns) {
        assert!(text.contains(&format!("`{key}`")), "docs/figures.md does not say what {key} is");
    }
}

/// What may happen next; numbers are taken modulo what there is.
#[derive(Clone, Copy, Debug)]
struct Op {
    what: u8,
    who: u8,
    after_ms: u16,
}

/// A visitor present, as the identities see it.
struct Someone {
    part: usize,
    since: Duration,
    in_room: bool,
    asking: Option<(RequestKind, Duration)>,
}

/// Plays the same events to one tally and, split by visitor, to two.
struct Play {
    all: Tally,
    parts: [Tally; 2],
    people: Vec<Someone>,
    now: Duration,
}

impl Play {
    fn tell(&mut self, part: usize, event: impl Fn(&mut Tally)) {
        event(&mut self.all);
        event(&mut self.parts[part]);
    }

    fn step(&mut self, op: Op) {
        self.now += u32::from(op.after_ms) * MS;
        let now = self.now;
        if self.people.is_empty() || op.what.is_multiple_of(4) {
            let part = usize::from(op.who % 2);
            self.tell(part, |tally| tally.arrived(now));
            self.people.push(Someone { part, since: now, in_room: false, asking: None });
            return;
        }
        let index = usize::from(op.who) % self.people.len();
        let Someone { part, since, in_room, asking } = self.people[index];
        match asking {
            None if op.what % 7 == 1 => {
                let ends = [End::Done, End::NoShow, End::Tired, End::Failed(Failure::Broken)];
                let end = ends[usize::from(op.what / 7) % ends.len()];
                self.tell(part, |tally| tally.left(end, in_room, now));
                self.people.swap_remove(index);
            }
            None => {
                let asks = [
                    RequestKind::Page,
                    RequestKind::Status,
                    RequestKind::Page,
                    RequestKind::Tampered,
                    RequestKind::Replayed,
                ];
                let ask = asks[usize::from(op.what) % asks.len()];
                let intended = now.saturating_sub(u32::from(op.who) * MS).max(since);
                self.tell(part, |tally| tally.sent(ask, intended, now));
                self.people[index].asking = Some((ask, intended));
            }
            Some((_, intended)) => self.answer(index, intended, op.what),
        }
    }

    fn answer(&mut self, index: usize, intended: Duration, what: u8) {
        let now = self.now;
        let Someone { part, since, in_room, .. } = self.people[index];
        let failures = [Failure::Refused, Failure::Connect, Failure::Broken, Failure::Bench];
        let (noted, now_in_room) = match what % 6 {
            0 => (Noted::Nothing, in_room),
            1 => {
                let waited = in_room.then(|| intended - since);
                let response = now - intended;
                let step = what / 6 % 2;
                (Noted::Served { step, entered: intended, response, waited, waited_since: since }, false)
            }
            2 => (Noted::ToldToWait { wait: (what > 99).then_some(SECOND), at: since }, true),
            3 => (Noted::ToldFull, in_room),
            4 => (Noted::Failed(failures[usize::from(what / 6) % failures.len()]), in_room),
            _ => (Noted::Failed(Failure::Patience), in_room),
        };
        let given_up = noted == Noted::Failed(Failure::Patience);
        self.tell(part, |tally| {
            if given_up {
                tally.gave_up(intended, now)
            } else {
                tally.ended(now)
            }
            tally.noted(&noted, in_room, now_in_room, now);
        });
        (self.people[index].in_room, self.people[index].asking) = (now_in_room, None);
    }
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op =
        (any::<u8>(), any::<u8>(), 0..700_u16).prop_map(|(what, who, after_ms)| Op { what, who, after_ms });
    prop::collection::vec(op, 0..400)
}

proptest! {
    #[test]
    fn everybody_is_counted_once_and_two_parts_are_the_whole(ops in ops()) {
        let parts = [Tally::default(), Tally::default()];
        let mut play = Play { all: Tally::default(), parts, people: Vec::new(), now: Duration::ZERO };
        for op in ops {
            play.step(op);
            let Play { all, people, .. } = &play;
            prop_assert!(all.adds_up());
            prop_assert_eq!(all.present(), people.len() as u64);
            prop_assert_eq!(all.waiting, people.iter().filter(|someone| someone.in_room).count() as u64);
            let asking = people.iter().filter(|someone| someone.asking.is_some()).count();
            prop_assert_eq!(all.in_flight, asking as u64);
        }
        let Play { all, parts: [mut a, b], .. } = play;
        let outcome = all.outcome("run", Way::Sim, 1, None);
        let series = &outcome.series;
        let sum = |of: fn(&crate::outcome::Second) -> u64| series.iter().map(of).sum::<u64>();
        prop_assert_eq!(sum(|s| s.offered), all.offered);
        prop_assert_eq!(sum(|s| s.requests), all.requests);
        prop_assert_eq!(sum(|s| s.polls), all.polls);
        prop_assert_eq!(sum(|s| s.served), all.served);
        prop_assert_eq!(sum(|s| s.failed), all.failures.total());
        prop_assert_eq!(sum(|s| s.given_up), all.given_up);
        prop_assert_eq!(sum(|s| s.full), all.full);
        prop_assert_eq!(all.response_us.len(), all.served);
        prop_assert_eq!(all.lag_us.len(), all.requests);
        prop_assert_eq!(series.last().map_or(0, |s| s.waiting), all.waiting);
        prop_assert_eq!(series.last().map_or(0, |s| s.in_flight), all.in_flight);
        a.merge(&b);
        prop_assert_eq!(a.outcome("run", Way::Sim, 1, None), outcome);
        prop_assert!(a.response_us == all.response_us && a.wait_ms == all.wait_ms && a.lag_us == all.lag_us);
        prop_assert_eq!(a.lasted, all.lasted);
    }
}

#[test]
fn the_measured_part_counts_what_is_served_in_it() {
    let of = |at: &[u64]| {
        let mut tally = Tally::of(["a", "b c"].into_iter(), Some((2 * SECOND, 5 * SECOND)));
        for (i, at) in at.iter().enumerate() {
            let at = Duration::from_millis(*at);
            visit(&mut tally, at, 100 * MS);
            tally.noted_of(i as u32 % 2, 0, &served(at, 100 * MS, None), at + 100 * MS);
        }
        tally
    };
    // Answers at 1.9, 2.0, 2.1, 4.9 and 5.0 s: three of them from the second second to the fifth.
    let mut whole = of(&[1800, 1900, 2000]);
    whole.merge(&of(&[4800, 4900]));
    let outcome = whole.outcome("", Way::Sim, 1, None);
    let figure = |key: &str| outcome.summary[key];
    assert_eq!((figure("steady_seconds"), figure("steady_goodput_rps")), (3.0, 1.0));
    assert!((figure("steady_response_mean_ms") - 100.0).abs() < 0.1);
    assert!((figure("steady_response_p99_ms") - 100.0).abs() < 0.2);
    assert_eq!((figure("served_a"), figure("served_b_c"), figure("served")), (3.0, 2.0, 5.0));
    // A run that ends early is measured up to there.
    let early = of(&[2000, 3900]).outcome("", Way::Sim, 1, None);
    assert_eq!((early.summary["steady_seconds"], early.summary["steady_goodput_rps"]), (2.0, 1.0));
    assert!(!Tally::default().outcome("", Way::Sim, 1, None).summary.contains_key("steady_seconds"));
}

#[test]
fn types_are_counted_apart_and_the_costly_ones_together() {
    let plan = TypePlan {
        types: vec![("view".into(), false), ("find-it".into(), true), ("sort".into(), true)],
        of_step: vec![vec![Some(0), Some(1)], vec![Some(2), None]],
    };
    let of = || Tally::of(["a", "b"].into_iter(), Some((SECOND, 5 * SECOND))).with_types(plan.clone());
    let note = |tally: &mut Tally, kind, step, ms: u32, at: Duration| {
        tally.noted_of(kind, step, &served(at, ms * MS, None), at + ms * MS);
    };
    let (mut tally, mut other) = (of(), of());
    (1..=100).for_each(|ms| note(&mut tally, 0, 0, ms, SECOND));
    // Before the measured part, after it, and of no type.
    note(&mut tally, 0, 0, 900, Duration::ZERO);
    note(&mut tally, 0, 0, 900, 5 * SECOND);
    note(&mut tally, 1, 1, 900, SECOND);
    note(&mut other, 0, 1, 400, SECOND);
    note(&mut other, 1, 0, 200, SECOND);
    other.noted_of(0, 1, &Noted::Failed(Failure::Refused), 2 * SECOND);
    other.noted_of(0, 1, &Noted::ToldFull, 2 * SECOND);
    tally.merge(&other);
    let outcome = tally.outcome("", Way::Sim, 1, None);
    let figure = |key: &str| *outcome.summary.get(key).unwrap_or_else(|| panic!("{key}"));
    let near = |key: &str, expected: f64| {
        assert!((figure(key) - expected).abs() <= expected * 0.011, "{key}: {}", figure(key));
    };
    assert_eq!((figure("type_view_served"), figure("others_served")), (100.0, 100.0));
    near("type_view_p99_ms", 99.0);
    near("others_p99_ms", 99.0);
    near("type_view_mean_ms", 50.5);
    near("type_find_it_max_ms", 400.0);
    assert_eq!((figure("type_find_it_served"), figure("type_find_it_failed")), (1.0, 2.0));
    assert_eq!((figure("costly_served"), figure("costly_failed"), figure("others_failed")), (2.0, 2.0, 0.0));
    near("costly_mean_ms", 300.0);
    assert!(!Tally::default().outcome("", Way::Sim, 1, None).summary.contains_key("others_p99_ms"));
}
