//! The queue of one class at the gate: which request is next and which are refused.
//!
//! ```text
//! push ─► list in order of arrival ─► peek, pop: the end that the discipline chooses
//!                │                        └► is_refused: refused although it is its turn (CoDel)
//!                ├► remove: the visitor has left
//!                └► pop_oldest: it has waited for as long as allowed
//! ```
//!
//! A [`Discipline`] only says which end is next and whether it is served. The [`List`] underneath is the same
//! for all of them: a change of the discipline keeps the waiting requests, and every operation costs O(1).
//! That holds for ordinary requests. Those of admitted sessions and those that begin one ([`Lane`]) are
//! served in order of arrival, without a bound.

use crate::units::Timestamp;

mod codel;
mod discipline;
mod list;

use discipline::{AdaptiveLifo, Fifo, Lifo};

pub use codel::CoDel;
pub use discipline::{DEFAULT_INTERVAL, DEFAULT_TARGET, Discipline, DisciplineKind, QueueConfig};
pub use list::{End, Full, Lane, List, QueueHandle, Waiting};

fn discipline(config: &QueueConfig) -> Box<dyn Discipline> {
    match config.discipline {
        DisciplineKind::Fifo => Box::new(Fifo),
        DisciplineKind::Lifo => Box::new(Lifo),
        DisciplineKind::AdaptiveLifo => Box::new(AdaptiveLifo { target: config.target }),
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
    /// An empty queue. `max` bounds it in any case: the gate's own bound.
    pub fn new(config: &QueueConfig, max: usize) -> Self {
        Self {
            list: List::default(),
            kind: config.discipline,
            discipline: discipline(config),
            max: config.max_length.unwrap_or(max).min(max),
        }
    }

    /// Changes discipline and bound; waiting requests stay.
    pub fn configure(&mut self, config: &QueueConfig, max: usize) {
        self.max = config.max_length.unwrap_or(max).min(max);
        if self.kind == config.discipline {
            self.discipline.configure(config);
        } else {
            self.kind = config.discipline;
            self.discipline = discipline(config);
        }
    }

    /// Appends a request.
    ///
    /// # Errors
    /// An ordinary request finds the queue at its bound.
    pub fn push(&mut self, waiting: Waiting) -> Result<QueueHandle, Full> {
        if waiting.lane == Lane::Ordinary && self.list.len() >= self.max {
            return Err(Full { len: self.list.len() });
        }
        self.list.push(waiting)
    }

    /// The request of a lane that is next.
    pub fn peek(&self, lane: Lane, now: Timestamp) -> Option<&Waiting> {
        match lane {
            Lane::Ordinary => self.list.at(self.discipline.next(&self.list, now)),
            Lane::Admitted | Lane::Newcomer | Lane::Page => self.list.first_of(lane),
        }
    }

    /// Whether the next ordinary request is refused instead of served; to be asked right before
    /// [`Queue::pop`].
    pub fn is_refused(&mut self, now: Timestamp) -> bool {
        let waited = self.peek(Lane::Ordinary, now).map(|next| now.since(next.since));
        waited.is_some_and(|waited| self.discipline.is_refused(waited, now))
    }

    /// Removes the next request of a lane.
    pub fn pop(&mut self, lane: Lane, now: Timestamp) -> Option<(QueueHandle, Waiting)> {
        match lane {
            Lane::Ordinary => {
                let popped = self.list.pop(self.discipline.next(&self.list, now));
                self.after_removal(popped)
            }
            Lane::Admitted | Lane::Newcomer | Lane::Page => self.list.pop_of(lane),
        }
    }

    /// Removes a request whose visitor has left. `None`: it has been removed before.
    pub fn remove(&mut self, handle: QueueHandle) -> Option<Waiting> {
        let removed = self.list.remove(handle);
        self.after_removal(removed)
    }

    /// Removes the oldest ordinary request: its patience has ended.
    pub fn pop_oldest(&mut self) -> Option<(QueueHandle, Waiting)> {
        let popped = self.list.pop(End::Oldest);
        self.after_removal(popped)
    }

    fn after_removal<T>(&mut self, removed: Option<T>) -> Option<T> {
        if removed.is_some() && self.list.is_empty() {
            self.discipline.emptied();
        }
        removed
    }

    /// The oldest ordinary request.
    pub fn oldest(&self) -> Option<&Waiting> {
        self.list.at(End::Oldest)
    }

    /// The oldest request of a lane that is served in order of arrival: any but the ordinary one.
    pub fn first_of(&self, lane: Lane) -> Option<&Waiting> {
        self.list.first_of(lane)
    }

    /// Requests that wait, in all lanes.
    pub fn len(&self) -> usize {
        Lane::CHAINS.map(|lane| self.len_of(lane)).iter().sum()
    }

    /// Whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Requests that wait in one lane.
    pub fn len_of(&self, lane: Lane) -> usize {
        self.list.len_of(lane)
    }
}
