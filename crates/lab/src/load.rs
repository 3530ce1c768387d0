//! Plays a crowd against a real socket, open loop.
//!
//! One loop on one thread: arrivals from the crowd, wake-ups from a timer heap (16 bytes an entry), outcomes from
//! the requests under way. A request is a task for as long as it is under way; between requests a visitor is its
//! struct in a slab, so that the number of waiting visitors is bounded by memory alone. Requests are sent at
//! their intended time whatever has been answered so far, and response time counts from then, so that neither a
//! slow target nor a slow bench can hide (no coordinated omission).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::answer_old::{read_news, read_page};
use crate::client::{Client, Reply};
use crate::crowd::old::Person;
use crate::tally_old::Tally;
use crate::visitor_old::{Ask, End, Failure, Next, Visitor};

/// How often the watcher is shown the figures.
const WATCH_EVERY: Duration = Duration::from_millis(100);
/// Outcomes handled between two looks at the timers: bounds the delay of a due request.
const BATCH: usize = 128;

/// Where a crowd is sent, and for how long at most.
#[derive(Clone, Debug)]
pub struct Target {
    /// Address of the service or the gate.
    pub addr: SocketAddr,
    /// What the visitors come for.
    pub path: String,
    /// End of the run. Who is still there then is counted as failed: a gate that lets nobody in must not hang
    /// the bench, nor look good.
    pub deadline: Duration,
}

/// Sends the crowd and returns when everybody has left, or at the deadline. `watch` sees the figures ten times a
/// second, with the time since the start. Runs on the tokio runtime that polls it.
pub async fn run(
    target: &Target,
    crowd: impl Iterator<Item = Person>,
    mut watch: impl FnMut(&Tally, Duration),
) -> Tally {
    let mut crowd = crowd.peekable();
    let (mut run, mut outcomes) = Run::new(target);
    let mut batch = Vec::with_capacity(BATCH);
    let mut next_watch = Duration::ZERO;
    loop {
        let now = run.start.elapsed();
        while let Some(person) = crowd.next_if(|person| person.at <= now) {
            run.arrive(person);
        }
        run.wake_due(now);
        if now >= next_watch {
            watch(&run.tally, now);
            next_watch = now + WATCH_EVERY;
        }
        let over = crowd.peek().is_none() && run.tally.left() == run.tally.offered;
        if over || now >= target.deadline {
            break;
        }
        let arrival = crowd.peek().map_or(Duration::MAX, |person| person.at);
        let wake = arrival.min(run.next_due()).min(next_watch).min(target.deadline);
        tokio::select! {
            biased;
            _ = outcomes.recv_many(&mut batch, BATCH) => {
                batch.drain(..).for_each(|outcome| run.settle(outcome));
            }
            () = sleep_until(run.start + wake) => {}
        }
    }
    run.close();
    watch(&run.tally, run.start.elapsed());
    run.tally
}

/// What a request came to.
struct Outcome {
    visitor: u32,
    reply: Result<Reply, Failure>,
    at: Duration,
}

struct Run {
    start: Instant,
    client: Arc<Client>,
    page: Arc<str>,
    report: mpsc::UnboundedSender<Outcome>,
    visitors: Vec<Option<Visitor>>,
    free: Vec<u32>,
    /// When whose next request is due: microseconds since the start, index of the visitor.
    due: BinaryHeap<Reverse<(u64, u32)>>,
    tally: Tally,
}

impl Run {
    fn new(target: &Target) -> (Self, mpsc::UnboundedReceiver<Outcome>) {
        // Unbounded, but it holds at most one outcome per request under way, and those hold a socket each.
        let (report, outcomes) = mpsc::unbounded_channel();
        let run = Self {
            start: Instant::now(),
            client: Client::new(target.addr),
            page: target.path.as_str().into(),
            report,
            visitors: Vec::new(),
            free: Vec::new(),
            due: BinaryHeap::new(),
            tally: Tally::default(),
        };
        (run, outcomes)
    }

