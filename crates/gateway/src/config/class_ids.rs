//! The numbers of classes, over reloads and between processes.
//!
//! All state of a class (requests under way, queues, counters, learned costs) is kept by its [`ClassId`]. A
//! class therefore keeps its number as long as the process lives, whichever others a reload adds or removes.
//! Numbers of removed classes are reused last, and only when no request of theirs is left.
//!
//! Tickets outlive the process, and two processes must read them alike: in a ticket a class has a
//! [`ClassTag`], a number made from its name alone. Two names among a hundred classes may get the same tag;
//! then the earlier one in the file has it. Visitors waiting for a class that loses its tag start anew.
//!
//! Rejected: renumbering (a request classified before a reload may end after it), and the name itself in the
//! ticket (whose length is fixed).

use tidegate_core::units::{ClassId, MAX_CLASSES};

/// A class's number in tickets, cookies and reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassTag(pub u8);

pub(crate) struct Before<'a> {
    pub name: &'a str,
    /// It had been removed before.
    pub is_gone: bool,
    /// No request of it waits or is at the origin.
    pub is_idle: bool,
}

/// The classes' numbers, in the order of their `names`; `before` is by number. `counted`: classes that can be
/// counted apart.
pub(crate) fn number(names: &[&str], before: &[Before<'_>], counted: usize) -> Vec<ClassId> {
    let mut taken = [false; MAX_CLASSES];
    let known = names.iter().map(|name| before.iter().position(|old| old.name == *name));
    let mut numbers: Vec<Option<usize>> = known.collect();
    numbers.iter().flatten().for_each(|id| taken[*id] = true);
    let mut next = before.len();
    for number in numbers.iter_mut().filter(|number| number.is_none()) {
        let free = |fits: &dyn Fn(&Before<'_>) -> bool| {
            before.iter().enumerate().position(|(id, old)| !taken[id] && fits(old))
        };
        let id = match free(&|old| old.is_gone && old.is_idle) {
            _ if next < counted.min(MAX_CLASSES) => None,
            Some(id) => Some(id),
            None if next < MAX_CLASSES => None,
            // More classes than numbers: one with requests left is reused.
            None => free(&|old| old.is_gone).or_else(|| free(&|_| true)),
        };
        let id = id.unwrap_or_else(|| {
            next += 1;
            next - 1
        });
        taken[id] = true;
        *number = Some(id);
    }
    numbers.into_iter().map(|id| ClassId(id.unwrap_or_default() as u8)).collect()
}

/// The classes' tags, in the order of their names; the last, the default class, has 0.
pub(crate) fn tags(names: &[&str]) -> Vec<ClassTag> {
    let mut taken = [false; MAX_CLASSES];
    let Some((_, named)) = names.split_last() else { return Vec::new() };
    let mut tags: Vec<ClassTag> = Vec::with_capacity(names.len());
    for name in named {
        let wanted = usize::from(fold(name));
        // There are 255 of them, and as many classes at most.
        let around = (0..MAX_CLASSES - 1).map(|i| 1 + (wanted + i) % (MAX_CLASSES - 1));
        let tag = around.into_iter().find(|tag| !taken[*tag]).unwrap_or(1);
        taken[tag] = true;
        tags.push(ClassTag(tag as u8));
    }
    tags.push(ClassTag(0));
    tags
}

/// FNV-1a, folded to 0..=254. It spreads short names well; collisions are no attack, since the operator
/// chooses the names.
fn fold(name: &str) -> u8 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash % (MAX_CLASSES as u64 - 1)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn old<'a>(name: &'a str, is_gone: bool, is_idle: bool) -> Before<'a> {
        Before { name, is_gone, is_idle }
    }

    fn numbers(names: &[&str], before: &[Before<'_>], counted: usize) -> Vec<u8> {
        number(names, before, counted).into_iter().map(|id| id.0).collect()
    }

    #[test]
    fn a_class_keeps_its_number_whatever_comes_and_goes() {
        assert_eq!(numbers(&["a", "b", "default"], &[], 16), [0, 1, 2]);
        let before = [old("a", false, false), old("b", false, false), old("default", false, false)];
        assert_eq!(numbers(&["new", "b", "a", "default"], &before, 16), [3, 1, 0, 2]);
        assert_eq!(numbers(&["default"], &before, 16), [2]);
    }

    #[test]
    fn a_number_is_reused_last_and_only_without_requests() {
        let before =
            |a_is_idle| [old("a", true, a_is_idle), old("b", true, true), old("default", false, true)];
        assert_eq!(numbers(&["new", "default"], &before(true), 4), [3, 2], "there is another one yet");
        assert_eq!(numbers(&["new", "default"], &before(true), 3), [0, 2]);
        assert_eq!(numbers(&["new", "default"], &before(false), 3), [1, 2]);
        assert_eq!(numbers(&["x", "y", "default"], &before(false), 3), [1, 3, 2], "not counted apart");
        assert_eq!(numbers(&["a", "default"], &before(false), 3), [0, 2], "the same class comes back");
    }

    #[test]
    fn there_are_numbers_for_the_most_classes_allowed() {
        let (old_names, new_names): (Vec<_>, Vec<_>) =
            (0..MAX_CLASSES).map(|i| (format!("old{i}"), format!("new{i}"))).unzip();
        let before: Vec<_> = old_names.iter().map(|name| old(name, false, false)).collect();
        let names: Vec<_> = new_names.iter().map(String::as_str).collect();
        let mut ids = numbers(&names, &before, 16);
        ids.sort_unstable();
        assert_eq!(ids, Vec::from_iter(0..=u8::MAX));
        let mut all: Vec<_> = tags(&names).into_iter().map(|tag| tag.0).collect();
        all.sort_unstable();
        assert_eq!(all, Vec::from_iter(0..=u8::MAX));
    }

    #[test]
    fn a_tag_depends_on_the_name_and_not_on_the_order() {
        let of = |names: &[&str]| -> Vec<(String, u8)> {
            let mut all: Vec<_> =
                names.iter().map(|n| n.to_string()).zip(tags(names).iter().map(|m| m.0)).collect();
            all.sort();
            all
        };
        assert_eq!(of(&["search", "buy", "default"]), of(&["buy", "search", "default"]));
        let more = of(&["new", "search", "buy", "default"]);
        assert!(of(&["search", "buy", "default"]).iter().all(|known| more.contains(known)), "{more:?}");
        // These must never change: tickets in use contain them.
        assert_eq!(tags(&["search", "default"]), [ClassTag(1 + fold("search")), ClassTag(0)]);
    }
}
