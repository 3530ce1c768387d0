//! Crowds in virtual time: who enters, in which order, and whether the origin is kept busy. Visitors behave
//! as the page does: they ask again every `clamp(wait / 8, 1 s, 20 s)` with jitter, and come a moment after
//! their turn.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidegate_core::room::{Arrival, Redemption, Room, RoomConfig};
use tidegate_core::ticket::Ticket;
use tidegate_core::units::{ClassId, Cost, Rate, Timestamp};

const START: u64 = 1_800_000_000_000_000;
const TICK: u64 = 100_000;

fn config() -> RoomConfig {
    let class_costs = vec![Cost::ONE.into(), Cost::from_hundredths(300).into()];
    RoomConfig { tolerance: Duration::from_secs(1), class_costs, ..RoomConfig::default() }
}

#[derive(Clone, Copy)]
struct Visitor {
    ticket: Option<Ticket>,
    class: ClassId,
    cost: f64,
    came: u64,
    /// Will come back late once.
    dawdles: bool,
    /// When the late visitor came back.
    back: u64,
    /// The wait that was announced when it first asked after [`Crowd::told_from`], and when that was.
    told: Option<(u64, Duration)>,
}

/// A visitor has entered. Times in microseconds since the start.
#[derive(Clone, Copy)]
struct Entry {
    at: u64,
    came: u64,
    cost: f64,
    /// How long a late visitor had to wait after coming back.
    after_back: Option<u64>,
    told: Option<(u64, Duration)>,
}

#[derive(Default)]
struct Tally {
    entries: Vec<Entry>,
    full: usize,
    expired: usize,
    arrived: usize,
    lost: usize,
    /// Whether anyone waited, per tick.
    busy: Vec<(u64, bool)>,
}

struct Crowd {
    room: Room,
    rng: SmallRng,
    agenda: BTreeMap<(u64, u64), Visitor>,
    next_id: u64,
    capacity: f64,
    no_show: f64,
    dear: f64,
    /// Share of visitors who come back 20 s after their turn.
    late: f64,
    told_from: u64,
    now: u64,
    tally: Tally,
}

impl Crowd {
    fn new(capacity: f64, seed: u64) -> Self {
        Self::with(config(), capacity, seed)
    }

    fn with(config: RoomConfig, capacity: f64, seed: u64) -> Self {
        let room = Room::new(config, Rate::per_second(capacity).unwrap(), at(0));
        Self {
            room,
            rng: SmallRng::seed_from_u64(seed),
            agenda: BTreeMap::new(),
            next_id: 0,
            capacity,
            no_show: 0.0,
            dear: 0.0,
            late: 0.0,
            told_from: u64::MAX,
            now: 0,
            tally: Tally::default(),
        }
    }

    /// Newcomers, Poisson at `rate` per second, for `seconds` from `from_s` on.
    fn arrivals(&mut self, from_s: u64, seconds: u64, rate: f64) {
        let mut t = from_s as f64;
        loop {
            t -= (1.0 - self.rng.random::<f64>()).ln() / rate;
            if t >= (from_s + seconds) as f64 {
                return;
            }
            let dear = self.rng.random::<f64>() < self.dear;
            let dawdles = self.rng.random::<f64>() < self.late;
            let came = (t * 1e6) as u64;
            let (class, cost) = if dear { (ClassId(1), 3.0) } else { (ClassId(0), 1.0) };
            self.schedule(came, Visitor { ticket: None, class, cost, came, dawdles, back: 0, told: None });
            self.tally.arrived += 1;
        }
    }

    fn schedule(&mut self, at: u64, visitor: Visitor) {
        self.next_id += 1;
        self.agenda.insert((at, self.next_id), visitor);
    }

    fn run_to(&mut self, until_s: u64) {
        while self.now < until_s * 1_000_000 {
            let tick = self.now + TICK;
            while let Some(first) = self.agenda.first_entry() {
                let at = first.key().0;
                if at > tick {
                    break;
                }
                let visitor = first.remove();
                self.visit(at, visitor);
            }
            self.now = tick;
            self.room.tick(at(tick), Cost::ZERO);
            self.tally.busy.push((tick, self.room.busy(at(tick))));
        }
    }

