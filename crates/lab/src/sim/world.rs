//! The simulated world and its agenda: events happen one at a time, in order of their due time.

use std::collections::VecDeque;
use std::iter::Peekable;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use tidegate_core::classify::RequestHead;
use tidegate_core::control::TICK;
use tidegate_core::policies::TierId;
use tidegate_core::room::{Feedback, REPORT_EVERY};
use tidegate_core::ticket::Pass;
use tidegate_core::units::ClassId;
use tidegate_gateway::config::Config;
use tidegate_gateway::upstream::balance::Replicas;
use tidegate_gateway::upstream::dispatch::budget::Budget;
use tokio::time::Instant;

use super::client::Client;
use super::process::{GateProcess, settings_of};
use super::record::Record;
use super::replica_pool::ReplicaPool;
use super::request::{Page, PartCounts, Request, SessionTimes};
use super::stalls::Stalls;
use super::trace::{STEPS_SHOWN, Trace, What};
use super::{LATENCY_US, SimError, SimOptions};
use crate::answer::Answer;
use crate::crowd::{Crowd, VisitorMix};
use crate::model::{Done, Paths};
use crate::oracle::Oracle;
use crate::scenario::{Kind, Scenario, Step};
use crate::slab::Slab;
use crate::tally::Tally;
use crate::times::micros_up;
use crate::visitor::{Next, Visitor};
use crate::visitor_events::{End, Failure, RequestKind};
use crate::wheel::Wheel;

/// Events of the agenda. Numbers of requests come with their generation: those of requests that are over are
/// skipped.
#[derive(Clone, Copy)]
pub(crate) enum Item {
    Visit(u32),
    Parts(u32),
    /// A visitor's patience with a request ends.
    Patience {
        slot: u32,
        generation: u32,
    },
    /// An answer whose head has come may have to give its in-flight slot back.
    Stream {
        slot: u32,
        generation: u32,
    },
    /// An egress bucket of the gate's is ready.
    Egress,
    Tick(u8),
    Feedback,
    Fault(u16),
    Mend(u16),
    Change(u16),
    Second,
}

/// Visitors fetched from memory at once: more of them push each other out of the caches before their turn
/// comes. The agenda announces them when they are 64 us away, some dozens at a time.
const MOST_AT_ONCE: usize = 1024;

pub(crate) struct Route {
    pub(crate) class: ClassId,
    pub(crate) path: u32,
    /// Its path as policies see it.
    pub(crate) url_path: Box<str>,
    /// May be sent twice (RFC 9110 9.2.2).
    pub(crate) idempotent: bool,
}

pub(crate) struct World<'s> {
    pub(crate) scenario: &'s Scenario,
    pub(crate) mix: VisitorMix,
    crowd: Peekable<Crowd>,
    pub(crate) now_us: u64,
    pub(crate) agenda: Wheel<Item>,
    pub(crate) clients: Slab<Client>,
    /// Of sessions, by visitor; none where visitors are let in for one request.
    pub(crate) passes: Vec<Option<Pass>>,
    pub(crate) requests: Slab<Request>,
    /// How many of them have given their in-flight slot back.
    pub(crate) streaming: usize,
    pub(crate) generation: u32,
    /// By kind and step.
    pub(crate) routes: Vec<Vec<Route>>,
    /// Of the parts of each step's page.
    pub(crate) part_routes: Vec<Vec<Route>>,
    pub(crate) has_parts: bool,
    /// Pages whose parts are about to be requested.
    pub(crate) pages: Slab<Page>,
    pub(crate) parts: PartCounts,
    pub(crate) session_times: SessionTimes,
    pub(crate) tiers: Vec<TierId>,
    pub(crate) processes: Vec<GateProcess>,
    pub(crate) replicas: std::sync::Arc<Replicas>,
    pub(crate) budget: Budget,
    /// The origin of the budget's time; only differences matter.
    pub(crate) began: Instant,
    /// Restarts under way: the gate is back when all of them are over.
    pub(crate) restarts: u32,
    /// Reports get lost; what was not sent goes with the next.
    pub(crate) reports_lost: bool,
    pub(crate) unsent: Feedback,
    pub(crate) pool: ReplicaPool,
    stalls: Option<Stalls>,
    /// Requests at the origin by the time they were sent, for the limit on silence.
    pub(crate) sent: VecDeque<(u64, u32, u32)>,
    pub(crate) tally: Tally,
    pub(crate) record: Option<Record>,
    pub(crate) trace: Trace,
    pub(crate) oracle: Oracle,
    pub(crate) rng: SmallRng,
    pub(crate) key: [u8; 32],
    done: Vec<(usize, Done)>,
    /// Visitors who are soon to be looked up.
    soon: Vec<u32>,
    crowd_is_over: bool,
    /// Until when the browsers of a closed loop stay.
    stays_us: u64,
    /// When it is planned to look at the egress buckets.
    pub(crate) egress_us: Option<u64>,
    /// A loop over those who leave the gate's queue is under way.
    pub(crate) is_waking: bool,
}

