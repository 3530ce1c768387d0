//! Who gets how much of the connections that can be served.
//!
//! ```text
//! preferred rules, by priority ─► the others, by priority ─► connections that no rule is about
//! ```
//!
//! 1. **Groups are served in this order.** A group is what is preferred, or is not, of one priority. It gets
//!    what those before it leave.
//! 2. **Nobody starves.** Each group keeps `min_share` of the limit, or its demand if that is less, however
//!    many come before it (paper, Table 2: priorities alone gave 381 / 0 / 0 connections per second; with
//!    the first one policed to 300, 306 / 78.6 / 4.1).
//! 3. **Inside a group: max-min fairness.** All claims are served up to one level L, so the greatest are
//!    squeezed and small ones are not touched:
//!
//! ```text
//! share of a claim = clamp(L, floor, demand),    sum of the shares = budget of the group
//! ```
//!
//! Rejected: shares in proportion to demand. Who sends twice as much would get twice as much, which a client
//! can bring about by trying more often.
//!
//! What comes out is a ceiling for each claim and not its share: a rule that asks for less than L may grow
//! up to L before the next decision, without losing a connection.

use std::collections::BTreeMap;

/// What a rule asks for, in connections per second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Claim {
    pub is_preferred: bool,
    pub priority: u8,
    /// At most its `max_rate`.
    pub demand: f64,
    /// What it gets in any case: `min_rate`, at most `demand`.
    pub floor: f64,
    /// Whether the last decision capped it. Its rate does not say so: a rule that is no longer capped stays
    /// below its configured rate until it has risen there in steps.
    pub was_capped: bool,
}

/// The most that a claim may take.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Ceiling {
    /// All that is configured.
    Whole,
    /// Connections per second; the rule's own bounds are not applied yet.
    PerSecond(f64),
}

/// Slack of comparisons: sums of demands are rounded.
const ROUNDING: f64 = 1e-9;
/// Share of its budget below which the demand of a preferred group must fall before it is whole again. Else
/// it would be policed and not policed in turns where its demand is its budget.
const WHOLE_AGAIN: f64 = 0.9;

/// Divides `limit` among `claims`, and `beside`: the demand that no rule is about. Nothing can police that,
/// so that what it gets is only kept free.
pub fn allocate(claims: &[Claim], beside: f64, limit: f64, min_share: f64) -> Vec<Ceiling> {
    let mut groups: BTreeMap<(bool, u8), Group> = BTreeMap::new();
    for (index, claim) in claims.iter().enumerate() {
        let group = groups.entry((!claim.is_preferred, claim.priority)).or_default();
        group.add(index, claim);
    }
    let askers = groups.values().filter(|group| group.demand > 0.0).count() + usize::from(beside > 0.0);
    // All of them together keep no more than there is.
    let least = limit * min_share.min(1.0 / askers.max(1) as f64);
    let kept = |group: &Group| group.floor.max(group.demand.min(least));
    let mut kept_below = groups.values().map(kept).sum::<f64>() + beside.min(least);
    let mut left = limit;
    let mut ceilings = vec![Ceiling::Whole; claims.len()];
    for (&(is_not_preferred, _), group) in &groups {
        kept_below = (kept_below - kept(group)).max(0.0);
        let budget = (left - kept_below).max(kept(group));
        let members = || group.members.iter().map(|index| &claims[*index]);
        // A group may ask for what is kept for it at any moment.
        let level = water_level(members(), group.floor, budget.max(least));
        left = (left - members().map(|claim| claim.share(level)).sum::<f64>()).max(0.0);
        let part = if group.was_capped { WHOLE_AGAIN } else { 1.0 };
        let is_whole = !is_not_preferred && group.demand <= part * budget + ROUNDING * limit;
        let ceiling = if is_whole { Ceiling::Whole } else { Ceiling::PerSecond(level) };
        group.members.iter().for_each(|index| ceilings[*index] = ceiling);
    }
    ceilings
}

#[derive(Default)]
struct Group {
    members: Vec<usize>,
    demand: f64,
    floor: f64,
    was_capped: bool,
}

impl Group {
    fn add(&mut self, index: usize, claim: &Claim) {
        self.members.push(index);
        self.demand += claim.demand;
        self.floor += claim.floor;
        self.was_capped |= claim.was_capped;
    }
}

impl Claim {
    fn share(&self, level: f64) -> f64 {
        level.max(self.floor).min(self.demand)
    }
}