    fn visit(&mut self, t: u64, mut visitor: Visitor) {
        if let Some(ticket) = visitor.ticket {
            match self.room.redeem(&ticket, at(t)) {
                Redemption::Enter => self.enter(t, &visitor),
                Redemption::Wait(wait) => self.come_again(t, visitor, wait.wait, false),
                Redemption::Replayed => self.tally.lost += 1,
                Redemption::Expired => self.tally.expired += 1,
            }
            return;
        }
        self.next_id += 1;
        match self.room.arrive(visitor.class, self.rng.random(), None, at(t)) {
            Arrival::Enter => self.enter(t, &visitor),
            Arrival::Full { .. } => self.tally.full += 1,
            Arrival::Wait(ticket, wait) => {
                visitor.ticket = Some(ticket);
                if self.rng.random::<f64>() >= self.no_show {
                    self.come_again(t, visitor, wait.wait, true);
                } else {
                    self.says_when(t, &ticket, wait.wait, true);
                }
            }
        }
    }

    fn enter(&mut self, t: u64, visitor: &Visitor) {
        self.tally.entries.push(Entry {
            at: t,
            came: visitor.came,
            cost: visitor.cost,
            after_back: (visitor.back > 0).then(|| t - visitor.back),
            told: visitor.told,
        });
    }

    /// The page is told when to ask again: after the returned number of seconds.
    fn says_when(&mut self, t: u64, ticket: &Ticket, wait: Duration, is_new: bool) -> f64 {
        let poll_s = (wait.as_secs_f64() / 8.0).clamp(1.0, 20.0) * self.rng.random_range(0.9..1.1);
        self.room.will_ask(ticket, is_new, Duration::from_secs_f64(poll_s), at(t));
        poll_s
    }

    fn come_again(&mut self, t: u64, mut visitor: Visitor, wait: Duration, is_new: bool) {
        let wait_s = wait.as_secs_f64();
        if t >= self.told_from {
            visitor.told.get_or_insert((t, wait));
        }
        let poll_s = visitor.ticket.map_or(wait_s, |ticket| self.says_when(t, &ticket, wait, is_new));
        let latency_s = self.rng.random_range(0.02..0.25);
        let mut pause = if wait_s <= poll_s { wait_s + latency_s } else { poll_s };
        if visitor.dawdles && wait_s <= 8.0 {
            pause = wait_s + 20.0;
            visitor.dawdles = false;
            visitor.back = t + (pause * 1e6) as u64;
        }
        self.schedule(t + (pause * 1e6) as u64, visitor);
    }

    fn work(&self, from_s: f64, to_s: f64) -> f64 {
        let range = (from_s * 1e6) as u64..(to_s * 1e6) as u64;
        self.tally.entries.iter().filter(|e| range.contains(&e.at)).map(|e| e.cost).sum()
    }

    /// Work entered over work possible between two points.
    fn goodput(&self, from_s: u64, to_s: u64) -> f64 {
        self.work(from_s as f64, to_s as f64) / (self.capacity * (to_s - from_s) as f64)
    }

    /// Largest excess of admitted work over capacity x time, over all intervals that end at an entry, in
    /// units.
    fn worst_excess(&self, from_s: u64) -> f64 {
        let (mut level, mut last, mut worst) = (0.0f64, from_s * 1_000_000, 0.0f64);
        for e in self.tally.entries.iter().filter(|e| e.at >= from_s * 1_000_000) {
            level = (level - self.capacity * (e.at - last) as f64 / 1e6).max(0.0) + e.cost;
            (last, worst) = (e.at, worst.max(level));
        }
        worst
    }

    /// Last second up to which visitors waited without a break.
    fn busy_until(&self, from_s: u64) -> u64 {
        let mut rest = self.tally.busy.iter().skip_while(|(t, _)| *t <= from_s * 1_000_000);
        rest.find(|(_, busy)| !busy).map_or(self.now, |(t, _)| *t) / 1_000_000
    }

    /// Longest time for which a visitor still waited after a later one had entered, in seconds.
    fn worst_overtaking(&self) -> f64 {
        let entries = &self.tally.entries;
        // By when a visitor came: entries before which no later comer had entered, so in the order of both
        // times.
        let mut first_after = BTreeMap::new();
        let mut worst = 0;
        for e in entries {
            if let Some((_, &overtaken_at)) = first_after.range(e.came + 1..).next() {
                worst = worst.max(e.at - overtaken_at);
            } else {
                first_after.insert(e.came, e.at);
            }
        }
        worst as f64 / 1e6
    }
}

fn at(us: u64) -> Timestamp {
    Timestamp::from_micros(START + us)
}