impl<'s> World<'s> {
    pub(crate) fn new(scenario: &'s Scenario, options: &SimOptions) -> Result<Self, SimError> {
        let scene = Scenario { seed: options.seed, ..scenario.clone() };
        let (mix, crowd) = Crowd::of(&scene)?;
        if scenario.deadline.is_none() && crowd.size_hint_visitors().is_none() {
            return Err(SimError::Endless);
        }
        let replicas = scenario.origin.most_replicas() as usize;
        let mut key = [0; 32];
        key[..8].copy_from_slice(&options.seed.to_le_bytes());
        let mut processes = Vec::new();
        let settings = scenario.gate.as_ref().map(|g| settings_of(&g.settings, g.split, replicas));
        for settings in settings.unwrap_or_default() {
            processes.push(GateProcess::start(settings, &key, 0, 0, None)?);
        }
        let origin = processes.last().map(|h| h.config.settings.origin.clone()).unwrap_or_default();
        let began = Instant::now();
        let config = processes.last().map(|process| &process.config);
        let tiers = tiers(&mix, config)?;
        let steps = || mix.kinds.iter().flat_map(|kind| &kind.steps);
        let mut world = Self {
            routes: routes(&mix, &tiers, config, scenario, false)?,
            part_routes: routes(&mix, &tiers, config, scenario, true)?,
            has_parts: steps().any(|step| step.parts > 0),
            pages: Slab::default(),
            parts: PartCounts::default(),
            session_times: SessionTimes::default(),
            tiers,
            oracle: Oracle::new(scenario, &processes, options.check.then_some(options.seed)),
            scenario,
            mix,
            crowd: crowd.peekable(),
            now_us: 0,
            agenda: Wheel::new(),
            clients: Slab::default(),
            passes: Vec::new(),
            requests: Slab::default(),
            streaming: 0,
            generation: 0,
            replicas: Replicas::new(&origin),
            budget: Budget::new(origin.retry_budget, began),
            began,
            processes,
            restarts: 0,
            reports_lost: false,
            unsent: Feedback::default(),
            pool: ReplicaPool::new(&scenario.origin, options.seed),
            stalls: scenario.stall.map(|stall| Stalls::new(stall, options.seed)),
            sent: VecDeque::new(),
            tally: scenario.tally(),
            record: options.record.then(Record::default),
            trace: Trace::new(options.trace.max(if options.check { STEPS_SHOWN } else { 0 })),
            rng: SmallRng::seed_from_u64(options.seed ^ 0x7469_6465_6761_7465),
            key,
            done: Vec::new(),
            soon: Vec::new(),
            crowd_is_over: false,
            stays_us: scenario.closed().map_or(0, |closed| micros_up(closed.ends())),
            egress_us: None,
            is_waking: false,
        };
        world.plan();
        Ok(world)
    }

    fn plan(&mut self) {
        for process in 0..self.processes.len() as u8 {
            // Two processes do not tick in step.
            self.agenda.push(micros_up(TICK) + 37_000 * u64::from(process), Item::Tick(process));
        }
        if self.processes.len() == 2 {
            self.agenda.push(micros_up(REPORT_EVERY), Item::Feedback);
        }
        for (i, fault) in self.scenario.faults.iter().enumerate() {
            self.agenda.push(micros_up(fault.at), Item::Fault(i as u16));
        }
        for (i, change) in self.scenario.origin.changes.iter().enumerate() {
            self.agenda.push(micros_up(change.at), Item::Change(i as u16));
        }
        self.agenda.push(1_000_000, Item::Second);
        self.tally_capacity();
    }

