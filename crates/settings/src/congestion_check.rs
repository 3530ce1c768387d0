//! What single keys of `[[detector]]` and `[[rule]]` cannot know: what they name must be there, and what they do needs its keys.

use std::collections::HashMap;

use tidegate_core::policies::TierId;

use super::congestion::{Detector, How, Rule, Then, Watched};
use super::mistake::MAX_MISTAKES;
use super::read::{Reader, did_you_mean, item_path};
use super::{DEFAULT, Settings, kinds};
use crate::condition::{Condition, Names};
use crate::exposition::Pattern;

impl Settings {
    /// Names of service levels, by id less one: that of everybody else has none.
    pub fn tier_names(&self) -> Vec<&str> {
        self.tier.iter().map(|one| one.name.as_str()).collect()
    }

    /// Names of lighter URLs, by id.
    pub fn lighter_names(&self) -> Vec<&str> {
        self.lighter.iter().map(|one| one.name.as_str()).collect()
    }

    /// Names of applications that may be asked, by id.
    pub fn application_names(&self) -> Vec<&str> {
        self.application.iter().map(|one| one.name.as_str()).collect()
    }

    /// The service level of this name.
    pub fn tier_id(&self, name: &str) -> Option<TierId> {
        let at = self.tier_names().iter().position(|known| *known == name)?;
        u8::try_from(at + 1).ok().map(TierId)
    }

    /// Names of detectors, in the order of the file.
    pub fn detector_names(&self) -> Vec<&str> {
        self.detector.iter().map(|detector| detector.name.as_str()).collect()
    }

    fn class_names(&self) -> Vec<&str> {
        let names = self.class.iter().map(|class| class.name.as_str());
        names.filter(|name| *name != DEFAULT).chain([DEFAULT]).collect()
    }
}

/// Reports every disagreement, except what is in conditions.
pub(crate) fn check(settings: &Settings, out: &mut Reader) {
    names(&settings.detector_names(), "detector", out);
    names(&settings.rule.iter().map(|rule| rule.name.as_str()).collect::<Vec<_>>(), "rule", out);
    for (i, one) in settings.detector.iter().enumerate() {
        detector(settings, one, &Place::of("detector", &one.name, i), out);
    }
    for (i, one) in settings.rule.iter().enumerate() {
        rule(settings, one, &Place::of("rule", &one.name, i), out);
    }
}

/// Reports what is wrong in conditions. Their texts and what they name do not change while the gate runs, and parsing takes
/// its time: not for tunables.
pub(crate) fn conditions(settings: &Settings, out: &mut Reader) {
    let detectors = settings.detector_names();
    let names = Names::new(&detectors);
    for (i, rule) in settings.rule.iter().enumerate() {
        let place = Place::of("rule", &rule.name, i);
        for (key, text) in [("when", &rule.when), ("until", &rule.until)] {
            if text.is_empty() {
                continue;
            }
            if let Err(wrong) = Condition::compile(text, &names) {
                out.conflict(&place.key(key), &wrong.expected, wrong.got, wrong.hint);
            }
            if out.found.len() >= MAX_MISTAKES {
                return;
            }
        }
    }
}

/// Where a mistake stands.
struct Place(String);

impl Place {
    fn of(list: &str, name: &str, index: usize) -> Self {
        Self(item_path(list, name, index))
    }

    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.0)
    }

    /// A key that goes with others only.
    fn only(&self, key: &str, with: &str, out: &mut Reader) {
        let path = self.key(key);
        if out.has(&path) {
            out.conflict(&path, &format!("no `{key}` without {with}"), "one".into(), None);
        }
    }
}

fn names(names: &[&str], list: &str, out: &mut Reader) {
    let mut first = HashMap::new();
    for (i, name) in names.iter().enumerate() {
        let path = item_path(list, name, i);
        if name.is_empty() {
            // A name that was refused has its own mistake.
            if !out.has(&format!("{path}.name")) {
                let expected = format!("a `name` for every {list}");
                out.conflict(&format!("{list}#{i}"), &expected, format!("a {list} without one"), None);
            }
        } else if let Some(earlier) = first.insert(*name, i + 1) {
            let got = format!("\"{name}\" again (it is also {list} {earlier})");
            out.conflict(&format!("{path}.name"), "names that differ", got, None);
        }
    }
}

/// A name of something that must be there.
fn known(wanted: &str, names: &[&str], list: &str, key: &str, out: &mut Reader) {
    if names.contains(&wanted) {
        return;
    }
    let all = names.iter().take(10).map(|name| format!("\"{name}\""));
    let expected = match names.is_empty() {
        true => format!("the name of a [[{list}]] (there is none)"),
        false => format!("the name of a [[{list}]]: {}", kinds::either(all)),
    };
    let hint =
        if out.found.len() < MAX_MISTAKES { did_you_mean(wanted, names.iter().copied()) } else { None };
    out.conflict(key, &expected, format!("\"{wanted}\""), hint);
}

