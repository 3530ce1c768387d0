//! The waiting room (WebQ III-D).
//!
//! A visitor arrives and enters at once or gets a ticket for an instant of the schedule; comes back with the
//! ticket and enters when the virtual clock has reached that instant. The room keeps no state per waiting
//! visitor: a few words per second of schedule, and the nonces of those who entered a short while ago.
//! Requests are decided from atomics; only the set of redeemed nonces has locks, one per shard (`redeem`).
//! The tick and changes of settings take the room's one lock (`control`).
//!
//! **Pacing.** WebQ admits a second's worth of visitors the moment the second begins. Here room expires
//! within the present second too: a newcomer gets no slot older than `burst` before the virtual clock, and
//! enters at once if the slot is at most `burst` after it. So at most `2 * burst * C` enters in one instant;
//! `burst = 1s` is the paper's rule. Origins that take less than ten visitors in a burst get up to a second.
//!
//! **Honest wait** is the time until the virtual clock will reach the due time: the work promised in between
//! whose visitors are expected to come, and the work in transit, over the capacity that bypass traffic
//! leaves. The position counts the visitors in between.
//!
//! Capacity zero means closed: newcomers are answered "full" with a time to come again (a wait cannot be
//! known), and tickets remain valid. Unlimited capacity ([`Rate::MAX`]): all enter. Outcomes are counted by
//! the gateway's per-worker counters, without a shared cache line.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::class_costs::ClassCosts;
use crate::gate::Totals;
use crate::mutants::{self, Mutant};
use crate::ring::{MAX_COST, SlotLoad};
use crate::session::{ExpectedSessions, SessionPace};
use crate::sync::lock;
use crate::ticket::Ticket;
use crate::units::{ClassId, Cost, Rate, Timestamp};
use crate::virtual_clock::VirtualTime;

mod adoption;
mod attendance;
mod backlog;
mod bypass;
mod checker;
mod control;
mod early;
mod judging;
mod lateness;
mod mean_cost;
mod origin_load;
mod outflow;
mod ownership;
mod page_parts;
mod polling;
mod prefix_share;
mod presence;
mod queue_pacer;
mod report;
mod saved;
mod schedule;
mod session_pacing;
mod settings;
mod show_up;
mod spare_time;
#[cfg(test)]
mod tests;
mod ticket_admission;
mod tokenchecks;
mod types;

use adoption::Adoption;
use attendance::Attendance;
use bypass::Bypass;
pub use checker::Checker;
use checker::MAX_SHOWN;
use control::RoomControl;
pub use early::{LOOK_AGAIN, is_held, told_seconds};
pub use ownership::{Claim, Member, OwnerAnswer};
use polling::Polling;
pub use polling::{LONGEST_POLL_INTERVAL, PollIntervals};
pub(crate) use prefix_share::EARLY_PARTS_WITHIN;
pub use prefix_share::PrefixKeys;
use prefix_share::PrefixShares;
use presence::Heard;
pub use report::{ControlUpdate, Feedback, MAX_REPORTED_SAMPLES, REPORT_EVERY};
pub use saved::RestoreError;
use saved::{SavedRoom, SavedSecond};
use schedule::Schedule;
use session_pacing::SessionSlots;
use settings::RequestSettings;
pub use settings::RoomConfig;
pub(crate) use ticket_admission::TicketAdmission;
use ticket_admission::TicketCheck;
use tokenchecks::LinkState;
pub use tokenchecks::RemoteOrigin;
pub(crate) use types::{AGAIN, Newcomer};
pub use types::{
    Arrival, NeedsNewRoom, RedeemedEarlier, Redemption, RoomState, RoomTargets, TicketStatus, Wait,
};
use types::{MAX_WAIT, MIN_WAIT};

/// Tickets count whole milliseconds.
const SHORTEST_PROMISE: Duration = Duration::from_millis(1);
/// The wait that visitors of a closed origin are told, which cannot be known.
const RETRY_CLOSED: Duration = Duration::from_secs(30);
/// Visitors whom a full room refuses come again in so long a time, evenly: about twice a minute. Nobody knows
/// how many they are, and all of them at once would find few positions.
const RETRY_SPREAD: Duration = Duration::from_secs(60);
/// They begin no later than that: until then the capacity may have changed.
const RETRY_MOST: Duration = Duration::from_secs(600);
/// Seconds of the schedule before the virtual clock that are restored.
const RESTORED: Duration = Duration::from_secs(60);

