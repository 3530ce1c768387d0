//! What keys of service levels, lighter URLs and applications must have, and agree on.

use std::collections::HashSet;

use super::enforcing::{AskKey, Tier};
use super::read::{Reader, did_you_mean, item_path};
use super::{DEFAULT, Settings};

pub(crate) fn check(settings: &Settings, out: &mut Reader) {
    names("tier", settings.tier.iter().map(|tier| &*tier.name), out);
    names("lighter", settings.lighter.iter().map(|lighter| &*lighter.name), out);
    names("application", settings.application.iter().map(|application| &*application.name), out);
    for (i, tier) in settings.tier.iter().enumerate() {
        let path = item_path("tier", &tier.name, i);
        conditions(tier, &path, out);
        let known = || settings.class.iter().map(|class| class.name.as_str()).chain([DEFAULT]);
        if !tier.class.is_empty() && !known().any(|name| name == tier.class) {
            let hint = did_you_mean(&tier.class, known());
            out.conflict(
                &format!("{path}.class"),
                "the name of a [[class]]",
                format!("\"{}\"", tier.class),
                hint,
            );
        }
    }
    for (i, application) in settings.application.iter().enumerate() {
        let path = item_path("application", &application.name, i);
        if !application.url.starts_with("http://") {
            let got = if application.url.is_empty() {
                "nothing".into()
            } else {
                format!("\"{}\"", application.url)
            };
            out.conflict(&format!("{path}.url"), "a URL with http://: whom to ask", got, None);
        }
        if application.key == AskKey::Cookie && application.cookie.is_empty() {
            let expected = "the cookie's name beside `key = \"cookie\"`";
            out.conflict(&format!("{path}.cookie"), expected, "nothing".into(), None);
        }
    }
}

fn names<'s>(list: &str, names: impl Iterator<Item = &'s str>, out: &mut Reader) {
    let mut seen = HashSet::new();
    for (i, name) in names.enumerate() {
        let path = item_path(list, name, i);
        if name.is_empty() {
            // A name that was refused has its own mistake.
            if !out.has(&format!("{path}.name")) {
                let expected = format!("a `name` for every [[{list}]]");
                out.conflict(&format!("{list}#{i}"), &expected, "one without".into(), None);
            }
        } else if !seen.insert(name) {
            out.conflict(&format!("{path}.name"), "names that differ", format!("\"{name}\" again"), None);
        }
    }
}

fn conditions(tier: &Tier, path: &str, out: &mut Reader) {
    let jwt = &tier.jwt;
    if tier.client.is_empty()
        && tier.api_key.sha256.is_empty()
        && tier.cookie.sha256.is_empty()
        && jwt.claim.is_empty()
    {
        let expected = "who is of it: `client`, `api_key`, `cookie` or `jwt`";
        out.conflict(&format!("{path}.client"), expected, "nothing".into(), None);
    }
    if !tier.cookie.sha256.is_empty() && tier.cookie.name.is_empty() {
        out.conflict(&format!("{path}.cookie.name"), "the cookie's name", "nothing".into(), None);
    }
    if jwt.claim.is_empty() {
        return;
    }
    if jwt.values.is_empty() {
        out.conflict(&format!("{path}.jwt.values"), "values of the claim", "none".into(), None);
    }
    let (key, missing) = match jwt.algorithm.is_symmetric() {
        true => ("secret", jwt.secret.is_empty()),
        false => ("public_key", jwt.public_key.is_none()),
    };
    if missing {
        let expected = "what the tokens' signatures are checked with";
        out.conflict(&format!("{path}.jwt.{key}"), expected, "nothing".into(), None);
    }
}
