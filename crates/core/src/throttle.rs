//! Throttles: selective admission of request types (Porter & Katz, III-B: "we throttle … only those requests
//! that cause the bottleneck").
//!
//! A throttle names a type of requests, and what becomes of them: a share of them is refused, so many per
//! second pass, or the bodies of their answers share a bandwidth. An operator puts it in force in an
//! incident, or the correlation of requests with a bottleneck does. Throttles come before the rules: a
//! request that a throttle lets pass goes on to the next policy.
//!
//! The types are those that are counted for the correlation ([`crate::correlate::templates`]), so that a
//! throttle meets the requests that the finding was about, and no others.
//!
//! **A share is exact.** Of any n requests in a row, share · n are refused, to within one request: each adds
//! the share to an accumulator of one atomic word, and the one that makes it overflow is refused. Rejected: a
//! random number for each request, which refuses the share only on average, and a share of the visitors (as
//! rules have it), which refuses some of them always.

use std::sync::Arc;
use std::time::Duration;

use crate::bucket::{BucketConfig, SharedBucket};
use crate::classify;
use crate::correlate::templates::{MAX_LENGTH, TemplateSettings, template};
use crate::sync::{AtomicU64, Ordering};
use crate::units::{ClassId, Cost, Rate, Timestamp};

mod shaper;

pub use shaper::Shaper;

/// A throttle of this gate. Numbers are not used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ThrottleId(pub u32);

/// What becomes of the requests of a type.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ThrottleAction {
    /// This share of them is refused, from 0 to 1.
    Refuse(f64),
    /// So many requests per second pass, the rest is refused.
    Rate(f64),
    /// The bodies of all their answers together get so many bytes per second.
    Bandwidth(u64),
}

/// A type of requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ThrottledType {
    Class(ClassId),
    /// Every request whose path has this template, whatever its class.
    Path(PathType),
    /// No request: its class is not configured any more.
    Nothing,
}

/// A path template, and the parameters that a query must have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathType {
    path: Box<str>,
    parameters: Box<[Box<str>]>,
}

/// What a template has in place of what differs from request to request.
const FOLDED: [&str; 6] = ["{n}", "{uuid}", "{hash}", "{id}", "{token}", "{rest}"];

impl PathType {
    /// The template that a text stands for: itself, or that of the path that it is. `/item/4711` becomes
    /// `/item/{n}`. `None` if it is neither.
    ///
    /// ```
    /// use tidegate_core::throttle::PathType;
    ///
    /// let of = |text| PathType::canonical(text);
    /// assert_eq!(of("/item/{n}/bids").as_deref(), Some("/item/{n}/bids"));
    /// assert_eq!(of("/item/4711/bids?sort").as_deref(), Some("/item/{n}/bids?sort"));
    /// assert_eq!((of("item"), of("/item/{number}"), of("/a b")), (None, None, None));
    /// ```
    pub fn canonical(text: &str) -> Option<String> {
        let (path, query) = text.split_once('?').map_or((text, None), |(path, query)| (path, Some(query)));
        let names = query.map(|query| query.split('&').all(|name| !name.is_empty() && !name.contains('=')));
        let is_plain = text.bytes().all(|b| b.is_ascii_graphic() && b != b'#');
        if !path.starts_with('/') || text.len() > MAX_LENGTH || !is_plain || names == Some(false) {
            return None;
        }
        let mut out = String::new();
        for segment in path.split('/').filter(|segment| !segment.is_empty()) {
            let bare = FOLDED.iter().fold(segment.to_owned(), |bare, name| bare.replace(name, ""));
            match segment.contains(['{', '}']) {
                true if bare.contains(['{', '}']) => return None,
                true => out.extend(["/", segment]),
                false => out.push_str(&template(&TemplateSettings::default(), "", &format!("/{segment}"))),
            }
        }
        if out.is_empty() || path.ends_with('/') {
            out.push('/');
        }
        query.into_iter().for_each(|query| out.extend(["?", query]));
        Some(out)
    }

    /// Of a template as the correlation names it: `/item/{n}?sort`.
    pub fn new(template: &str) -> Self {
        let (path, query) = template.split_once('?').unwrap_or((template, ""));
        let parameters = query.split('&').filter(|name| !name.is_empty()).map(Into::into).collect();
        Self { path: path.into(), parameters }
    }

    pub(crate) fn covers(&self, folded: &Folded<'_>) -> bool {
        let is_given = |name: &str| folded.query.split('&').any(|pair| pair.split('=').next() == Some(name));
        let is_path = *self.path == *folded.as_sent
            || folded.normal.as_ref().is_some_and(|normal| **normal == *self.path);
        is_path && self.parameters.iter().all(|name| is_given(name))
    }
}