/// The waiting room. Shared by all workers.
pub struct Room {
    settings: RequestSettings,
    costs: ClassCosts,
    schedule: Schedule,
    tickets: TicketAdmission,
    attendance: Attendance,
    bypass: Bypass,
    pub(crate) session_slots: SessionSlots,
    polling: Polling,
    shares: PrefixShares,
    /// Parts of pages that did not wait, after the first visitor waits.
    early_parts: PrefixShares,
    link: LinkState,
    adoption: Adoption,
    control: Mutex<RoomControl>,
}

impl Room {
    /// An empty room.
    pub fn new(config: RoomConfig, capacity: Rate, now: Timestamp) -> Self {
        let schedule = Schedule::new(&config, capacity, now);
        Self {
            settings: RequestSettings::new(&config),
            costs: ClassCosts::new(&config.class_costs),
            shares: PrefixShares::new(schedule.slots.seconds()),
            early_parts: PrefixShares::by_second(),
            schedule,
            tickets: TicketAdmission::new(&config, capacity, now),
            attendance: Attendance::new(config.schedule_s(), now),
            bypass: Bypass::default(),
            session_slots: SessionSlots::default(),
            polling: Polling::new(),
            link: LinkState::default(),
            adoption: Adoption::new(now),
            control: Mutex::new(RoomControl::new(&config, capacity, now)),
        }
    }

    /// What requests of each class cost.
    pub fn costs(&self) -> &ClassCosts {
        &self.costs
    }

    pub(crate) fn tickets(&self) -> &TicketAdmission {
        &self.tickets
    }

    fn control(&self) -> MutexGuard<'_, RoomControl> {
        lock(&self.control)
    }
}

/// Newcomers.
impl Room {
    /// A visitor without a usable ticket. `arrived`: when it first came, if it had one before.
    pub fn arrive(&self, class: ClassId, nonce: u64, arrived: Option<Timestamp>, now: Timestamp) -> Arrival {
        self.arrive_if(&Newcomer { class, nonce, arrived, held: None, client: None }, Some(&mut || true), now)
    }

    /// As [`Room::arrive`]. A visitor who could enter at once does if `take_session_slot` takes a session
    /// slot for it, and waits otherwise; `None`: there is none.
    pub(crate) fn arrive_if(
        &self,
        newcomer: &Newcomer,
        mut take_session_slot: Option<&mut dyn FnMut() -> bool>,
        now: Timestamp,
    ) -> Arrival {
        let has_session_slot = take_session_slot.is_some();
        let mut may_enter = || take_session_slot.as_mut().is_some_and(|take| take());
        let (cost, load) = (self.costs.charged(newcomer.class), &self.tickets.load);
        let (capacity, is_held) = (load.capacity(), newcomer.held.is_some());
        let full = |opens_in| Arrival::Full { retry_after: spread(opens_in, newcomer.nonce) };
        if capacity >= Rate::MAX && !is_held && !self.keeps_order(now) && may_enter() {
            return self.enter(cost);
        }
        if capacity == Rate::ZERO {
            return full(Duration::ZERO);
        }
        if !has_session_slot {
            self.stop_clock(now);
        }
        let clock_at = self.tickets.clock.at(now);
        let too_long = self.session_wait_too_long(clock_at);
        if too_long > Duration::ZERO {
            return full(too_long);
        }
        let burst = self.settings.burst(capacity);
        // Room expires as the virtual clock passes: while it is behind the wall clock, what lies before that
        // is still to come. A visitor who could not use it gets no room before the virtual clock.
        let oldest = if has_session_slot { clock_at.saturating_sub(burst) } else { clock_at };
        let oldest = oldest.max(Timestamp::from_secs(clock_at.max(now).second()));
        let Some(placed) = self.schedule.slots.take(cost, now, oldest) else {
            return full(self.schedule.slots.opens_at().since(now));
        };
        let is_due = has_session_slot && is_at_once(placed.due, clock_at, burst);
        // Visitors who are let in will come back: they do not queue up first.
        let is_crowded = load.is_crowded(now) || (self.bypass.is_foreseen() && load.is_queue_long());
        if is_due && !is_held && !is_crowded {
            if may_enter() {
                return self.enter(cost);
            }
            self.stop_clock(now);
        }
        let due = match newcomer.held {
            Some(held) => placed.due.max(held),
            // Due, but not let in: behind those who wait for a session slot.
            None if is_due => self.turn(placed.due, cost).max(self.schedule.last_due()),
            None => self.turn(placed.due, cost),
        };
        self.promise(newcomer, cost, placed.due, due, now)
    }

