//! Asks an external authoriser for its verdict on a request (WAC 3.2 f).
//!
//! One query per key (a client, a cookie's value, a URL) is under way at a time; other requests with the same
//! key wait for its answer. A verdict is kept for `ttl`. The application gets only the key, so that the
//! verdict is valid for every request with that key.
//!
//! A verdict may name a service level or a class, in the fields `Tidegate-Tier` and `Tidegate-Class` of the
//! application's answer. Fields of these names in a visitor's request mean nothing.
//!
//! 2xx is yes and 4xx is no. Anything else is no verdict: a 5xx says that the application has failed, and
//! nothing about the visitor. Without a verdict by the deadline `fallback` decides, for this request and all
//! others of the key during [`PAUSE`]: an application that is down costs one deadline per second and key, not
//! one per request.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, header};
use parking_lot::Mutex;
use tidegate_core::units::Timestamp;
use tidegate_http::RequestHead;
use tokio::sync::watch;

use crate::base::clock::Clock;
use crate::config::tiers;
use crate::http::target;
use crate::upstream::body::BoxError;
use crate::upstream::client::Call;
use crate::upstream::tls::ClientTls;
use tidegate_settings::{AskKey, Fallback};

/// How long a query without a verdict is not repeated.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest key; of a longer one the rest is hashed.
const MAX_KEY: usize = 512;

const CLIENT: HeaderName = HeaderName::from_static("tidegate-client");
const URL: HeaderName = HeaderName::from_static("tidegate-url");
const TIER: HeaderName = HeaderName::from_static("tidegate-tier");
const CLASS: HeaderName = HeaderName::from_static("tidegate-class");
/// Longest name in a verdict: that of a tier or class.
const MAX_NAME: usize = 64;

/// What an application says of a key.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Verdict {
    pub is_yes: bool,
    /// The service level that the visitor has from now on, and the class that the request is of.
    pub tier: Option<Arc<str>>,
    pub class: Option<Arc<str>>,
}

impl Verdict {
    /// `None`: the answer is no verdict.
    fn of(status: StatusCode, fields: &HeaderMap) -> Option<Self> {
        if !status.is_success() {
            return status.is_client_error().then(Self::default);
        }
        let name = |field| {
            let text = fields.get(field)?.to_str().ok()?.trim();
            (!text.is_empty() && text.len() <= MAX_NAME).then(|| text.into())
        };
        Some(Self { is_yes: true, tier: name(TIER), class: name(CLASS) })
    }
}

pub struct Authoriser {
    pub settings: tidegate_settings::Application,
    tls: ArcSwapOption<ClientTls>,
    kept: Mutex<HashMap<Box<[u8]>, Kept>>,
    asking: AtomicUsize,
    hash: RandomState,
    pub counts: Counts,
}

#[derive(Default)]
pub struct Counts {
    pub yes: AtomicU64,
    pub no: AtomicU64,
    /// Questions without a verdict, and those not asked because too many were under way.
    pub none: AtomicU64,
    /// Requests whose verdict named a tier or a class that there is not.
    pub unknown: AtomicU64,
}

enum Kept {
    Verdict { verdict: Verdict, until: Timestamp },
    Asking(watch::Receiver<Option<Verdict>>),
}

impl Authoriser {
    pub fn new(settings: &tidegate_settings::Application, tls: Option<Arc<ClientTls>>) -> Self {
        Self {
            settings: settings.clone(),
            tls: ArcSwapOption::new(tls),
            kept: Mutex::default(),
            asking: AtomicUsize::new(0),
            hash: RandomState::new(),
            counts: Counts::default(),
        }
    }

    /// Connections to it begin so from now on.
    pub fn believe(&self, tls: Option<Arc<ClientTls>>) {
        self.tls.store(tls);
    }

    /// Whether the request may go on, and as what. Must run within a `LocalRuntime`.
    pub async fn ask(self: &Arc<Self>, head: &RequestHead, client: IpAddr, clock: &Arc<Clock>) -> Verdict {
        let about = About::of(&self.settings, head, client);
        let mut answer = match self.look(&about, clock) {
            Ok(verdict) => return verdict,
            Err(answer) => answer,
        };
        let told = answer.wait_for(Option::is_some);
        match tokio::time::timeout(self.settings.deadline, told).await {
            Ok(Ok(verdict)) => verdict.clone().unwrap_or_else(|| self.fallback()),
            _ => self.fallback(),
        }
    }

    fn fallback(&self) -> Verdict {
        Verdict { is_yes: self.settings.fallback == Fallback::Allow, ..Verdict::default() }
    }

    /// The kept verdict, or else a receiver for the verdict; asks if no query is under way.
    fn look(
        self: &Arc<Self>,
        about: &About,
        clock: &Arc<Clock>,
    ) -> Result<Verdict, watch::Receiver<Option<Verdict>>> {
        let now = clock.now();
        let key = about.key(&self.hash);
        let mut kept = self.kept.lock();
        match kept.get(&key) {
            Some(Kept::Verdict { verdict, until }) if now < *until => return Ok(verdict.clone()),
            Some(Kept::Asking(answer)) => return Err(answer.clone()),
            _ => {}
        }
        if self.asking.load(Relaxed) >= self.settings.max_asking || !self.has_room(&mut kept, now) {
            self.counts.none.fetch_add(1, Relaxed);
            return Ok(self.fallback());
        }
        self.asking.fetch_add(1, Relaxed);
        let (tell, answer) = watch::channel(None);
        kept.insert(key.clone(), Kept::Asking(answer.clone()));
        drop(kept);
        let query = PendingQuery { authoriser: self.clone(), key, clock: clock.clone(), verdict: None, tell };
        // A task of its own, because the first visitor may leave.
        tokio::task::spawn_local(query.put(about.clone()));
        Err(answer)
    }

