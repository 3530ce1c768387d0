//! One class's queue at the gate: who waits, who is next, and who is given up.
//!
//! ```text
//! push ─► list in order of arrival ─► peek, pop: the end that the discipline chooses
//!                │                        └► is_refused: not served although it is its turn (CoDel)
//!                ├► remove: the visitor has gone
//!                └► pop_oldest: waited as long as one may
//! ```
//!
//! [`Discipline`] only says which end is next and whether it is served; the [`List`] underneath is the same for all, so that a
//! change of the discipline keeps who waits, and everything costs O(1) however many do. Requests of admitted sessions
//! ([`Lane::Admitted`]) go first, in order of arrival; neither bound, discipline nor patience is for them.

use std::time::Duration;

use crate::gate::{DisciplineKind, Lane, QueueConfig};
use crate::units::{ClassId, Cost, Timestamp};

mod adaptive_lifo;
mod codel;
mod fifo;
mod lifo;
mod list;

pub use adaptive_lifo::AdaptiveLifo;
pub use codel::CoDel;
pub use fifo::Fifo;
pub use lifo::Lifo;
pub use list::{List, QueueHandle};

/// A request that waits for a free place at the origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// The caller's name for it.
    pub id: u64,
    /// Its class.
    pub class: ClassId,
    /// Whose it is.
    pub lane: Lane,
    /// Work it asks of the origin.
    pub cost: Cost,
    /// When it came.
    pub since: Timestamp,
    /// From when on its visitor does not wait for the answer any more.
    pub until: Option<Timestamp>,
    /// Its number in the order of arrival over all classes: tells apart what came in the same microsecond. Unique.
    pub turn: u64,
}

/// The queue is at its bound; nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("queue full: expected room for one more, got {len} of {len}")]
pub struct Full {
    /// Requests that wait.
    pub len: usize,
}

/// An end of a queue in order of arrival.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Who has waited longest.
    Oldest,
    /// Who came last.
    Newest,
}

/// In which order those who wait are served, and who is let go.
pub trait Discipline: Send {
    /// Which end of `list` is next.
    fn next(&self, list: &List, now: Timestamp) -> End;

    /// Whether who is next, having waited for `waited`, is refused instead of served. Asked when it would be served.
    fn is_refused(&mut self, _waited: Duration, _now: Timestamp) -> bool {
        false
    }

    /// Who was next has been taken out, and nobody waits any more.
    fn emptied(&mut self) {}

    /// Takes over other numbers; what was learned stays.
    fn configure(&mut self, config: &QueueConfig);
}

/// The discipline of that name.
pub fn discipline(config: &QueueConfig) -> Box<dyn Discipline> {
    match config.discipline {
        DisciplineKind::Fifo => Box::new(Fifo),
        DisciplineKind::Lifo => Box::new(Lifo),
        DisciplineKind::AdaptiveLifo => Box::new(AdaptiveLifo::new(config)),
        DisciplineKind::CoDel => Box::new(CoDel::new(config)),
    }
}

/// A bounded queue with a discipline.
pub struct Queue {
    list: List,
    kind: DisciplineKind,
    discipline: Box<dyn Discipline>,
    max: usize,
}

impl Queue {
    /// An empty queue. `max`: as many may wait if the configuration says nothing.
    pub fn new(config: &QueueConfig, max: usize) -> Self {
        Self {
            list: List::default(),
            kind: config.discipline,
            discipline: discipline(config),
            max: config.max_length.unwrap_or(max).min(max),
        }
    }

    /// Changes discipline and bound; those who wait stay.
    pub fn configure(&mut self, config: &QueueConfig, max: usize) {
        self.max = config.max_length.unwrap_or(max).min(max);
        if self.kind == config.discipline {
            self.discipline.configure(config);
        } else {
            self.kind = config.discipline;
            self.discipline = discipline(config);
        }
    }

    /// Takes one in, and tells where it waits.
    ///
    /// # Errors
    /// As many wait as may.
    pub fn push(&mut self, waiting: Waiting) -> Result<QueueHandle, Full> {
        if waiting.lane == Lane::Ordinary && self.list.len() >= self.max {
            return Err(Full { len: self.list.len() });
        }
        self.list.push(waiting)
    }

    /// Who is next.
    pub fn peek(&self, now: Timestamp) -> Option<&Waiting> {
        self.list.first_admitted().or_else(|| self.list.at(self.discipline.next(&self.list, now)))
    }

    /// Whether who is next is refused instead of served; to be asked right before [`Queue::pop`].
    pub fn is_refused(&mut self, now: Timestamp) -> bool {
        match self.peek(now).map(|w| (w.lane, now.since(w.since))) {
            Some((Lane::Ordinary, waited)) => self.discipline.is_refused(waited, now),
            _ => false,
        }
    }

    /// Takes out who is next, and tells where it waited.
    pub fn pop(&mut self, now: Timestamp) -> Option<(QueueHandle, Waiting)> {
        if self.list.admitted() > 0 {
            return self.list.pop_admitted();
        }
        let popped = self.list.pop(self.discipline.next(&self.list, now));
        self.left(popped)
    }

    /// Takes out one who left. `None`: it has been taken out before.
    pub fn remove(&mut self, spot: QueueHandle) -> Option<Waiting> {
        let removed = self.list.remove(spot);
        self.left(removed)
    }

    /// Takes out who has waited longest of the ordinary ones: its patience has ended.
    pub fn pop_oldest(&mut self) -> Option<(QueueHandle, Waiting)> {
        let popped = self.list.pop(End::Oldest);
        self.left(popped)
    }

    /// Somebody has left, whichever way.
    fn left<T>(&mut self, who: Option<T>) -> Option<T> {
        if who.is_some() && self.list.is_empty() {
            self.discipline.emptied();
        }
        who
    }

    /// Who has waited longest of the ordinary ones.
    pub fn oldest(&self) -> Option<&Waiting> {
        self.list.at(End::Oldest)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.list.len() + self.list.admitted()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many wait in one lane.
    pub fn len_of(&self, lane: Lane) -> usize {
        match lane {
            Lane::Ordinary => self.list.len(),
            Lane::Admitted => self.list.admitted(),
        }
    }
}