    pub(crate) fn run(&mut self) -> Result<(), SimError> {
        let deadline = self.scenario.deadline.map_or(u64::MAX, micros_up);
        loop {
            let come = self.crowd.peek().map(|person| micros_up(person.at) + LATENCY_US);
            // The browsers of a closed loop come once and stay to its end.
            let is_over = come.is_none() && self.now_us >= self.stays_us;
            if is_over && !std::mem::replace(&mut self.crowd_is_over, true) {
                self.oracle.crowd_is_over(self.now_us);
            }
            let served = self.pool.next_event();
            let planned = self.agenda.peek();
            let present = self.clients.len() + self.requests.len() + self.pages.len();
            if come.is_none() && present == 0 && served.is_none() && self.is_calm() {
                break;
            }
            if self.oracle.is_done() {
                break;
            }
            let next = [come, served, planned].into_iter().flatten().min().unwrap_or(u64::MAX);
            if let Some(lasts_us) = self.stalls.as_mut().and_then(|stalls| stalls.begin_by(next)) {
                self.pool.stall(lasts_us);
                self.oracle.disturbed(next + lasts_us);
                continue;
            }
            if next > deadline {
                self.now_us = deadline;
                self.everybody_leaves();
                break;
            }
            self.now_us = self.stalls.as_ref().map_or(next, |stalls| stalls.happens_at(next));
            // The origin's answers up to now are handled before anything new.
            if served == Some(next) {
                self.origin_advances();
            } else if planned == Some(next) {
                let item = self.take_from_agenda();
                self.perform(item)?;
            } else if let Some(person) = self.crowd.next() {
                self.tally.arrived(person.at);
                let client = self.clients.insert(Client::new(Visitor::new(person, &self.mix)));
                self.visit(client);
            }
            let requests = self.requests.len() - self.streaming;
            self.oracle.check(self.now_us, &self.processes, requests, &self.trace);
        }
        let at_deadline = self.now_us >= deadline;
        self.session_slots_come_back();
        self.oracle.run_is_over(self.now_us, &self.pool.stats(), &self.processes, at_deadline, &self.trace);
        Ok(())
    }

    /// The gate has noticed that nobody is left; without a check there is no need to wait for it.
    fn is_calm(&self) -> bool {
        !self.gate_is_down() && self.processes.iter().all(|h| !h.admission.busy(h.now(self.now_us)))
    }

    pub(crate) fn gate_is_down(&self) -> bool {
        self.restarts > 0
    }

    fn take_from_agenda(&mut self) -> Item {
        let soon = &mut self.soon;
        let popped = self.agenda.pop_with(|item| {
            if let Item::Visit(client) = item {
                soon.push(client);
            }
        });
        if self.soon.len() <= MOST_AT_ONCE {
            self.clients.look_at(&self.soon, Client::ends);
        }
        self.soon.clear();
        let Some((_, item)) = popped else { unreachable!("it was peeked at") };
        item
    }

    fn perform(&mut self, item: Item) -> Result<(), SimError> {
        match item {
            Item::Visit(client) => self.visit(client),
            Item::Parts(page) => self.parts_arrive(page),
            Item::Patience { slot, generation } => self.gives_up(slot, generation),
            Item::Stream { slot, generation } => self.goes_on_streaming(slot, generation),
            // The timer of a gate that was killed meanwhile.
            Item::Egress if self.gate_is_down() => {}
            Item::Egress => self.wake(),
            Item::Tick(process) => self.tick(usize::from(process)),
            Item::Feedback => self.report(),
            Item::Fault(i) => self.fault(i)?,
            Item::Mend(i) => self.mend(i)?,
            Item::Change(i) => {
                self.trace.step(self.now_us, What::Change, 0, u64::from(i));
                self.pool.change(&self.scenario.origin.changes[usize::from(i)], self.now_us);
                self.oracle.disturbed(self.now_us);
            }
            Item::Second => {
                self.agenda.push(self.now_us + 1_000_000, Item::Second);
                self.oracle.second(self.now_us, &self.processes, &self.pool.stats());
            }
        }
        Ok(())
    }

    fn origin_advances(&mut self) {
        let mut done = std::mem::take(&mut self.done);
        self.pool.advance(self.now_us, &mut done);
        for (replica, done) in done.drain(..) {
            self.served(replica, done);
        }
        self.done = done;
    }