    /// Gives a ticket that is due at `due`, for a visitor whose slot begins at `slot`.
    fn promise(
        &self,
        newcomer: &Newcomer,
        cost: Cost,
        slot: Timestamp,
        due: Timestamp,
        now: Timestamp,
    ) -> Arrival {
        let Newcomer { class, nonce, arrived, held, client } = *newcomer;
        let issued = Timestamp::from_millis(now.as_millis());
        // A ticket without a wait is one for now, which is redeemed whatever the schedule. While the virtual
        // clock is behind the wall clock a promise may be due by now, and still has to wait for its turn.
        let shortest = if mutants::is(Mutant::PromiseForNow) { Duration::ZERO } else { SHORTEST_PROMISE };
        let due = Timestamp::from_millis(due.as_millis()).max(issued + shortest);
        self.attendance.promise(due.second(), cost);
        self.count_in_shares(client, cost, slot);
        // A held visitor does not wait for the origin: the schedule is not promised up to its due time.
        self.schedule.note_promise(if held.is_some() { slot } else { due });
        let arrived = arrived.unwrap_or(issued).min(issued);
        let ticket = Ticket { class, cost, issued, wait: due.since(issued), arrived, nonce };
        Arrival::Wait(ticket, self.wait(due, now))
    }

    fn enter(&self, cost: Cost) -> Arrival {
        self.admit(cost);
        Arrival::Enter
    }

    /// Counts work as admitted, unless this room sends it on, and tokencheck reports what it admits.
    fn admit(&self, cost: Cost) {
        if !self.link.has_tokencheck() {
            self.tickets.load.admit(cost);
        }
    }

    /// Whether visitors wait for session slots: they keep their order although the origin takes all.
    fn keeps_order(&self, now: Timestamp) -> bool {
        self.session_slots.are_counted() && self.busy(now)
    }

    /// A newcomer has found no session slot: those behind it must not pass it.
    fn stop_clock(&self, now: Timestamp) {
        if self.session_slots.are_counted() {
            self.tickets.clock.stop(now);
        }
    }

    /// When the turn of a visitor comes whose slot begins at `slot`. Where session slots are counted it is
    /// the end of the slot: the virtual clock admits it once it has come all of the way.
    fn turn(&self, slot: Timestamp, cost: Cost) -> Timestamp {
        if self.session_slots.are_counted() { self.schedule.end_of_part(slot, cost) } else { slot }
    }

    /// By how much a newcomer would wait for a session slot for longer than the longest wait.
    fn session_wait_too_long(&self, clock_at: Timestamp) -> Duration {
        if !self.session_slots.are_counted() {
            return Duration::ZERO;
        }
        self.session_wait_behind_all(clock_at).1.saturating_sub(self.settings.max_wait())
    }

    /// Everything promised, and the time until a visitor behind it gets a session slot.
    fn session_wait_behind_all(&self, clock_at: Timestamp) -> (SlotLoad, Duration) {
        let last_due = self.schedule.last_due();
        let ahead = self.schedule.slots.between(clock_at, last_due);
        let share = self.attendance.expected_share(clock_at.second(), last_due.second());
        (ahead, self.session_slots.wait(ahead.visitors, share))
    }
}

/// When a visitor comes again whom a room refuses that has a position for it in `opens_in`. `random`: 64
/// random bits.
fn spread(opens_in: Duration, random: u64) -> Duration {
    let share = random as f64 / (u64::MAX as f64);
    opens_in.clamp(AGAIN, RETRY_MOST) + RETRY_SPREAD.mul_f64(share)
}

