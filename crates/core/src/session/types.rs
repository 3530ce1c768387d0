//! What goes into the table of sessions and what it says.

use std::time::Duration;

use crate::detect::SessionCount;
use crate::gate::Totals;
use crate::policies::TierId;
use crate::units::{Rate, Timestamp};

/// Which session: a keyed hash of what tells it, or a random number. Uniform and not to be guessed, since the table goes by its
/// bits without another hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionKey(pub u128);

/// How many sessions there may be.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Cap {
    /// As many as come (and the table holds).
    #[default]
    None,
    /// So many, at least one.
    Fixed(u32),
    /// As many as the origin serves, learned. See [`super`].
    Discovered,
}

/// How the table is set up. All of it may change while it runs.
#[derive(Clone, PartialEq, Debug)]
pub struct SessionConfig {
    /// Inactivity after which a session ends, from the end of the last request under way. To the millisecond.
    pub timeout: Duration,
    /// Age at which it ends in any case; at most 49 days count.
    pub max_age: Duration,
    /// Places of everybody.
    pub cap: Cap,
    /// Sessions known at once, those that were ended early and might come again among them.
    pub max_entries: usize,
    /// Whether the key of a session that was ended early is kept until what shows it has run out ([`Standing::Ended`]). For passes;
    /// of any other key it is forgotten at once, so that who begins and logs out again and again fills no table.
    pub remembers_ended: bool,
    /// Places of single service levels, beside everybody's. [`TierId`] 0 has none of its own.
    pub pools: Vec<(TierId, u32)>,
}

impl Default for SessionConfig {
    /// What the settings' defaults say; no bound.
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

/// Where a request's session stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionStatus {
    /// It has a place: never refused for load, first at the gate.
    Admitted,
    /// Not known, or it has run out: it needs a place.
    New,
    /// It was ended early. What shows it (a pass) is void; otherwise as [`Standing::New`].
    Ended,
}

/// No place for a new session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoSessionSlot {
    /// All are taken, or none is given at present.
    #[error("no session's place is free")]
    Taken,
    /// As many sessions are known as the table may hold.
    #[error("the table of sessions is full")]
    TableFull,
}

/// Who ends a session early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ender {
    /// The origin, by its answer.
    Origin,
    /// The operator.
    Operator,
}

/// Sessions that have ended, by what ended them, since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Endings {
    /// Nothing came, and nothing was under way, for the timeout.
    pub idle: u64,
    /// Too old.
    pub age: u64,
    /// The origin said so.
    pub origin: u64,
    /// The operator did.
    pub operator: u64,
    /// What told it cannot come again ([`super::Sessions::leave`]), or it became one with another.
    pub left: u64,
    /// Its first request never reached the origin.
    pub void: u64,
}

impl Endings {
    /// All.
    pub fn sum(&self) -> u64 {
        self.idle + self.age + self.origin + self.operator + self.left + self.void
    }

    /// Those that had neither run out nor come to nothing.
    pub(super) fn early(&self) -> u64 {
        self.origin + self.operator + self.left
    }
}

/// What the tick sees.
#[derive(Clone, Copy, Debug)]
pub struct SessionInputs<'a> {
    /// What the origin can serve; [`Rate::MAX`] where nobody knows.
    pub capacity: Rate,
    /// Whether the origin was seen at its limit: else the capacity is a guess.
    pub is_measured: bool,
    /// The gate.
    pub gate: &'a Totals,
    /// Visitors who wait in the room.
    pub waiting: u64,
}

/// How fast new sessions get in.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SessionPace {
    /// Places free now; `None`: no bound.
    pub free: Option<u32>,
    /// Places that become free per second when all are taken, as learned.
    pub per_s: f64,
    /// Seconds before the first of them can, as far as sessions run out and are not ended.
    pub next_s: f64,
}

/// One pool in figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolState {
    /// Whose places; 0: everybody's.
    pub tier: TierId,
    /// Taken.
    pub open: u32,
    /// There are; `None`: no bound.
    pub cap: Option<u32>,
}

/// The sessions in figures, for whoever looks on.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct SessionsState {
    /// Open now and begun since the start.
    pub count: SessionCount,
    /// Taken in by a pass that another process had given, since the start. begun + readmitted = open + ended.
    pub readmitted: u64,
    /// Ended since the start.
    pub ended: Endings,
    /// New sessions turned away for want of a place, to the room or altogether, since the start. Whoever asks again counts again.
    pub refused: u64,
    /// Places of everybody and of each level that has its own, everybody's first.
    pub pools: Vec<PoolState>,
    /// Sessions known, those ended early and not forgotten among them.
    pub entries: u64,
    /// How long a place is held, in seconds, as learned; `None`: no session has ended yet.
    pub length_s: Option<f64>,
    /// Work of a whole session, in cost units, as learned.
    pub work: Option<f64>,
    /// Places that become free per second when all are taken, as learned.
    pub per_s: f64,
    /// No place is given at present, since requests of sessions wait too long at the gate.
    pub is_held: bool,
    /// What the gate's queue makes of the learned cap: a factor.
    pub correction: f64,
}

/// One session, for the operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionLine {
    /// Which.
    pub key: SessionKey,
    /// Its service level.
    pub tier: TierId,
    /// Its first request.
    pub begun: Timestamp,
    /// When one came last, or ended.
    pub last: Timestamp,
    /// How many came.
    pub requests: u32,
    /// How many of them are under way.
    pub under_way: u16,
}

/// A page of sessions.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SessionPage {
    /// In no order that means anything.
    pub sessions: Vec<SessionLine>,
    /// Where the next page begins; `None`: this was the last.
    pub next: Option<u64>,
}
