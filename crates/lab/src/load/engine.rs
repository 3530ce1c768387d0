//! One thread of a run: arrivals, timers and answers in, requests out.
//!
//! A visitor is either in the wheel, until the time of its next request, or has a request under way, never
//! both: every visitor that leaves the wheel or ends a request is there.

use std::io;
use std::iter::Peekable;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, mpsc as reports};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};

use super::alarm::Alarm;
use super::script::local;
use super::stop::stopped;
use super::{Run, WATCH_EVERY};
use crate::answer::{self, Reading, Redirect};
use crate::client::{Client, Order, Reply};
use crate::cookie_jar::{CookieJar, Names};
use crate::crowd::Person;
use crate::slab::Slab;
use crate::tally::Tally;
use crate::visitor::{End, Failure, Next, Reaction, RequestKind, Visitor};
use crate::wheel::Wheel;

/// Outcomes handled between two looks at the timers: bounds the delay of a due request.
const BATCH: usize = 128;
/// Requests handed to the runtime that it has not begun yet. A bench that is too slow must fall behind here,
/// where its lateness is measured and the crowd costs nothing, and not in a queue of tasks that nobody sees.
const MAX_FRESH: usize = 128;
/// Redirects followed for one request. Tokengen sends to tokencheck, which may send back a visitor who comes
/// too late.
const MAX_REDIRECTS: u8 = 3;

pub(super) struct Report {
    pub(super) thread: usize,
    pub(super) tally: Box<Tally>,
    pub(super) now: Duration,
    pub(super) partial: Option<String>,
}

struct Browser {
    visitor: Visitor,
    jar: CookieJar,
}

// With a timer of 16 bytes and some 100 of cookies on the heap, a gate's waiting visitor stays below 256.
const _: () = assert!(size_of::<Option<Browser>>() <= 80, "a million of them wait at once");

/// How far redirects have led a request.
#[derive(Clone, Copy, Default)]
struct Hop {
    redirects: u8,
    /// `None`: the target's own.
    port: Option<u16>,
}

struct Done {
    browser: u32,
    hop: Hop,
    reply: Result<Reply, Failure>,
    at: Duration,
}

pub(super) struct Engine<'r, C: Iterator<Item = Person>> {
    run: &'r Run,
    thread: usize,
    crowd: Peekable<C>,
    reports: reports::Sender<Report>,
    client: Arc<Client>,
    done: mpsc::UnboundedSender<Done>,
    /// See [`MAX_FRESH`].
    fresh: Arc<AtomicUsize>,
    browsers: Slab<Browser>,
    names: Names,
    wheel: Wheel<u32>,
    tally: Tally,
}

impl<'r, C: Iterator<Item = Person>> Engine<'r, C> {
    /// Plays `crowd` to its end, or to the run's. Reports as it goes, and once more at the end.
    pub(super) async fn play(
        run: &'r Run,
        thread: usize,
        crowd: C,
        reports: reports::Sender<Report>,
    ) -> io::Result<()> {
        // Unbounded, but it holds at most one outcome per request under way, and those hold a socket each.
        let (done, mut outcomes) = mpsc::unbounded_channel();
        let mut engine = Self {
            run,
            thread,
            crowd: crowd.peekable(),
            reports,
            client: Client::new(run.place.clone(), run.connections),
            done,
            fresh: Arc::default(),
            browsers: Slab::default(),
            names: Names::default(),
            wheel: Wheel::new(),
            tally: run.tally.clone(),
        };
        let partial = engine.until_over(&mut outcomes).await?;
        if partial.is_none() {
            engine.close();
        }
        (0..engine.tally.in_flight).for_each(|_| engine.tally.ended(run.start.elapsed()));
        engine.report(run.start.elapsed(), partial);
        Ok(())
    }