/// Whether a newcomer due at `due` enters at once. A burst of a second is WebQ's rule: i = 0.
fn is_at_once(due: Timestamp, clock_at: Timestamp, burst: Duration) -> bool {
    due <= clock_at
        || if burst.as_secs() >= 1 { due.second() == clock_at.second() } else { due <= clock_at + burst }
}

/// Tickets, and work past the schedule.
impl Room {
    /// An authentic ticket presented with the request itself.
    pub fn redeem(&self, ticket: &Ticket, now: Timestamp) -> Redemption {
        self.adopt(ticket, now);
        let check = self.tickets.redeem(ticket, now);
        if check == TicketCheck::Enter {
            self.admit(ticket.cost);
            self.attendance.redeem(ticket.due().second(), ticket.cost);
        }
        check.redemption(|| self.wait(ticket.due(), now), now)
    }

    /// Redeems a ticket before its turn, for a session slot that nobody before could take. `false`: used.
    pub(crate) fn redeem_past(&self, ticket: &Ticket) -> bool {
        let is_redeemed = self.tickets.redeem_out_of_turn(ticket);
        if is_redeemed {
            self.attendance.redeem(ticket.due().second(), ticket.cost);
            self.charge(ticket.cost);
        }
        is_redeemed
    }

    /// A status poll: decides nothing, consumes nothing.
    pub fn status(&self, ticket: &Ticket, now: Timestamp) -> TicketStatus {
        self.adopt(ticket, now);
        self.tickets.check(ticket, now).status(|| self.wait(ticket.due(), now), now)
    }

    /// Whether the ticket is shown after its turn.
    pub fn is_late(&self, ticket: &Ticket) -> bool {
        self.tickets.is_late(ticket)
    }

    /// The request that [`Room::redeem`] let in never reached the origin: the ticket is valid again. The
    /// visitor still counts as having come.
    pub fn give_back(&self, ticket: &Ticket) {
        self.tickets.give_back(ticket);
    }

    /// Bypass traffic: work admitted without asking the room (a pass, a class that never waits). It counts in
    /// the backlog, and in the waits, since it takes of the capacity that the schedule counts on.
    pub fn charge(&self, cost: Cost) {
        self.bypass.count(cost);
        self.tickets.load.admit(cost);
    }

    /// As [`Room::charge`], for a request of an admitted session.
    pub fn charge_session(&self, cost: Cost) {
        self.bypass.count_session(cost);
        self.tickets.load.admit(cost);
    }

    /// Time until the virtual clock reaches `due`.
    fn wait(&self, due: Timestamp, now: Timestamp) -> Wait {
        let (clock, load) = (&self.tickets.clock, &self.tickets.load);
        let (clock_at, capacity) = (clock.at(now), load.capacity());
        let ahead = self.schedule.slots.between(clock_at, due);
        let outflow = self.bypass.outflow(capacity);
        let share = self.attendance.expected_share(clock_at.second(), due.second());
        let wait = if capacity == Rate::ZERO {
            due.since(clock_at.min(now)).as_secs_f64().max(RETRY_CLOSED.as_secs_f64())
        } else if clock.value().follows_clock || due > self.schedule.last_due() {
            // No known visitor is before this one: the wait is the time until then. (Also for a ticket of an
            // earlier process that is not in the schedule.) Bypass traffic slows the clock down.
            let promised_per_s = self.schedule.slots.limit().units() * self.attendance.show_up_upper.load();
            outflow.time_for(due.since(clock_at).as_secs_f64() * promised_per_s)
        } else {
            let in_transit = self.attendance.in_transit.load();
            // Nobody knows when an origin comes back that is gone.
            let behind = load.excess_s(now).clamp(0.0, RETRY_CLOSED.as_secs_f64());
            outflow.time_for(ahead.cost.units() * share + in_transit.units()) + behind
        };
        let wait = if mutants::is(Mutant::HalfTheWait) { wait / 2.0 } else { wait };
        let wait = Duration::try_from_secs_f64(wait).unwrap_or(MAX_WAIT);
        let wait = wait.max(self.session_slots.wait(ahead.visitors, share)).clamp(MIN_WAIT, MAX_WAIT);
        Wait { wait, position: ahead.visitors + 1, due: now + wait }
    }

