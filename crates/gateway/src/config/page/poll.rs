//! When a waiting page asks again.
//!
//! Far from its turn a page learns nothing by asking often; near to it every second counts. So the interval
//! is a fraction of the wait, which the room publishes with the longest and the shortest interval for the
//! crowd that it has ([`PollIntervals`]): an eighth, at least 1 s and at most 20 s, unless very many wait or
//! the capacity is being searched. That makes about 20 polls in half an hour. A jitter of a fifth either way
//! keeps a crowd that came in one second from asking in one second. A fixed interval (the 20 s of other
//! waiting rooms) was rejected: turns pass unclaimed at the end, and the gate is loaded at the beginning.

use std::time::Duration;

use tidegate_core::room::{PollIntervals, told_seconds};

/// A room whose origin is behind is not asked in a tight loop.
const SHORTEST: Duration = Duration::from_millis(300);
/// A page asks up to so long before its turn, and is answered in its turn (`core/room/early.rs`). At random,
/// so that those of one tenth of a second do not ask in one instant.
const EARLY: Duration = Duration::from_millis(300);

/// Time until a page with `wait` left should ask again; `unit_random` is uniform in 0..1.
///
/// At least 0.3 s and `intervals.shortest`; else at most until 0 to 0.3 s before the turn.
pub fn poll_interval(wait: Duration, intervals: &PollIntervals, unit_random: f64) -> Duration {
    let random = if unit_random.is_finite() { unit_random.clamp(0.0, 1.0) } else { 0.5 };
    let usual = intervals.interval(wait).mul_f64(0.8 + 0.4 * random);
    let turn = wait.saturating_sub(EARLY.mul_f64(random));
    usual.min(turn).max(intervals.shortest.mul_f64(1.0 + 0.2 * random)).max(SHORTEST)
}

/// A page without JavaScript is not loaded again sooner than this, but for its turn: whoever reads it is
/// taken back to its top.
const SHORTEST_RELOAD_S: u64 = 5;

/// After how many seconds a page without JavaScript with `wait` left loads itself again, where one with
/// JavaScript asks after `poll`: as often, since the visitors before it may leave or be served sooner.
pub fn reload_seconds(wait: Duration, poll: Duration) -> u64 {
    told_seconds(wait).min(poll.as_secs().max(SHORTEST_RELOAD_S))
}

#[cfg(test)]
mod tests {
    use tidegate_core::room::{Arrival, LONGEST_POLL_INTERVAL, Room, RoomConfig, RoomTargets, TicketStatus};
    use tidegate_core::units::{ClassId, Cost, Rate, Timestamp};

    use super::*;

    #[test]
    fn a_page_without_javascript_comes_as_often_but_not_every_second() {
        let every = PollIntervals::default();
        let table = [(0, 1), (900, 1), (2_700, 2), (7_000, 5), (60_000, 7), (400_000, 20)];
        for (wait, expected) in table.map(|(wait, s)| (Duration::from_millis(wait), s)) {
            assert_eq!(reload_seconds(wait, poll_interval(wait, &every, 0.5)), expected, "{wait:?}");
        }
    }

    #[test]
    fn the_interval_scales_with_the_distance() {
        let table = [
            (0, 0.0, 300),
            (0, 1.0, 300),
            (500, 0.5, 350),
            (1_200, 1.0, 900),
            (800, 0.0, 800),
            (5_000, 0.5, 1_000),
            (8_000, 0.5, 1_000),
            (40_000, 0.5, 5_000),
            (40_000, 0.0, 4_000),
            (40_000, 1.0, 6_000),
            (1_800_000, 0.5, 20_000),
            (1_800_000, f64::NAN, 20_000),
        ];
        for (wait, random, expected) in table {
            let got = poll_interval(Duration::from_millis(wait), &PollIntervals::default(), random);
            assert_eq!(got.as_millis(), expected, "wait {wait} ms, random {random}");
        }
        let of = |longest| PollIntervals::new(longest, 0, 0.0, |_| 0);
        let sooner = poll_interval(Duration::from_secs(1_800), &of(Duration::from_secs(2)), 0.5);
        assert_eq!(sooner, Duration::from_secs(2), "while the capacity is looked for");
        let soonest = poll_interval(Duration::from_secs(1_800), &of(Duration::ZERO), 0.5);
        assert_eq!(soonest, Duration::from_millis(300), "however short the room's longest");
        assert!(poll_interval(Duration::MAX, &PollIntervals::default(), 1.0) <= Duration::from_secs(24));
    }

