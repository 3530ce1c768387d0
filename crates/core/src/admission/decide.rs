//! What becomes of a request: every rule of admission, in one function.
//!
//! ```text
//! recognise ─► quota ─► policies in force ─► session ─► room ─► enter | wait | refuse
//! (session)             │        ▲                              | send to the other process
//!                       └► perform (caller): authorise, coalesce, reroute
//! ```
//!
//! 1. **Quota** of the service level: what exceeds it is refused.
//! 2. **Policies in force**: throttles ([`PolicySet::throttle`]), then rules ([`PolicySet::decide`]). A policy that must be performed outside (another
//!    application is asked, an answer is shared, another URL is served) is a [`Decision::Perform`]: the
//!    caller performs it and calls [`decide`] again with what came of it ([`Progress`]).
//! 3. **Admitted sessions** enter past room and buckets, which are charged. Only where no origin is usable,
//!    what would have to wait without a session waits with one.
//! 4. **Parts of a page** never wait, since nobody would come back for them. They pass while nobody waits and
//!    for [`PAGE_PARTS_SETTLE`] after the first visitor does (their page was let in before), afterwards with
//!    a pass, for as long as the page is used ([`PAGE_IDLE`]). Other parts wait like pages.
//!    Any client can call a page a part, so both are bounded: a pass is good for as many parts as one page
//!    may have at once, and then for one a second. Pages that did not wait, with a pass of before the crowd
//!    or without one, share what their address has of the origin.
//! 5. **Service levels that skip the room** never wait. Their session takes a slot if one is free.
//! 6. **Classes that never wait** meet only their ingress bucket, and nothing at all where there is none.
//! 7. Everybody else **meets the room** ([`Admission::ask_for`]), and is held where no origin is usable.
//!
//! In the two-process form tokengen forwards nothing: requests that bypass the room are sent on.
//!
//! Rejected: a struct that keeps the state of a request between two calls. The caller has that state already,
//! and what is decided depends on the facts alone, so a simulator can construct them freely.

use std::net::IpAddr;
use std::time::Duration;

use super::shadow::{Fate, ShadowRoom, ShadowTerms};
use super::types::{
    AdmissionRequest, Decision, EnteredBy, Entrance, PolicyStep, Presented, SessionAsk, WhenFull,
};
use super::{Admission, SessionRules};
use crate::bucket::SharedBucket;
use crate::ingress::Ingress;
use crate::measure::Event;
use crate::policies::{ActivePolicy, PolicyDecision, PolicyRequest, PolicySet, TierId};
use crate::room::{EARLY_PARTS_WITHIN, OwnerAnswer};
use crate::session::{SessionKey, SessionRequest, SessionStatus, Sessions};
use crate::ticket::{Pass, PassKind};
use crate::units::{Cost, Timestamp};

/// Requests for parts of a page (style sheets, images) follow it within this time, also on a slow phone. The
/// pass of a page that has ended its session is valid for so long.
pub const PAGE_PASS: Duration = Duration::from_secs(120);

/// Where requests are admitted and not sessions, a page is used as long as it asks for a part in this time:
/// visitors read it, and then press a button. Each part may renew its pass.
pub const PAGE_IDLE: Duration = Duration::from_secs(600);

/// Parts of pages let in before anybody waited still pass without a pass for so long after the first visitor
/// waits.
pub const PAGE_PARTS_SETTLE: Duration = EARLY_PARTS_WITHIN;

/// Which process of the gate decides (WebQ III-B).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Role {
    /// The only process: keeps the schedule and admits.
    #[default]
    Gate,
    /// Keeps the schedule and sends everybody on.
    TokenGen,
    /// Admits visitors whom the other process has sent on.
    TokenCheck,
}

/// How the operator has set up a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdmissionSettings {
    pub role: Role,
    /// Whether there is a waiting room (`room.enabled`). Without one, sending to the room is refusing.
    pub has_room: bool,
    /// Longest wait in the room, and for an ingress bucket (`room.max_wait`).
    pub max_wait: Duration,
    /// Visitors that may enter in one instant, as the time in which the capacity serves them (`room.burst`).
    pub burst: Duration,
    pub session_rules: SessionRules,
    pub when_full: WhenFull,
}

