//! Rules as the programs look them up: shapes, the most specific first, and a hash table (`bpf/rules.h`).

use std::collections::BTreeMap;

use ipnet::IpNet;
use tidegate_core::policing::{Excess, Filter, Rules, SynRule};

use crate::error::KernelError;
use crate::layout::{MAX_SHAPES, RuleKey, RuleSet, RuleValue, Shape, masked, port};

/// The programs count time in these parts of a nanosecond.
const PARTS: f64 = 16.0;

/// `enum limit` of `bpf/rules.h`.
pub const LIMIT_RATE: u8 = 0;
const LIMIT_NONE: u8 = 1;
const LIMIT_ALL: u8 = 2;

/// A set of rules, compiled.
#[derive(Debug)]
pub struct Table {
    pub set: RuleSet,
    /// Of both families: a rule without addresses is in each.
    pub entries: Vec<(RuleKey, RuleValue)>,
}

impl Table {
    /// `id_of`: the place of a rule's bucket and counters, by its name.
    pub fn new(rules: &Rules, generation: u32, id_of: &BTreeMap<String, u32>) -> Result<Self, KernelError> {
        let none = Shape::default();
        let mut set = RuleSet { generation, shapes: [0; 2], pad: 0, shape: [none; 2 * MAX_SHAPES] };
        let mut entries = Vec::with_capacity(rules.len());
        for family in [Family::V4, Family::V6] {
            let first = family as usize * MAX_SHAPES;
            // Rules come most specific first, and those of the same specificity have the same shape.
            let mut specificity = None;
            let mut shapes = 0;
            for rule in rules.iter().filter(|rule| family.has(&rule.filter)) {
                let (shape, mut key) = family.entry(&rule.filter);
                if specificity.replace(rule.filter.specificity()) != Some(rule.filter.specificity()) {
                    if let Some(place) = set.shape[first..first + MAX_SHAPES].get_mut(shapes) {
                        *place = shape;
                    }
                    shapes += 1;
                }
                key.generation = generation;
                key.shape = (first + shapes - 1) as u32;
                entries.push((key, value(rule, id_of[&rule.name])));
            }
            if shapes > MAX_SHAPES {
                return Err(KernelError::TooManyShapes { given: shapes, most: MAX_SHAPES });
            }
            set.shapes[family as usize] = shapes as u32;
        }
        Ok(Self { set, entries })
    }
}

/// Each family has shapes of its own, since prefixes of one say nothing about the other.
#[derive(Clone, Copy)]
enum Family {
    V4 = 0,
    V6 = 1,
}

impl Family {
    fn has(self, filter: &Filter) -> bool {
        [filter.src, filter.dst].into_iter().flatten().all(|net| match self {
            Self::V4 => matches!(net, IpNet::V4(_)),
            Self::V6 => matches!(net, IpNet::V6(_)),
        })
    }

    fn entry(self, filter: &Filter) -> (Shape, RuleKey) {
        let ((src, src_mask), (dst, dst_mask)) = (masked(filter.src), masked(filter.dst));
        let ((sport, sport_mask), (dport, dport_mask)) = (port(filter.sport), port(filter.dport));
        let shape = Shape { src: src_mask, dst: dst_mask, sport: sport_mask, dport: dport_mask, pad: 0 };
        (shape, RuleKey { src, dst, sport, dport, generation: 0, shape: 0, pad: 0 })
    }
}

fn value(rule: &SynRule, id: u32) -> RuleValue {
    let limit = match rule.rate {
        0.0 => LIMIT_ALL,
        rate if rate.is_infinite() => LIMIT_NONE,
        _ => LIMIT_RATE,
    };
    let interval = if limit == LIMIT_RATE { (1e9 * PARTS / rule.rate).round() as u64 } else { 0 };
    let excess = match rule.excess {
        Excess::Drop => 0,
        Excess::Reset => 1,
        Excess::Slow => 2,
    };
    let depth = interval * u64::from(rule.burst);
    RuleValue { id, excess, priority: rule.priority, limit, pad: 0, interval, depth }
}