fn rate(units: f64) -> Rate {
    Rate::per_second(units).unwrap()
}

#[test]
fn ten_times_the_capacity() {
    for (capacity, seed) in [(100.0, 1), (1_000.0, 2), (20.0, 3)] {
        let mut crowd = Crowd::new(capacity, seed);
        crowd.arrivals(0, 20, 10.0 * capacity);
        crowd.run_to(240);
        let end = crowd.busy_until(1);
        let goodput = crowd.goodput(1, end);
        let excess_s = crowd.worst_excess(0) / capacity;
        println!(
            "10x crowd at {capacity}/s: busy until {end} s, goodput {goodput:.3}, excess {excess_s:.2} s"
        );
        assert!(goodput >= 0.95, "{goodput}");
        assert!(goodput <= 1.03, "{goodput}");
        assert!(excess_s <= 2.0, "{excess_s}");
        assert_eq!((crowd.tally.full, crowd.tally.expired, crowd.tally.lost), (0, 0, 0));
        assert_eq!(crowd.tally.entries.len(), crowd.tally.arrived);
    }
}

#[test]
fn thirty_percent_never_return() {
    for (capacity, seed) in [(100.0, 1), (1_000.0, 2), (20.0, 3)] {
        let mut crowd = Crowd::new(capacity, seed);
        crowd.no_show = 0.3;
        crowd.arrivals(0, 30, 10.0 * capacity);
        crowd.run_to(360);
        let end = crowd.busy_until(1);
        let goodput = crowd.goodput(1, end);
        let first = crowd.goodput(1, 21);
        let excess_s = crowd.worst_excess(0) / capacity;
        println!(
            "30 % no-shows at {capacity}/s: busy until {end} s, \
             goodput {goodput:.3} (first 20 s {first:.3}), excess {excess_s:.2} s, {:?}",
            crowd.room.state(at(crowd.now))
        );
        assert!(goodput >= 0.95, "{goodput}");
        assert!(excess_s <= 3.0, "{excess_s}");
        assert_eq!((crowd.tally.full, crowd.tally.expired, crowd.tally.lost), (0, 0, 0));
    }
}

/// Where the page of a visitor who left has stopped asking, it is known that nobody will come.
#[test]
fn waits_are_right_where_other_visitors_leave_than_those_whose_turn_has_come() {
    for (first, then) in [(0.6, 0.0), (0.0, 0.6)] {
        let mut crowd = Crowd::new(100.0, 9);
        crowd.no_show = first;
        crowd.arrivals(0, 30, 900.0);
        crowd.run_to(30);
        crowd.no_show = then;
        crowd.arrivals(30, 30, 300.0);
        // Until then the turn has come of visitors of the first kind only.
        crowd.told_from = 80_000_000;
        crowd.run_to(600);
        let mut ratios: Vec<f64> = crowd.tally.entries.iter().filter_map(announced_ratio).collect();
        ratios.sort_unstable_by(f64::total_cmp);
        let [few, median, most] = [1, 10, 19].map(|twentieths| ratios[ratios.len() * twentieths / 20]);
        println!("{first} leave, then {then}: waited {few:.3}, {median:.3}, {most:.3} of what was announced");
        assert!(ratios.len() > 5_000 && few > 0.85 && most < 1.1, "{few} {median} {most}");
    }
}

/// Time waited over the wait that was announced, of a visitor who was told at least 20 s.
fn announced_ratio(entry: &Entry) -> Option<f64> {
    let (at, wait) = entry.told.filter(|(_, wait)| wait.as_secs() >= 20)?;
    Some((entry.at - at) as f64 / 1e6 / wait.as_secs_f64())
}

#[test]
fn capacity_halves_and_doubles() {
    for (factor, seed) in [(0.5, 1), (2.0, 2), (0.1, 3), (5.0, 4)] {
        let mut crowd = Crowd::new(100.0, seed);
        crowd.arrivals(0, 30, 600.0);
        crowd.arrivals(30, 200, 30.0);
        crowd.run_to(60);
        crowd.capacity *= factor;
        crowd.room.set_capacity(rate(crowd.capacity), at(crowd.now));
        crowd.run_to(300);
        let end = crowd.busy_until(61).min(300);
        let (soon, rest) = (crowd.goodput(60, 70.min(end)), crowd.goodput(65, end));
        let overtaking = crowd.worst_overtaking();
        println!(
            "capacity x {factor}: busy until {end} s, goodput {rest:.3} (first 10 s {soon:.3}), \
             overtaken by {overtaking:.2} s"
        );
        assert!(rest >= 0.95, "{rest}");
        assert!(rest <= 1.06, "{rest}");
        assert!(overtaking <= 6.0, "{overtaking}");
        assert_eq!((crowd.tally.full, crowd.tally.expired, crowd.tally.lost), (0, 0, 0));
    }
}