    /// Makes room for one more: removes expired verdicts, else some others.
    fn has_room(&self, kept: &mut HashMap<Box<[u8]>, Kept>, now: Timestamp) -> bool {
        if kept.len() < self.settings.max_kept {
            return true;
        }
        // This runs at most once per as many queries as it removes.
        let is_current = |one: &Kept| !matches!(one, Kept::Verdict { until, .. } if now >= *until);
        kept.retain(|_, one| is_current(one));
        if kept.len() >= self.settings.max_kept {
            let known = kept.iter().filter(|(_, one)| matches!(one, Kept::Verdict { .. }));
            let some: Vec<_> = known.map(|(key, _)| key.clone()).take(kept.len() / 8 + 1).collect();
            some.iter().for_each(|key| drop(kept.remove(key)));
        }
        kept.len() < self.settings.max_kept
    }

    /// The application's answer, whose body is not read.
    async fn answer(&self, about: &About) -> Result<(StatusCode, HeaderMap), BoxError> {
        let request = Request::get(&self.settings.url).header(&about.name, &about.value).body(Bytes::new())?;
        let (tls, timeout) = (self.tls.load_full(), self.settings.deadline);
        let call = Call { request, replica: None, tls: tls.as_deref(), timeout, max_body: None };
        let (head, _) = call.send().await?.into_parts();
        Ok((head.status, head.headers))
    }
}

/// The kind of key of a verdict: the field of the query that carries it.
#[derive(Clone)]
struct About {
    name: HeaderName,
    value: HeaderValue,
}

impl About {
    fn of(settings: &tidegate_settings::Application, head: &RequestHead, client: IpAddr) -> Self {
        let of_cookie = || {
            let value = tiers::cookies(&head.fields, &settings.cookie).next()?;
            let pair = [settings.cookie.as_bytes(), b"=", value].concat();
            Some(Self { name: header::COOKIE, value: HeaderValue::from_bytes(&pair).ok()? })
        };
        let of_url = || {
            let url = format!("{}{}", target::host(head).to_ascii_lowercase(), head.path());
            Some(Self { name: URL, value: HeaderValue::from_str(&url).ok()? })
        };
        let found = match settings.key {
            AskKey::Client => None,
            AskKey::Cookie => of_cookie(),
            AskKey::Url => of_url(),
        };
        found.unwrap_or_else(|| Self {
            name: CLIENT,
            value: HeaderValue::from_str(&client.to_string())
                .unwrap_or_else(|_| HeaderValue::from_static("")),
        })
    }

    fn key(&self, hash: &RandomState) -> Box<[u8]> {
        let value = self.value.as_bytes();
        let mut key = Vec::with_capacity(self.name.as_str().len() + 1 + value.len().min(MAX_KEY + 8));
        key.extend_from_slice(self.name.as_str().as_bytes());
        key.push(b'\n');
        let (start, rest) = value.split_at(value.len().min(MAX_KEY));
        key.extend_from_slice(start);
        if !rest.is_empty() {
            key.extend_from_slice(&hash.hash_one(rest).to_ne_bytes());
        }
        key.into()
    }
}

/// A query under way. However it ends, the outcome is kept and passed to the requests that wait.
struct PendingQuery {
    authoriser: Arc<Authoriser>,
    key: Box<[u8]>,
    clock: Arc<Clock>,
    verdict: Option<Verdict>,
    tell: watch::Sender<Option<Verdict>>,
}

impl PendingQuery {
    async fn put(mut self, about: About) {
        let authoriser = self.authoriser.clone();
        self.verdict = match authoriser.answer(&about).await {
            Ok((status, fields)) => {
                let verdict = Verdict::of(status, &fields);
                if verdict.is_none() {
                    tracing::debug!(application = authoriser.settings.name, %status, "no verdict");
                }
                verdict
            }
            Err(error) => {
                tracing::debug!(application = authoriser.settings.name, %error, "no verdict");
                None
            }
        };
    }
}

impl Drop for PendingQuery {
    fn drop(&mut self) {
        let authoriser = &self.authoriser;
        authoriser.asking.fetch_sub(1, Relaxed);
        let counts = &authoriser.counts;
        let counter = match &self.verdict {
            Some(Verdict { is_yes: true, .. }) => &counts.yes,
            Some(_) => &counts.no,
            None => &counts.none,
        };
        counter.fetch_add(1, Relaxed);
        let life = match self.verdict {
            Some(_) => authoriser.settings.ttl,
            None => PAUSE,
        };
        let verdict = self.verdict.take().unwrap_or_else(|| authoriser.fallback());
        let until = self.clock.now() + life;
        let mut kept = authoriser.kept.lock();
        kept.insert(std::mem::take(&mut self.key), Kept::Verdict { verdict: verdict.clone(), until });
        drop(kept);
        self.tell.send_replace(Some(verdict));
    }
}
