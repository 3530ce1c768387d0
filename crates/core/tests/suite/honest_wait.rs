//! An announced wait is kept, also beside bypass traffic: requests of sessions that were admitted before,
//! classes that never wait.

use std::time::Duration;

use tidegate_core::room::{Arrival, Redemption, Room, RoomConfig};
use tidegate_core::ticket::Ticket;
use tidegate_core::units::{ClassId, Cost, Rate, Timestamp};

const CAPACITY: u64 = 20;
const TICK: Duration = Duration::from_millis(100);
const CROWD: u64 = 400;

fn room(now: Timestamp) -> Room {
    let config = RoomConfig {
        max_wait: Duration::from_secs(600),
        burst: Duration::from_millis(100),
        ..RoomConfig::default()
    };
    Room::new(config, Rate::per_second(CAPACITY as f64).expect("a rate"), now)
}

/// Of a visitor who has entered.
#[derive(Debug)]
struct AnnouncedWait {
    announced_s: f64,
    waited_s: f64,
}

/// Lets `bypass` requests per second past a room for 20 s, then a crowd comes at once.
fn announced_waits(bypass: u64) -> Vec<AnnouncedWait> {
    let start = Timestamp::from_secs(1_800_000_000);
    let room = room(start);
    let mut waiting: Vec<(Ticket, f64)> = Vec::new();
    let mut seen = Vec::new();
    for tick in 0..20_000u32 {
        let now = start + TICK * tick;
        room.tick(now, Cost::ZERO);
        // Evenly, and exactly `bypass` in ten ticks.
        let k = u64::from(tick);
        (k * bypass / 10..(k + 1) * bypass / 10).for_each(|_| room.charge(Cost::ONE));
        if tick == 200 {
            waiting.extend((0..CROWD).filter_map(|nonce| match room.arrive(ClassId(0), nonce, None, now) {
                Arrival::Wait(ticket, wait) => Some((ticket, wait.wait.as_secs_f64())),
                Arrival::Enter => None,
                Arrival::Full { .. } => panic!("full"),
            }));
        }
        let came = start + TICK * 200;
        waiting.retain(|(ticket, announced_s)| {
            let entered = room.redeem(ticket, now) == Redemption::Enter;
            if entered {
                seen.push(AnnouncedWait {
                    announced_s: *announced_s,
                    waited_s: now.since(came).as_secs_f64(),
                });
            }
            !entered
        });
        if tick > 200 && waiting.is_empty() {
            return seen;
        }
    }
    panic!("{} still wait", waiting.len())
}

#[test]
fn an_announced_wait_counts_bypass_traffic() {
    for bypass in [0, 5, 10, 15] {
        let seen = announced_waits(bypass);
        assert!(seen.len() as u64 > CROWD * 9 / 10, "{bypass}/s bypass: {} waited", seen.len());
        let longest = seen.iter().map(|wait| wait.waited_s).fold(0.0, f64::max);
        let expected = CROWD as f64 / (CAPACITY - bypass) as f64;
        assert!(
            (longest / expected - 1.0).abs() < 0.1,
            "{bypass}/s bypass: {longest} s, expected {expected} s"
        );
        // The burst of a small origin, ten units, and the backlog aimed at, one and a half.
        let spare = 11.5 / (CAPACITY - bypass) as f64;
        for wait in seen {
            // Later than announced is a broken promise. Earlier is not: the first of the crowd find the
            // origin with time to spare.
            let late_s = wait.waited_s - wait.announced_s;
            assert!(late_s <= 1.0 + 0.1 * wait.waited_s, "{bypass}/s bypass: {wait:?}");
            assert!(-late_s <= 1.0 + spare + 0.1 * wait.waited_s, "{bypass}/s bypass: {wait:?}");
        }
    }
}

/// A visitor who asks on every tick, from the announced time on or from now on.
struct Visitor {
    ticket: Ticket,
    announced_s: f64,
    came: Timestamp,
    asks_from: Timestamp,
}

fn visitor(room: &Room, nonce: u64, sleeps: bool, now: Timestamp) -> Option<Visitor> {
    match room.arrive(ClassId(0), nonce, None, now) {
        Arrival::Wait(ticket, wait) => {
            let asks_from = if sleeps { now + wait.wait } else { now };
            Some(Visitor { ticket, announced_s: wait.wait.as_secs_f64(), came: now, asks_from })
        }
        Arrival::Enter => None,
        Arrival::Full { .. } => panic!("full"),
    }
}

/// The capacity doubles while a crowd sleeps until the times announced to it. The virtual clock goes on past
/// the sleepers; visitors who come then wait for them too.
#[test]
fn an_announced_wait_counts_visitors_in_transit() {
    let start = Timestamp::from_secs(1_800_000_000);
    let room = room(start);
    let (mut first, mut second): (Vec<Visitor>, Vec<Visitor>) = (Vec::new(), Vec::new());
    let mut seen = Vec::new();
    for tick in 0..1_000u32 {
        let now = start + TICK * tick;
        room.tick(now, Cost::ZERO);
        if tick == 10 {
            first.extend((0..CROWD).filter_map(|nonce| visitor(&room, nonce, true, now)));
            room.set_capacity(Rate::per_second(2.0 * CAPACITY as f64).expect("a rate"), now);
        }
        if tick == 80 {
            assert!(first.len() as u64 > CROWD / 2, "{} sleep", first.len());
            assert!(room.state(now).lead_s > 2.0, "the virtual clock has gone ahead: {:?}", room.state(now));
            second.extend((CROWD..2 * CROWD).filter_map(|nonce| visitor(&room, nonce, false, now)));
            assert!(second.len() as u64 > CROWD * 9 / 10, "{} wait", second.len());
        }
        let enters = |visitor: &Visitor| {
            now >= visitor.asks_from && room.redeem(&visitor.ticket, now) == Redemption::Enter
        };
        first.retain(|visitor| !enters(visitor));
        second.retain(|visitor| {
            let entered = enters(visitor);
            if entered {
                let waited_s = now.since(visitor.came).as_secs_f64();
                seen.push(AnnouncedWait { announced_s: visitor.announced_s, waited_s });
            }
            !entered
        });
    }
    assert!(first.is_empty() && second.is_empty(), "{} and {} still wait", first.len(), second.len());
    for wait in seen {
        assert!(wait.waited_s <= wait.announced_s + 1.0 + 0.1 * wait.announced_s, "{wait:?}");
    }
}