    /// A page that waits with this ticket will ask again `after` from now: until then its visitor counts as
    /// present. `is_new`: it has not asked before.
    pub fn will_ask(&self, ticket: &Ticket, is_new: bool, after: Duration, now: Timestamp) {
        let heard = if is_new { Heard::Arriving } else { Heard::Asking };
        self.attendance.presence.expect(ticket, heard, after, now);
    }

    /// Whether any visitor waits: the virtual clock has not reached the last promise.
    pub fn busy(&self, now: Timestamp) -> bool {
        self.schedule.has_promises_after(self.tickets.clock.at(now))
    }

    /// Cost units per second.
    pub fn capacity(&self) -> Rate {
        self.tickets.load.capacity()
    }

    /// Whether the origin is too far behind for a visitor that has a session slot and no turn.
    pub(crate) fn is_closed_to_all(&self, now: Timestamp) -> bool {
        self.tickets.load.is_closed(now)
    }

    /// Counts a part of the page with the pass of this nonce; `false`: it has had too many of late.
    pub(crate) fn take_part(&self, nonce: u64, now: Timestamp) -> bool {
        self.tickets.parts.take(nonce, now)
    }

    /// How often waiting pages are to ask.
    pub fn poll_intervals(&self) -> PollIntervals {
        self.polling.intervals()
    }

    /// How fast new sessions get session slots; `None`: as fast as they come. On every tick, before it.
    pub fn pace_sessions(&self, pace: Option<SessionPace>) {
        self.control().set_session_pace(self, pace);
    }

    /// What open sessions will ask for; `None`: not known. On every tick, before it.
    pub fn expect_sessions(&self, expected: Option<ExpectedSessions>) {
        self.control().bypass.expected = expected;
    }

    /// Whether enough session slots are free for a newcomer, beside the visitors in transit.
    pub(crate) fn leaves_enough(&self, pace: Option<SessionPace>) -> bool {
        pace.and_then(|pace| pace.free).is_none_or(|free| self.session_slots.leave_enough(free))
    }
}

/// The control side.
impl Room {
    /// The control tick, every 100 ms or so: moves the virtual clock, learns, forgets. `queued`: admitted
    /// work that waits for the origin. Where the gate has an in-flight limit: [`Room::tick_with`].
    pub fn tick(&self, now: Timestamp, queued: Cost) {
        self.control().tick_queued(self, queued, now);
    }

    /// The control tick, with all of the gate. Without a usable origin the virtual clock stops.
    pub fn tick_with(&self, gate: &Totals, is_origin_usable: bool, now: Timestamp) {
        self.control().tick(self, gate, is_origin_usable, now);
    }

    /// Computes how often waiting pages are to ask. On every tick.
    pub fn look_out(&self, is_searching: bool, now: Timestamp) {
        if is_searching {
            self.polling.note_search(now);
        }
        let (clock_at, load) = (self.tickets.clock.at(now), &self.tickets.load);
        let in_transit = self.attendance.visitors_in_transit(clock_at);
        let waiting = self.schedule.slots.ahead_of(clock_at).visitors + in_transit;
        let entering_per_s = load.capacity().get() / load.mean_cost().units();
        self.polling.update(waiting, entering_per_s, |wait| self.waiting_within(wait, clock_at), now);
    }

    /// Visitors whose wait is `wait` at most, those in transit included.
    fn waiting_within(&self, wait: Duration, clock_at: Timestamp) -> u64 {
        let capacity = self.capacity();
        if capacity == Rate::ZERO {
            return 0;
        }
        // A backlog only makes waits longer: visitors who are counted as near for want of it do no harm.
        let units = self.bypass.outflow(capacity).work_within(wait.as_secs_f64());
        let work = units / self.attendance.show_up_upper.load() * 100.0;
        let until = self.schedule.advance(clock_at, self.schedule.last_due(), work).at;
        let follows_clock = self.tickets.clock.value().follows_clock;
        let until = if follows_clock { until.max(clock_at + wait) } else { until };
        self.schedule.slots.between(clock_at, until).visitors + self.attendance.visitors_in_transit(clock_at)
    }

