//! Which rules for SYNs are to be in force: those of the file, those of the API, and what the agent makes of
//! their rates.
//!
//! A rule of the file goes before one of the API with the same name, or the same addresses and ports: a
//! reload must not fail because of what somebody has put. The one of the API is set aside until the file's
//! is gone.

use std::collections::{BTreeMap, HashMap, HashSet};

use tidegate_core::policing::{Filter, SynRule as CoreRule};
use tidegate_settings::SynRule;

/// Who has set a rule's rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetBy {
    File,
    Api,
    Agent,
}

impl SetBy {
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Api => "api",
            Self::Agent => "agent",
        }
    }
}

/// A rule that was made by the API.
#[derive(Clone, PartialEq, Debug)]
pub struct Made {
    pub rule: SynRule,
    pub by: String,
    pub why: String,
    pub since_ms: u64,
}

/// What the agent has set of a rule.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Adapted {
    pub rate: f64,
    pub burst: u32,
}

/// A rule that is to be in force.
#[derive(Clone, PartialEq, Debug)]
pub struct Ruled {
    /// With the rate and burst that are to be in force.
    pub rule: CoreRule,
    pub is_made: bool,
    pub set_by: SetBy,
}

/// The rules that do not stand in the file, and what the agent has set.
#[derive(Clone, Default, Debug)]
pub struct Book {
    pub made: BTreeMap<String, Made>,
    pub adapted: HashMap<String, Adapted>,
}

/// What is to be in force.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct InForce {
    pub rules: Vec<Ruled>,
    /// Rules that are set aside, and why.
    pub notes: Vec<String>,
}

impl InForce {
    pub fn rules(&self) -> Vec<CoreRule> {
        self.rules.iter().map(|ruled| ruled.rule.clone()).collect()
    }
}

impl Book {
    /// With the rules of the file, as far as there is room.
    pub fn in_force(&self, file: &[SynRule], max_rules: usize) -> InForce {
        let mut all = InForce::default();
        let (mut names, mut filters) = (HashSet::new(), HashSet::<Filter>::new());
        for rule in file {
            let compiled = rule.compiled();
            names.insert(&*rule.name);
            filters.insert(compiled.filter.canonical());
            all.rules.push(self.ruled(compiled, false));
        }
        for (name, made) in &self.made {
            let compiled = made.rule.compiled();
            let aside = if names.contains(&**name) {
                Some("the file has a rule of this name")
            } else if !filters.insert(compiled.filter.canonical()) {
                Some("another rule has its addresses and ports")
            } else if all.rules.len() >= max_rules {
                Some("there are as many as kernel.max_rules permits")
            } else {
                None
            };
            match aside {
                Some(why) => {
                    all.notes.push(format!("the rule {name} of the API is set aside: {why}"));
                }
                None => all.rules.push(self.ruled(compiled, true)),
            }
        }
        all
    }

    /// The same without what the agent has set.
    pub fn configured(&self, file: &[SynRule], max_rules: usize) -> InForce {
        Self { made: self.made.clone(), adapted: HashMap::new() }.in_force(file, max_rules)
    }

    /// What the agent has set holds within the bounds that the rule has now.
    fn ruled(&self, mut rule: CoreRule, is_made: bool) -> Ruled {
        let mut set_by = if is_made { SetBy::Api } else { SetBy::File };
        if let Some(adapted) = self.adapted.get(&rule.name) {
            let rate = adapted.rate.max(rule.min_rate).min(rule.max_rate);
            if rate < rule.max_rate {
                (rule.rate, rule.burst) = (rate, adapted.burst);
                set_by = SetBy::Agent;
            }
        }
        Ruled { rule, is_made, set_by }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(name: &str, dport: u16, rate: f64) -> SynRule {
        SynRule { name: name.into(), dport, rate, ..SynRule::default() }
    }

    fn book(made: &[SynRule]) -> Book {
        let made = made.iter().map(|rule| {
            let made = Made { rule: rule.clone(), by: "x".into(), why: String::new(), since_ms: 0 };
            (rule.name.clone(), made)
        });
        Book { made: made.collect(), ..Book::default() }
    }

    fn names(all: &InForce) -> Vec<(&str, &str)> {
        all.rules.iter().map(|ruled| (&*ruled.rule.name, ruled.set_by.name())).collect()
    }

    #[test]
    fn rules_of_the_file_go_before_those_of_the_api() {
        let book = book(&[rule("a", 81, 5.0), rule("b", 80, 5.0), rule("c", 82, 5.0), rule("d", 82, 6.0)]);
        let all = book.in_force(&[rule("a", 80, 1.0)], 10);
        assert_eq!(names(&all), [("a", "file"), ("c", "api")]);
        assert_eq!(
            all.notes,
            [
                "the rule a of the API is set aside: the file has a rule of this name",
                "the rule b of the API is set aside: another rule has its addresses and ports",
                "the rule d of the API is set aside: another rule has its addresses and ports",
            ]
        );
        let all = book.in_force(&[], 2);
        assert_eq!(names(&all), [("a", "api"), ("b", "api")]);
        assert!(all.notes.iter().all(|note| note.contains("kernel.max_rules") || note.contains("another")));
        assert_eq!(all.notes.len(), 2);
    }

    #[test]
    fn what_the_agent_has_set_holds_within_the_bounds_of_the_rule() {
        let mut book = book(&[]);
        book.adapted.insert("a".into(), Adapted { rate: 7.0, burst: 2 });
        for (configured, least, rate, burst, set_by) in [
            (10.0, 0.0, 7.0, 2, "agent"),
            (10.0, 8.0, 8.0, 2, "agent"),
            (5.0, 0.0, 5.0, 5, "file"),
            (0.0, 0.0, 7.0, 2, "agent"),
        ] {
            let rule = SynRule { min_rate: least, ..rule("a", 80, configured) };
            let all = book.in_force(&[rule], 10);
            let ruled = &all.rules[0];
            let found = (ruled.rule.rate, ruled.rule.burst, ruled.set_by.name());
            assert_eq!(found, (rate, burst, set_by), "{configured} {least}");
        }
    }
}