/// What a process decides by.
pub struct Process<'a> {
    pub settings: AdmissionSettings,
    pub admission: &'a Admission,
    pub ingress: &'a Ingress,
    /// Admitted sessions; `None`: none are counted here.
    pub sessions: Option<&'a Sessions>,
    /// Policies in force; `None`: there are none.
    pub policies: Option<&'a PolicySet>,
    /// Since when visitors wait, as of the last control tick; `None`: nobody does.
    pub waiting_since: Option<Timestamp>,
    /// Quotas, room and session slots only count whom they would hold (`enforcement.shadow`); `None`: they
    /// hold. Policies say for themselves whether they are in shadow.
    pub shadow: Option<&'a ShadowRoom>,
}

/// What is known of a request beforehand.
pub struct Facts<'a> {
    pub request: PolicyRequest<'a>,
    pub class_waits: bool,
    /// It asks for a part of a page, and parts of pages pass with their visitor (all navigations wait).
    pub is_part_of_page: bool,
    /// Its service level skips the room.
    pub skips_room: bool,
    /// The quota of its service level; `None`: it has none.
    pub quota: Option<&'a SharedBucket>,
    pub progress: Progress,
    pub now: Timestamp,
}

/// How far a request has come with the policies in force. Numbers are positions in the [`PolicySet`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Progress {
    #[default]
    Start,
    /// Everything up to this policy has been performed and stands in its way no more: an authoriser agreed,
    /// its answer is not to be shared, the lighter URL is the one it asked for.
    After(usize),
    /// The authoriser that this policy asks has refused.
    Denied(usize),
    /// A lighter URL is served; no policy is asked about that.
    Over,
    /// The owner of its ticket has answered ([`Decision::AskOwner`]).
    Claimed { answer: OwnerAnswer, waits: bool },
}

/// The caller, which carries the request. Costly facts are asked for only where a rule needs them; side
/// effects of a decision are reported here.
pub trait Requester {
    /// The ticket that the request shows, its seal opened.
    fn ticket(&self) -> Presented;
    /// The pass that it shows, if its seal is authentic; whether it holds is decided here.
    fn pass(&self) -> Option<Pass>;
    /// Whether the URL shows a ticket that is also in a cookie: the visitor is then sent to the plain URL.
    fn shows_ticket_twice(&self) -> bool {
        false
    }
    /// Whether the caller can hold the request for a moment and decide again ([`Decision::Delay`]).
    fn may_be_held(&self) -> bool {
        false
    }
    /// Whether the client can wait and come back.
    fn can_return(&self) -> bool;
    /// The client's address; `None`: its positions in the room are not bounded.
    fn client(&self) -> Option<IpAddr> {
        None
    }
    /// Whether some replica of the origin can be sent to.
    fn is_origin_usable(&self) -> bool;
    /// The key of the session that the request would begin.
    fn new_session_key(&self) -> SessionKey;
    /// 64 fresh random bits, for the nonce of a ticket.
    fn random(&self) -> u64;
    /// A session has begun with the request, which keeps it alive from now on.
    fn session_begins(&self, request: SessionRequest);
    /// Reports the throttle, by its position, whose bandwidth the body of its answer is part of.
    fn is_shaped(&self, _throttle: usize) {}
    /// Reports a policy in shadow that would have decided.
    fn would_decide(&self, policy: &ActivePolicy);
    /// Reports a policy that sends the request to the room.
    fn sent_to_room(&self, policy: &ActivePolicy);
    /// Counts an event.
    fn count(&self, event: Event);
}

/// Whether a page's pass is to be renewed by a request for a part of the page, or of another page that did
/// not wait: once a quarter of its life is over, not with every answer.
pub fn is_page_pass_due(pass: &Pass, now: Timestamp) -> bool {
    let age = now.since(pass.issued);
    pass.kind == PassKind::Page && age > PAGE_IDLE / 4 && age <= PAGE_IDLE
}

/// A session that a request claims to belong to.
pub struct SessionClaim<'a> {
    pub sessions: &'a Sessions,
    pub rules: SessionRules,
    pub key: SessionKey,
    /// The pass it shows, if passes identify sessions. Its seal is authentic.
    pub pass: Option<&'a Pass>,
    pub tier: TierId,
    pub cost: Cost,
}

impl SessionClaim<'_> {
    /// Finds the session, which the request keeps alive from then on. One that this process does not know is
    /// readmitted if its pass holds: another process admitted it.
    pub fn recognise(&self, now: Timestamp) -> (SessionStatus, Option<SessionRequest>) {
        let found = self.sessions.touch(self.key, self.cost, now);
        match (found, self.pass) {
            ((SessionStatus::New, _), Some(pass)) if self.rules.holds(pass, now) => {
                let request = self.sessions.readmit(self.key, self.tier, pass.first, now);
                let status = if request.is_some() { SessionStatus::Admitted } else { SessionStatus::New };
                (status, request)
            }
            (found, _) => found,
        }
    }
}

