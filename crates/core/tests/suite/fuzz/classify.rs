//! Rules and a request from the same bytes: no panic, and a literal path as a rule matches itself.

use std::net::{IpAddr, Ipv4Addr};

use tidegate_core::classify::{ClassRule, RequestHead, Rules};
use tidegate_core::units::ClassId;

use super::piece;

/// The fuzz target. Returns whether the rule compiled and matched.
pub fn run(mut data: &[u8]) -> bool {
    let mut bytes = || piece(&mut data);
    let which = bytes();
    let on = |i: usize| which.get(i).is_some_and(|b| b & 1 != 0);
    let texts: [String; 5] = std::array::from_fn(|_| String::from_utf8_lossy(bytes()).into_owned());
    let [path, query, host, name, value] = &texts;
    let patterns: [String; 3] = std::array::from_fn(|_| String::from_utf8_lossy(bytes()).into_owned());
    let [glob, host_pattern, value_glob] = &patterns;
    let list = |given: bool, text: &String| if given { vec![text.clone()] } else { vec![] };
    let named = |given: bool| if given { vec![(name.clone(), value_glob.clone())] } else { vec![] };
    let rule = ClassRule {
        method: vec![],
        path: list(on(0), glob),
        host: list(on(1), host_pattern),
        header: named(on(2)),
        cookie: named(on(3)),
        query: named(on(4)),
        client: vec![],
    };
    let Ok(classifier) = Rules::compile(vec![rule]) else { return false };
    let cookie = format!("{name}={value}");
    let fields: [(&str, &[u8]); 2] = [(name, value.as_bytes()), ("cookie", cookie.as_bytes())];
    let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let head = RequestHead { method: "GET", path, query, host, client, fields: &fields };
    let class = classifier.classify(&head);
    assert!(class.index() < classifier.classes());

    // A path without wildcards, as a rule, matches itself.
    if path.starts_with('/') && !path.contains(['*', '?']) && !odd_spelling(path) {
        let own = ClassRule { path: vec![path.clone()], ..ClassRule::default() };
        let own = Rules::compile(vec![own]).expect("a literal path is a rule");
        assert_eq!(own.classify(&head), ClassId(0), "{path:?} against itself");
    }
    class == ClassId(0)
}

/// Dot segments and doubled slashes are resolved in requests, but are literal in rules.
fn odd_spelling(path: &str) -> bool {
    path.contains("//") || path.contains("/.") || path.to_ascii_lowercase().contains("/%2e")
}
