//! The servers of a stage in mode `spin`: at most so many threads burn at once, the others wait in order of
//! arrival.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::time::Instant;

use super::cpu;
use crate::model::StageStats;
use crate::times::micros;

/// CPU time burnt between two updates of the figures, so that a scrape every second is right to a percent.
const SLICE: Duration = Duration::from_millis(5);

pub(super) struct Servers {
    name: String,
    /// As many servers as workers, always: a stage that is no limit of its own.
    follows_workers: bool,
    state: Mutex<State>,
    freed: Condvar,
}

struct State {
    servers: Vec<Server>,
    /// Servers in use, the first so many of `servers`.
    open: usize,
    /// Threads in line, by the number they drew.
    line: VecDeque<u64>,
    next: u64,
}

struct Server {
    busy: bool,
    burnt: Duration,
    /// Time in use, up to `since`.
    existed: Duration,
    /// When it was last taken into use.
    since: Instant,
}

impl Servers {
    pub fn new(name: String, servers: u32, follows_workers: bool, now: Instant) -> Self {
        let mut state = State { servers: Vec::new(), open: 0, line: VecDeque::new(), next: 0 };
        state.resize(servers as usize, now);
        Self { name, follows_workers, state: Mutex::new(state), freed: Condvar::new() }
    }

    /// Waits for a server and burns `demand` on it, less when `given_up` says so.
    pub fn serve(&self, demand: Duration, given_up: impl Fn() -> bool) {
        let mut left = demand;
        let server = self.occupy();
        while !left.is_zero() && !given_up() {
            let slice = left.min(SLICE);
            let start = cpu::thread_time();
            cpu::burn(slice, &given_up);
            left -= slice;
            self.state.lock().servers[server].burnt += cpu::thread_time() - start;
        }
        self.state.lock().servers[server].busy = false;
        self.freed.notify_all();
    }

    fn occupy(&self) -> usize {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        state.line.push_back(number);
        loop {
            let open = state.open;
            let free = state.servers[..open].iter().position(|server| !server.busy);
            if let (Some(server), Some(first)) = (free, state.line.front())
                && *first == number
            {
                state.servers[server].busy = true;
                state.line.pop_front();
                // Another may be free for the next in line.
                self.freed.notify_all();
                return server;
            }
            self.freed.wait(&mut state);
        }
    }

    pub fn follow(&self, workers: u32) {
        if self.follows_workers {
            self.state.lock().resize(workers as usize, Instant::now());
            self.freed.notify_all();
        }
    }

    pub fn stats(&self) -> StageStats {
        let now = Instant::now();
        let state = self.state.lock();
        let idle = |(i, server): (usize, &Server)| {
            let open = if i < state.open { now - server.since } else { Duration::ZERO };
            micros((server.existed + open).saturating_sub(server.burnt))
        };
        let busy = state.servers.iter().filter(|server| server.busy).count();
        StageStats {
            name: self.name.clone(),
            servers: state.open as u32,
            busy: busy as u32,
            queued: state.line.len() as u32,
            load: (busy + state.line.len()) as f64,
            load_us: 0,
            busy_us: state.servers.iter().map(|server| micros(server.burnt)).collect(),
            idle_us: state.servers.iter().enumerate().map(idle).collect(),
        }
    }
}

impl State {
    fn resize(&mut self, open: usize, now: Instant) {
        for server in self.servers.iter_mut().take(self.open).skip(open) {
            server.existed += now - server.since;
        }
        for server in self.servers.iter_mut().take(open).skip(self.open) {
            server.since = now;
        }
        let fresh = || Server { busy: false, burnt: Duration::ZERO, existed: Duration::ZERO, since: now };
        if self.servers.len() < open {
            self.servers.resize_with(open, fresh);
        }
        self.open = open;
    }
}
