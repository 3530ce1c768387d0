//! One request as the stages see it: its visitor, class and service level, its session, and what is logged
//! and reported of it.

use std::cell::{Cell, OnceCell};
use std::net::IpAddr;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method, Version};
use tidegate_core::measure::{Counters, Event};
use tidegate_core::policies::{TierId, visitor_number};
use tidegate_core::queue::Lane;
use tidegate_core::throttle::Throttle;
use tidegate_core::units::{ClassId, Cost, Timestamp};
use tidegate_http::{Fields, Name, RequestHead, is_text, name};
use tidegate_settings::Explained;
use tokio::time::Instant;

use crate::base::access_log::Entry;
use crate::config::Config;
use crate::http::hygiene;
use crate::http::stream::ConnInfo;
use crate::http::visitor_link::VisitorLink;
use crate::proxy::navigation::RequestKind;
use crate::proxy::respond::OwnAnswer;
use crate::shared::free_slots::Silence;
use crate::shared::policies::refusals::{Cause, Refusal};
use crate::shared::policies::stats::Done;
use crate::shared::policies::{ConnControl, PolicyRecord};
use crate::shared::sessions::{RequestSession, SessionLink};
use crate::shared::{Worker, WorkerHeld};
use crate::upstream::balance::Replica;
use crate::upstream::dispatch::OnInformational;

pub(crate) const DECISION: Name<'static> = Name::Other("tidegate-decision");

pub struct Conn {
    pub info: ConnInfo,
    pub link: VisitorLink,
    pub control: ConnControl,
    /// The session that is bound to it, if connections identify sessions.
    pub session: Rc<SessionLink>,
    /// Until its first request is at the gate, where connections wait for in-flight slots.
    pub silence: Silence,
    /// Relays interim responses; made when it is first needed.
    relay: OnceCell<OnInformational>,
    /// Whether the origin works on its request, and all of the request is there.
    pub(crate) is_at_origin: Cell<bool>,
    /// Whether its visitor left meanwhile.
    pub(crate) has_left: Cell<bool>,
}

impl Conn {
    pub fn new(
        info: ConnInfo,
        link: VisitorLink,
        control: ConnControl,
        session: Rc<SessionLink>,
        silence: Silence,
    ) -> Self {
        let (relay, is_at_origin, has_left) = <_>::default();
        Self { info, link, control, session, silence, relay, is_at_origin, has_left }
    }

    /// Passes interim responses of the origin on.
    pub(crate) fn relay(&self) -> OnInformational {
        let relay = || {
            let link = self.link.clone();
            Rc::new(move |status, fields: &HeaderMap| link.relay(status, fields)) as OnInformational
        };
        self.relay.get_or_init(relay).clone()
    }
}

/// A request's id: the worker's, or that of a trusted proxy.
#[derive(Clone)]
pub(crate) enum RequestId {
    Own([u8; 16]),
    Given(Box<str>),
}

impl RequestId {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Own(digits) => digits,
            Self::Given(id) => id.as_bytes(),
        }
    }
}

impl Deref for RequestId {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Own(digits) => std::str::from_utf8(digits).unwrap_or_default(),
            Self::Given(id) => id,
        }
    }
}

pub(crate) struct RequestContext {
    pub(crate) worker: Rc<Worker>,
    pub(crate) conn: Rc<Conn>,
    pub(crate) config: WorkerHeld<Config>,
    pub(crate) started: Timestamp,
    /// Nobody was waited for since then but the gate's own queue.
    pub(crate) is_prompt: bool,
    pub(crate) client: IpAddr,
    /// The peer is a trusted proxy.
    pub(crate) trusted: bool,
    pub(crate) class: ClassId,
    pub(crate) tier: TierId,
    pub(crate) id: RequestId,
    /// What its fields say of it.
    pub(crate) kind: RequestKind,
    pub(crate) log: Option<Box<AccessEntry>>,
    /// `limits.request_timeout` after its start.
    pub(crate) deadline: Option<Instant>,
    /// The first policy in shadow that would have decided on it.
    pub(crate) shadow: Option<Arc<PolicyRecord>>,
    /// The throttle whose bandwidth the answer's body is part of.
    pub(crate) shaped: Option<Arc<Throttle>>,
    /// It is the one request that a coalesced flight sends to the origin, in this lane, for no visitor.
    pub(crate) for_all: Option<Lane>,
    /// Its session; `None`: sessions are not counted here.
    pub(crate) session: Option<Box<RequestSession>>,
}