/// The templates of a request's path: made once for all throttles.
pub(crate) struct Folded<'a> {
    as_sent: String,
    /// Of the path in its normal spelling, where it is sent in another one: a throttle cannot be evaded by
    /// `/%69tem/1` or `//item/1`.
    normal: Option<String>,
    query: &'a str,
}

impl<'a> Folded<'a> {
    pub(crate) fn new(path: &str, query: &'a str) -> Self {
        let settings = TemplateSettings::default();
        let normal = classify::in_normal_spelling(path).map(|normal| template(&settings, "", &normal));
        Self { as_sent: template(&settings, "", path), normal, query }
    }
}

/// A throttle: its action, with its state, and its counters. The counters are shared by all workers: only
/// requests that a throttle is for pay for the contended cache line.
#[derive(Debug)]
pub struct Throttle {
    pub id: ThrottleId,
    /// The type as it was named: `class:search`, `path:/item/{n}`.
    pub name: Arc<str>,
    pub action: ThrottleAction,
    state: State,
    seen: AtomicU64,
    refused: AtomicU64,
    bytes: AtomicU64,
}

#[derive(Debug)]
enum State {
    /// What is added for each request, and the accumulator: both in 1/2^64.
    Refuse {
        step: u64,
        sum: AtomicU64,
    },
    RefuseAll,
    Rate(Arc<SharedBucket>),
    Bandwidth(Arc<Shaper>),
}

/// The counters of a throttle.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ThrottleCounts {
    /// Requests of its type.
    pub seen: u64,
    pub passed: u64,
    pub refused: u64,
    /// Bytes of answers that its bandwidth was for.
    pub bytes: u64,
}

impl Throttle {
    /// A throttle that has seen no request yet.
    pub fn new(id: ThrottleId, name: Arc<str>, action: ThrottleAction) -> Self {
        let state = match action {
            ThrottleAction::Refuse(share) if share >= 1.0 => State::RefuseAll,
            ThrottleAction::Refuse(share) => {
                // The cast saturates. Half full, so that the first refusals are not late.
                let step = (share * 2f64.powi(64)) as u64;
                State::Refuse { step, sum: AtomicU64::new(1 << 63) }
            }
            ThrottleAction::Rate(per_s) => match SharedBucket::new(&bucket(per_s)) {
                Some(bucket) => State::Rate(bucket),
                None => State::RefuseAll,
            },
            ThrottleAction::Bandwidth(bytes_per_s) => State::Bandwidth(Arc::new(Shaper::new(bytes_per_s))),
        };
        let [seen, refused, bytes] = [(); 3].map(|()| AtomicU64::new(0));
        Self { id, name, action, state, seen, refused, bytes }
    }

    /// This throttle instead of `old`, of the same type: answers under way get the new bandwidth, or all they
    /// can if there is none any more.
    pub fn instead_of(mut self, old: &Self) -> Self {
        match (&old.state, self.action) {
            (State::Bandwidth(shaper), ThrottleAction::Bandwidth(bytes_per_s)) => {
                shaper.set_rate(bytes_per_s);
                self.state = State::Bandwidth(shaper.clone());
            }
            _ => old.end(),
        }
        self
    }

    /// It is not in force any more: answers under way are not held back.
    pub fn end(&self) {
        self.shaper().into_iter().for_each(Shaper::end);
    }

    /// A request of its type comes.
    ///
    /// # Errors
    /// It is refused; when it would pass, if that is known.
    pub fn admit(&self, now: Timestamp) -> Result<(), Option<Duration>> {
        self.seen.fetch_add(1, Ordering::Relaxed);
        let admitted = match &self.state {
            State::Refuse { step, sum } => {
                let before = sum.fetch_add(*step, Ordering::Relaxed);
                if before.checked_add(*step).is_none() { Err(None) } else { Ok(()) }
            }
            State::RefuseAll => Err(None),
            State::Rate(bucket) => bucket.take(Cost::ONE, now).map_err(Some),
            State::Bandwidth(_) => Ok(()),
        };
        if admitted.is_err() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        admitted
    }

    /// What the bodies of the answers go through; `None`: they are not shaped.
    pub fn shaper(&self) -> Option<&Shaper> {
        match &self.state {
            State::Bandwidth(shaper) => Some(shaper),
            _ => None,
        }
    }

    /// Counts bytes of an answer that its bandwidth is for.
    pub fn count_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What it has done so far.
    pub fn counts(&self) -> ThrottleCounts {
        // First the refused: of two that are read while requests come, the sum must not exceed the seen.
        let refused = self.refused.load(Ordering::Relaxed);
        let seen = self.seen.load(Ordering::Relaxed);
        let bytes = self.bytes.load(Ordering::Relaxed);
        ThrottleCounts { seen, passed: seen.saturating_sub(refused), refused, bytes }
    }
}