    /// An answer reaches its visitor. `at_us` may lie a little ahead of the agenda: nothing else depends on
    /// what a visitor does next.
    pub(crate) fn answer(&mut self, number: u32, outcome: Result<Answer, Failure>, at_us: u64) {
        let Some(client) = self.clients.get_mut(number) else { return };
        let (what, more) = match &outcome {
            Ok(Answer::Served) => (What::Gets, 0),
            Ok(Answer::Refused(status)) => (What::Fails, u64::from(*status)),
            Err(failure) => (What::Fails, *failure as u64),
            Ok(_) => (What::News, 0),
        };
        self.trace.step(at_us, what, number, more);
        let now = Duration::from_micros(at_us);
        if outcome == Err(Failure::Patience) {
            self.tally.gave_up(client.visitor.at(), now);
        } else {
            self.tally.ended(now);
        }
        if self.has_parts && outcome == Ok(Answer::Served) && client.visitor.ask() == RequestKind::Page {
            self.page_came(number, at_us);
        }
        let Some(client) = self.clients.get_mut(number) else { return };
        let was_in_room = client.visitor.in_room();
        let step = client.visitor.step();
        let reaction = client.visitor.receive(&self.mix, outcome, now);
        let in_room = client.visitor.in_room();
        self.tally.noted(&reaction.noted, was_in_room, in_room, now);
        self.tally.noted_of(client.visitor.kind(), step, &reaction.noted, now);
        reaction.session.into_iter().for_each(|end| self.tally.session(end, now));
        let limit = client.visitor.wait_limit(&self.mix);
        self.oracle.noted(number, client.visitor.kind(), limit, &reaction.noted);
        self.goes_on(number, reaction.next, now);
    }

    pub(crate) fn goes_on(&mut self, number: u32, next: Next, now: Duration) {
        match next {
            Next::Send(at) => self.agenda.push(micros_up(at).saturating_add(LATENCY_US), Item::Visit(number)),
            Next::Leave(end) => {
                let Some(client) = self.clients.remove(number) else { return };
                let code = match end {
                    End::Done => 0,
                    End::NoShow => 1,
                    End::Tired => 2,
                    End::Failed(_) => 3,
                };
                self.trace.step(micros_up(now), What::Leaves, number, code);
                self.tally.left(end, client.visitor.in_room(), now);
                self.oracle.left(number);
                if let Some(pass) = self.passes.get_mut(number as usize) {
                    *pass = None;
                }
            }
        }
    }

    /// The deadline has come: visitors who are still there have failed.
    fn everybody_leaves(&mut self) {
        let now = Duration::from_micros(self.now_us);
        for number in self.clients.numbers() {
            let Some(client) = self.clients.remove(number) else { continue };
            self.trace.step(self.now_us, What::Leaves, number, 4);
            self.tally.left(End::Failed(Failure::Patience), client.visitor.in_room(), now);
        }
    }
}

fn tiers(mix: &VisitorMix, config: Option<&Config>) -> Result<Vec<TierId>, SimError> {
    let tier = |kind: &Kind| match config {
        Some(config) if !kind.tier.is_empty() => {
            config.tiers.by_name(&kind.tier).ok_or_else(|| SimError::Tier(kind.tier.clone()))
        }
        _ => Ok(TierId::default()),
    };
    mix.kinds.iter().map(tier).collect()
}

/// What each step of each kind asks for. `{n}` in a path stands for one number here: classes and demands do
/// not depend on it.
fn routes(
    mix: &VisitorMix,
    tiers: &[TierId],
    config: Option<&Config>,
    scenario: &Scenario,
    of_parts: bool,
) -> Result<Vec<Vec<Route>>, SimError> {
    let paths = Paths::compile(&scenario.origin.paths).map_err(SimError::Paths)?;
    let route = |kind: &Kind, tier: TierId, step: &Step| {
        let (method, target, accept) = match (of_parts, kind.browser) {
            (true, _) => ("GET", &step.part, "*/*"),
            (false, true) => (step.method.as_str(), &step.path, "text/html"),
            (false, false) => (step.method.as_str(), &step.path, "application/json"),
        };
        let target = target.replace("{n}", "500000");
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let fields = [("accept", accept.as_bytes())];
        let client = [127, 0, 0, 1].into();
        let head = RequestHead { method, path, query, host: "localhost", client, fields: &fields };
        let class = config.map_or(ClassId(0), |config| config.classify_for(&head, tier));
        Route {
            class,
            path: paths.index(&target) as u32,
            url_path: path.into(),
            idempotent: matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE"),
        }
    };
    let of_kind = |(kind, tier): (&Kind, &TierId)| kind.steps.iter().map(|s| route(kind, *tier, s)).collect();
    Ok(mix.kinds.iter().zip(tiers).map(of_kind).collect())
}
