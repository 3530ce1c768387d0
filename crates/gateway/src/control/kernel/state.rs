//! What is told of the kernel's part: once a second, and after every change.

use std::collections::HashMap;

use tidegate_core::policing::agent::View;
use tidegate_core::units::Timestamp;
use tidegate_kernel::{AttachedTo, RuleCounters, Totals};

use super::Counted;
use super::book::{InForce, Ruled};
use crate::history::metrics::SynSecond;

/// The kernel's part as it was last.
#[derive(Clone, Default, Debug)]
pub struct KernelState {
    pub at: Timestamp,
    pub attached: Vec<AttachedTo>,
    pub notes: Vec<String>,
    /// Why something does not work.
    pub trouble: Option<String>,
    pub is_ordered: bool,
    pub priorities: usize,
    pub totals: Totals,
    /// SYNs that fell under a rule, since the start; also those of rules that are gone.
    pub sums: Sums,
    /// The same in each second of the last one.
    pub per_s: SynSecond,
    pub rules: Vec<(Ruled, RuleCounters)>,
    /// What the agent sees; `None`: it is off.
    pub agent: Option<View>,
}

impl KernelState {
    /// The last second, where SYNs are policed.
    pub fn second(&self) -> Option<SynSecond> {
        (!self.attached.is_empty()).then_some(self.per_s)
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Sums {
    pub passed: u64,
    /// Dropped or reset.
    pub refused: u64,
}

/// Adds up what rules count, over changes of the rules.
#[derive(Default)]
pub struct Adder {
    /// Of the rules in force, by name.
    last: HashMap<String, RuleCounters>,
    totals: Totals,
    sums: Sums,
    /// When a second was told last, with the sums of then.
    second: Option<(Timestamp, u64, Sums)>,
    per_s: SynSecond,
}

impl Adder {
    /// The state now; `notes`: beside those of the kernel.
    pub fn state(
        &mut self,
        counted: Counted,
        in_force: &InForce,
        priorities: usize,
        now: Timestamp,
    ) -> KernelState {
        let Counted { attached, mut notes, trouble, is_ordered, figures } = counted;
        // Without figures those that were read last hold.
        if let Some((totals, rules)) = figures {
            self.totals = totals;
            self.add(rules);
        }
        let totals = self.totals;
        self.end_second(totals.syns, now);
        notes.extend(in_force.notes.iter().cloned());
        let of = |ruled: &Ruled| {
            let none = || RuleCounters { name: ruled.rule.name.clone(), ..RuleCounters::default() };
            (ruled.clone(), self.last.get(&ruled.rule.name).cloned().unwrap_or_else(none))
        };
        let rules = in_force.rules.iter().map(of).collect();
        let (sums, per_s) = (self.sums, self.per_s);
        KernelState {
            at: now,
            attached,
            notes,
            trouble,
            is_ordered,
            priorities,
            totals,
            sums,
            per_s,
            rules,
            agent: None,
        }
    }

    fn add(&mut self, rules: Vec<RuleCounters>) {
        let mut next = HashMap::new();
        for now in rules {
            // A rule that was gone for a while counts from 0 again.
            let since = |of: fn(&RuleCounters) -> u64| {
                let before = self.last.get(&now.name).map_or(0, of);
                of(&now).checked_sub(before).unwrap_or(of(&now))
            };
            self.sums.passed += since(|counters| counters.passed + counters.slowed);
            self.sums.refused += since(|counters| counters.dropped + counters.reset);
            next.insert(now.name.clone(), now);
        }
        self.last = next;
    }

    /// Rates are those between two instants that are nearly a second apart or more.
    fn end_second(&mut self, syns: u64, now: Timestamp) {
        let Some((at, before, sums)) = self.second else {
            self.second = Some((now, syns, self.sums));
            return;
        };
        let span = now.since(at).as_secs_f64();
        if span < 0.9 && now >= at {
            return;
        }
        if span > 0.0 {
            let per_s = |now: u64, before: u64| now.saturating_sub(before) as f64 / span;
            self.per_s = SynSecond {
                came_per_s: per_s(syns, before),
                passed_per_s: per_s(self.sums.passed, sums.passed),
                refused_per_s: per_s(self.sums.refused, sums.refused),
            };
        }
        self.second = Some((now, syns, self.sums));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(name: &str, passed: u64, dropped: u64) -> RuleCounters {
        RuleCounters { name: name.into(), seen: passed + dropped, passed, dropped, ..RuleCounters::default() }
    }

    #[test]
    fn sums_outlive_rules_and_rates_are_those_of_a_second() {
        let mut adder = Adder::default();
        let mut tell = |ms: u64, syns: u64, rules: Vec<RuleCounters>| {
            let totals = Totals { syns, unmatched: 0 };
            let counted = Counted { figures: Some((totals, rules)), ..Counted::default() };
            let state = adder.state(counted, &InForce::default(), 1, Timestamp::from_millis(ms));
            (state.sums, state.per_s)
        };
        let sums = |passed, refused| Sums { passed, refused };
        assert_eq!(tell(0, 0, vec![counters("a", 0, 0)]).0, sums(0, 0));
        let (at_once, second) = (tell(100, 5, vec![counters("a", 3, 2)]), tell(2_000, 15, vec![]));
        assert_eq!(at_once, (sums(3, 2), SynSecond::default()), "not a second yet");
        assert_eq!(
            second,
            (sums(3, 2), SynSecond { came_per_s: 7.5, passed_per_s: 1.5, refused_per_s: 1.0 })
        );
        // The rule is there again, and counts anew.
        assert_eq!(tell(2_100, 15, vec![counters("a", 1, 0)]).0, sums(4, 2));
        assert_eq!(tell(2_200, 15, vec![counters("a", 1, 4)]).0, sums(4, 6));
    }
}
