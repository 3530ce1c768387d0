//! Which class is next, of those that have somebody who may go.
//!
//! ```text
//! guarantees (floors) ─► somebody is owed work: that class
//!         └─ nobody ───► priority:     lowest number, then who came first     (tournament)
//!                        round-robin:  one of each class in turn              (rounds)
//!                        deficit:      lowest number, then work by weights    (rounds)
//! ```
//!
//! Every operation costs the same however many wait, and at most eight steps however many classes there are. Whether a class
//! may go (somebody waits, its own limit and its bucket allow it) is the gate's to say.
//!
//! Rejected: lottery scheduling (fair in the long run only), weighted fair queueing for the weights (needs a tag for every
//! request, where deficits need one number a class).

use crate::gate::{GateConfig, Scheduling};
use crate::units::{ClassId, Cost, MAX_CLASSES, Share};

mod floors;
mod rounds;
pub(crate) mod tournament;

use floors::Floors;
use rounds::Rounds;
use tournament::Tournament;

/// Who of a class is next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// When the one who has waited longest came, in the order of all arrivals.
    pub turn: u64,
    /// Work of the one who would go.
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
    priority: u8,
    weight: u32,
    guarantee: Share,
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
    /// Takes over another set-up; which classes may go stays.
    pub fn configure(&mut self, config: &GateConfig) {
        let is_other = self.kind != config.scheduler;
        let heads: Vec<_> = self.classes.iter().map(|class| class.head).collect();
        for (id, head) in heads.iter().enumerate() {
            let new = config.class(ClassId(id as u8));
            let Class { priority, weight, guarantee, .. } = self.classes[id];
            if is_other || (priority, weight, guarantee) != (new.priority, new.weight, new.guarantee) {
                self.set(id, None, head.is_none());
            }
        }
        self.kind = config.scheduler;
        for (id, head) in heads.into_iter().enumerate() {
            let new = config.class(ClassId(id as u8));
            let class = &mut self.classes[id];
            (class.priority, class.weight, class.guarantee) = (new.priority, new.weight, new.guarantee);
            let (level, weight) = match self.kind {
                Scheduling::RoundRobin => (0, 1),
                Scheduling::Priority | Scheduling::Deficit => (new.priority, new.weight),
            };
            if class.head.is_none() {
                self.rounds.configure(id, level, weight);
                self.floors.configure(id, new.guarantee);
            }
            if self.classes[id].head != head {
                self.set(id, head, false);
            }
        }
        self.rounds.reckon_unit();
    }

    /// Somebody of a class may go.
    pub fn ready(&mut self, class: ClassId, head: Head) {
        self.set(class.index(), Some(head), false);
    }

    /// Those who wait may not go.
    pub fn blocked(&mut self, class: ClassId) {
        self.set(class.index(), None, false);
    }

    /// Nobody waits.
    pub fn emptied(&mut self, class: ClassId) {
        self.set(class.index(), None, true);
    }

    fn set(&mut self, class: usize, head: Option<Head>, is_empty: bool) {
        let before = std::mem::replace(&mut self.classes[class].head, head);
        if before == head && (head.is_some() || !is_empty) {
            return;
        }
        self.ready = self.ready + usize::from(head.is_some()) - usize::from(before.is_some());
        match (self.kind, head) {
            (Scheduling::Priority, head) => {
                let priority = u128::from(self.classes[class].priority);
                self.by_age.set(class, head.map(|head| priority << 64 | u128::from(head.turn)));
            }
            (_, Some(head)) => self.rounds.ready(class, self.measure(head.cost)),
            (_, None) => self.rounds.unready(class, is_empty),
        }
        match head {
            Some(head) => self.floors.ready(class, head.cost.hundredths()),
            None => self.floors.unready(class),
        }
    }

    /// What a turn counts.
    fn measure(&self, cost: Cost) -> u64 {
        if self.kind == Scheduling::RoundRobin { 1 } else { cost.hundredths().max(1) }
    }

    /// Whether anybody may go.
    pub fn is_anybody_ready(&self) -> bool {
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

    /// Work of a class goes to the origin by another's decision: it counts towards what is guaranteed to it.
    pub fn charge_aside(&mut self, class: ClassId, cost: Cost) {
        self.floors.charge(class.index(), cost.hundredths());
    }

    /// Work of a class goes to the origin: out of its queue if it was ready, else directly.
    pub fn charge(&mut self, class: ClassId, cost: Cost) {
        let id = class.index();
        self.floors.charge(id, cost.hundredths());
        if self.kind != Scheduling::Priority && self.classes[id].head.is_some() {
            self.rounds.charge(id, self.measure(cost));
        }
    }
}