/// As for rules: a second's worth may pass at once, and at least one request.
fn bucket(per_s: f64) -> BucketConfig {
    let rate = Rate::per_second(per_s).unwrap_or_default();
    BucketConfig { rate, burst: rate.over(Duration::from_secs(1)).max(Cost::ONE) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

    fn throttle(action: ThrottleAction) -> Throttle {
        Throttle::new(ThrottleId(1), "path:/a".into(), action)
    }

    #[test]
    fn a_share_is_refused_exactly_to_within_one_request_at_any_time() {
        for share in [0.0, 0.001, 0.1, 1.0 / 3.0, 0.5, 0.6, 0.75, 0.999, 1.0] {
            let throttle = throttle(ThrottleAction::Refuse(share));
            for n in 1..=10_000_u64 {
                _ = throttle.admit(NOW);
                let ThrottleCounts { seen, passed, refused, .. } = throttle.counts();
                assert_eq!((seen, passed + refused), (n, n));
                let wanted = share * n as f64;
                assert!((refused as f64 - wanted).abs() < 1.0, "{share}: {refused} of {n}");
            }
        }
    }

    #[test]
    fn refusals_are_spread_evenly() {
        let half = throttle(ThrottleAction::Refuse(0.5));
        let passed: Vec<_> = (0..6).map(|_| half.admit(NOW).is_ok()).collect();
        assert!(passed.windows(2).all(|two| two[0] != two[1]), "{passed:?}");
        let third = throttle(ThrottleAction::Refuse(1.0 / 3.0));
        let refused: Vec<_> = (0..300).filter(|_| third.admit(NOW).is_err()).collect();
        assert!(refused.windows(2).all(|two| two[1] - two[0] == 3), "{refused:?}");
    }

    #[test]
    fn so_many_requests_a_second_pass() {
        let rate = throttle(ThrottleAction::Rate(20.0));
        // For ten seconds a hundred requests a second.
        let passed = (0..1_000).filter(|n| rate.admit(NOW + Duration::from_millis(10 * n)).is_ok()).count();
        // A second's worth at once, and then 20 a second.
        assert!((218..=220).contains(&passed), "{passed}");
        assert_eq!(rate.counts().refused, 1_000 - passed as u64);
        let slow = throttle(ThrottleAction::Rate(0.1));
        assert_eq!(slow.admit(NOW), Ok(()), "at least one request at once");
        assert_eq!(slow.admit(NOW), Err(Some(Duration::from_secs(10))));
        assert_eq!(throttle(ThrottleAction::Rate(0.0)).admit(NOW), Err(None));
    }

    #[test]
    fn a_bandwidth_refuses_nobody() {
        let throttle = throttle(ThrottleAction::Bandwidth(1_000));
        assert_eq!(throttle.admit(NOW), Ok(()));
        assert!(throttle.shaper().is_some());
        throttle.count_bytes(7);
        assert_eq!(throttle.counts(), ThrottleCounts { seen: 1, passed: 1, refused: 0, bytes: 7 });
    }

    #[test]
    fn answers_under_way_follow_a_throttle_that_replaces_theirs() {
        let bandwidth = |bytes| throttle(ThrottleAction::Bandwidth(bytes));
        let old = bandwidth(1_000);
        let new = bandwidth(500).instead_of(&old);
        let shares = |one: &Throttle| one.shaper().map(|shaper| (shaper.share(), shaper.has_ended()));
        assert_eq!((shares(&old), shares(&new)), (Some((500, false)), Some((500, false))));
        let rate = throttle(ThrottleAction::Rate(1.0)).instead_of(&new);
        assert_eq!((shares(&old), shares(&rate)), (Some((500, true)), None));
    }

    #[test]
    fn a_template_covers_the_paths_that_have_it_and_no_others() {
        let covers = |template: &str, path: &str, query: &str| {
            PathType::new(template).covers(&Folded::new(path, query))
        };
        for (template, path, query, wanted) in [
            ("/", "/", "", true),
            ("/search", "/search", "q=x", true),
            ("/search", "/search/", "", false),
            ("/search", "/Search", "", false),
            ("/item/{n}/bids", "/item/4711/bids", "", true),
            ("/item/{n}/bids", "/item/new/bids", "", false),
            ("/item/{n}", "/item/4711/bids", "", false),
            ("/item-{n}.html", "/item-17.html", "", true),
            ("/list?sort", "/list", "page=2&sort=price", true),
            ("/list?sort", "/list", "page=2", false),
            ("/list?page&sort", "/list", "sort", false),
            // Other spellings of the same path.
            ("/item/{n}", "/%69tem/17", "", true),
            ("/item/{n}", "//item/./17", "", true),
            ("/item/{n}", "/a/../item/17", "", true),
            // What the correlation counts as sent.
            ("/q/{token}", "/q/a%2Bb", "", true),
        ] {
            assert_eq!(covers(template, path, query), wanted, "{template} {path}?{query}");
        }
    }
}