    fn arrive(&mut self, person: Person) {
        self.tally.offered += 1;
        let visitor = Visitor::new(person);
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.visitors.push(None);
                (self.visitors.len() - 1) as u32
            }
        };
        self.send(&visitor, index);
        self.visitors[index as usize] = Some(visitor);
    }

    fn next_due(&self) -> Duration {
        self.due.peek().map_or(Duration::MAX, |Reverse((at, _))| Duration::from_micros(*at))
    }

    fn wake_due(&mut self, now: Duration) {
        while self.next_due() <= now {
            let Some(Reverse((_, index))) = self.due.pop() else { return };
            // A visitor in the heap has no request under way, so nothing else can have removed it.
            if let Some(visitor) = self.visitors[index as usize].take() {
                self.send(&visitor, index);
                self.visitors[index as usize] = Some(visitor);
            }
        }
    }

    /// Puts a visitor's next request under way.
    fn send(&mut self, visitor: &Visitor, index: u32) {
        self.tally.requests += 1;
        self.tally.in_flight += 1;
        let lag = self.start.elapsed().saturating_sub(visitor.at());
        self.tally.lag_us.saturating_record(lag.as_micros() as u64);
        let (client, page, report) = (Arc::clone(&self.client), Arc::clone(&self.page), self.report.clone());
        let (start, gives_up) = (self.start, self.start + visitor.gives_up_at());
        let ask = visitor.ask();
        let path: Arc<str> = match ask {
            Ask::Page => page,
            Ask::News => visitor.path(&page).into(),
        };
        let cookies: Option<Box<str>> = visitor.jar().field().map(Into::into);
        tokio::spawn(async move {
            let reply = timeout_at(gives_up, client.get(ask, &path, cookies.as_deref())).await;
            let reply = reply.unwrap_or(Err(Failure::Patience));
            // Nobody listens any more after the deadline.
            let _ = report.send(Outcome { visitor: index, reply, at: start.elapsed() });
        });
    }

    /// Lets the visitor react to what its request came to.
    fn settle(&mut self, outcome: Outcome) {
        self.tally.in_flight -= 1;
        let slot = &mut self.visitors[outcome.visitor as usize];
        let Some(visitor) = slot else { return };
        let was_waiting = visitor.in_room();
        let answer = outcome.reply.map(|reply| {
            visitor.jar_mut().absorb(&reply.headers);
            match visitor.ask() {
                Ask::Page => read_page(reply.status, &reply.headers, &reply.body),
                Ask::News => read_news(reply.status, &reply.body),
            }
        });
        if let Some(failure) = crate::visitor_old::failure_of(visitor.ask(), &answer) {
            self.tally.failures.count(failure);
        }
        let next = visitor.receive(answer, outcome.at);
        if visitor.in_room() && !was_waiting {
            self.tally.told_to_wait(outcome.at);
        }
        match next {
            Next::Send(at) => self.due.push(Reverse((at.as_micros() as u64, outcome.visitor))),
            Next::Leave(end) => {
                self.tally.left_with(end, visitor.in_room(), outcome.at);
                *slot = None;
                self.free.push(outcome.visitor);
            }
        }
    }

    /// Counts who is still there.
    fn close(&mut self) {
        let now = self.start.elapsed();
        for visitor in self.visitors.iter_mut().filter_map(Option::take) {
            self.tally.left_with(End::Failed(Failure::Patience), visitor.in_room(), now);
        }
        self.tally.in_flight = 0;
    }
}

/// Response times of `n` requests for `path`, one after another: what an unloaded service takes.
///
/// # Errors
/// The first failure.
pub async fn probe(addr: SocketAddr, path: &str, n: usize) -> Result<Vec<Duration>, Failure> {
    let client = Client::new(addr);
    let mut times = Vec::with_capacity(n);
    for _ in 0..n {
        let start = Instant::now();
        let Reply { status, headers, body } = client.get(Ask::Page, path, None).await?;
        if read_page(status, &headers, &body) != crate::answer_old::Answer::Served {
            return Err(Failure::Refused);
        }
        times.push(start.elapsed());
    }
    Ok(times)
}
