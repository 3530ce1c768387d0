//! Rules, their order, and the search for the rule of a SYN.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use thiserror::Error;

/// What identifies a connection request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Syn {
    pub src: IpAddr,
    pub dst: IpAddr,
    pub sport: u16,
    pub dport: u16,
}

/// Which SYNs a rule is about. `None` matches all; an address that is given matches its own family only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Filter {
    pub dst: Option<IpNet>,
    pub dport: Option<u16>,
    pub src: Option<IpNet>,
    pub sport: Option<u16>,
}

/// How narrow a filter is: the greater one wins. Fields in the order in which they count.
///
/// The source comes first: a rule about a visitor is an exception to one about a service, as in the paper's
/// Table 1. A length is that of the prefix plus one, and 0 where none is given, so that `0.0.0.0/0` is
/// narrower than no prefix, which is for IPv6 too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Specificity {
    src: u8,
    has_sport: bool,
    dst: u8,
    has_dport: bool,
}

impl Filter {
    /// Whether it is about `syn`.
    pub fn matches(&self, syn: &Syn) -> bool {
        let is_in = |net: Option<IpNet>, address: IpAddr| net.is_none_or(|net| net.contains(&address));
        let is_port = |given: Option<u16>, port: u16| given.is_none_or(|given| given == port);
        is_in(self.src, syn.src)
            && is_in(self.dst, syn.dst)
            && is_port(self.sport, syn.sport)
            && is_port(self.dport, syn.dport)
    }

    pub fn specificity(&self) -> Specificity {
        let length = |net: Option<IpNet>| net.map_or(0, |net| net.prefix_len() + 1);
        Specificity {
            src: length(self.src),
            has_sport: self.sport.is_some(),
            dst: length(self.dst),
            has_dport: self.dport.is_some(),
        }
    }

    /// Without the bits of addresses that lie beyond their prefix.
    pub fn canonical(mut self) -> Self {
        self.src = self.src.map(|net| net.trunc());
        self.dst = self.dst.map(|net| net.trunc());
        self
    }
}

/// What happens to a SYN that its rule's bucket refuses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Excess {
    /// It is dropped silently: the client tries again after its timeout (paper, section 3).
    #[default]
    Drop,
    /// It is answered by a reset: the client learns at once that it is refused.
    Reset,
    /// It passes, and its connection waits behind all others: the lowest priority.
    Slow,
}

/// A rule: a filter, a token bucket and a priority.
#[derive(Clone, PartialEq, Debug)]
pub struct SynRule {
    /// Identifies the rule: a rule of the same name keeps its bucket and its counters when the rules are
    /// replaced.
    pub name: String,
    pub filter: Filter,
    /// SYNs per second. 0 lets none pass; infinity polices nothing, so that the rule gives a priority only.
    pub rate: f64,
    /// SYNs that may pass at once after a pause, from 1.
    pub burst: u32,
    /// 0 is accepted first.
    pub priority: u8,
    pub excess: Excess,
    /// Whether the adaptation agent leaves the rule whole as long as it fits.
    pub is_preferred: bool,
    /// Bounds of what the agent may set `rate` to, in SYNs per second.
    pub min_rate: f64,
    pub max_rate: f64,
}

impl SynRule {
    /// Least rate that is not 0: one SYN in 100 seconds.
    pub const MIN_RATE: f64 = 0.01;
    /// Greatest finite rate. Above it the whole sixteenths of a nanosecond in which the kernel keeps the
    /// distance of two SYNs would be off by more than 0.03 %.
    pub const MAX_RATE: f64 = 1e7;
    /// Greatest burst: with the least rate its bucket is three years deep, which fits the kernel's 60 bits
    /// of time.
    pub const MAX_BURST: u32 = 1_000_000;

    /// A rule that drops what is over `rate` and `burst`, with the priority 0 and without the agent.
    pub fn new(name: impl Into<String>, filter: Filter, rate: f64, burst: u32) -> Self {
        Self {
            name: name.into(),
            filter,
            rate,
            burst,
            priority: 0,
            excess: Excess::Drop,
            is_preferred: false,
            min_rate: 0.0,
            max_rate: f64::INFINITY,
        }
    }

    fn check(&self) -> Result<(), RuleError> {
        let fails = |what: &'static str| Err(RuleError::Value { rule: self.name.clone(), what });
        let is_rate = |rate: f64| {
            rate == 0.0 || rate == f64::INFINITY || (Self::MIN_RATE..=Self::MAX_RATE).contains(&rate)
        };
        if !is_rate(self.rate) {
            return fails("rate is 0, infinite, or from 0.01 to 10000000 SYNs per second");
        }
        if !(1..=Self::MAX_BURST).contains(&self.burst) {
            return fails("burst is from 1 to 1000000 SYNs");
        }
        if self.min_rate.is_nan() || self.max_rate.is_nan() || self.min_rate > self.max_rate {
            return fails("min_rate is at most max_rate");
        }
        match (self.filter.src, self.filter.dst) {
            (Some(IpNet::V4(_)), Some(IpNet::V6(_))) | (Some(IpNet::V6(_)), Some(IpNet::V4(_))) => {
                fails("src and dst are of the same family")
            }
            _ => Ok(()),
        }
    }
}