/// The level up to which claims with floors of `floors` in all are served from `budget`. Where everything
/// fits, it is as far above the greatest demand as the budget allows.
fn water_level<'c>(claims: impl Iterator<Item = &'c Claim>, floors: f64, budget: f64) -> f64 {
    // A claim begins to grow when the level reaches its floor, and ends at its demand.
    let mut edges: Vec<(f64, f64)> =
        claims.flat_map(|claim| [(claim.floor, 1.0), (claim.demand, -1.0)]).collect();
    edges.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut level, mut growing, mut spare) = (0.0, 0.0, budget - floors);
    for (at, change) in edges {
        let needed = growing * (at - level);
        if growing > 0.0 && needed > spare {
            return level + spare.max(0.0) / growing;
        }
        spare -= needed;
        level = at;
        growing += change;
    }
    level + spare.max(0.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NORMAL: Claim =
        Claim { is_preferred: false, priority: 0, demand: 0.0, floor: 0.0, was_capped: false };

    fn claim(priority: u8, demand: f64) -> Claim {
        Claim { priority, demand, ..NORMAL }
    }

    fn preferred(priority: u8, demand: f64) -> Claim {
        Claim { is_preferred: true, ..claim(priority, demand) }
    }

    /// What each claim takes of its ceiling.
    fn shares(claims: &[Claim], ceilings: &[Ceiling]) -> Vec<f64> {
        let share = |(claim, ceiling): (&Claim, &Ceiling)| match ceiling {
            Ceiling::Whole => claim.demand,
            Ceiling::PerSecond(level) => claim.share(*level),
        };
        claims.iter().zip(ceilings).map(share).collect()
    }

    #[track_caller]
    fn divides(claims: &[Claim], beside: f64, expected: &[f64]) {
        let shares = shares(claims, &allocate(claims, beside, 100.0, 0.05));
        for (share, expected) in shares.iter().zip(expected) {
            assert!((share - expected).abs() < 1e-9, "{shares:?}, expected {expected:?}");
        }
    }

    #[test]
    fn inside_a_priority_the_greatest_are_squeezed_first() {
        divides(&[claim(0, 10.0), claim(0, 20.0), claim(0, 500.0)], 0.0, &[10.0, 20.0, 70.0]);
        divides(&[claim(0, 10.0), claim(0, 60.0), claim(0, 500.0)], 0.0, &[10.0, 45.0, 45.0]);
        divides(&[claim(0, 10.0), claim(0, 20.0), claim(0, 30.0)], 0.0, &[10.0, 20.0, 30.0]);
        let floored = Claim { floor: 60.0, ..claim(0, 80.0) };
        divides(&[floored, claim(0, 80.0), claim(0, 80.0)], 0.0, &[60.0, 20.0, 20.0]);
    }

    #[test]
    fn by_priority_and_nobody_starves() {
        divides(&[claim(0, 381.0), claim(1, 180.0), claim(2, 180.0)], 0.0, &[90.0, 5.0, 5.0]);
        divides(&[claim(0, 60.0), claim(1, 180.0), claim(2, 180.0)], 0.0, &[60.0, 35.0, 5.0]);
        divides(&[claim(0, 500.0), claim(1, 2.0)], 0.0, &[98.0, 2.0]);
        divides(&[claim(0, 500.0), claim(1, 500.0)], 30.0, &[90.0, 5.0]);
        divides(&[claim(3, 500.0)], 30.0, &[95.0]);
        divides(&[claim(3, 80.0)], 30.0, &[80.0]);
    }

    #[test]
    fn what_is_preferred_is_whole_as_long_as_it_fits() {
        let claims = [claim(0, 500.0), preferred(2, 80.0), claim(1, 500.0)];
        assert_eq!(allocate(&claims, 0.0, 100.0, 0.05)[1], Ceiling::Whole);
        divides(&claims, 0.0, &[15.0, 80.0, 5.0]);
        divides(&[claim(0, 500.0), preferred(2, 200.0), claim(1, 500.0)], 0.0, &[5.0, 90.0, 5.0]);
        divides(&[preferred(1, 200.0), preferred(0, 50.0), claim(0, 9.0)], 0.0, &[45.0, 50.0, 5.0]);
    }

    #[test]
    fn what_is_preferred_and_was_squeezed_is_whole_again_when_it_fits_with_room() {
        let capped = |demand: f64| Claim { was_capped: true, ..preferred(0, demand) };
        for (demand, ceiling) in [
            (110.0, Ceiling::PerSecond(95.0)),
            (94.0, Ceiling::PerSecond(95.0)),
            (86.0, Ceiling::PerSecond(95.0)),
            (85.0, Ceiling::Whole),
        ] {
            assert_eq!(allocate(&[capped(demand), claim(0, 50.0)], 0.0, 100.0, 0.05)[0], ceiling, "{demand}");
        }
    }

    #[test]
    fn who_asks_for_little_may_grow() {
        // Up to the others' level, up to what is left, and up to what is kept for a priority.
        let of = |claims: &[Claim]| allocate(claims, 0.0, 100.0, 0.05);
        assert_eq!(of(&[claim(0, 1.0), claim(0, 500.0)])[0], Ceiling::PerSecond(99.0));
        assert_eq!(of(&[claim(0, 30.0), claim(1, 500.0)])[0], Ceiling::PerSecond(95.0));
        assert_eq!(of(&[claim(0, 500.0), claim(1, 0.0)])[1], Ceiling::PerSecond(5.0));
        assert_eq!(of(&[claim(0, 500.0), claim(1, 1.0)])[1], Ceiling::PerSecond(5.0));
    }

    #[test]
    fn more_groups_than_shares_divide_what_there_is() {
        let claims: Vec<Claim> = (0..8).map(|priority| claim(priority, 500.0)).collect();
        let shares = shares(&claims, &allocate(&claims, 0.0, 80.0, 0.5));
        assert!(shares.iter().all(|share| (share - 10.0).abs() < 1e-9), "{shares:?}");
    }

    fn any_claim() -> impl Strategy<Value = Claim> {
        let demand = prop_oneof![Just(0.0), 0.1..2000.0];
        let floor = prop_oneof![3 => Just(0.0), 1 => 0.0..1.0];
        (any::<bool>(), 0u8..4, demand, floor).prop_map(|(is_preferred, priority, demand, floor)| Claim {
            is_preferred,
            priority,
            demand,
            floor: demand * floor,
            was_capped: false,
        })
    }

    fn any_situation() -> impl Strategy<Value = (Vec<Claim>, f64, f64, f64)> {
        let beside = prop_oneof![Just(0.0), 0.0..500.0];
        (prop::collection::vec(any_claim(), 0..12), beside, 1.0..3000.0, 0.0..0.4)
    }

    proptest! {
        #[test]
        fn sums_stay_below_the_limit_unless_floors_force_more(
            (claims, beside, limit, min_share) in any_situation(),
        ) {
            let shares = shares(&claims, &allocate(&claims, beside, limit, min_share));
            let floors: f64 = claims.iter().map(|claim| claim.floor).sum();
            // Kept for each group: at most its share, but its floors in any case.
            let least = limit * min_share;
            let kept: f64 = groups(&claims).map(|(_, demand, floor)| floor.max(demand.min(least))).sum();
            if floors == 0.0 {
                prop_assert!(shares.iter().sum::<f64>() <= limit * (1.0 + 1e-6), "{shares:?}");
            } else {
                prop_assert!(shares.iter().sum::<f64>() <= limit.max(kept) * (1.0 + 1e-6), "{shares:?}");
            }
        }

        #[test]
        fn preferred_claims_are_whole_when_they_fit((claims, beside, limit, min_share) in any_situation()) {
            let others = |claim: &&Claim| !claim.is_preferred;
            let floors: f64 = claims.iter().filter(others).map(|claim| claim.floor).sum();
            let others = 1 + groups(&claims).filter(|((normal, _), _, _)| *normal).count();
            let kept = floors + limit * min_share * others as f64;
            let wanted: f64 = claims.iter().filter(|c| c.is_preferred).map(|c| c.demand).sum();
            let ceilings = allocate(&claims, beside, limit, min_share);
            if wanted <= limit - kept {
                let mut preferred = claims.iter().zip(&ceilings).filter(|(claim, _)| claim.is_preferred);
                prop_assert!(preferred.all(|(_, ceiling)| *ceiling == Ceiling::Whole), "{ceilings:?}");
            }
        }

        #[test]
        fn every_group_keeps_its_share_and_every_claim_its_floor(
            (claims, beside, limit, min_share) in any_situation(),
        ) {
            let shares = shares(&claims, &allocate(&claims, beside, limit, min_share));
            for (claim, share) in claims.iter().zip(&shares) {
                prop_assert!(*share >= claim.floor - 1e-6, "{claim:?}: {share}");
            }
            let askers = groups(&claims).filter(|(_, demand, _)| *demand > 0.0).count() + 1;
            let least = limit * min_share.min(1.0 / askers as f64);
            for (key, demand, _) in groups(&claims) {
                let mine = claims.iter().zip(&shares).filter(|(c, _)| (!c.is_preferred, c.priority) == key);
                let got: f64 = mine.map(|(_, share)| share).sum();
                prop_assert!(got >= demand.min(least) - 1e-6 * limit, "{key:?}: {got} of {demand}");
            }
        }

        #[test]
        fn nothing_is_left_while_somebody_wants_more((claims, beside, limit, min_share) in any_situation()) {
            let shares = shares(&claims, &allocate(&claims, beside, limit, min_share));
            let squeezed = claims.iter().zip(&shares).any(|(claim, share)| *share < claim.demand - 1e-6);
            let taken = shares.iter().sum::<f64>() + beside;
            prop_assert!(!squeezed || taken >= limit * (1.0 - 1e-6), "{shares:?} of {limit}");
        }
    }

    /// Key, demand and floors of each group.
    fn groups(claims: &[Claim]) -> impl Iterator<Item = ((bool, u8), f64, f64)> {
        let mut groups: BTreeMap<(bool, u8), Group> = BTreeMap::new();
        for (index, claim) in claims.iter().enumerate() {
            groups.entry((!claim.is_preferred, claim.priority)).or_default().add(index, claim);
        }
        groups.into_iter().map(|(key, group)| (key, group.demand, group.floor))
    }
}
