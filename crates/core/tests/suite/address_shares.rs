//! Positions by address: no client fills the room, and a large shared address is not hurt.

use std::cell::Cell;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use tidegate_core::admission::{
    Admission, AdmissionRequest, Decision, Entrance, Presented, SessionAsk, WhenFull,
};
use tidegate_core::gate::Totals;
use tidegate_core::ingress::Ingress;
use tidegate_core::measure::Event;
use tidegate_core::policies::TierId;
use tidegate_core::room::{Redemption, Room, RoomConfig};
use tidegate_core::session::{Cap, SessionConfig, SessionInputs, SessionKey, Sessions};
use tidegate_core::ticket::Ticket;
use tidegate_core::units::{ClassId, Cost, Rate, Timestamp};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const NAT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

struct World {
    admission: Admission,
    sessions: Option<Sessions>,
    now: Timestamp,
    asked: Cell<u64>,
    /// Visitors refused because of their address.
    over_share: Cell<u64>,
}

impl World {
    fn new(per_s: f64, config: RoomConfig) -> Self {
        let room = Room::new(config, Rate::per_second(per_s).unwrap_or_default(), START);
        let admission = Admission::Room(Box::new(room));
        Self { admission, sessions: None, now: START, asked: Cell::new(0), over_share: Cell::new(0) }
    }

    fn room(&self) -> &Room {
        self.admission.room().expect("there is no other process")
    }

    fn ask(&self, client: IpAddr) -> Decision {
        let number = self.asked.get();
        self.asked.set(number + 1);
        let asking = AdmissionRequest {
            class: ClassId(0),
            cost: Cost::ONE,
            shown: Presented::Nothing,
            sends_on: false,
        };
        let (ingress, max_wait, client) = (&Ingress::default(), Duration::ZERO, Some(client));
        let entrance = Entrance {
            ingress,
            max_wait,
            waits: true,
            returns: true,
            client,
            owner: None,
            may_be_held: false,
        };
        let count = |event| self.over_share.set(self.over_share.get() + u64::from(event == Event::OverShare));
        let session = self
            .sessions
            .as_ref()
            .map(|table| SessionAsk::new(table, SessionKey(number.into()), TierId(0), WhenFull::Room));
        self.admission.ask_for(&entrance, &asking, session.as_ref(), &mut || number, &count, self.now)
    }

    /// How many of the requests of these clients get a position.
    fn positions(&self, clients: impl Iterator<Item = IpAddr>) -> usize {
        clients.filter(|client| matches!(self.ask(*client), Decision::Wait { .. })).count()
    }
}

/// Clients with nothing in common.
fn others(n: u32) -> impl Iterator<Item = IpAddr> {
    (0..n).map(|n| IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + n * 257)))
}

fn v6(bits: u128) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8 << 96 | bits))
}

#[test]
fn one_client_cannot_make_the_room_full_for_all() {
    let world = World::new(100.0, RoomConfig::default());
    let taken = world.positions((0..180_000).map(|_| NAT));
    assert!((80_000..100_000).contains(&taken), "{taken}, and half of the room is 90,000");
    let Decision::Full { retry_after } = world.ask(NAT) else { panic!("it gets still more") };
    assert!((30..=90).contains(&retry_after.as_secs()), "{retry_after:?}");
    assert_eq!(world.positions(others(10_000)), 10_000);
    // The more others wait, the less of the room it would have got, but a quarter at least.
    let world = World::new(100.0, RoomConfig::default());
    world.positions(others(120_000));
    let taken = world.positions((0..180_000).map(|_| NAT));
    assert!((42_000..50_000).contains(&taken), "{taken}, and a quarter of the room is 45,000");
    assert_eq!(world.positions(others(5_000)), 5_000);
}

#[test]
fn nor_can_one_that_changes_its_address() {
    let of_a_24: fn(u128) -> IpAddr = |n| Ipv4Addr::new(198, 51, 100, n as u8).into();
    let of_a_56: fn(u128) -> IpAddr = |n| v6((0xab00 << 64) | (n * 0x1234_5678_9abc));
    let of_a_48: fn(u128) -> IpAddr = |n| v6(((n & 0xffff) << 64) | n);
    for address in [of_a_24, of_a_56, of_a_48] {
        let world = World::new(10.0, RoomConfig::default());
        let taken = world.positions((0..18_000).map(address));
        assert!((8_000..10_000).contains(&taken), "{taken} for {}", address(0));
        assert_eq!(world.positions(others(1_000)), 1_000);
    }
}

#[test]
fn without_a_bound_it_could() {
    let world = World::new(10.0, RoomConfig { prefix_share: 1.0, ..RoomConfig::default() });
    assert!(world.positions((0..18_100).map(|_| NAT)) > 17_900);
    assert_eq!(world.positions(others(1_000)), 0);
}

#[test]
fn nor_can_one_take_all_waits_for_session_slots() {
    for (prefix_share, expected) in [(0.25, 50), (1.0, 0)] {
        let mut world = World::new(100.0, RoomConfig { prefix_share, ..RoomConfig::default() });
        let config = SessionConfig {
            timeout: Duration::from_secs(10),
            cap: Cap::Fixed(4),
            ..SessionConfig::default()
        };
        world.sessions = Some(Sessions::new(&config, START));
        for _ in 0..20 {
            let (gate, table) = (Totals::default(), world.sessions.as_ref().expect("sessions are counted"));
            let capacity = world.admission.capacity();
            table.tick(&SessionInputs { capacity, is_measured: true, gate: &gate, waiting: 1 }, world.now);
            world.admission.pace_sessions(table.pace());
            world.admission.tick(&gate, true, world.now);
            world.positions(std::iter::repeat_n(NAT, 1_000));
            world.now = world.now + Duration::from_millis(100);
        }
        assert!(matches!(world.ask(NAT), Decision::Full { .. }), "the test does not take enough");
        assert_eq!(world.positions(others(50)), expected, "prefix_share = {prefix_share}");
    }
}

/// Three times as many visitors come as the origin can serve, until the room has been full for long. A fifth
/// of them have one address. All come back in their turn.
#[test]
fn a_large_shared_address_is_not_hurt() {
    let mut world =
        World::new(100.0, RoomConfig { max_wait: Duration::from_secs(60), ..RoomConfig::default() });
    let mut waiting = VecDeque::<Ticket>::new();
    let (mut came, mut refused, mut everybody) = ([0_u32; 2], [0_u32; 2], others(u32::MAX / 257));
    for tick in 0..3_000_u32 {
        world.now = world.now + Duration::from_millis(100);
        world.room().tick(world.now, Cost::ZERO);
        while waiting.front().is_some_and(|t| world.room().redeem(t, world.now) == Redemption::Enter) {
            waiting.pop_front();
        }
        for n in 0..30 {
            let is_shared = (tick * 30 + n) % 5 == 0;
            let client = if is_shared { NAT } else { everybody.next().expect("more addresses") };
            came[usize::from(is_shared)] += 1;
            match world.ask(client) {
                Decision::Wait { ticket, .. } => waiting.push_back(ticket),
                Decision::Full { .. } => refused[usize::from(is_shared)] += 1,
                decision => assert!(matches!(decision, Decision::Enter { .. }), "{decision:?}"),
            }
        }
    }
    assert_eq!(world.over_share.get(), 0);
    let [others, shared] = [0, 1].map(|i| f64::from(refused[i]) / f64::from(came[i]));
    assert!(others > 0.4, "the room was not full for long: {others}");
    assert!(shared < others + 0.05, "{shared} of the shared address are refused, {others} of the others");
}