/// The parts of a request that the access log needs after its head has gone to the origin. Only made if there
/// is an access log.
pub(crate) struct AccessEntry {
    method: Method,
    target: Box<str>,
    version: Version,
    referer: Option<Box<[u8]>>,
    user_agent: Option<Box<[u8]>>,
    pub(crate) status: u16,
    pub(crate) verdict: &'static str,
    pub(crate) queued: Duration,
    pub(crate) replica: Option<Arc<Replica>>,
}

impl AccessEntry {
    /// Of a head whose ticket has been taken out.
    fn of(head: &RequestHead) -> Self {
        Self {
            method: head.method().clone(),
            target: head.path_and_query().into(),
            version: head.version(),
            referer: head.fields.get(name::REFERER).map(Box::from),
            user_agent: head.fields.get(name::USER_AGENT).map(Box::from),
            status: 0,
            verdict: "",
            queued: Duration::ZERO,
            replica: None,
        }
    }
}

impl RequestContext {
    /// Of a request whose ticket has been taken out of its URL.
    pub(crate) fn of(
        worker: Rc<Worker>,
        conn: Rc<Conn>,
        head: &RequestHead,
        started: Timestamp,
        deadline: Option<Instant>,
    ) -> Self {
        let config = worker.config();
        let proxy = &config.settings.proxy;
        let peer = conn.info.peer.ip().to_canonical();
        let trusted = proxy.trusted.iter().any(|net| net.contains(&peer));
        let client = hygiene::client_ip(peer, &head.fields, &proxy.trusted);
        let tier = config.tier_of(&head.fields, client, started);
        let class = config.class_of(head, client, tier);
        let id = match hygiene::request_id(&head.fields, trusted) {
            Some(given) => RequestId::Given(given.into()),
            None => RequestId::Own(worker.request_id()),
        };
        let log = worker.shared.access.as_ref().map(|_| Box::new(AccessEntry::of(head)));
        Self {
            worker,
            conn,
            config,
            started,
            is_prompt: true,
            client,
            trusted,
            class,
            tier,
            id,
            kind: RequestKind::of(&head.fields),
            log,
            deadline,
            shadow: None,
            shaped: None,
            for_all: None,
            session: None,
        }
    }

    /// The context of the one request that is sent to the origin for all who want its answer. It has no
    /// session and no line in the access log: the visitor's own request goes on beside it.
    pub(crate) fn for_all(&self) -> Self {
        Self {
            worker: self.worker.clone(),
            conn: self.conn.clone(),
            config: self.config.clone(),
            started: self.worker.now(),
            is_prompt: false,
            client: self.client,
            trusted: self.trusted,
            class: self.class,
            tier: self.tier,
            id: self.id.clone(),
            kind: self.kind,
            log: None,
            deadline: self.deadline,
            shadow: None,
            shaped: None,
            for_all: Some(self.shared_lane()),
            session: None,
        }
    }

    /// Counts a refusal for its class and its service level.
    pub(crate) fn count_shed(&self, reason: Event) {
        self.worker.shard.shed(self.class, reason);
        self.count_tier(|tier| tier.shed(reason));
    }

    /// The counters of its service level, where there are levels.
    pub(crate) fn count_tier(&self, count: impl FnOnce(&Counters)) {
        if !self.config.tiers.is_empty() {
            count(self.worker.shard.tier(self.tier));
        }
    }

