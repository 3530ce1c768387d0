//! Two processes, and tokencheck's reports do not arrive for a while: their work is done when the first one
//! does, and the schedule goes on.

use std::time::Duration;

use tidegate_core::gate::Totals;
use tidegate_core::room::{Arrival, Checker, Feedback, REPORT_EVERY, Redemption, Room, RoomConfig};
use tidegate_core::ticket::Ticket;
use tidegate_core::units::{ClassId, Cost, Rate, Timestamp};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const CAPACITY: f64 = 100.0;
const TICK: Duration = Duration::from_millis(100);
/// A crowd for more than a minute.
const CROWD: u64 = 10_000;

fn config() -> RoomConfig {
    let (max_wait, tolerance) = (Duration::from_secs(600), Duration::from_secs(1));
    RoomConfig { max_wait, tolerance, ..RoomConfig::default() }
}

/// Both halves. Tokencheck admits visitors in turn, or bypass traffic of a steady rate.
struct Halves {
    room: Room,
    checker: Checker,
    now: Timestamp,
    /// Bypass traffic of each tick, instead of visitors.
    bypass: Option<Cost>,
    /// The last of the crowd first.
    waiting: Vec<Ticket>,
}

impl Halves {
    fn new(per_s: Option<f64>) -> Self {
        let capacity = Rate::per_second(CAPACITY).unwrap();
        let (room, waiting) = crowded(capacity, START);
        let checker = Checker::new(&config(), capacity, START);
        let bypass = per_s.map(|per_s| Rate::per_second(per_s).unwrap().over(TICK));
        Self { room, checker, now: START, bypass, waiting }
    }

    /// Lets `time` pass without a report.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now = self.now + TICK;
            self.room.tick(self.now, Cost::ZERO);
            self.checker.tick(self.now, Cost::ZERO);
            match self.bypass {
                Some(work) => self.checker.charge(work),
                None => self.redeem_in_turn(),
            }
        }
    }

    fn redeem_in_turn(&mut self) {
        while let Some(ticket) = self.waiting.last() {
            // Pages come at their turn, not a tolerance before it.
            let is_early = ticket.due() > self.now;
            if is_early || self.checker.redeem(ticket, self.now) != Redemption::Enter {
                return;
            }
            self.waiting.pop();
        }
    }

    /// Everything since the last report.
    fn report(&self) -> Feedback {
        self.checker.report(&Totals::default(), self.now)
    }

    fn exchange(&self) {
        self.checker.follow(self.room.feedback(&self.report()), self.now);
    }

    /// Lets `time` pass with all reports. Returns the backlog after the last.
    fn run(&mut self, time: Duration) -> f64 {
        let end = self.now + time;
        while self.now < end {
            self.pass(REPORT_EVERY);
            self.exchange();
        }
        self.backlog_s()
    }

    fn backlog_s(&self) -> f64 {
        self.room.state(self.now).backlog_s
    }

    fn clock_at(&self) -> Timestamp {
        self.room.control_update().clock.at
    }
}

fn crowded(capacity: Rate, now: Timestamp) -> (Room, Vec<Ticket>) {
    let room = Room::new(config(), capacity, now);
    let tickets = (0..CROWD).filter_map(|nonce| match room.arrive(ClassId(0), nonce, None, now) {
        Arrival::Wait(ticket, _) => Some(ticket),
        _ => None,
    });
    let mut tickets: Vec<_> = tickets.collect();
    tickets.reverse();
    (room, tickets)
}

/// The crowd comes at its due times and is redeemed. Tokencheck gets no updates meanwhile: its virtual clock
/// stops for 5 s, then follows the wall clock.
#[test]
fn the_virtual_clock_goes_on_after_reports_were_lost() {
    for lost_s in [1, 2, 8, 20] {
        let mut halves = Halves::new(None);
        let before_s = halves.run(Duration::from_secs(10));
        halves.pass(Duration::from_secs(lost_s));
        halves.exchange();
        let state = halves.room.state(halves.now);
        assert!(state.backlog_s < before_s + 0.25, "{lost_s} s lost: {before_s} s before, {state:?}");
        // Visitors who were not reported are no no-shows; work that was not reported has let the virtual
        // clock run a sixth too fast.
        assert!(
            state.show_up > 0.99 && state.lead_s < 1.0 + lost_s as f64 / 6.0,
            "{lost_s} s lost: {state:?}"
        );
        let from = halves.clock_at();
        halves.run(Duration::from_secs(5));
        let moved = halves.clock_at().since(from);
        assert!(
            moved > Duration::from_secs(3),
            "{lost_s} s lost: the virtual clock moved by {moved:?} in 5 s"
        );
    }
}

