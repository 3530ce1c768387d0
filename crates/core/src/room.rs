//! The waiting room: joins the schedule (`slots`), its hand (`hand`) and the redeemed tickets (`redeem`).
//!
//! A visitor arrives and enters at once or gets a ticket for an instant of the schedule (WebQ III-D); comes back with
//! the ticket and enters when the hand has reached that instant. The room keeps no state per waiting visitor: a
//! few words per second of schedule, and the nonces of those who entered a short while ago.
//!
//! **Pacing.** WebQ admits a second's worth of visitors the moment the second begins. Here room expires within the
//! present second too: a newcomer takes no position older than `burst` before the hand, and enters at once if
//! the position is at most `burst` after it. So at most `2 * burst * C` enters in one instant; `burst = 1s` is the
//! paper's rule. Origins that take less than ten visitors in a burst get a longer one, up to the paper's second.
//!
//! **Honest wait** is the time until the hand will reach the due instant: the work promised in between, times the
//! show-up ratio (and its error), and what was called before and has not come yet (`called`), over the capacity that
//! admissions past the schedule (passes, classes that never wait) leave to it.
//! Place counts the visitors in between.
//!
//! Capacity zero means closed: newcomers are told "full" with a time to come again (a wait cannot be known), tickets keep
//! their place. Unlimited capacity ([`Rate::MAX`]): everybody enters. The room counts no outcomes: the gateway's
//! per-worker counters do, without a shared cache line.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use thiserror::Error;

use crate::ring::{Load, Ring};
use crate::slots::Slots;
use crate::sync::{AtomicU64, Ordering};
use crate::ticket::Ticket;
use crate::units::{ClassId, Cost, MAX_CLASSES, Rate, Timestamp};

mod adopt;
mod arrival;
mod asking;
mod called;
mod checker;
mod control;
mod course;
mod door;
mod remote;
mod report;
mod saved;
mod schedule;
mod seats;
mod state;
#[cfg(test)]
mod tests;
mod window;

use adopt::Adoption;
pub use asking::{ASK_WITHIN, AskEvery};
pub use checker::Checker;
use control::Control;
pub use course::{Course, RoomConfig};
pub(crate) use door::AGAIN;
use door::{Door, Word};
pub use remote::Reported;
pub use report::{Feedback, MAX_REPORTED_SAMPLES, Orders, REPORT_EVERY};
pub use saved::RestoreError;
use seats::Seats;
pub use state::RoomState;
pub(crate) use window::target as kept_queue;

/// Tickets count whole milliseconds.
const SHORTEST_PROMISE: Duration = Duration::from_millis(1);
/// Shortest wait worth saying: one control tick.
const MIN_WAIT: Duration = Duration::from_millis(100);
/// Longest wait said: what cannot be known is not more than a day.
const MAX_WAIT: Duration = Duration::from_secs(24 * 3600);
/// Seconds of schedule kept beyond what the settings ask for: charges that reach past the longest wait, clock skew.
const SLACK_S: u64 = 64;
/// Cost units that may enter in one instant however small the origin.
const MIN_BURST_UNITS: f64 = 10.0;

/// What happens to a visitor without a ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// In at once.
    Enter,
    /// A place, and the wait for it.
    Wait(Ticket, Wait),
    /// No place within the longest wait.
    Full {
        /// When to try again.
        retry_after: Duration,
    },
}

/// What happens to a visitor with an authentic ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Redemption {
    /// In; the ticket is used up.
    Enter,
    /// Too early, or the origin is behind; the place is kept.
    Wait(Wait),
    /// The ticket has been used.
    Replayed,
    /// Too late. Give a new place: [`Room::arrive`] with this ticket's `arrived`.
    Expired,
}

/// What a status poll says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// The ticket would be let in now.
    Ready,
    /// Not yet.
    Wait(Wait),
    /// The ticket has been used.
    Redeemed,
    /// Too late.
    Expired,
}

/// An honest wait: what is expected now, not what the ticket says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    /// How long.
    pub wait: Duration,
    /// One is next.
    pub place: u64,
    /// Now plus the wait.
    pub due: Timestamp,
}

/// The new settings need a longer schedule: make a new [`Room`] and [`Room::restore`] what this one saves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("max_wait and grace need a schedule of {needed_s} s, this room has {has_s} s")]
pub struct NeedsNewRoom {
    /// Seconds the settings need.
    pub needed_s: u64,
    /// Seconds there are.
    pub has_s: u64,
}