fn detector(settings: &Settings, detector: &Detector, place: &Place, out: &mut Reader) {
    let kind = detector.kind;
    if Names::figures().any(|figure| figure == detector.name) {
        let expected = "a name that no figure of the gate has (docs/rules.md lists them)";
        out.conflict(&place.key("name"), expected, format!("\"{}\"", detector.name), None);
    }
    if !matches!(kind, Watched::RequestRate | Watched::ResponseTime) {
        place.only("class", "kind \"request-rate\" or \"response-time\"", out);
    } else if !detector.class.is_empty() {
        known(&detector.class, &settings.class_names(), "class", &place.key("class"), out);
    }
    if kind != Watched::Host {
        ["source", "every", "timeout"].iter().for_each(|key| place.only(key, "kind \"host\"", out));
    }
    figure(detector, place, out);
    if detector.adaptive > 0.0 {
        if out.has(&place.key("orange")) {
            let expected = "no `orange` beside `adaptive` (it is learned with red)";
            out.conflict(&place.key("orange"), expected, "one".into(), None);
        }
        if detector.red > 0.0 && detector.floor > detector.red {
            let got = format!("a floor of {} above a red of {}", detector.floor, detector.red);
            out.conflict(&place.key("floor"), "at most `red`", got, None);
        }
        return;
    }
    ["learn", "floor"].iter().for_each(|key| place.only(key, "`adaptive`", out));
    if detector.red == 0.0 && (kind != Watched::Signal || detector.orange > 0.0) {
        let hint = "Write red = NUMBER, or adaptive = 4.".to_owned();
        out.conflict(&place.key("red"), "a threshold above 0", "none".into(), Some(hint));
    }
}

fn figure(detector: &Detector, place: &Place, out: &mut Reader) {
    let key = place.key("figure");
    let figure = detector.figure.as_str();
    match detector.kind {
        _ if figure.is_empty() => {}
        Watched::ResponseTime if detector.statistic().is_none() => {
            let hint = did_you_mean(figure, ["mean", "deviation", "p50", "p95", "p99"].into_iter());
            let expected = "\"mean\", \"deviation\" or a percentile like \"p95\"";
            out.conflict(&key, expected, format!("\"{figure}\""), hint);
        }
        Watched::Host if detector.source.is_empty() => {
            let names = ["cpu", "memory", "load"];
            if !names.contains(&figure) {
                let hint = did_you_mean(figure, names.into_iter());
                let expected = "\"cpu\", \"memory\" or \"load\" (this host has no others)";
                out.conflict(&key, expected, format!("\"{figure}\""), hint);
            }
        }
        Watched::Host if !figure.starts_with('/') && Pattern::parse(figure).is_none() => {
            let expected =
                "a metric like `node_load1` or `name{label=\"value\"}`, or a JSON pointer like \"/load\"";
            out.conflict(&key, expected, format!("\"{figure}\""), None);
        }
        Watched::ResponseTime | Watched::Host => {}
        _ => place.only("figure", "kind \"response-time\" or \"host\"", out),
    }
}

fn rule(settings: &Settings, rule: &Rule, place: &Place, out: &mut Reader) {
    if rule.when.is_empty() && !out.has(&place.key("when")) {
        let hint = "Write when = \"true\" for a rule that always holds.".to_owned();
        out.conflict(&place.key("when"), "a condition", "nothing".into(), Some(hint));
    } else if rule.when.is_empty() {
        out.conflict(&place.key("when"), "a condition", "\"\"".into(), None);
    }
    let classes = settings.class_names();
    for (i, class) in rule.class.iter().enumerate() {
        known(class, &classes, "class", &element(&place.key("class"), i, out), out);
    }
    let tiers = settings.tier_names();
    for (i, tier) in rule.spare.iter().enumerate() {
        known(tier, &tiers, "tier", &element(&place.key("spare"), i, out), out);
    }
    needs(settings, rule, place, out);
    match rule.then {
        Then::Limit if rule.rate == 0.0 => {
            out.conflict(
                &place.key("rate"),
                "a rate above 0 (then = \"limit\" needs it)",
                "none".into(),
                None,
            );
        }
        Then::Room if !settings.room.enabled => {
            let expected = "another policy (there is no waiting room: `room.enabled` is false)";
            out.conflict(&place.key("then"), expected, "\"room\"".into(), None);
        }
        _ => {}
    }
}

/// What a rule does and the keys that go with it.
fn needs(settings: &Settings, rule: &Rule, place: &Place, out: &mut Reader) {
    let refuses = matches!(rule.then, Then::Refuse | Then::Limit | Then::Ask);
    let is_lighter = rule.then == Then::Reroute || (refuses && rule.action == How::Lighter);
    let wanted = [
        (
            is_lighter,
            "to",
            &rule.to,
            settings.lighter_names(),
            "lighter",
            "then = \"reroute\" or action = \"lighter\"",
        ),
        (
            rule.then == Then::Ask,
            "application",
            &rule.application,
            settings.application_names(),
            "application",
            "then = \"ask\"",
        ),
    ];
    for (is_needed, key, value, names, list, with) in wanted {
        if is_needed {
            known(value, &names, list, &place.key(key), out);
        } else {
            place.only(key, with, out);
        }
    }
    if rule.then != Then::Limit {
        place.only("rate", "then = \"limit\"", out);
    }
    if rule.then != Then::Multicast {
        place.only("period", "then = \"multicast\"", out);
    }
    if !refuses {
        place.only("action", "a policy that refuses", out);
    }
    if !refuses || !matches!(rule.action, How::Answer | How::Page) {
        place.only("status", "action = \"answer\" or \"page\"", out);
    }
}

/// The place of an element; of the key, if one value stood for the list.
fn element(key: &str, index: usize, out: &Reader) -> String {
    let item = format!("{key}#{index}");
    if out.has(&item) { item } else { key.to_owned() }
}