/// Why rules are refused.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum RuleError {
    #[error("rule {rule:?}: {what}")]
    Value { rule: String, what: &'static str },
    #[error("two rules are named {0:?}")]
    Name(String),
    #[error("rules {first:?} and {second:?} have the same filter")]
    Filter { first: String, second: String },
}

/// A set of rules, the most specific first.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Rules {
    rules: Vec<SynRule>,
}

impl Rules {
    /// Sorts and checks them: names and filters are unique.
    pub fn new(rules: impl IntoIterator<Item = SynRule>) -> Result<Self, RuleError> {
        let mut rules: Vec<SynRule> = rules.into_iter().collect();
        let mut names = BTreeSet::new();
        let mut filters: BTreeMap<String, &str> = BTreeMap::new();
        for rule in &mut rules {
            rule.check()?;
            rule.filter = rule.filter.canonical();
        }
        for rule in &rules {
            if !names.insert(&rule.name) {
                return Err(RuleError::Name(rule.name.clone()));
            }
            if let Some(first) = filters.insert(format!("{:?}", rule.filter), &rule.name) {
                return Err(RuleError::Filter { first: first.into(), second: rule.name.clone() });
            }
        }
        // By name at the end: the same rules in another order are the same set.
        rules.sort_by(|a, b| {
            let key = |rule: &SynRule| Reverse(rule.filter.specificity());
            key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
        });
        Ok(Self { rules })
    }

    /// The rule of `syn`: of those that match, the most specific.
    pub fn find(&self, syn: &Syn) -> Option<&SynRule> {
        self.rules.iter().find(|rule| rule.filter.matches(syn))
    }

    /// The most specific first.
    pub fn iter(&self) -> impl Iterator<Item = &SynRule> {
        self.rules.iter()
    }

