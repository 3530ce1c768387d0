//! The believed capacity falls far while a few wait: what they and the next are told is what they wait. Time that has passed
//! and room that nobody took are no work.

use std::time::Duration;

use tidegate_core::room::{Arrival, Look, Redemption, Room, RoomConfig};
use tidegate_core::ticket::Ticket;
use tidegate_core::units::{ClassId, Cost, Rate, Timestamp};

const TICK: Duration = Duration::from_millis(100);
const START: Timestamp = Timestamp::from_secs(1_800_000_000);

fn rate(per_s: f64) -> Rate {
    Rate::per_second(per_s).expect("a rate")
}

fn room(per_s: f64) -> Room {
    let config = RoomConfig {
        max_wait: Duration::from_secs(600),
        burst: Duration::from_millis(1),
        ..RoomConfig::default()
    };
    Room::new(config, rate(per_s), START)
}

struct Guest {
    ticket: Ticket,
    told_s: f64,
    told_at: Timestamp,
}

fn told(room: &Room, ticket: Ticket, now: Timestamp) -> Guest {
    let told_s = match room.look(&ticket, now) {
        Look::Wait(wait) => wait.wait.as_secs_f64(),
        other => panic!("{other:?}"),
    };
    Guest { ticket, told_s, told_at: now }
}

/// Those of `n` newcomers who wait.
fn wait(room: &Room, n: u64, nonce: u64, now: Timestamp) -> Vec<Ticket> {
    let ticket = |nonce| match room.arrive(ClassId(0), nonce, None, now) {
        Arrival::Wait(ticket, _) => Some(ticket),
        Arrival::Enter => None,
        Arrival::Full { .. } => panic!("full"),
    };
    (nonce..nonce + n).filter_map(ticket).collect()
}

/// (told, waited) in seconds, of everybody who was told at some time.
fn play_out(room: &Room, mut guests: Vec<Guest>, from: Timestamp) -> Vec<(f64, f64)> {
    let mut seen = Vec::new();
    for tick in 1..6_000 {
        let now = from + TICK * tick;
        room.tick(now, Cost::ZERO);
        guests.retain(|guest| {
            let entered = room.redeem(&guest.ticket, now) == Redemption::Enter;
            if entered {
                seen.push((guest.told_s, now.since(guest.told_at).as_secs_f64()));
            }
            !entered
        });
        if guests.is_empty() {
            return seen;
        }
    }
    panic!("{} still wait after ten minutes", guests.len())
}

/// Nobody later than told but by a tenth, a second and the time one takes, nor told much more than it took: 2 s, by which newcomers are placed after
/// what is promised, 2 s of backlog up to which the door lets in, what those took ahead of the hand who entered, and an eighth.
fn is_honest(case: &str, seen: &[(f64, f64)], then: f64, most_s: f64) {
    for (told, waited) in seen {
        assert!(*waited <= told * 1.1 + 1.0 + 1.0 / then, "{case}: told {told}, waited {waited}");
        assert!(*told <= waited * 1.125 + 4.0 + 10.0 / then, "{case}: told {told}, waited {waited}");
        assert!(*told <= most_s, "{case}: told {told}, expected at most {most_s}");
    }
}

#[test]
fn a_far_fall_is_told_honestly_to_those_who_wait_and_the_next() {
    // Beyond, the millisecond that tickets count in holds several: told and called as one.
    for believed in [250.0, 500.0, 2_000.0] {
        for at_ms in [0u64, 100, 500, 900, 990] {
            for then in [2.0, 10.0, 50.0] {
                let case = format!("{believed}/s, {then}/s from {at_ms} ms");
                let room = room(believed);
                for tick in 0..=at_ms / 100 {
                    room.tick(START + TICK * tick as u32, Cost::ZERO);
                }
                let now = START + Duration::from_millis(at_ms);
                // As many as may enter in an instant do.
                let entering = (2.0 * believed * 0.001f64.max(10.0 / believed)) as u64 + 1;
                let waiting = wait(&room, entering + 20, 0, now);
                let most = entering + 20;
                assert!((15..=45).contains(&waiting.len()), "{case}: {} wait", waiting.len());
                room.set_capacity(rate(then), now);
                let mut guests: Vec<_> = waiting.into_iter().map(|ticket| told(&room, ticket, now)).collect();
                let next = wait(&room, 5, 1_000, now);
                assert_eq!(next.len(), 5, "{case}: the next come after them");
                guests.extend(next.into_iter().map(|ticket| told(&room, ticket, now)));
                room.tick(now + TICK, Cost::ZERO);
                let later = wait(&room, 5, 2_000, now + TICK);
                guests.extend(later.into_iter().map(|ticket| told(&room, ticket, now + TICK)));
                // Everybody there is, who entered included, and what was given to those who did ahead of the hand.
                let most_s = (2 * most + 10) as f64 / then + 3.0;
                is_honest(&case, &play_out(&room, guests, now + TICK), then, most_s);
            }
        }
    }
}

/// The hand is behind the clock when they come: nothing is promised in the seconds that pass meanwhile.
#[test]
fn time_that_passes_while_the_origin_is_behind_is_no_work() {
    for believed in [250.0, 2_000.0] {
        for pause_ms in [1_500, 3_800, 5_100] {
            for then in [10.0, 50.0] {
                let case = format!("{believed}/s, {then}/s after {pause_ms} ms");
                let room = room(believed);
                // Ten seconds of work queue for the origin until the fall.
                let queued = Cost::from_hundredths((believed * 1_000.0) as u64);
                let mut now = START;
                for tick in 0..=pause_ms / 100 {
                    now = START + TICK * tick;
                    room.tick(now, queued);
                }
                let waiting = wait(&room, 20, 0, now);
                assert_eq!(waiting.len(), 20, "{case}: {:?}", room.state(now));
                room.set_capacity(rate(then), now);
                room.tick(now, Cost::ZERO);
                let mut guests: Vec<_> = waiting.into_iter().map(|ticket| told(&room, ticket, now)).collect();
                let next = wait(&room, 5, 1_000, now);
                guests.extend(next.into_iter().map(|ticket| told(&room, ticket, now)));
                let seen = play_out(&room, guests, now);
                let most_s = 25.0 / then + 3.0;
                is_honest(&case, &seen, then, most_s);
            }
        }
    }
}

/// With nobody waiting a fall leaves nothing behind: below the new capacity nobody waits, and a newcomer beyond it not long.
#[test]
fn a_fall_that_nobody_meets_leaves_no_mark() {
    for at_ms in [50u64, 550, 950] {
        let room = room(2_000.0);
        let mut now = START;
        for i in 0..30u64 {
            now = START + Duration::from_millis(at_ms * i / 30);
            room.tick(now, Cost::ZERO);
            assert_eq!(room.arrive(ClassId(0), i, None, now), Arrival::Enter, "visitor {i}");
        }
        room.set_capacity(rate(100.0), now);
        for i in 0..400u64 {
            now = now + Duration::from_millis(12);
            if i % 8 == 0 {
                room.tick(now, Cost::ZERO);
            }
            assert_eq!(
                room.arrive(ClassId(0), 100 + i, None, now),
                Arrival::Enter,
                "visitor {i} after the fall"
            );
        }
    }
}