    /// Questions a second of so many pages, if each asks again and again at the wait it has.
    fn questions_per_s(waits: &[Duration], every: &PollIntervals) -> f64 {
        let at = |i: usize| (i % 100) as f64 / 100.0;
        waits.iter().enumerate().map(|(i, wait)| 1.0 / poll_interval(*wait, every, at(i)).as_secs_f64()).sum()
    }

    #[test]
    fn all_together_ask_no_more_than_they_may_however_their_waits_are_spread() {
        type Spread = fn(f64) -> f64;
        let spreads: [(&str, Spread); 6] = [
            ("all at their turn", |_| 0.0),
            ("all within a second", |x| x),
            ("all within two seconds", |x| 1.0 + x),
            ("evenly over half an hour", |x| 1_800.0 * x),
            ("half of them near", |x| if x < 0.5 { 8.0 * x } else { 900.0 }),
            ("many near, few far", |x| 1_800.0 * x.powi(8)),
        ];
        for (name, spread) in spreads {
            for n in [100u32, 10_000, 50_000, 300_000] {
                for longest in [Duration::ZERO, Duration::from_secs(1), LONGEST_POLL_INTERVAL] {
                    let waits: Vec<_> = (0..n)
                        .map(|i| Duration::from_secs_f64(spread(f64::from(i) / f64::from(n))))
                        .collect();
                    let within = |wait: Duration| waits.partition_point(|w| *w <= wait) as u64;
                    let every = PollIntervals::new(longest, u64::from(n), 0.0, within);
                    let asked = questions_per_s(&waits, &every);
                    assert!(asked <= 20_000.0, "{n} {name}, {longest:?}: {asked:.0}/s");
                }
            }
        }
    }

    #[test]
    fn a_large_crowd_asks_when_its_turn_comes() {
        for (per_s, waiting) in [(50u32, 100_000u32), (1_000, 300_000), (10_000, 600_000)] {
            let of = |wait: Duration| (wait.as_secs_f64() * f64::from(per_s)) as u64;
            let every = PollIntervals::new(LONGEST_POLL_INTERVAL, u64::from(waiting), f64::from(per_s), of);
            for wait_ms in (0..20_000).step_by(100) {
                let wait = Duration::from_millis(wait_ms);
                let late = poll_interval(wait, &every, 1.0).saturating_sub(wait);
                assert!(late <= Duration::from_millis(600), "{per_s}/s: {late:?} late of {wait:?}");
            }
        }
    }

    /// The intervals that a room publishes for its visitors, by their announced waits.
    #[test]
    fn a_room_publishes_the_poll_intervals_of_its_pages() {
        let start = Timestamp::from_secs(1_800_000_000);
        for per_s in [50.0, 1_000.0, 20_000.0] {
            let config = RoomConfig { max_wait: Duration::from_secs(7_200), ..RoomConfig::default() };
            let rate = Rate::per_second(per_s).expect("a rate");
            let room = Room::new(config, rate, start);
            let tickets: Vec<_> = (0..100_000)
                .filter_map(|nonce| match room.arrive(ClassId(0), nonce, None, start) {
                    Arrival::Wait(ticket, _) => Some(ticket),
                    _ => None,
                })
                .collect();
            for tick in 1..30u32 {
                let now = start + Duration::from_millis(100) * tick;
                // The capacity is found to be another one, and is looked for on and off.
                if tick == 15 {
                    room.set_targets(&RoomTargets::from(Rate::per_second(per_s / 3.0).expect("a rate")), now);
                }
                room.tick(now, Cost::ZERO);
                room.look_out(tick % 7 == 0, now);
                let waits: Vec<_> = tickets
                    .iter()
                    .map(|ticket| match room.status(ticket, now) {
                        TicketStatus::Wait(wait) => wait.wait,
                        _ => Duration::from_secs(1),
                    })
                    .collect();
                let asked = questions_per_s(&waits, &room.poll_intervals());
                let most = 20_000.0 + 12.0 * if tick < 15 { per_s } else { per_s / 3.0 };
                assert!(asked <= most, "{per_s}/s, tick {tick}: {asked:.0}/s of {most:.0}/s");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn never_late_never_frantic(wait_ms in 0u64..4_000_000, within_ms in 0u64..20_000, random: f64) {
            let wait = Duration::from_millis(wait_ms);
            let intervals = PollIntervals::new(Duration::from_millis(within_ms), 0, 0.0, |_| 0);
            let interval = poll_interval(wait, &intervals, random);
            proptest::prop_assert!(interval >= Duration::from_millis(300));
            proptest::prop_assert!(interval <= wait.saturating_add(Duration::from_millis(300)));
            proptest::prop_assert!(interval <= Duration::from_secs(24));
        }
    }
}