/// The waiting room. Shared by all workers.
pub struct Room {
    slots: Slots,
    door: Door,
    /// Promised to visitors who wait, by slot second; without those who entered at once.
    waits: Ring,
    /// Redeemed of it, by slot second.
    shown: Ring,
    /// Redeemed after its second was judged, in hundredths.
    shown_late: AtomicU64,
    /// Seconds before this one have been judged for no-shows.
    judged: AtomicU64,
    /// Due instant of the last promise, in microseconds.
    last_due: AtomicU64,
    show_up: AtomicU64,
    /// The same with its error, for waits told.
    show_up_told: AtomicU64,
    burst_us: AtomicU64,
    /// Work admitted past the schedule, in hundredths, and how much of it comes per second (the bits of an `f64`).
    aside: AtomicU64,
    aside_per_s: AtomicU64,
    /// One if admissions are reported by tokencheck.
    remote: AtomicU64,
    queued_remote: AtomicU64,
    /// One if this process sends visitors on to tokencheck.
    sends: AtomicU64,
    /// See [`Room::called`], in hundredths.
    called: AtomicU64,
    /// See [`Room::ask_every`]. Before the first tick nothing is known.
    ask_every: AtomicU64,
    /// When the capacity was last looked for, in microseconds.
    searched: AtomicU64,
    class_costs: Box<[AtomicU64]>,
    adoption: Adoption,
    seats: Seats,
    control: Mutex<Control>,
}

impl Room {
    /// An empty room.
    pub fn new(config: RoomConfig, capacity: Rate, now: Timestamp) -> Self {
        let seconds = seconds_needed(&config);
        let room = Self {
            slots: Slots::new(seconds, config.max_wait, now),
            door: Door::new(&config, capacity, now),
            waits: Ring::new(seconds, now.second()),
            shown: Ring::new(seconds, now.second()),
            shown_late: AtomicU64::new(0),
            judged: AtomicU64::new(now.second()),
            last_due: AtomicU64::new(0),
            show_up: AtomicU64::new(1f64.to_bits()),
            show_up_told: AtomicU64::new(1f64.to_bits()),
            burst_us: AtomicU64::new(0),
            aside: AtomicU64::new(0),
            aside_per_s: AtomicU64::new(0f64.to_bits()),
            remote: AtomicU64::new(0),
            queued_remote: AtomicU64::new(0),
            sends: AtomicU64::new(0),
            searched: AtomicU64::new(0),
            called: AtomicU64::new(0),
            ask_every: AtomicU64::new(AskEvery::new(asking::SOONER, 0, 0).pack()),
            class_costs: (0..MAX_CLASSES).map(|_| AtomicU64::new(0)).collect(),
            adoption: Adoption::new(now),
            seats: Seats::default(),
            control: Mutex::new(Control::new(config.clone(), capacity, now)),
        };
        room.configure(&config);
        // However little it is, unless it is nothing: less than a hundredth per second is no closed room.
        room.slots.set_limit(if capacity > Rate::ZERO { schedule::limit(capacity, 1.0) } else { Cost::ZERO });
        room
    }

    fn configure(&self, config: &RoomConfig) {
        self.burst_us.store(config.burst.as_micros() as u64, Ordering::Relaxed);
        self.seats.set_max_wait(config.max_wait);
        for (i, cell) in self.class_costs.iter().enumerate() {
            let cost = config.class_costs.get(i).copied().unwrap_or(Cost::ONE);
            cell.store(cost.hundredths(), Ordering::Relaxed);
        }
    }

