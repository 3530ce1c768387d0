//! Performs what was admitted, as the gateway's forward and dispatch do: the gate's queue, a replica, and
//! what follows however it ends.

use std::sync::Arc;
use std::time::Duration;

use rand::RngCore;
use tidegate_core::gate::{self, Leaving, QueueDecision, ShedReason};
use tidegate_core::measure::{Event, Outcome};
use tidegate_core::queue::Lane;
use tidegate_core::session::SessionRequest;
use tidegate_core::units::Cost;
use tidegate_gateway::upstream::balance::{InFlight, Miss, Replica};

use super::LATENCY_US;
use super::request::{AtOrigin, Passage, Request, generation, identity, slot};
use super::trace::What;
use super::world::{Item, Route, World};
use crate::answer::Answer;
use crate::times::micros_up;
use crate::visitor_events::Failure;

/// How a request that left the origin without an answer fared.
enum Attempt {
    UnderWay,
    /// The replica's backlog was full: the replica answered 503.
    Busy,
    /// No answer, and no other attempt.
    Failed(Option<Miss>),
}

impl World<'_> {
    pub(crate) fn straight_to_the_origin(&mut self, number: u32) {
        let id = self.note_request(number, Passage::default());
        self.send_to_any_replica(id);
    }

    pub(crate) fn send_to_any_replica(&mut self, id: u64) {
        let replica = (self.rng.next_u64() % self.pool.len() as u64) as usize;
        match self.submit(id, replica, None) {
            Attempt::UnderWay => self.set_patience(id),
            Attempt::Busy => self.over(id, Ok(Answer::Refused(503))),
            Attempt::Failed(_) => self.over(id, Err(Failure::Connect)),
        }
    }

    pub(crate) fn forward(&mut self, number: u32, passage: Passage) {
        let id = self.note_request(number, passage);
        self.enter_gate(id);
    }

    pub(crate) fn enter_gate(&mut self, id: u64) {
        let process = self.processes.len() - 1;
        let process = &mut self.processes[process];
        let now = process.now(self.now_us);
        let Some(request) = self.requests.get_mut(slot(id)) else { return };
        let (number, class, cost) = (request.client, request.class, request.cost);
        let lane = match request.session {
            Some(session) if session.begins => Lane::Newcomer,
            Some(_) if request.under_way.as_ref().is_some_and(SessionRequest::begins_page) => Lane::Page,
            Some(_) => Lane::Admitted,
            None => Lane::Ordinary,
        };
        request.lane = lane;
        let asked = gate::Request { id, class, cost };
        process.shard.enters(class, request.arrived);
        let decision = process.gate.arrive_as(asked, lane, None, now);
        self.oracle.arrived_at_gate(id, class, (lane.into(), process.priority(class)), decision);
        match decision {
            QueueDecision::Forward => {
                self.set_patience(id);
                self.send(id);
            }
            QueueDecision::Queued(spot) => {
                request.spot = Some(spot);
                self.trace.step(self.now_us, What::Queued, number, u64::from(class.0));
                self.set_patience(id);
                // As the gateway does: an egress bucket may have become ready just before, or a newcomer's
                // turn may have come.
                self.wake();
            }
            QueueDecision::Shed(reason) => self.shed(id, reason.event()),
        }
    }

    fn note_request(&mut self, number: u32, passage: Passage) -> u64 {
        let client = self.clients.held(number);
        let (kind, step) = (client.visitor.kind(), client.visitor.step());
        let id = self.note(number, (kind, step), false, passage);
        self.clients.held(number).request = slot(id);
        id
    }

    /// Notes a request for the page of a kind's step, or for a part of it.
    pub(crate) fn note(&mut self, client: u32, of: (u32, u8), is_part: bool, passage: Passage) -> u64 {
        let routes = if is_part { &self.part_routes } else { &self.routes };
        let Route { class, path, idempotent, .. } = routes[of.0 as usize][usize::from(of.1)];
        let Passage { ticket, cookies, session, under_way } = passage;
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let arrived = self.processes.last().map(|h| h.now(self.now_us)).unwrap_or_default();
        let cost = self.processes.last().map_or(Cost::ONE, |process| process.cost(class));
        let slot = self.requests.insert(Request {
            client,
            is_part,
            generation,
            class,
            lane: Lane::Ordinary,
            cost,
            path,
            idempotent,
            ticket,
            cookies,
            session,
            under_way,
            arrived,
            sent_us: self.now_us,
            in_flight: 0,
            spot: None,
            at: None,
            head_us: None,
            streams: false,
            retried: false,
            has_left: false,
        });
        identity(slot, generation)
    }

    fn set_patience(&mut self, id: u64) {
        let Some(request) = self.requests.get(slot(id)).filter(|request| !request.is_part) else { return };
        let Some(client) = self.clients.get(request.client) else { return };
        let until = micros_up(client.visitor.gives_up_at(&self.mix)).saturating_add(LATENCY_US);
        if until < u64::MAX {
            self.agenda.push(until, Item::Patience { slot: slot(id), generation: generation(id) });
        }
    }

    fn send(&mut self, id: u64) {
        let Some(request) = self.requests.get_mut(slot(id)) else { return };
        request.sent_us = self.now_us;
        let (class, arrived) = (request.class, request.arrived);
        let process = self.processes.last().expect("there is a gate");
        request.in_flight = process.gate.in_flight_now();
        process.shard.forwarded(class, process.now(self.now_us).since(arrived));
        self.budget.deposit();
        let attempt = self.attempt(id, None);
        self.attempted(id, attempt);
    }

    fn attempted(&mut self, id: u64, attempt: Attempt) {
        match attempt {
            Attempt::UnderWay => {}
            Attempt::Busy => self.ended_at_origin(id, Outcome::OriginError, Ok(Answer::Refused(503))),
            Attempt::Failed(miss) => {
                let never_sent = matches!(miss, None | Some(Miss::NoConnection));
                if never_sent {
                    self.give_back(id);
                    if let Some(request) = self.requests.get_mut(slot(id)) {
                        request.cookies = false;
                    }
                }
                let status = match miss {
                    None => 503,
                    Some(Miss::Silent) => 504,
                    Some(_) => 502,
                };
                self.ended_at_origin(id, Outcome::OriginError, Ok(Answer::Refused(status)));
            }
        }
    }

    /// Sends it to a replica; after a failed attempt to another, where that is allowed.
    fn attempt(&mut self, id: u64, mut avoid: Option<u64>) -> Attempt {
        loop {
            let picked = self.replicas.pick_at(self.rng.next_u64(), avoid, || self.now_us);
            let Some(replica) = picked else { return Attempt::Failed(None) };
            let index = (replica.id() - 1) as usize;
            if self.pool.is_up(index) {
                return self.submit(id, index, Some(InFlight::new(replica)));
            }
            self.trace.step(self.now_us, What::NoConnection, slot(id), index as u64);
            match self.missed(id, &replica, Miss::Refused) {
                Some(other) => avoid = Some(other),
                None => return Attempt::Failed(Some(Miss::Refused)),
            }
        }
    }

    /// Books a failed attempt. The replica to avoid, if there may be another attempt.
    fn missed(&mut self, id: u64, replica: &Arc<Replica>, miss: Miss) -> Option<u64> {
        if miss.speaks_against_replica() {
            self.replicas.failed_at(replica, miss, self.now_us);
        }
        let now = self.began + Duration::from_micros(self.now_us);
        let request = self.requests.get_mut(slot(id))?;
        // A request that was never sent may be sent again, whatever its method.
        let repeatable = request.idempotent || matches!(miss, Miss::Refused | Miss::NoConnection);
        if !miss.may_be_repeated(repeatable, request.retried) || !self.budget.withdraw(now) {
            return None;
        }
        request.retried = true;
        Some(replica.id())
    }

    fn submit(&mut self, id: u64, replica: usize, flight: Option<InFlight>) -> Attempt {
        let Some(request) = self.requests.get_mut(slot(id)) else { return Attempt::Failed(None) };
        if !self.pool.is_up(replica) {
            return Attempt::Failed(Some(Miss::Refused));
        }
        let now = Duration::from_micros(self.now_us);
        self.tally.door(now);
        self.tally.door_units(now, request.cost.units());
        self.oracle.sent_to_origin(request.cost);
        match self.pool.submit(replica, id, request.path as usize, self.now_us) {
            Ok(ticket) => {
                self.trace.step(self.now_us, What::Sent, request.client, replica as u64);
                request.at = Some(AtOrigin { replica, ticket, flight });
                self.sent.push_back((self.now_us, slot(id), generation(id)));
                Attempt::UnderWay
            }
            Err(_) => {
                self.trace.step(self.now_us, What::Refused, request.client, replica as u64);
                self.tally.origin_lost(now);
                if let Some(flight) = flight {
                    self.replicas.succeeded(flight.replica());
                }
                Attempt::Busy
            }
        }
    }

    pub(crate) fn lost(&mut self, id: u64) {
        let now = Duration::from_micros(self.now_us);
        self.tally.origin_lost(now);
        let request = self.requests.get_mut(slot(id)).filter(|r| r.generation == generation(id));
        let Some(request) = request else { return };
        let Some(at) = request.at.take() else { return };
        self.trace.step(self.now_us, What::Lost, request.client, at.replica as u64);
        if request.head_us.is_some() {
            // The visitor has seen the head of the answer: no other replica can continue it.
            return self.ended_at_origin(id, Outcome::OriginError, Err(Failure::Broken));
        }
        let Some(flight) = at.flight else { return self.over(id, Err(Failure::Broken)) };
        let avoid = self.missed(id, flight.replica(), Miss::Lost);
        drop(flight);
        let attempt = match avoid {
            Some(avoid) => self.attempt(id, Some(avoid)),
            None => Attempt::Failed(Some(Miss::Lost)),
        };
        self.attempted(id, attempt);
    }

    /// On the tick: those whose answer did not begin in time.
    pub(crate) fn silent_too_long(&mut self) {
        let Some(process) = self.processes.last() else { return };
        let limit = micros_up(process.config.settings.origin.first_byte_timeout);
        while let Some(&(sent_us, at, generation)) = self.sent.front() {
            let alive = |r: &&Request| r.generation == generation && r.at.is_some() && r.head_us.is_none();
            let here = self.requests.get(at).filter(alive);
            if here.is_some() && self.now_us - sent_us < limit {
                return;
            }
            let id = identity(at, generation);
            self.sent.pop_front();
            let Some(request) = here else { continue };
            self.trace.step(self.now_us, What::Silent, request.client, 0);
            let replica = request.at.as_ref().and_then(|at| at.flight.as_ref()).map(|f| f.replica().clone());
            self.leave_origin(at);
            if let Some(replica) = replica {
                self.missed(id, &replica, Miss::Silent);
            }
            self.attempted(id, Attempt::Failed(Some(Miss::Silent)));
        }
    }

    /// Takes a request away from the origin, which may not notice.
    pub(super) fn leave_origin(&mut self, at: u32) {
        let Some(there) = self.requests.get_mut(at).and_then(|r| r.at.take()) else { return };
        if !self.pool.leave(there.replica, there.ticket, self.now_us) {
            self.tally.origin_lost(Duration::from_micros(self.now_us));
        }
    }

    pub(crate) fn gives_up(&mut self, at: u32, generation: u32) {
        let request = self.requests.get(at).filter(|r| r.generation == generation && !r.has_left);
        let Some(request) = request else { return };
        let id = identity(at, generation);
        let (client, class, cost, spot) = (request.client, request.class, request.cost, request.spot);
        let lane = request.lane;
        let (at_origin, streams, sent_us) = (request.at.is_some(), request.streams, request.sent_us);
        let (session, arrived) = (request.session.filter(|_| request.head_us.is_none()), request.arrived);
        let is_under_way = request.head_us.is_none();
        let gate = self.processes.last().map(|process| &process.config.settings);
        let keeps_slot = at_origin && is_under_way && gate.is_some_and(|gate| !gate.origin.abort_on_close);
        self.trace.step(self.now_us, What::GivesUp, client, 0);
        // Where the slot is kept, the rest follows when the origin has answered.
        if let Some(process) = self.processes.last_mut().filter(|_| !keeps_slot) {
            let now = process.now(self.now_us);
            process.shard.count(Event::ClientGone);
            if is_under_way {
                process.shard.leaves(class, arrived);
            }
            if at_origin {
                let took = Duration::from_micros(self.now_us - sent_us);
                process.shard.ended(class, Outcome::ClientGone, took);
                if streams {
                    self.streaming -= 1;
                } else {
                    process.gate.answered(lane, now);
                    process.gate.finish(class, cost, now);
                    self.oracle.finished(id);
                }
            } else {
                let waited = spot.is_some_and(|spot| process.gate.abandon(spot, now));
                self.oracle.abandoned(id, waited);
                self.give_back(id);
            }
        }
        let under_way = if keeps_slot {
            let request = self.requests.held(at);
            request.has_left = true;
            request.under_way.take()
        } else {
            self.leave_origin(at);
            self.requests.remove(at).and_then(|request| request.under_way)
        };
        match session.filter(|session| at_origin && session.begins) {
            Some(session) => self.gave_up_first(client, session, under_way),
            None => self.finished(client, under_way),
        }
        self.answer(client, Err(Failure::Patience), self.now_us - LATENCY_US);
        self.wake();
    }

    pub(crate) fn refused_in_queue(&mut self, id: u64, reason: ShedReason) {
        self.oracle.timed_out(id);
        if let (Some(process), Some(request)) = (self.processes.last(), self.requests.get(slot(id))) {
            process.shard.took(request.class, false, process.now(self.now_us).since(request.arrived));
        }
        self.shed(id, reason.event());
    }

    fn shed(&mut self, id: u64, why: Event) {
        if let Some(process) = self.processes.last() {
            process.shard.count(why);
        }
        let (who, session) = self.requests.get(slot(id)).map_or((0, None), |r| (r.client, r.session));
        self.trace.step(self.now_us, What::Shed, who, 0);
        self.oracle.session_refused(who, session.is_some());
        self.give_back(id);
        if let Some(request) = self.requests.get_mut(slot(id)) {
            request.cookies = false;
        }
        self.over(id, Ok(Answer::Refused(503)));
    }

    /// A request leaves the gate: its in-flight slot goes to the next.
    pub(super) fn ended_at_origin(&mut self, id: u64, outcome: Outcome, answer: Result<Answer, Failure>) {
        if self.requests.get(slot(id)).is_some_and(|request| request.has_left) {
            return self.answered_nobody(id, outcome == Outcome::Served);
        }
        if let Some(process) = self.processes.last_mut()
            && let Some(request) = self.requests.get(slot(id))
        {
            let now = process.now(self.now_us);
            process.shard.ended(request.class, outcome, Duration::from_micros(self.now_us - request.sent_us));
            let took = now.since(request.arrived);
            process.shard.took(request.class, outcome == Outcome::Served, took);
            if let Some(session) = request.session
                && process.waiting_since.is_some()
            {
                self.session_times.record(session, took);
            }
            if request.streams {
                self.streaming -= 1;
            } else {
                let (sent, in_flight) = (process.now(request.sent_us), request.in_flight);
                let served = gate::Served { sent, in_flight, ok: outcome == Outcome::Served };
                process.gate.answered(request.lane, now);
                process.gate.complete(request.class, request.cost, &served, now);
                self.oracle.finished(id);
            }
        }
        self.over(id, answer);
        self.wake();
    }

    /// The origin has answered a request whose visitor had left: its in-flight slot goes to the next. A long
    /// answer is broken off.
    pub(super) fn answered_nobody(&mut self, id: u64, is_served: bool) {
        self.leave_origin(slot(id));
        let Some(request) = self.requests.remove(slot(id)) else { return };
        if let Some(process) = self.processes.last_mut() {
            let now = process.now(self.now_us);
            let took = Duration::from_micros(self.now_us - request.sent_us);
            let outcome = if is_served { Outcome::ClientGone } else { Outcome::OriginError };
            if is_served {
                process.shard.count(Event::ClientGone);
            } else {
                process.shard.took(request.class, false, now.since(request.arrived));
            }
            process.shard.leaves(request.class, request.arrived);
            process.shard.ended(request.class, outcome, took);
            let (sent, in_flight) = (process.now(request.sent_us), request.in_flight);
            let served = gate::Served { sent, in_flight, ok: is_served };
            process.gate.answered(request.lane, now);
            process.gate.complete(request.class, request.cost, &served, now);
            self.oracle.finished(id);
        }
        self.wake();
    }

    fn over(&mut self, id: u64, answer: Result<Answer, Failure>) {
        let Some(request) = self.requests.remove(slot(id)) else { return };
        if request.head_us.is_none()
            && let Some(process) = self.processes.last()
        {
            process.shard.leaves(request.class, request.arrived);
        }
        if request.is_part {
            self.parts.failed += u64::from(answer != Ok(Answer::Served));
            if let Some(process) = self.processes.last() {
                process.finish_quietly(request.under_way, self.now_us);
            }
            return;
        }
        if request.cookies {
            self.take_cookies(request.client, request.session);
        }
        self.finished(request.client, request.under_way);
        self.reply(request.client, answer);
    }

    /// Requests that the gate releases go to the origin.
    pub(crate) fn wake(&mut self) {
        // A request that finds no replica leaves at once, which calls this again: one loop wakes all.
        if std::mem::replace(&mut self.is_waking, true) {
            return;
        }
        while let Some(process) = self.processes.last_mut() {
            let now = process.now(self.now_us);
            let Some(leaving) = process.gate.next(now) else { break };
            let woken = match leaving {
                Leaving::Forward(woken) => woken,
                Leaving::Shed(woken, reason) => {
                    self.refused_in_queue(woken.id, reason);
                    continue;
                }
            };
            let who = self.requests.get(slot(woken.id)).map_or(0, |r| r.client);
            self.trace.step(self.now_us, What::Woken, who, u64::from(woken.class.0));
            self.oracle.woken(woken.id, woken.class);
            self.send(woken.id);
        }
        self.is_waking = false;
        self.plan_egress();
    }

    /// Plans the instant at which requests that wait only for an egress bucket may go, as the gateway sets a
    /// timer.
    pub(crate) fn plan_egress(&mut self) {
        let Some(process) = self.processes.last() else { return };
        let Some(at) = process.gate.next_ready() else { return };
        let at_us = self.now_us + micros_up(at.since(process.now(self.now_us)));
        if self.egress_us.is_none_or(|planned| at_us < planned || planned <= self.now_us) {
            self.egress_us = Some(at_us);
            self.agenda.push(at_us.max(self.now_us + 1), Item::Egress);
        }
    }
}
