//! The gate's queue and limit: the oracle's own account of which requests wait and which are at the origin.

use std::collections::{BTreeMap, VecDeque};

use tidegate_core::gate::{ClassConfig, Gate, GateConfig, QueueDecision};
use tidegate_core::queue::{DisciplineKind, Lane};
use tidegate_core::scheduler::Scheduling;
use tidegate_core::units::{ClassId, Share};

use super::slots::{RequestSlots, Where};
use super::{Finding, Oracle, require};

#[derive(Default)]
pub(super) struct Queue {
    /// The order is another than by priority, then first come, first served: the gate's own tests are about
    /// that.
    is_tuned: bool,
    /// By rank and class id: each class has a line of those whose session is admitted, one of those with whom
    /// a session begins, and one of all others. A line has ids in order of arrival; those who have left are
    /// skipped.
    classes: BTreeMap<(Rank, u8), VecDeque<u64>>,
    /// Requests that wait, by their number in the order of arrival, and requests at the origin.
    requests: RequestSlots,
    arrivals: u64,
    finished: u64,
    shed: u64,
    abandoned: u64,
    /// Requests forwarded since the last check: the limit in force is looked at there.
    forwarded: bool,
}

/// The order of lines: those of admitted sessions first, then by priority.
pub(crate) type Rank = (LaneRank, u8);

/// The lanes, in the order in which they are served.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum LaneRank {
    Admitted,
    Newcomer,
    Ordinary,
}

impl LaneRank {
    /// Whether requests of this lane go before those of `lane` that came later. The turn of newcomers comes
    /// when the gate says so: after the requests of sessions, or in order of arrival with them.
    fn is_compared_with(self, lane: Self) -> bool {
        self == Self::Admitted || self == lane
    }
}

impl From<Lane> for LaneRank {
    fn from(lane: Lane) -> Self {
        match lane {
            Lane::Admitted | Lane::Page => Self::Admitted,
            Lane::Newcomer => Self::Newcomer,
            Lane::Ordinary => Self::Ordinary,
        }
    }
}

impl Queue {
    pub(super) fn new(gate: Option<&GateConfig>) -> Self {
        let is_plain = |class: &ClassConfig| {
            let in_order = matches!(class.queue.discipline, DisciplineKind::Fifo | DisciplineKind::CoDel);
            in_order
                && class.guarantee == Share::ZERO
                && class.max_in_flight.is_none()
                && !class.egress.is_limited()
        };
        let is_tuned =
            gate.is_some_and(|g| g.scheduler != Scheduling::Priority || !g.classes.iter().all(is_plain));
        Self { is_tuned, ..Self::default() }
    }

    pub(super) fn restart(&mut self) {
        *self = Self { is_tuned: self.is_tuned, ..Self::default() };
    }

    pub(super) fn arrived(
        &mut self,
        id: u64,
        class: ClassId,
        rank: Rank,
        decision: QueueDecision,
    ) -> Finding {
        self.arrivals += 1;
        match decision {
            QueueDecision::Forward => {
                self.requests.put(id, Where::AtOrigin);
                self.forwarded = true;
                // Newcomers wait for their turn while others go.
                let waiting = self.waiting_ahead(rank.0);
                require(waiting == 0 || self.is_tuned, "queue order", || {
                    format!("request {id:x} goes ahead of {waiting} who wait")
                })
            }
            QueueDecision::Queued(_) => {
                self.classes.entry((rank, class.0)).or_default().push_back(id);
                self.requests.put(id, Where::Waits(self.arrivals));
                Ok(())
            }
            QueueDecision::Shed(_) => {
                self.shed += 1;
                Ok(())
            }
        }
    }

    /// The first of a line who still waits: its position in the order of arrival.
    fn first(line: &mut VecDeque<u64>, requests: &RequestSlots) -> Option<(u64, u64)> {
        loop {
            let id = *line.front()?;
            match requests.find(id) {
                Some(Where::Waits(turn)) => return Some((turn, id)),
                _ => line.pop_front(),
            };
        }
    }

    /// Waiting requests that go before a new one of that lane, if they may go.
    fn waiting_ahead(&mut self, lane: LaneRank) -> usize {
        let requests = &self.requests;
        let lines = self.classes.iter_mut().filter(|(((of, _), _), _)| of.is_compared_with(lane));
        lines.filter_map(|(_, line)| Self::first(line, requests)).count()
    }