/// The state of a bucket when its rule changes: as many SYNs are missing from it as before, at most all of
/// the new burst. Without this a rule that becomes slower would have SYNs left that it never had, on each
/// change.
pub fn rescaled(arrival: u64, now_ns: u64, old: &RuleValue, new: &RuleValue) -> u64 {
    let now = now_ns.saturating_mul(PARTS as u64);
    let Some(missing) = arrival.checked_sub(now).filter(|_| old.interval > 0) else { return arrival };
    let missing = u128::from(missing) * u128::from(new.interval) / u128::from(old.interval);
    now.saturating_add(u64::try_from(missing).unwrap_or(u64::MAX).min(new.depth))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(name: &str, filter: Filter) -> SynRule {
        SynRule::new(name, filter, 100.0, 5)
    }

    fn ids(rules: &Rules) -> BTreeMap<String, u32> {
        rules.iter().zip(0..).map(|(rule, id)| (rule.name.clone(), id)).collect()
    }

    #[test]
    fn a_rule_without_addresses_is_in_both_families_and_shapes_are_shared() {
        let src = |net: &str| Filter { src: Some(net.parse().expect("a prefix")), ..Filter::default() };
        let rules = Rules::new([
            rule("all", Filter::default()),
            rule("a", src("10.0.0.0/24")),
            rule("b", src("10.0.1.0/24")),
            rule("c", src("10.0.0.0/8")),
            rule("d", src("2001:db8::/32")),
        ])
        .expect("valid");
        let table = Table::new(&rules, 7, &ids(&rules)).expect("small");
        assert_eq!(table.set.shapes, [3, 2]);
        assert_eq!(table.entries.len(), 6);
        assert_eq!(table.set.shape[0].src, masked(Some("10.0.0.0/24".parse().expect("a prefix"))).1);
        assert_eq!(table.set.shape[2], Shape::default());
        assert!(table.entries.iter().all(|(key, _)| key.generation == 7));
    }

    #[test]
    fn too_many_shapes_are_refused() {
        let rules = (1u16..=5).flat_map(|dst| (1..=20).map(move |src| (src, dst))).map(|(src, dst)| {
            let net = |length: u16| Some(format!("10.0.0.0/{length}").parse().expect("a prefix"));
            rule(&format!("{src} {dst}"), Filter { src: net(src), dst: net(dst), ..Filter::default() })
        });
        let rules = Rules::new(rules).expect("valid");
        let refused = Table::new(&rules, 1, &ids(&rules));
        assert!(matches!(refused, Err(KernelError::TooManyShapes { given: 100, most: MAX_SHAPES })));
    }

    #[test]
    fn rates_are_distances() {
        let value = |rate: f64| value(&SynRule { rate, ..rule("a", Filter::default()) }, 1);
        assert_eq!((value(1.0).interval, value(1.0).depth), (16_000_000_000, 80_000_000_000));
        assert_eq!(value(1e7).interval, 1600);
        assert_eq!((value(0.0).limit, value(f64::INFINITY).limit), (LIMIT_ALL, LIMIT_NONE));
        let slowest =
            SynRule { rate: SynRule::MIN_RATE, burst: SynRule::MAX_BURST, ..rule("a", Filter::default()) };
        // Far from the 64 bits' end, beside 30 years since boot.
        assert!(super::value(&slowest, 1).depth < 1 << 62);
    }

    #[test]
    fn a_change_keeps_what_is_missing() {
        let at = |rate: f64, burst| value(&SynRule { rate, burst, ..rule("a", Filter::default()) }, 1);
        let (now, parts) = (1_000_000_000, 16);
        let missing = |bucket: u64| (bucket - now * parts) as f64 / parts as f64;
        // Empty: 100 are missing at 100/s, which is a second.
        let empty = (now + 1_000_000_000) * parts;
        let slower = rescaled(empty, now, &at(100.0, 100), &at(50.0, 100));
        assert_eq!(missing(slower), 2e9);
        assert_eq!(rescaled(slower, now, &at(50.0, 100), &at(100.0, 100)), empty);
        assert_eq!(missing(rescaled(empty, now, &at(100.0, 100), &at(100.0, 10))), 1e8, "at most the burst");
        assert_eq!(rescaled(5, now, &at(100.0, 100), &at(1.0, 100)), 5, "a full bucket stays full");
    }
}