    pub(crate) fn is_session_admitted(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_admitted())
    }

    /// By its session, or else by its address: in IPv6 by the network, which is one visitor's.
    /// What a request of its class is charged now.
    pub(crate) fn cost(&self) -> Cost {
        self.worker.shared.admission.costs().charged(self.class)
    }

    pub(crate) fn visitor_number(&self) -> u64 {
        let admitted = self.session.as_ref().filter(|session| session.is_admitted());
        let of_session = admitted.and_then(|session| session.key).map(|key| key.0);
        let of_address = || match self.client {
            IpAddr::V4(address) => address.to_bits().into(),
            IpAddr::V6(address) => address.to_bits() >> 64 << 64,
        };
        visitor_number(of_session.unwrap_or_else(of_address))
    }

    pub(crate) fn lane(&self) -> Lane {
        if let Some(lane) = self.for_all {
            return lane;
        }
        match &self.session {
            Some(session) if session.is_first() => Lane::Newcomer,
            Some(session) if session.begins_page() => Lane::Page,
            Some(session) if session.is_admitted() => Lane::Admitted,
            _ => Lane::Ordinary,
        }
    }

    /// The lane of a request whose answer others may share: they do not wait as a newcomer does.
    pub(crate) fn shared_lane(&self) -> Lane {
        match self.lane() {
            Lane::Newcomer | Lane::Page => Lane::Admitted,
            lane => lane,
        }
    }

    pub(crate) fn write_log(&self, log: &AccessEntry, bytes: u64, response_time: Duration) {
        let Some(access) = &self.worker.shared.access else { return };
        access.log(&Entry {
            time: self.started,
            client: self.client,
            method: log.method.as_str(),
            target: &log.target,
            version: log.version,
            status: log.status,
            bytes,
            referer: log.referer.as_deref(),
            user_agent: log.user_agent.as_deref(),
            request_id: &self.id,
            class: &self.config.class(self.class).name,
            verdict: log.verdict,
            wait: log.queued,
            response_time,
            replica: log.replica.as_ref().map(|r| r.authority()),
        });
    }

    /// Logs an answer whose head is known now and whose body is `bytes` long.
    pub(crate) fn log_now(&mut self, status: u16, bytes: u64, verdict: &'static str) {
        let Some(mut log) = self.log.take() else { return };
        (log.status, log.verdict) = (status, verdict);
        self.write_log(&log, bytes, self.worker.now().since(self.started));
    }

    pub(crate) fn log_own(&mut self, answer: &OwnAnswer, verdict: &'static str) {
        self.log_now(answer.head.status().as_u16(), answer.body.len() as u64, verdict);
    }

    /// Keeps a refusal for `GET /v1/explain`. `retry_after` in seconds.
    pub(crate) fn keep_refusal(&self, path: &str, cause: Cause, retry_after: u64) {
        let refusal = Refusal::new(&self.id, path, self.class, self.tier, cause, self.started);
        self.worker.shared.policies.refusals.keep(refusal.retry_after(retry_after));
    }

    /// Keeps and logs a refusal of the gate's own, and explains it to the visitor.
    pub(crate) fn refused_by_gate(&mut self, mut answer: OwnAnswer, event: Event, path: &str) -> OwnAnswer {
        self.explain(&mut answer.head.fields, event, path);
        self.log_own(&answer, "shed");
        answer
    }

    /// Keeps the reason of a refusal, and adds it to the answer's head as far as `explain.header` allows.
    pub(crate) fn explain(&self, fields: &mut Fields, event: Event, path: &str) {
        let after = fields.get_str(name::RETRY_AFTER).and_then(|seconds| seconds.parse().ok());
        self.keep_refusal(path, Cause::Gate(event), after.unwrap_or_default());
        if self.config.settings.explain.header != Explained::Off {
            set_decision(fields, &format!("id={}; by={}", &*self.id, event.name()));
        }
    }

    /// Adds a policy's decision to an answer's head as far as `explain.header` allows.
    pub(crate) fn tell(&self, fields: &mut Fields, record: Option<&Arc<PolicyRecord>>, done: Done) {
        if let Some(record) = record {
            self.tell_of(fields, record, done.name());
        }
    }

    /// Adds the throttle that refused a request, likewise.
    pub(crate) fn tell_throttle(&self, fields: &mut Fields, throttle: &Throttle) {
        let id = &*self.id;
        let text = match self.config.settings.explain.header {
            Explained::Off => return,
            Explained::Id => format!("id={id}"),
            // A type is named by the operator, in visible characters or by a class.
            Explained::Full => {
                format!("id={id}; throttle=\"{}\"", throttle.name.replace(['"', '\\'], "'"))
            }
        };
        set_decision(fields, &text);
    }

    /// Adds the decision that a policy in shadow would have made.
    pub(crate) fn tell_shadow(&self, fields: &mut Fields) {
        if let Some(record) = &self.shadow {
            self.tell_of(fields, record, "shadow");
        }
    }

    fn tell_of(&self, fields: &mut Fields, record: &PolicyRecord, action: &str) {
        let id = &*self.id;
        let text = match self.config.settings.explain.header {
            Explained::Off => return,
            Explained::Id => format!("id={id}"),
            Explained::Full => {
                // Rules are named by the operator and figures written by the detectors: quotes are all that
                // could confuse.
                let plain = |text: &str| text.replace(['"', '\\'], "'");
                let (level, figures) = (plain(&record.level), plain(&record.figures));
                format!(
                    "id={id}; rule=\"{}\"; action={action}; level=\"{level}\"; figures=\"{figures}\"",
                    record.rule
                )
            }
        };
        set_decision(fields, &text);
    }
}

fn set_decision(fields: &mut Fields, text: &str) {
    // A level or a figure may come from outside.
    if is_text(text.as_bytes()) {
        fields.set(DECISION, text.as_bytes());
    }
}