/// What becomes of a request. Called again after each [`Decision::Perform`], and after a
/// [`Decision::RefusedByPolicy`] that was carried out by a lighter URL.
pub fn decide(process: &Process<'_>, facts: &Facts<'_>, requester: &dyn Requester) -> Decision {
    let case = Case { process, facts, requester };
    case.policies().map_or_else(|decision| decision, |meeting| case.enter(meeting))
}

/// How a request meets the room.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meeting {
    Room,
    /// It is part of a page, and passes with its admitted visitor.
    PartOfPage,
    /// It would wait but for its service level.
    Skips,
    Never,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MayWait {
    /// At its class's bucket, which may have it wait in the room.
    AtBucket,
    InRoom,
}

struct Case<'a> {
    process: &'a Process<'a>,
    facts: &'a Facts<'a>,
    requester: &'a dyn Requester,
}

impl Case<'_> {
    /// Applies the quota and the policies in force. Returns how the request then meets the room.
    fn policies(&self) -> Result<Meeting, Decision> {
        let Self { process, facts, requester } = self;
        let from = match facts.progress {
            Progress::Start => {
                let taken = facts.quota.map_or(Ok(()), |quota| quota.take(facts.request.cost, facts.now));
                match taken {
                    Err(retry_after) if process.shadow.is_none() => {
                        return Err(Decision::OverQuota { retry_after });
                    }
                    Err(_) => requester.count(Event::QuotaWouldRefuse),
                    Ok(()) => {}
                }
                0
            }
            Progress::After(policy) => policy.saturating_add(1),
            Progress::Denied(policy) => return Err(Decision::RefusedByPolicy { policy, retry_after: None }),
            Progress::Claimed { waits: true, .. } => return Ok(Meeting::Room),
            Progress::Over | Progress::Claimed { .. } => return Ok(self.meeting()),
        };
        let Some(policies) = process.policies else { return Ok(self.meeting()) };
        if facts.progress == Progress::Start {
            self.throttle(policies)?;
        }
        let mut shadow = |policy: &ActivePolicy| requester.would_decide(policy);
        let perform = |policy, step| Err(Decision::Perform { policy: policies.index_of(policy), step });
        let refuse = |policy, retry_after| {
            Err(Decision::RefusedByPolicy { policy: policies.index_of(policy), retry_after })
        };
        match policies.decide(&facts.request, from, facts.now, &mut shadow) {
            PolicyDecision::Pass => Ok(self.meeting()),
            PolicyDecision::Room { policy } if process.settings.has_room => {
                requester.sent_to_room(policy);
                Ok(Meeting::Room)
            }
            PolicyDecision::Room { policy } => refuse(policy, None),
            PolicyDecision::Refuse { policy, retry_after } => refuse(policy, retry_after),
            PolicyDecision::Ask { policy, application, .. } => {
                perform(policy, PolicyStep::Authorise(application))
            }
            PolicyDecision::Multicast { policy, period } => perform(policy, PolicyStep::Coalesce { period }),
            PolicyDecision::Reroute { policy, route } => perform(policy, PolicyStep::Reroute(route)),
        }
    }

    fn throttle(&self, policies: &PolicySet) -> Result<(), Decision> {
        let throttling = policies.throttle(&self.facts.request, self.facts.now);
        if let Some((throttle, retry_after)) = throttling.refused {
            return Err(Decision::RefusedByThrottle { throttle, retry_after });
        }
        throttling.shaped.into_iter().for_each(|throttle| self.requester.is_shaped(throttle));
        Ok(())
    }

    fn meeting(&self) -> Meeting {
        match self.facts {
            Facts { class_waits: false, .. } => Meeting::Never,
            Facts { skips_room: true, .. } => Meeting::Skips,
            Facts { is_part_of_page: true, .. } => Meeting::PartOfPage,
            _ => Meeting::Room,
        }
    }

    fn enter(&self, meeting: Meeting) -> Decision {
        let Self { process, facts, requester } = self;
        let is_in = process.sessions.is_some() && !facts.request.is_new_session;
        let may_begin = meeting == Meeting::Skips && process.sessions.is_some();
        let asks_room = matches!(meeting, Meeting::Room | Meeting::PartOfPage);
        if !(asks_room || self.has_bucket() || is_in || may_begin) {
            return self.unasked(EnteredBy::Unasked);
        }
        if requester.shows_ticket_twice() {
            return Decision::ShowCleanUrl;
        }
        if is_in && (meeting != Meeting::Room || self.is_origin_usable()) {
            return self.enter_by_session();
        }
        if let Some(shadow) = process.shadow {
            return self.pass_in_shadow(meeting, shadow);
        }
        match meeting {
            Meeting::PartOfPage if self.passes_as_part() => self.enter_as_part(),
            Meeting::Never => self.ask(MayWait::AtBucket, None),
            Meeting::Skips => self.skip_room(),
            Meeting::Room | Meeting::PartOfPage if !self.is_origin_usable() => self.hold(),
            Meeting::Room | Meeting::PartOfPage => self.ask_room(),
        }
    }

    /// Whether its class has an ingress bucket that this process asks.
    fn has_bucket(&self) -> bool {
        self.process.settings.role != Role::TokenGen && self.process.ingress.limits(self.facts.request.class)
    }

    /// Tokengen needs no origin.
    fn is_origin_usable(&self) -> bool {
        self.process.settings.role == Role::TokenGen || self.requester.is_origin_usable()
    }

    /// Bypass traffic: past room and buckets, which count it.
    fn enter_by_session(&self) -> Decision {
        let PolicyRequest { class, cost, .. } = self.facts.request;
        self.process.ingress.charge(class, cost, self.facts.now);
        self.process.admission.charge_session(cost);
        self.charge_shadow();
        Decision::Enter { by: EnteredBy::Session }
    }

    fn unasked(&self, by: EnteredBy) -> Decision {
        if self.process.settings.role == Role::TokenGen {
            return Decision::SendOnUnasked;
        }
        self.process.admission.charge(self.facts.request.cost);
        self.charge_shadow();
        Decision::Enter { by }
    }

    fn shadow_terms(&self) -> ShadowTerms {
        let Process { settings, admission, .. } = self.process;
        ShadowTerms { capacity: admission.capacity(), burst: settings.burst, max_wait: settings.max_wait }
    }

    fn charge_shadow(&self) {
        if let Some(shadow) = self.process.shadow {
            shadow.charge(self.facts.request.cost, &self.shadow_terms(), self.facts.now);
        }
    }

    /// Everybody enters; whom room and session slots would hold is counted. Buckets of classes that refuse do
    /// so. A ticket from before is not looked at: its visitor enters too.
    fn pass_in_shadow(&self, meeting: Meeting, shadow: &ShadowRoom) -> Decision {
        let Self { process, facts, requester } = self;
        let PolicyRequest { class, cost, tier, .. } = facts.request;
        let mut fate = Fate::Enters;
        if self.has_bucket()
            && let Err(retry_after) = process.ingress.take(class, cost, facts.now)
        {
            if !process.ingress.holds(class) {
                requester.count(Event::IngressShed);
                return Decision::Throttled { retry_after };
            }
            fate = Fate::Waits;
        }
        let is_newcomer = meeting == Meeting::Room;
        // Tokencheck does not know what tokengen would do.
        if is_newcomer && process.admission.room().is_some() {
            fate = fate.max(shadow.arrive(cost, &self.shadow_terms(), facts.now));
        } else {
            self.charge_shadow();
        }
        let begins = process.sessions.filter(|_| is_newcomer || meeting == Meeting::Skips);
        let mut finds_slot = true;
        if let Some(table) = begins {
            finds_slot = !is_newcomer || table.has_slot(tier);
            if let Ok(request) = table.admit_beyond(requester.new_session_key(), tier, cost, facts.now) {
                requester.session_begins(request);
            }
        }
        match (fate, finds_slot, process.settings.when_full) {
            (Fate::IsRefused, ..) => requester.count(Event::RoomWouldRefuse),
            (_, false, WhenFull::Refuse) => requester.count(Event::SessionsWouldRefuse),
            (Fate::Waits, ..) | (_, false, WhenFull::Room) => requester.count(Event::RoomWouldWait),
            (Fate::Enters, true, _) => {}
        }
        if process.settings.role == Role::TokenGen {
            return Decision::SendOnUnasked;
        }
        process.admission.charge(cost);
        let by = match meeting {
            Meeting::Room => EnteredBy::Room,
            Meeting::PartOfPage => EnteredBy::PartOfPage,
            Meeting::Skips | Meeting::Never => EnteredBy::Unasked,
        };
        Decision::Enter { by }
    }

    fn passes_as_part(&self) -> bool {
        let Self { process, facts, requester } = self;
        // Tokencheck does not know since when visitors wait at tokengen.
        let is_settled = process.settings.role == Role::TokenCheck
            || process.waiting_since.is_some_and(|since| facts.now.since(since) > PAGE_PARTS_SETTLE);
        let finds_slot = || process.sessions.is_none_or(|table| table.has_slot(facts.request.tier));
        let finds_share = || {
            let PolicyRequest { cost, .. } = facts.request;
            process
                .waiting_since
                .zip(process.admission.room())
                .is_none_or(|(since, room)| room.take_early_part(requester.client(), cost, since, facts.now))
        };
        // Anybody gets a pass while nobody waits, and could gather them.
        let has_waited = |pass: &Pass| process.waiting_since.is_none_or(|since| pass.first >= since);
        let idle = if process.sessions.is_none() { PAGE_IDLE } else { PAGE_PASS };
        if !is_settled && finds_slot() && finds_share() {
            return true;
        }
        requester.pass().is_some_and(|pass| {
            let age = facts.now.since(pass.issued);
            match pass.kind {
                // Where sessions are counted, the table says whether one is admitted, and nothing else does.
                PassKind::Session => {
                    process.sessions.is_none() && age <= process.settings.session_rules.timeout
                }
                PassKind::Page => {
                    age <= idle
                        && process.admission.take_part(&pass, facts.now)
                        && (has_waited(&pass) || finds_share())
                }
            }
        })
    }

    fn enter_as_part(&self) -> Decision {
        let PolicyRequest { class, cost, .. } = self.facts.request;
        if self.has_bucket()
            && let Err(retry_after) = self.process.ingress.take(class, cost, self.facts.now)
        {
            self.requester.count(Event::IngressShed);
            return Decision::Throttled { retry_after };
        }
        self.unasked(EnteredBy::PartOfPage)
    }

    /// Past the room. Its class's bucket is asked without a session slot: a visitor who passes may find none.
    fn skip_room(&self) -> Decision {
        let Self { process, facts, requester } = self;
        let decision = if self.has_bucket() {
            self.ask(MayWait::AtBucket, None)
        } else {
            self.unasked(EnteredBy::Unasked)
        };
        let PolicyRequest { tier, cost, .. } = facts.request;
        if let (Decision::Enter { .. }, Some(table)) = (decision, process.sessions)
            && table.has_slot(tier)
            && let Ok(request) = table.admit(requester.new_session_key(), tier, cost, facts.now)
        {
            requester.session_begins(request);
        }
        decision
    }

    /// No origin is usable: nobody enters, and everybody keeps or gets a position.
    fn hold(&self) -> Decision {
        let (class, now, shown) = (self.facts.request.class, self.facts.now, self.requester.ticket());
        let wait = self.process.admission.hold(class, &shown, now);
        let waited = match shown {
            Presented::Ticket(ticket) if ticket.class == class => now.since(ticket.arrived),
            _ => Duration::ZERO,
        };
        Decision::Hold { wait, waited }
    }

    /// Asks the room, for a session slot too where sessions are counted.
    fn ask_room(&self) -> Decision {
        let Self { process, facts, requester } = self;
        let Some(table) = process.sessions else { return self.ask(MayWait::InRoom, None) };
        let key = requester.new_session_key();
        let session = SessionAsk::new(table, key, facts.request.tier, process.settings.when_full);
        let decision = self.ask(MayWait::InRoom, Some(&session));
        if let Some(request) = session.under_way.take() {
            debug_assert!(
                matches!(decision, Decision::Enter { .. }),
                "a slot is taken by one who does not enter"
            );
            requester.session_begins(request);
        }
        decision
    }

    fn ask(&self, may_wait: MayWait, session: Option<&SessionAsk<'_>>) -> Decision {
        let Self { process, facts, requester } = self;
        let PolicyRequest { class, cost, .. } = facts.request;
        let shown = requester.ticket();
        let asking =
            AdmissionRequest { class, cost, shown, sends_on: process.settings.role == Role::TokenGen };
        let entrance = Entrance {
            ingress: process.ingress,
            max_wait: process.settings.max_wait,
            waits: may_wait == MayWait::InRoom,
            returns: requester.can_return(),
            client: requester.client(),
            owner: match facts.progress {
                Progress::Claimed { answer, .. } => Some(answer),
                _ => None,
            },
            may_be_held: requester.may_be_held(),
        };
        let count = |event| requester.count(event);
        let mut nonce = || requester.random();
        process.admission.ask_for(&entrance, &asking, session, &mut nonce, &count, facts.now)
    }
}