    fn cost(&self, class: ClassId) -> Cost {
        Cost::from_hundredths(self.class_costs[class.index()].load(Ordering::Relaxed))
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An authentic ticket presented with the request itself.
    pub fn redeem(&self, ticket: &Ticket, now: Timestamp) -> Redemption {
        self.adopt(ticket, now);
        match self.door.redeem(ticket, now) {
            Word::Enter => {
                // In the two-process form this room sends on, and tokencheck reports what it admits.
                if self.remote.load(Ordering::Relaxed) == 0 {
                    self.door.admit(ticket.cost);
                }
                self.show(ticket.due().second(), ticket.cost);
                Redemption::Enter
            }
            Word::Early => Redemption::Wait(self.wait(ticket.due(), now)),
            Word::Behind => Redemption::Wait(soon(now)),
            Word::Replayed => Redemption::Replayed,
            Word::Expired => Redemption::Expired,
        }
    }

    /// Whether the ticket is shown after its turn.
    pub fn is_late(&self, ticket: &Ticket) -> bool {
        self.door.is_late(ticket)
    }

    /// The request that [`Room::redeem`] let in never reached the origin: the ticket is good again. That the visitor
    /// showed up stays noted, for a visitor who tries twice has.
    pub fn give_back(&self, ticket: &Ticket) {
        self.door.give_back(ticket);
    }

    /// A status poll: decides nothing, consumes nothing.
    pub fn look(&self, ticket: &Ticket, now: Timestamp) -> Look {
        self.adopt(ticket, now);
        match self.door.judge(ticket, now) {
            Word::Enter => Look::Ready,
            Word::Early => Look::Wait(self.wait(ticket.due(), now)),
            Word::Behind => Look::Wait(soon(now)),
            Word::Replayed => Look::Redeemed,
            Word::Expired => Look::Expired,
        }
    }

    /// Work admitted without asking the room (a pass, a class that never waits): charged to the backlog, and to the
    /// waits told, since it takes of the capacity that the schedule counts on.
    pub fn charge(&self, cost: Cost) {
        self.aside.fetch_add(cost.hundredths(), Ordering::Relaxed);
        self.door.admit(cost);
    }

    /// Whether anyone is promised a place that the hand has not reached.
    pub fn busy(&self, now: Timestamp) -> bool {
        self.last_due() > self.door.hand.at(now)
    }

    /// Cost units per second.
    pub fn capacity(&self) -> Rate {
        self.door.capacity()
    }

    fn last_due(&self) -> Timestamp {
        Timestamp::from_micros(self.last_due.load(Ordering::Acquire))
    }

    /// Promised work of `second` was redeemed.
    fn show(&self, second: u64, cost: Cost) {
        if second < self.judged.load(Ordering::Acquire) {
            self.shown_late.fetch_add(cost.hundredths(), Ordering::Relaxed);
        } else {
            self.shown.add(second, Load { visitors: 1, cost });
        }
    }

    fn burst(&self, capacity: Rate) -> Duration {
        let set = Duration::from_micros(self.burst_us.load(Ordering::Relaxed));
        let least = (MIN_BURST_UNITS / capacity.get()).min(1.0);
        set.max(Duration::from_secs_f64(least)).min(Duration::from_secs(1))
    }

    /// Cost units per second that are left to the schedule of `rate`: without what is admitted past it. Not less than a
    /// tenth, so that a wait can be told at all.
    fn left_of(&self, rate: Rate) -> f64 {
        let (rate, aside) = (rate.get(), f64::from_bits(self.aside_per_s.load(Ordering::Relaxed)));
        (rate - aside).max(rate / 10.0)
    }

    /// Time until the hand reaches `due`.
    fn wait(&self, due: Timestamp, now: Timestamp) -> Wait {
        let hand = self.door.hand.at(now);
        let ahead = self.slots.between(hand, due);
        let outflow = self.left_of(self.door.capacity());
        let wait = if self.door.hand.value().follows_clock || due > self.last_due() {
            // Nothing known is in the way: the clock decides. (Also a ticket of a life this room remembers nothing of.)
            // What comes in past the schedule will hold the hand back all the same.
            due.since(hand).as_secs_f64() * self.door.capacity().get() / outflow.max(f64::MIN_POSITIVE)
        } else if outflow > 0.0 {
            let behind = self.door.backlog_s(now) - self.door.target_s();
            (ahead.cost.units() * self.show_up_told() + self.called()) / outflow + behind.max(0.0)
        } else {
            due.since(hand.min(now)).as_secs_f64().max(RETRY_CLOSED.as_secs_f64())
        };
        let wait = Duration::try_from_secs_f64(wait).unwrap_or(MAX_WAIT);
        let wait = wait.max(self.wait_for_place(ahead.visitors)).clamp(MIN_WAIT, MAX_WAIT);
        Wait { wait, place: ahead.visitors + 1, due: now + wait }
    }
}

/// A closed origin is asked for about twice a minute.
const RETRY_CLOSED: Duration = Duration::from_secs(30);
/// A full room has a new place every second, for whoever comes then: a minute keeps the crowd from hammering.
const RETRY_FULL: Duration = Duration::from_secs(60);

fn soon(now: Timestamp) -> Wait {
    Wait { wait: AGAIN, place: 1, due: now + AGAIN }
}

/// Length of schedule that the settings ask for: the longest wait twice, since the hand may lag as much as it again.
fn seconds_needed(config: &RoomConfig) -> u64 {
    2 * config.max_wait.as_secs().clamp(1, MAX_WAIT.as_secs()) + config.grace.as_secs().min(86_400) + SLACK_S
}
