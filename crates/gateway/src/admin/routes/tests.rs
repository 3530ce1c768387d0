//! What the table promises of itself.

use std::collections::HashSet;

use super::*;

#[test]
fn every_route_stands_once_and_is_described() {
    let mut seen = HashSet::new();
    for route in ROUTES {
        assert!(seen.insert((route.verb, route.path)), "{} {} twice", route.verb.name(), route.path);
        assert!(
            !route.summary.is_empty() && !route.replies.is_empty(),
            "{} {}",
            route.verb.name(),
            route.path
        );
        assert!(route.path.starts_with('/') && !route.path.ends_with('/'), "{}", route.path);
        let is_safe = route.verb == Verb::Get;
        assert_eq!(
            is_safe,
            route.access != Write,
            "{} {}: a read-only token reads",
            route.verb.name(),
            route.path
        );
        // What is recorded waits for a disk.
        let is_recorded = route.access == Write && route.path != "/v1/feedback";
        let is_apart = matches!(route.handler, Handler::Change(_) | Handler::Urgent(_));
        assert_eq!(is_recorded, is_apart, "{} {}", route.verb.name(), route.path);
        for param in route.params.iter().filter(|param| param.place == Place::Path) {
            assert!(route.path.contains(&format!("{{{}}}", param.name)), "{}: {}", route.path, param.name);
        }
    }
}

#[test]
fn a_path_is_matched_segment_by_segment() {
    let route = |path| Route { path, ..Route::new(Verb::Get, "", Read, "", state::healthz) };
    let named = route("/v1/things/{name}");
    assert_eq!(named.matches("/v1/things/a.b").unwrap()[0], ("name", "a.b".into()));
    assert_eq!(named.matches("/v1/things/a%2Fb").unwrap()[0], ("name", "a/b".into()));
    for other in ["/v1/things", "/v1/things/", "/v1/things/a/b", "/v1/thing/a", "/v1/things/%ff", "", "*"] {
        assert!(named.matches(other).is_none(), "{other}");
    }
    assert!(route("/healthz").matches("/healthz").is_some());
    assert!(route("/healthz").matches("/healthz/").is_none());
}