/// For any admitted work, a late report leads to the same state as reports in time.
#[test]
fn a_late_report_leaves_the_backlog_of_reports_in_time() {
    for per_s in [0.0, 40.0, 90.0, 100.0, 120.0, 150.0] {
        for lost_s in [1, 2, 5, 10] {
            let (mut reported, mut lost) = (Halves::new(Some(per_s)), Halves::new(Some(per_s)));
            reported.run(Duration::from_secs(3));
            lost.run(Duration::from_secs(3));
            let in_time_s = reported.run(Duration::from_secs(lost_s));
            lost.pass(Duration::from_secs(lost_s));
            lost.exchange();
            let late_s = lost.backlog_s();
            assert!(
                (late_s - in_time_s).abs() < 0.11,
                "{per_s}/s, {lost_s} s lost: {late_s} s, in time {in_time_s} s"
            );
        }
    }
}

/// A backlog from before the loss is worked off, not forgotten.
#[test]
fn work_admitted_before_the_loss_is_still_ahead() {
    let mut halves = Halves::new(Some(CAPACITY));
    halves.run(Duration::from_secs(3));
    halves.checker.charge(Rate::per_second(CAPACITY).unwrap().over(Duration::from_secs(8)));
    let before_s = halves.run(REPORT_EVERY);
    assert!(before_s > 8.0, "{before_s}");
    for lost_s in [4, 12] {
        halves.pass(Duration::from_secs(lost_s));
        halves.exchange();
        let after_s = halves.backlog_s();
        assert!((after_s - before_s).abs() < 0.11, "{lost_s} s lost: {before_s} s before, {after_s} s after");
    }
}

/// Only tokengen was restarted: it assumes that the origin worked at capacity before its start.
#[test]
fn a_tokengen_that_comes_back_does_not_stall() {
    let mut halves = Halves::new(Some(CAPACITY));
    let before_s = halves.run(Duration::from_secs(5));
    halves.pass(Duration::from_secs(20));
    (halves.room, _) = crowded(Rate::per_second(CAPACITY).unwrap(), halves.now);
    halves.exchange();
    // Its newcomers of the first burst, before the first report, come on top.
    assert!(halves.backlog_s() < before_s + 0.5, "{} s, {before_s} s before", halves.backlog_s());
}

#[test]
fn a_report_of_one_interval_counts_fully_and_its_length_is_bounded() {
    let mut halves = Halves::new(Some(0.0));
    halves.run(Duration::from_secs(5));
    halves.pass(Duration::from_secs(5));
    let idle_s = halves.backlog_s();
    let work = Cost::from_hundredths(30_000);
    let mut report = Feedback { admitted: work, ..Feedback::default() };
    for (i, over) in [Duration::ZERO, REPORT_EVERY].into_iter().enumerate() {
        halves.room.feedback(&Feedback { over, ..report.clone() });
        let booked_s = halves.backlog_s() - idle_s;
        assert!((booked_s - 3.0 * (i + 1) as f64).abs() < 1e-6, "{over:?}: {booked_s} s");
    }
    report.admitted = Cost::from_hundredths(u64::MAX);
    halves.room.feedback(&report);
    // An hour at most, of all reports together.
    assert!((halves.backlog_s() - 3_600.0).abs() < 1e-6, "{}", halves.backlog_s());
    // A closed origin and one without limits: no figure to compute with, and none to fail on.
    for per_s in [0.0, Rate::MAX.get()] {
        halves.room.set_capacity(Rate::per_second(per_s).unwrap(), halves.now);
        halves.pass(Duration::from_secs(5));
        halves.room.feedback(&Feedback { over: Duration::MAX, ..report.clone() });
        assert!(halves.backlog_s().is_finite());
    }
}