    /// Sets the capacity, and that no more is let in: [`Room::set_targets`].
    pub fn set_capacity(&self, capacity: Rate, now: Timestamp) {
        self.set_targets(&capacity.into(), now);
    }

    /// Visitors whom the virtual clock has admitted and who have not come yet.
    pub(crate) fn coming(&self) -> u32 {
        self.control().coming(self)
    }

    /// What the room's decisions are based on.
    pub fn targets(&self) -> RoomTargets {
        self.control().targets
    }

    /// Changes the room's targets. A fall of the capacity moves newcomers behind everything promised (WebQ
    /// III-D: T' + 1), a rise speeds up the virtual clock, or goes to newcomers if so configured.
    pub fn set_targets(&self, targets: &RoomTargets, now: Timestamp) {
        self.control().set_targets(self, targets, now);
    }

    /// New settings. Promises are kept; costs of classes apply to later visitors.
    pub fn reconfigure(&self, config: RoomConfig, now: Timestamp) -> Result<(), NeedsNewRoom> {
        let (needed_s, has_s) = (config.schedule_s(), self.schedule.slots.seconds());
        if needed_s > has_s {
            return Err(NeedsNewRoom { needed_s, has_s });
        }
        let mut control = self.control();
        control.step(self, None, now);
        self.tickets.lateness.configure(&config);
        self.schedule.slots.set_max_wait(config.max_wait);
        self.settings.configure(&config);
        self.costs.configure(&config.class_costs);
        control.configure(self, &config);
        Ok(())
    }

    /// Promises per second as a multiple of capacity, without the rest of [`Room::state`].
    pub fn overbook(&self) -> f64 {
        self.control().density.overbook
    }

    /// The room in figures.
    pub fn state(&self, now: Timestamp) -> RoomState {
        let (clock_at, last_due) = (self.tickets.clock.at(now), self.schedule.last_due());
        let slots = &self.schedule.slots;
        let next = Timestamp::from_secs(slots.frontier()).max(now);
        let waiting = self.attendance.waiting(clock_at, last_due);
        RoomState {
            waiting,
            present: self.attendance.presence.visitors_after(clock_at, last_due).min(waiting),
            promised: slots.between(clock_at, last_due.max(now) + Duration::from_secs(1)).cost,
            wait: if self.busy(now) { self.wait(next.min(last_due), now).wait } else { Duration::ZERO },
            lead_s: clock_at.as_micros() as f64 / 1e6 - now.as_micros() as f64 / 1e6,
            show_up: self.attendance.show_up.load(),
            overbook: self.overbook(),
            frontier: slots.frontier(),
            backlog_s: self.tickets.load.backlog_s(now),
            redeemed: self.tickets.redeemed.len(),
        }
    }
}

/// The link of the two-process form.
impl Room {
    /// This process is a tokengen: it sends visitors on, and sees nothing of the origin but what is reported.
    pub(crate) fn sends_on(&self) {
        self.link.set_sends_on();
    }

    /// Takes in a tokencheck's report and returns its update. From the first report on, admitted work is what
    /// tokencheck reports, not what this room sent on; of a late report, what the origin has not done since.
    pub fn feedback(&self, report: &Feedback) -> ControlUpdate {
        self.link.set_has_tokencheck();
        let update = self.control().take_report(self, report);
        for &(second, cost) in report.shown.iter().take(MAX_SHOWN) {
            // A second of another lap would take its cell from those of this one.
            if self.schedule.slots.covers(second) {
                self.attendance.redeem(second, cost.min(Cost::from_hundredths(MAX_COST)));
            }
        }
        update
    }

    /// What tokencheck's decisions are to be based on.
    pub fn control_update(&self) -> ControlUpdate {
        self.control().update(self)
    }

    /// Sets the in-flight limit for tokencheck, and whether the capacity was measured.
    pub fn order_limit(&self, max_in_flight: Option<u32>, is_measured: bool) {
        self.control().tokenchecks.set_limit(max_in_flight, is_measured);
    }