    pub(super) fn woken(&mut self, id: u64, class: ClassId) -> Finding {
        let mut expected: Option<(Rank, u64, u64)> = None;
        let mut lane = None;
        for ((rank, _), line) in &mut self.classes {
            if Self::first(line, &self.requests).is_some_and(|(_, first)| first == id) {
                lane = Some(rank.0);
            }
        }
        for ((rank, _), line) in &mut self.classes {
            if lane.is_some_and(|lane| !rank.0.is_compared_with(lane)) {
                continue;
            }
            if let Some((turn, first)) = Self::first(line, &self.requests) {
                // A newcomer whose turn it is has no lower rank than requests of sessions that came later.
                let of = if lane == Some(LaneRank::Newcomer) { LaneRank::Newcomer } else { rank.0 };
                let candidate = ((of, rank.1), turn, first);
                if expected.is_none_or(|best| candidate < best) {
                    expected = Some(candidate);
                }
            }
        }
        let was = self.requests.take(id);
        self.requests.put(id, Where::AtOrigin);
        self.forwarded = true;
        match expected {
            Some((.., first)) => require(self.is_tuned || first == id, "queue order", || {
                format!("request {id:x} of class {} leaves the queue before {first:x}", class.0)
            }),
            None => Err(("ledger", format!("request {id:x} leaves the queue: {was:?}, nobody waits"))),
        }
    }

    pub(super) fn abandoned(&mut self, id: u64, waited: bool) -> Finding {
        self.abandoned += 1;
        let known = matches!(self.requests.take(id), Some(Where::Waits(_)));
        require(known && waited, "ledger", || {
            format!("request {id:x} gives up: in our queue {known}, in the gate's {waited}")
        })
    }

    pub(super) fn timed_out(&mut self, id: u64) -> Finding {
        self.shed += 1;
        let known = matches!(self.requests.take(id), Some(Where::Waits(_)));
        require(known, "ledger", || format!("request {id:x} waited too long, but did not wait"))
    }

    pub(super) fn finished(&mut self, id: u64) -> Finding {
        self.finished += 1;
        let known = self.requests.take(id) == Some(Where::AtOrigin);
        require(known, "ledger", || format!("request {id:x} ends twice, or was never forwarded"))
    }

    pub(super) fn check(&mut self, gate: &Gate, requests: usize) -> Finding {
        let t = gate.totals();
        let sum = t.finished + t.shed() + t.abandoned + t.queued as u64 + u64::from(t.in_flight);
        let (queued, in_flight) = (self.requests.waiting, self.requests.at_origin);
        let ours = (self.arrivals, self.finished, self.shed, self.abandoned, queued, in_flight);
        let theirs = (t.arrived, t.finished, t.shed(), t.abandoned, t.queued, t.in_flight as usize);
        let balances = sum == t.arrived && ours == theirs && requests == queued + in_flight;
        require(balances, "ledger", || {
            format!(
                "(arrived, finished, shed, abandoned, queued, in flight): ours {ours:?}, the gate's \
                 {theirs:?}; {requests} under way"
            )
        })?;
        let limit = gate.limit().map_or(usize::MAX, |limit| limit as usize);
        let is_over = std::mem::take(&mut self.forwarded) && in_flight > limit;
        require(!is_over, "limit", || format!("expected at most {limit} in flight, got {in_flight}"))?;
        require(gate.totals().backlog() <= t.newcomers || in_flight >= limit, "limit", || {
            format!("{queued} queue although {in_flight} of {limit} are in flight")
        })
    }
}

impl Oracle {
    pub(crate) fn arrived_at_gate(&mut self, id: u64, class: ClassId, rank: Rank, decision: QueueDecision) {
        self.apply(|oracle| oracle.queue.arrived(id, class, rank, decision));
    }

    pub(crate) fn woken(&mut self, id: u64, class: ClassId) {
        self.apply(|oracle| oracle.queue.woken(id, class));
    }

    pub(crate) fn abandoned(&mut self, id: u64, waited: bool) {
        self.apply(|oracle| oracle.queue.abandoned(id, waited));
    }

    pub(crate) fn timed_out(&mut self, id: u64) {
        self.apply(|oracle| oracle.queue.timed_out(id));
    }

    pub(crate) fn finished(&mut self, id: u64) {
        self.apply(|oracle| oracle.queue.finished(id));
    }
}
