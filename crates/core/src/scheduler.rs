//! The scheduler of the gate: which class is next, among those with a request that may go.
//!
//! ```text
//! guarantees (floors) ─► a class is owed work: that class
//!         └─ none is ──► priority:     lowest number, then earliest arrival    (tournament)
//!                        round-robin:  one request of each class in turn       (rounds)
//!                        deficit:      lowest number, then work by weights     (rounds)
//! ```
//!
//! Every operation costs at most eight steps, however many requests and classes there are. The gate decides
//! whether a class may go: it has a waiting request, and its own limit and its egress bucket allow one.
//!
//! Rejected: lottery scheduling (fair in the long run only), weighted fair queueing for the weights (needs a
//! tag for every request, where deficits need one number a class).

use crate::units::{ClassId, Cost, MAX_CLASSES, Share};

mod floors;
mod rounds;
pub(crate) mod tournament;

use floors::Floors;
use rounds::Rounds;
use tournament::Tournament;

/// Which class is next when several wait.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Scheduling {
    /// Strict priority; within one priority first come, first served.
    #[default]
    Priority,
    /// One request of each class in turn, whatever the priorities.
    RoundRobin,
    /// Strict priority; within one priority deficit round-robin: work in proportion to the weights.
    Deficit,
}

/// What the configuration gives a class against the others.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Precedence {
    /// Lower goes first.
    pub priority: u8,
    /// Share among classes of one priority under [`Scheduling::Deficit`], at least 1.
    pub weight: u32,
    /// Part of the work sent to the origin that the class gets in any case while one of its requests may go.
    pub guarantee: Share,
}

/// The next request of a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// Number of the class's oldest request in the order of all arrivals.
    pub turn: u64,
    /// Work of the request that would go.
    pub cost: Cost,
}

/// Decides between the classes.
#[derive(Debug)]
pub struct Scheduler {
    kind: Scheduling,
    classes: Vec<Class>,
    ready: usize,
    by_age: Tournament,
    rounds: Rounds,
    floors: Floors,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Class {
    precedence: Precedence,
    /// Its next request, if the class may go.
    head: Option<Head>,
}

impl Default for Scheduler {
    fn default() -> Self {
        Self {
            kind: Scheduling::default(),
            classes: vec![Class::default(); MAX_CLASSES],
            ready: 0,
            by_age: Tournament::default(),
            rounds: Rounds::default(),
            floors: Floors::default(),
        }
    }
}

impl Scheduler {
    /// Changes the configuration. The classes that may go stay the same.
    pub fn configure(&mut self, kind: Scheduling, precedence: impl Fn(ClassId) -> Precedence) {
        let heads: Vec<_> = self.classes.iter().map(|class| class.head).collect();
        for (id, head) in (0..=u8::MAX).map(ClassId).zip(&heads) {
            if self.kind != kind || self.classes[id.index()].precedence != precedence(id) {
                match head {
                    Some(_) => self.blocked(id),
                    None => self.emptied(id),
                }
            }
        }
        self.kind = kind;
        for (id, head) in (0..=u8::MAX).map(ClassId).zip(heads) {
            let new = precedence(id);
            let class = &mut self.classes[id.index()];
            class.precedence = new;
            let (level, weight) = match self.kind {
                Scheduling::RoundRobin => (0, 1),
                Scheduling::Priority | Scheduling::Deficit => (new.priority, new.weight),
            };
            if class.head.is_none() {
                self.rounds.configure(id.index(), level, weight);
                self.floors.configure(id.index(), new.guarantee);
            }
            if let Some(head) = head.filter(|_| class.head.is_none()) {
                self.ready(id, head);
            }
        }
        self.rounds.update_unit();
    }

    /// A request of a class may go.
    pub fn ready(&mut self, class: ClassId, head: Head) {
        let class = class.index();
        let before = self.classes[class].head.replace(head);
        if before == Some(head) {
            return;
        }
        self.ready += usize::from(before.is_none());
        if self.kind == Scheduling::Priority {
            let priority = u128::from(self.classes[class].precedence.priority);
            self.by_age.set(class, Some(priority << 64 | u128::from(head.turn)));
        } else {
            self.rounds.ready(class, self.measure(head.cost));
        }
        self.floors.ready(class, head.cost.hundredths());
    }

    /// The waiting requests of a class may not go.
    pub fn blocked(&mut self, class: ClassId) {
        if self.remove(class) && self.kind != Scheduling::Priority {
            self.rounds.blocked(class.index());
        }
    }

    /// No request of a class waits.
    pub fn emptied(&mut self, class: ClassId) {
        self.remove(class);
        if self.kind != Scheduling::Priority {
            self.rounds.emptied(class.index());
        }
    }

    /// Returns whether the class was ready.
    fn remove(&mut self, class: ClassId) -> bool {
        let was_ready = self.classes[class.index()].head.take().is_some();
        if was_ready {
            self.ready -= 1;
            self.by_age.set(class.index(), None);
            self.floors.unready(class.index());
        }
        was_ready
    }

    /// Work of a request as the rounds count it.
    fn measure(&self, cost: Cost) -> u64 {
        if self.kind == Scheduling::RoundRobin { 1 } else { cost.hundredths().max(1) }
    }

    /// Whether any class may go.
    pub fn is_any_ready(&self) -> bool {
        self.ready > 0
    }

    /// The class that is next; the same until something changes.
    pub fn pick(&mut self) -> Option<ClassId> {
        let class = self.floors.pick().or_else(|| match self.kind {
            Scheduling::Priority => self.by_age.first().map(|(class, _)| class),
            Scheduling::RoundRobin | Scheduling::Deficit => self.rounds.pick(),
        })?;
        Some(ClassId(class as u8))
    }

    /// Work of a class goes to the origin by another scheduler: it counts towards the class's guarantee only.
    pub fn charge_guarantee(&mut self, class: ClassId, cost: Cost) {
        self.floors.charge(class.index(), cost.hundredths());
    }

    /// Work of a class goes to the origin: out of its queue if the class was ready, else directly.
    pub fn charge(&mut self, class: ClassId, cost: Cost) {
        let id = class.index();
        self.floors.charge(id, cost.hundredths());
        if self.kind != Scheduling::Priority && self.classes[id].head.is_some() {
            self.rounds.charge(id, self.measure(cost));
        }
    }
}
