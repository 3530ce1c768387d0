//! Sessions: an admitted session stays admitted, and is refused nothing for load (WAC 2: "only whole sessions
//! are refused").
//!
//! The accounts are by visitor: when its session was admitted, when it asked last, and when that was
//! answered. A session that asks again within nine tenths of its timeout from then on, and of its greatest
//! age, must be let in: the tenth is for clocks that are set right slowly. A gate that was killed recognises
//! sessions by their passes, which are up to a quarter older than the last request; where sessions are
//! identified by address, it knows none of them.

use std::collections::HashMap;
use std::time::Duration;

use tidegate_core::session::{SessionKey, Sessions as Table};

use super::{Finding, Oracle, require};
use crate::sim::process::GateProcess;

pub(super) struct Sessions {
    timeout_us: u64,
    max_age_us: u64,
    outlives_gate: bool,
    open: HashMap<u32, Book>,
    /// Sessions may have been taken in by their passes, beyond the cap.
    was_killed: bool,
}

struct Book {
    key: SessionKey,
    begun_us: u64,
    asked_us: u64,
    /// A visitor asks for one page at a time.
    answered_us: u64,
    /// By how much clocks went ahead with the restarts since it began.
    clock_jumps_us: u64,
}

impl Sessions {
    pub(super) fn new(processes: &[GateProcess]) -> Self {
        let of = processes.last().map(|process| &process.config.settings.session);
        let us = |time: std::time::Duration| time.as_micros() as u64 / 10 * 9;
        Self {
            timeout_us: of.map_or(0, |session| us(session.timeout)),
            max_age_us: of.map_or(0, |session| us(session.max_age)),
            outlives_gate: of.is_some_and(|s| s.key == tidegate_settings::SessionBy::Pass),
            open: HashMap::new(),
            was_killed: false,
        }
    }

    /// `clock_jump`: by how much the new process's clock is ahead of the old one's. Passes that the old one
    /// gave look older by that.
    pub(super) fn restarted(&mut self, clock_jump: Duration) {
        self.was_killed = true;
        let jump_us = clock_jump.as_micros() as u64;
        self.open.values_mut().for_each(|book| book.clock_jumps_us += jump_us);
        if !self.outlives_gate {
            self.open.clear();
        }
    }

    pub(super) fn over(&mut self, client: u32) {
        self.open.remove(&client);
    }

    fn begins(&mut self, client: u32, key: SessionKey, table: &Table, now_us: u64) -> Finding {
        self.open.insert(
            client,
            Book { key, begun_us: now_us, asked_us: now_us, answered_us: now_us, clock_jumps_us: 0 },
        );
        let state = table.state();
        for pool in state.pools.iter().filter(|_| state.readmitted == 0 && !self.was_killed) {
            // Of a cap that is found out: as it was when the slot was given, which is now.
            let cap = pool.cap.unwrap_or(u32::MAX);
            require(pool.open <= cap, "session", || {
                format!("{} sessions are open, expected at most {cap}", pool.open)
            })?;
        }
        Ok(())
    }

    fn asks(&mut self, client: u32, key: SessionKey, is_admitted: bool, now_us: u64) -> Finding {
        // A visitor who got no answer to the first request of a session has no pass of it, but may have an
        // old one.
        let Some(book) = self.open.get_mut(&client).filter(|book| book.key == key) else { return Ok(()) };
        // A new process knows of no answer.
        let last_us = if self.was_killed { book.asked_us } else { book.asked_us.max(book.answered_us) };
        let idle = now_us - last_us;
        book.asked_us = now_us;
        let (age, clock_jumps_us) = (now_us - book.begun_us, book.clock_jumps_us);
        if is_admitted {
            return Ok(());
        }
        self.open.remove(&client);
        // A pass is renewed when a quarter of its life is over: a new process knows no more of the last
        // request.
        let holds_us = if self.was_killed { self.timeout_us / 10 * 7 } else { self.timeout_us };
        let looks = |since_us: u64| since_us + clock_jumps_us;
        require(looks(idle) > holds_us || looks(age) > self.max_age_us, "session", || {
            format!(
                "visitor {client} has lost its session after {age} us, {idle} us after its last request or answer"
            )
        })
    }
}

impl Oracle {
    pub(crate) fn session_begins(
        &mut self,
        client: u32,
        key: SessionKey,
        process: &GateProcess,
        now_us: u64,
    ) {
        if let Some(table) = &process.sessions {
            self.apply(|oracle| oracle.sessions.begins(client, key, table, now_us));
        }
    }

    pub(crate) fn session_asks(&mut self, client: u32, key: SessionKey, is_admitted: bool, now_us: u64) {
        self.apply(|oracle| oracle.sessions.asks(client, key, is_admitted, now_us));
    }

    pub(crate) fn session_answered(&mut self, client: u32, now_us: u64) {
        if let Some(book) = self.sessions.open.get_mut(&client) {
            book.answered_us = now_us;
        }
    }

    pub(crate) fn session_over(&mut self, client: u32) {
        self.sessions.over(client);
    }

    pub(crate) fn session_refused(&mut self, client: u32, is_admitted: bool) {
        self.apply(|_| {
            require(!is_admitted, "session", || {
                format!("visitor {client}, whose session is admitted, is refused")
            })
        });
    }

    pub(crate) fn session_slots_left(&mut self, open: u64) {
        self.apply(|_| {
            require(open == 0, "session", || format!("{open} sessions are open long after the last request"))
        });
    }
}