    /// Returns why the run ends before its time, if it does.
    async fn until_over(
        &mut self,
        outcomes: &mut mpsc::UnboundedReceiver<Done>,
    ) -> io::Result<Option<String>> {
        let run = self.run;
        let alarm = Alarm::new()?;
        let mut stop = run.stop.clone();
        let mut batch = Vec::with_capacity(BATCH);
        let mut next_report = Duration::ZERO;
        loop {
            let now = run.start.elapsed();
            let behind = self.send_due(now);
            if now >= next_report {
                self.report(now, None);
                next_report = now + WATCH_EVERY;
                if let Some(why) = run.vitals.given_up() {
                    return Ok(Some(why));
                }
            }
            let over = self.crowd.peek().is_none() && self.tally.present() == 0;
            if over || now >= run.deadline {
                return Ok(None);
            }
            let arrival = self.crowd.peek().map_or(Duration::MAX, |person| person.at);
            let wake = arrival.min(self.next_due()).min(next_report).min(run.deadline);
            tokio::select! {
                biased;
                why = stopped(&mut stop) => return Ok(Some(why)),
                _ = outcomes.recv_many(&mut batch, BATCH) => {
                    batch.drain(..).for_each(|done| self.settle(done));
                }
                () = yield_now(), if behind => {}
                rung = alarm.wait(run.start + wake), if !behind => rung?,
            }
        }
    }

    fn arrive(&mut self, person: Person) {
        self.tally.arrived(person.at);
        let browser = Browser { visitor: Visitor::new(person, &self.run.mix), jar: CookieJar::default() };
        let number = self.browsers.insert(browser);
        self.send(number);
    }

    fn next_due(&self) -> Duration {
        self.wheel.peek().map_or(Duration::MAX, Duration::from_micros)
    }

    /// Sends what is due, in order of time; returns whether the runtime has to catch up first.
    fn send_due(&mut self, now: Duration) -> bool {
        loop {
            let arrival = self.crowd.peek().map_or(Duration::MAX, |person| person.at);
            let wake = self.next_due();
            let due = arrival.min(wake);
            if due > now || due == Duration::MAX {
                return false;
            }
            if self.fresh.load(Relaxed) >= MAX_FRESH {
                return true;
            }
            if arrival <= wake {
                self.crowd.next().into_iter().for_each(|person| self.arrive(person));
            } else if let Some((_, number)) = self.wheel.pop() {
                self.send(number);
            }
        }
    }

    fn send(&mut self, number: u32) {
        let now = self.run.start.elapsed();
        let browser = self.browsers.held(number);
        let (ask, intended) = (browser.visitor.ask(), browser.visitor.at());
        match order(self.run, &self.names, browser) {
            Some(order) => {
                self.tally.sent(ask, intended, now);
                self.put_under_way(number, order, Hop::default());
            }
            // Only an attack can lack what it takes: a ticket.
            None => {
                let was_in_room = browser.visitor.in_room();
                let reaction = browser.visitor.skip_attack(&self.run.mix, now);
                self.react(number, was_in_room, reaction, now);
            }
        }
    }

    fn put_under_way(&mut self, number: u32, order: Order, hop: Hop) {
        let start = self.run.start;
        // `None`: patience beyond the end of time.
        let gives_up = start.checked_add(self.browsers.held(number).visitor.gives_up_at(&self.run.mix));
        let (client, done) = (Arc::clone(&self.client), self.done.clone());
        let fresh = Arc::clone(&self.fresh);
        fresh.fetch_add(1, Relaxed);
        tokio::spawn(async move {
            fresh.fetch_sub(1, Relaxed);
            let reply = match gives_up {
                // Too late already: not even a connection.
                Some(at) if at <= Instant::now() => Err(Failure::Patience),
                Some(at) => timeout_at(at, client.send(order)).await.unwrap_or(Err(Failure::Patience)),
                None => client.send(order).await,
            };
            // The receiver is gone after the end of the run.
            let _ = done.send(Done { browser: number, hop, reply, at: start.elapsed() });
        });
    }