    pub fn len(&self) -> usize {
        self.rules.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn net(text: &str) -> Option<IpNet> {
        Some(text.parse().expect("a prefix"))
    }

    fn rule(name: &str, filter: Filter) -> SynRule {
        SynRule::new(name, filter, 10.0, 5)
    }

    fn syn(src: &str, sport: u16, dst: &str, dport: u16) -> Syn {
        Syn { src: src.parse().expect("src"), sport, dst: dst.parse().expect("dst"), dport }
    }

    fn name_of<'a>(rules: &'a Rules, syn: &Syn) -> Option<&'a str> {
        rules.find(syn).map(|rule| rule.name.as_str())
    }

    /// The paper's Table 1, in the paper's order.
    fn table_1() -> Rules {
        let web = Filter { dport: Some(80), ..Filter::default() };
        Rules::new([
            rule("all", web),
            rule("client", Filter { src: net("10.1.1.1/32"), ..web }),
            rule("connection", Filter { src: net("10.1.1.1/32"), sport: Some(654), ..web }),
            rule("crowd", Filter { src: net("10.1.1.5/32"), ..web }),
        ])
        .expect("valid")
    }

    #[test]
    fn table_1_of_the_paper() {
        let rules = table_1();
        assert_eq!(name_of(&rules, &syn("10.9.9.9", 654, "10.0.0.1", 80)), Some("all"));
        assert_eq!(name_of(&rules, &syn("10.1.1.1", 1000, "10.0.0.1", 80)), Some("client"));
        assert_eq!(name_of(&rules, &syn("10.1.1.1", 654, "10.0.0.1", 80)), Some("connection"));
        assert_eq!(name_of(&rules, &syn("10.1.1.5", 654, "10.0.0.1", 80)), Some("crowd"));
        assert_eq!(name_of(&rules, &syn("10.1.1.1", 654, "10.0.0.1", 81)), None);
        assert_eq!(name_of(&rules, &syn("2001:db8::1", 654, "2001:db8::2", 80)), Some("all"));
    }

    #[test]
    fn the_source_counts_before_the_destination_and_an_address_before_its_port() {
        let any = Filter::default();
        let narrowest_first = [
            Filter { src: net("10.0.0.0/8"), sport: Some(7), ..any },
            Filter { src: net("10.0.0.0/8"), dst: net("10.0.0.0/24"), dport: Some(80), ..any },
            Filter { src: net("10.0.0.0/8"), dst: net("10.0.0.0/24"), ..any },
            Filter { src: net("10.0.0.0/8"), dport: Some(80), ..any },
            Filter { src: net("10.0.0.0/7"), sport: Some(7), dst: net("10.0.0.1/32"), dport: Some(80) },
            Filter { src: net("0.0.0.0/0"), ..any },
            Filter { sport: Some(7), ..any },
            Filter { dst: net("10.0.0.0/8"), ..any },
            Filter { dport: Some(80), ..any },
            any,
        ];
        for (i, filter) in narrowest_first.iter().enumerate() {
            // Whatever the order in the file.
            for rotated in 0..narrowest_first.len() {
                let mut rest: Vec<_> =
                    narrowest_first[i..].iter().map(|f| rule(&format!("{f:?}"), *f)).collect();
                let by = rotated % rest.len();
                rest.rotate_left(by);
                let rules = Rules::new(rest).expect("valid");
                let found = name_of(&rules, &syn("10.0.0.9", 7, "10.0.0.1", 80));
                assert_eq!(found, Some(format!("{filter:?}").as_str()));
            }
        }
    }

    #[test]
    fn families_are_apart() {
        let rules = Rules::new([
            rule("all v4", Filter { src: net("0.0.0.0/0"), ..Filter::default() }),
            rule("all v6", Filter { dst: net("::/0"), ..Filter::default() }),
        ])
        .expect("valid");
        assert_eq!(name_of(&rules, &syn("1.2.3.4", 1, "4.3.2.1", 2)), Some("all v4"));
        assert_eq!(name_of(&rules, &syn("::1", 1, "::1", 2)), Some("all v6"));
    }

    #[test]
    fn what_is_refused() {
        let filter = Filter { src: net("10.1.1.1/24"), ..Filter::default() };
        let same = Filter { src: net("10.1.1.2/24"), ..Filter::default() };
        let named_twice = Rules::new([rule("a", filter), rule("a", Filter::default())]);
        assert_eq!(named_twice, Err(RuleError::Name("a".into())));
        let doubled = Rules::new([rule("a", filter), rule("b", same)]);
        assert_eq!(doubled, Err(RuleError::Filter { first: "a".into(), second: "b".into() }));
        for broken in [
            SynRule { rate: f64::NAN, ..rule("a", filter) },
            SynRule { rate: -1.0, ..rule("a", filter) },
            SynRule { rate: 0.001, ..rule("a", filter) },
            SynRule { rate: 1e8, ..rule("a", filter) },
            SynRule { burst: 0, ..rule("a", filter) },
            SynRule { burst: 2_000_000, ..rule("a", filter) },
            SynRule { min_rate: 3.0, max_rate: 2.0, ..rule("a", filter) },
            rule("a", Filter { dst: net("::/0"), ..filter }),
        ] {
            assert!(matches!(Rules::new([broken.clone()]), Err(RuleError::Value { .. })), "{broken:?}");
        }
        for sound in [0.0, 0.01, f64::INFINITY] {
            assert!(Rules::new([SynRule { rate: sound, ..rule("a", filter) }]).is_ok(), "{sound}");
        }
    }

    fn small_net() -> impl Strategy<Value = Option<IpNet>> {
        let v4 = (0u8..4, 0u8..=32).prop_map(|(host, length)| {
            IpNet::new(IpAddr::from([10, 0, 0, host]), length).expect("a length of IPv4")
        });
        prop_oneof![Just(None), v4.prop_map(Some)]
    }

    fn small_port() -> impl Strategy<Value = Option<u16>> {
        prop_oneof![Just(None), (1u16..3).prop_map(Some)]
    }

    proptest! {
        /// No rule that matches is narrower than the one found, and no other is as narrow.
        #[test]
        fn the_rule_found_is_the_narrowest(
            filters in prop::collection::vec((small_net(), small_port(), small_net(), small_port()), 0..20),
            hosts in (0u8..4, 0u8..4), ports in (1u16..3, 1u16..3),
        ) {
            let mut seen = BTreeSet::new();
            let rules = filters.into_iter().map(|(dst, dport, src, sport)| {
                Filter { dst, dport, src, sport }.canonical()
            });
            let rules: Vec<_> = rules
                .filter(|filter| seen.insert(format!("{filter:?}")))
                .map(|filter| rule(&format!("{filter:?}"), filter))
                .collect();
            let syn = Syn {
                src: IpAddr::from([10, 0, 0, hosts.0]), dst: IpAddr::from([10, 0, 0, hosts.1]),
                sport: ports.0, dport: ports.1,
            };
            let matching: Vec<_> = rules.iter().filter(|rule| rule.filter.matches(&syn)).collect();
            let set = Rules::new(rules.clone()).expect("valid");
            match set.find(&syn) {
                None => prop_assert!(matching.is_empty()),
                Some(found) => {
                    let narrowest = found.filter.specificity();
                    prop_assert!(matching.iter().all(|rule| rule.filter.specificity() <= narrowest));
                    let as_narrow = matching.iter().filter(|rule| rule.filter.specificity() == narrowest);
                    prop_assert_eq!(as_narrow.count(), 1);
                }
            }
        }
    }
}