    /// What is known of the origin at `now`.
    pub fn remote_origin(&self, now: Timestamp) -> RemoteOrigin {
        self.control().tokenchecks.origin(&self.link, now)
    }
}

/// Over a restart.
impl Room {
    /// What must outlive the process.
    pub fn save(&self, now: Timestamp) -> Vec<u8> {
        let control = self.control();
        let (clock, lateness) = (&self.tickets.clock, &self.tickets.lateness);
        let (slots, last_due) = (&self.schedule.slots, self.schedule.last_due());
        let first = lateness.oldest_valid(now).min(self.attendance.judged());
        let end = last_due.second().max(slots.frontier()).max(now.second()) + 2;
        let first = first.max(end.saturating_sub(slots.seconds()));
        let seconds = (first..first + slots.seconds()).map(|second| SavedSecond {
            second,
            slots: slots.promised(second),
            waits: self.attendance.promised(second),
            redeemed: self.attendance.redeemed(second).cost,
        });
        let nothing = SlotLoad::default();
        let saved = SavedRoom {
            saved_at: now,
            clock: VirtualTime { at: clock.at(now), ..clock.value() },
            reached: lateness.reached.load(),
            last_due,
            floor: slots.floor(),
            frontier: slots.frontier(),
            judged: self.attendance.judged(),
            show_up: control.show_ups.of_all.average(),
            seconds: seconds.filter(|row| row.slots != nothing || row.waits != nothing).collect(),
        };
        saved.to_bytes()
    }

    /// Takes over what an earlier process saved. For a new room, before the first visitor, and after
    /// [`Room::pace_sessions`]: where session slots are counted, a second holds fewer visitors.
    pub fn restore(&self, bytes: &[u8], now: Timestamp) -> Result<(), RestoreError> {
        let saved = SavedRoom::from_bytes(bytes, now)?;
        let SavedRoom { clock, reached, last_due, .. } = saved;
        let mut control = self.control();
        self.adoption.restored(saved.saved_at, Timestamp::from_secs(saved.frontier));
        let slots = &self.schedule.slots;
        let oldest = clock.at.min(reached).min(now).saturating_sub(RESTORED).second();
        // A room whose ring is shorter keeps what it can: from the virtual clock on.
        let kept = oldest..oldest.saturating_add(slots.seconds());
        slots.keep_from(oldest);
        for row in saved.seconds.iter().filter(|row| kept.contains(&row.second)) {
            slots.restore(row.second, row.slots);
            self.attendance.restore(row.second, row.waits, row.redeemed);
        }
        // Newcomers not in the second of the last promise: what a second holds may be different now, and they
        // would be due before it.
        let after_last = if last_due > clock.at { last_due.second() + 1 } else { 0 };
        self.schedule.restore(last_due, saved.floor.max(saved.frontier).max(after_last));
        self.attendance.restore_judged(saved.judged.clamp(oldest, now.second().max(oldest)));
        let has_waiting = last_due > clock.at;
        let at = if has_waiting { clock.at } else { clock.at.max(now) };
        // The time in which the gateway was down makes no visitor late.
        let too_old = now.saturating_sub(2 * MAX_WAIT);
        self.tickets.lateness.reached.store(reached.max(too_old).min(at).min(now));
        self.tickets.clock.set(VirtualTime { at, follows_clock: !has_waiting && clock.follows_clock });
        control.restore(self, saved.show_up);
        Ok(())
    }

    /// Enters the promises of an earlier process that no save remembers, as far as the ticket tells of them.
    fn adopt(&self, ticket: &Ticket, now: Timestamp) {
        let (due, clock_at) = (ticket.due(), self.tickets.clock.at(now));
        let is_to_come = due > clock_at && self.schedule.slots.covers(due.second());
        let Some(known_until) = self.adoption.gap_before(ticket).filter(|_| is_to_come) else { return };
        let end = self.schedule.adopt(known_until.max(clock_at), due, ticket.cost, |second, load| {
            self.attendance.restore(second, load, Cost::ZERO);
        });
        self.adoption.filled(end);
    }
}