    fn settle(&mut self, Done { browser: number, hop, reply, at }: Done) {
        let browser = self.browsers.held(number);
        let (ask, intended) = (browser.visitor.ask(), browser.visitor.at());
        let mut received = None;
        let outcome = match reply {
            Ok(reply) => {
                self.run.vitals.answered();
                let unix_s = (self.run.started_us + at.as_micros() as u64) / 1_000_000;
                let reading = answer::read(ask, reply.status, &reply.headers, &reply.body, unix_s);
                if let Some(order) = self.redirected(number, hop, &reply, &reading) {
                    let hop = Hop { redirects: hop.redirects + 1, port: order.port };
                    return self.put_under_way(number, order, hop);
                }
                let answer = reading.answer;
                received = Some((reply, reading));
                Ok(answer)
            }
            Err(failure) => {
                if failure == Failure::Connect {
                    self.run.vitals.unreachable(at);
                }
                Err(failure)
            }
        };
        if outcome == Err(Failure::Patience) && ask == RequestKind::Page {
            self.tally.gave_up(intended, at);
        } else {
            self.tally.ended(at);
        }
        let Browser { visitor, jar } = self.browsers.held(number);
        let visitor_kind = visitor.kind();
        let (was_in_room, step) = (visitor.in_room(), visitor.step());
        let reaction = visitor.receive(&self.run.mix, outcome, at);
        if visitor.ask() == RequestKind::Replayed && ask == RequestKind::Page {
            jar.keep_used(&self.names);
        }
        if let Some((reply, reading)) = received {
            let cookies = self.run.mix.kinds[visitor.kind() as usize].cookies;
            jar.absorb(&mut self.names, ask, &reply.headers, &reading, cookies);
        }
        self.tally.noted_of(visitor_kind, step, &reaction.noted, at);
        self.react(number, was_in_room, reaction, at);
    }

    /// The request that follows a redirect to the same host; `None`: there is none, or it leads where the
    /// bench does not go.
    fn redirected(&mut self, number: u32, hop: Hop, reply: &Reply, reading: &Reading) -> Option<Order> {
        let Redirect { authority, path, same_method } = reading.redirect.as_ref()?;
        let Browser { visitor, jar } = self.browsers.held(number);
        if visitor.ask() != RequestKind::Page || hop.redirects >= MAX_REDIRECTS {
            return None;
        }
        let port = match authority {
            Some(authority) => Some(self.run.place.port_of(authority)?),
            None => hop.port,
        };
        let line = self.run.script.line(visitor.kind(), visitor.step());
        let order = line.order(RequestKind::Page, local(path)?, visitor.path_number());
        let cookies = self.run.mix.kinds[visitor.kind() as usize].cookies;
        jar.absorb(&mut self.names, RequestKind::Page, &reply.headers, reading, cookies);
        let order = Order { port, cookies: jar.cookies(&self.names), ..order };
        Some(match same_method {
            true => order,
            false => Order { method: http::Method::GET, form: None, ..order },
        })
    }

    fn react(&mut self, number: u32, was_in_room: bool, reaction: Reaction, at: Duration) {
        let visitor = &self.browsers.held(number).visitor;
        let in_room = visitor.in_room();
        self.tally.noted(&reaction.noted, was_in_room, in_room, at);
        reaction.session.into_iter().for_each(|end| self.tally.session(end, at));
        match reaction.next {
            Next::Send(at) => self.wheel.push(at.as_micros() as u64, number),
            Next::Leave(end) => {
                self.tally.left(end, in_room, at);
                self.browsers.remove(number);
            }
        }
    }

    /// Counts those who are still there at the deadline as not served.
    fn close(&mut self) {
        let now = self.run.start.elapsed();
        for browser in self.browsers.drain() {
            self.tally.left(End::Failed(Failure::Patience), browser.visitor.in_room(), now);
        }
    }

    fn report(&self, now: Duration, partial: Option<String>) {
        let tally = Box::new(self.tally.clone());
        // The watcher listens as long as there is a thread.
        let _ = self.reports.send(Report { thread: self.thread, tally, now, partial });
    }
}

/// The visitor's next request; `None`: an attack without the ticket that it takes.
fn order(run: &Run, names: &Names, browser: &Browser) -> Option<Order> {
    let Browser { visitor, jar } = browser;
    let (ask, number) = (visitor.ask(), visitor.path_number());
    let line = run.script.line(visitor.kind(), visitor.step());
    let page = line.page(number);
    let shown = jar.show(names, ask, &page, number)?;
    // Besides the page's own, paths come from answers; one that cannot be asked for is as good as none: the
    // page again.
    let uri = local(&shown.target).or_else(|| local(&page)).expect("the page's path has been checked");
    Some(Order { cookies: shown.cookies, ..line.order(ask, uri, number) })
}