#[test]
fn a_tiny_origin_with_two_sizes_of_work() {
    let mut crowd = Crowd::new(0.3, 5);
    crowd.dear = 0.3;
    crowd.arrivals(0, 60, 1.0);
    crowd.run_to(500);
    let end = crowd.busy_until(20).min(500);
    let goodput = crowd.goodput(10, end);
    let excess = crowd.worst_excess(10);
    println!(
        "0.3/s, costs 1 and 3: busy until {end} s, goodput {goodput:.3}, worst excess {excess:.2} units"
    );
    assert!(goodput >= 0.95, "{goodput}");
    assert!(excess <= 8.0, "{excess}");
}

#[test]
fn the_late_get_in_before_newcomers() {
    let mut crowd = Crowd::new(100.0, 6);
    crowd.late = 0.2;
    crowd.arrivals(0, 30, 600.0);
    crowd.arrivals(30, 120, 90.0);
    crowd.run_to(300);
    let mut waits: Vec<u64> = crowd.tally.entries.iter().filter_map(|e| e.after_back).collect();
    waits.sort_unstable();
    let (median, worst) = (waits[waits.len() / 2] as f64 / 1e6, waits[waits.len() - 1] as f64 / 1e6);
    let goodput = crowd.goodput(1, crowd.busy_until(1));
    println!(
        "{} came 20 s late: waited {median:.2} s (median), {worst:.2} s (worst), goodput {goodput:.3}",
        waits.len()
    );
    assert!(waits.len() > 1_000);
    assert!(worst <= 15.0, "newcomers wait two minutes: {worst}");
    assert!(goodput >= 0.95, "{goodput}");
    assert_eq!((crowd.tally.full, crowd.tally.expired, crowd.tally.lost), (0, 0, 0));
}

#[test]
fn no_ticket_is_lost_over_a_restart() {
    for down_s in [1, 5, 90] {
        let mut crowd = Crowd::new(100.0, 7);
        crowd.arrivals(0, 20, 1_000.0);
        crowd.run_to(40);
        let saved = crowd.room.save(at(crowd.now));
        // Down: visitors who come get no answer and try again.
        crowd.now += down_s * 1_000_000;
        let missed: Vec<_> = crowd.agenda.range(..(crowd.now, 0)).map(|(key, v)| (*key, *v)).collect();
        for (key, visitor) in missed {
            crowd.agenda.remove(&key);
            crowd.schedule(crowd.now + key.0 % 3_000_000, visitor);
        }
        crowd.room = Room::new(config(), rate(100.0), at(crowd.now));
        crowd.room.restore(&saved, at(crowd.now)).unwrap();
        crowd.run_to(400);
        let end = crowd.busy_until(41 + down_s);
        let goodput = crowd.goodput(41 + down_s, end);
        let overtaking = crowd.worst_overtaking();
        println!(
            "restart, {down_s} s down: busy until {end} s, goodput {goodput:.3}, overtaken {overtaking:.2} s"
        );
        assert_eq!((crowd.tally.full, crowd.tally.expired, crowd.tally.lost), (0, 0, 0));
        assert_eq!(crowd.tally.entries.len(), crowd.tally.arrived);
        assert!(goodput >= 0.95, "{goodput}");
    }
}

/// The virtual clock skips the gap between the old promises and the newcomers; visitors who were due just
/// before it keep the grace.
#[test]
fn a_skipped_gap_makes_no_visitor_late() {
    let mut crowd = Crowd::new(100.0, 8);
    crowd.late = 0.3;
    crowd.arrivals(0, 20, 1_000.0);
    crowd.run_to(21);
    crowd.capacity = 40.0;
    crowd.room.set_capacity(rate(crowd.capacity), at(crowd.now));
    crowd.arrivals(22, 300, 20.0);
    crowd.run_to(900);
    assert_eq!((crowd.tally.full, crowd.tally.expired, crowd.tally.lost), (0, 0, 0));
    assert_eq!(crowd.tally.entries.len(), crowd.tally.arrived);
}
