//! Configuration, inputs and figures of the sessions.

use std::time::Duration;

use crate::detect::SessionCount;
use crate::gate::Totals;
use crate::policies::TierId;
use crate::units::{Rate, Timestamp};

/// Identifies a session: a keyed hash of its cookie or address, or a random number. It must be uniform and
/// unpredictable, because the table uses its bits without another hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionKey(pub u128);

/// How many sessions there may be.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Cap {
    /// As many as the table holds.
    #[default]
    None,
    /// A fixed number, at least one.
    Fixed(u32),
    /// As many as the origin can serve, learned by the session cap controller.
    Discovered,
}

/// The configuration of the sessions. All of it may change while they run.
#[derive(Clone, PartialEq, Debug)]
pub struct SessionConfig {
    /// Inactivity after the last request's end until a session ends, in whole milliseconds.
    pub timeout: Duration,
    /// Age at which it ends in any case; at most 49 days.
    pub max_age: Duration,
    pub cap: Cap,
    /// Entries of the table: open sessions, and those ended early whose passes have not expired.
    pub max_entries: usize,
    /// Whether the key of a session that was ended early is kept until its pass has expired
    /// ([`SessionStatus::Ended`]). For passes. Others are forgotten: logins must not fill the table.
    pub remembers_ended: bool,
    /// Session slots of single tiers, besides those for all. [`TierId`] 0 has none of its own.
    pub pools: Vec<(TierId, u32)>,
}

impl Default for SessionConfig {
    /// The defaults of the settings, without a cap.
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(300),
            max_age: Duration::from_secs(3_600),
            cap: Cap::None,
            max_entries: 1_000_000,
            remembers_ended: true,
            pools: Vec::new(),
        }
    }
}

/// The status of a request's session.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum SessionStatus {
    /// It has a slot: its requests are never refused for load and go first at the gate.
    Admitted,
    /// Unknown or expired: it needs a slot.
    #[default]
    New,
    /// It was ended early: its pass is void; otherwise as [`SessionStatus::New`].
    Ended,
}

/// Why a new session gets no slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoSessionSlot {
    /// All slots are taken, or the cap controller gives none at present.
    #[error("no session slot is free")]
    Taken,
    #[error("the session table is full")]
    TableFull,
}

/// Who ends a session early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ender {
    /// The origin, by its response.
    Origin,
    Operator,
}

/// Sessions that have ended since the start, by cause.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Endings {
    /// No request for the timeout.
    pub idle: u64,
    pub age: u64,
    pub origin: u64,
    pub operator: u64,
    /// The key cannot come again ([`super::Sessions::leave`]), or the session became one with another.
    pub left: u64,
    /// The first request never reached the origin.
    pub void: u64,
}

impl Endings {
    /// All causes.
    pub fn sum(&self) -> u64 {
        self.idle + self.age + self.origin + self.operator + self.left + self.void
    }

    /// Sessions that reached the origin and had not expired.
    pub(super) fn early(&self) -> u64 {
        self.origin + self.operator + self.left
    }

    pub(super) fn add(&mut self, other: &Self) {
        let Self { idle, age, origin, operator, left, void } = other;
        self.idle += idle;
        self.age += age;
        self.origin += origin;
        self.operator += operator;
        self.left += left;
        self.void += void;
    }
}

/// Inputs of the control tick.
#[derive(Clone, Copy, Debug)]
pub struct SessionInputs<'a> {
    /// Capacity of the origin; [`Rate::MAX`]: unknown.
    pub capacity: Rate,
    /// Whether the origin was seen at its limit; otherwise the capacity is an initial estimate.
    pub is_measured: bool,
    pub gate: &'a Totals,
    pub waiting: u64,
}

/// How fast new sessions may begin.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SessionPace {
    /// Session slots free now; `None`: no bound.
    pub free: Option<u32>,
    /// Slots that become free per second when all are taken, as learned.
    pub per_s: f64,
    /// Expected seconds before the first of them becomes free.
    pub next_s: f64,
}

/// Figures of one pool of slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolState {
    /// Tier of the slots; 0: the slots for all tiers.
    pub tier: TierId,
    pub open: u32,
    /// Slots of the pool; `None`: no bound.
    pub cap: Option<u32>,
}

/// Figures of the sessions.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct SessionsState {
    pub count: SessionCount,
    /// Sessions readmitted by a pass of another process since the start. begun + readmitted = open + ended.
    pub readmitted: u64,
    pub ended: Endings,
    /// Refusals of a slot to new sessions since the start: to the room or altogether, each attempt.
    pub refused: u64,
    /// The slots for all tiers, then those of each tier that has its own.
    pub pools: Vec<PoolState>,
    /// Entries of the table: open sessions, and those ended early and not forgotten.
    pub entries: u64,
    /// Mean time that a slot is held, in seconds; `None`: no session has ended yet.
    pub length_s: Option<f64>,
    /// Mean work of a whole session, in cost units.
    pub work: Option<f64>,
    /// Slots that become free per second when all are taken, as learned.
    pub per_s: f64,
    /// No slot is given at present, because requests of sessions wait too long at the gate.
    pub is_held: bool,
    /// Factor by which the gate's queue corrects the learned cap.
    pub correction: f64,
}

/// One session, for the operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionLine {
    pub key: SessionKey,
    pub tier: TierId,
    /// Its first request.
    pub begun: Timestamp,
    /// Latest begin or end of a request.
    pub last: Timestamp,
    pub requests: u32,
    pub under_way: u16,
}

/// A page of the session list.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SessionPage {
    /// In no particular order.
    pub sessions: Vec<SessionLine>,
    /// Where the next page begins; `None`: this is the last.
    pub next: Option<u64>,
}

/// What was learned of sessions, to begin from after a restart. Pairs are sums and what they are over.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LearnedSessions {
    /// Seconds of pauses, and pauses.
    pub pause: (f64, f64),
    /// Work of returning visitors, and active sessions times seconds.
    pub work: (f64, f64),
    /// Work of first pages of those who have left again, and that and all later work.
    pub share: (f64, f64),
    /// Work of first requests, and sessions.
    pub first: (f64, f64),
    /// Work of first pages, and of their first requests.
    pub first_page: (f64, f64),
    /// Correction of the paper's cap by the gate's queue.
    pub correction: f64,
    /// Seconds that sessions held their slots, and how many ended.
    pub length: (f64, f64),
}
