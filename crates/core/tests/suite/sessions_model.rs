//! The session table against a simple model: a map with deadlines, and a list of requests in progress.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::gate::Totals;
use tidegate_core::policies::TierId;
use tidegate_core::session::*;
use tidegate_core::units::{Cost, Rate, Timestamp};

const START: u64 = 1_800_000_000_000;
/// Longest time from a session's end until the tick finds it: a bucket of the wheel.
const FOUND_MS: u64 = 132;
const KEYS: usize = 24;

/// Some keys share a shard, and some the cell in which the search for them begins.
fn key(n: usize) -> SessionKey {
    let n = n as u128;
    SessionKey(match n % 3 {
        0 => n << 100,
        1 => n << 100 | n,
        _ => n << 40 | 7,
    })
}

fn ms(n: u64) -> Timestamp {
    Timestamp::from_millis(n)
}

#[derive(Clone, Debug)]
enum Op {
    Touch(usize),
    Admit(usize, u8),
    /// A session that began so many milliseconds ago.
    Readmit(usize, u8, u64),
    /// The n-th request in progress, modulo their number.
    Finish(usize),
    Void(usize),
    FinishAll,
    End(usize),
    /// By the response to the n-th request in progress.
    EndOf(usize),
    Leave(usize),
    /// By the response to the n-th request in progress, to this key.
    Rename(usize, usize),
    EndAll,
    Pass(u64),
    Tick,
    Configure(SessionConfig),
}

fn config() -> impl Strategy<Value = SessionConfig> {
    let cap = prop_oneof![Just(Cap::None), (0u32..12).prop_map(Cap::Fixed)];
    // Also longer than the wheel.
    let timeout = prop_oneof![1u64..2_000, Just(90_000)];
    (timeout, 1u64..200_000, cap, 3usize..40, 0u32..4, any::<bool>()).prop_map(
        |(timeout, max_age, cap, max_entries, own, remembers_ended)| SessionConfig {
            timeout: Duration::from_millis(timeout),
            max_age: Duration::from_millis(max_age),
            cap,
            max_entries,
            remembers_ended,
            pools: vec![(TierId(2), own)],
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    let key = || 0..KEYS;
    let tier = || prop::sample::select(vec![0u8, 2, 3]);
    prop_oneof![
        8 => key().prop_map(Op::Touch),
        8 => (key(), tier()).prop_map(|(k, tier)| Op::Admit(k, tier)),
        2 => (key(), tier(), 0u64..3_000).prop_map(|(k, tier, ago)| Op::Readmit(k, tier, ago)),
        8 => any::<usize>().prop_map(Op::Finish),
        2 => any::<usize>().prop_map(Op::Void),
        1 => Just(Op::FinishAll),
        2 => key().prop_map(Op::End),
        1 => any::<usize>().prop_map(Op::EndOf),
        1 => key().prop_map(Op::Leave),
        3 => (any::<usize>(), key()).prop_map(|(n, to)| Op::Rename(n, to)),
        1 => Just(Op::EndAll),
        6 => prop_oneof![0u64..300, 0u64..3_000, 60_000u64..200_000].prop_map(Op::Pass),
        4 => Just(Op::Tick),
        1 => config().prop_map(Op::Configure),
    ]
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Known {
    /// Unique among all sessions.
    id: u64,
    begun: u64,
    last: u64,
    requests: u32,
    is_open: bool,
    tier: u8,
}

struct Model {
    sessions: Sessions,
    config: SessionConfig,
    now: u64,
    /// When the configuration was last changed.
    configured: u64,
    known: HashMap<usize, Known>,
    ids: u64,
    /// Requests in progress, with the ids of their sessions.
    under_way: Vec<(SessionRequest, u64)>,
}

impl Model {
    fn new(config: SessionConfig) -> Self {
        let sessions = Sessions::new(&config, ms(START));
        let (known, under_way) = (HashMap::new(), Vec::new());
        Self { sessions, config, now: START, configured: START, known, ids: 0, under_way }
    }

    /// Requests in progress of a session.
    fn busy(&self, known: &Known) -> usize {
        self.under_way.iter().filter(|(_, id)| known.is_open && *id == known.id).count()
    }

    fn deadline(&self, known: &Known) -> u64 {
        let ms = |span: Duration| span.as_millis() as u64;
        let oldest = known.begun + ms(self.config.max_age);
        if self.busy(known) > 0 { oldest } else { (known.last + ms(self.config.timeout)).min(oldest) }
    }

    /// The key that a session is known by, if it is open.
    fn key_of(&mut self, id: u64) -> Option<usize> {
        let k = self.known.iter().find(|(_, known)| known.id == id && known.is_open).map(|(k, _)| *k)?;
        self.alive(k).is_some().then_some(k)
    }

    fn begins(&mut self, k: usize, under_way: Option<SessionRequest>) {
        self.under_way.extend(under_way.map(|request| (request, self.known[&k].id)));
    }

    fn insert(&mut self, k: usize, begun: u64, tier: u8) {
        self.ids += 1;
        let (id, last) = (self.ids, self.now);
        self.known.insert(k, Known { id, begun, last, requests: 1, is_open: true, tier });
    }

    /// Removes the n-th request in progress, and returns the key of its session if that is open.
    fn ending(&mut self, n: usize) -> Option<(SessionRequest, Option<usize>)> {
        let n = n.checked_rem(self.under_way.len())?;
        let k = self.key_of(self.under_way[n].1);
        Some((self.under_way.swap_remove(n).0, k))
    }

    fn finish(&mut self, n: usize) {
        let Some((under_way, k)) = self.ending(n) else { return };
        self.sessions.finish(under_way, ms(self.now));
        if let Some(known) = k.and_then(|k| self.known.get_mut(&k)) {
            known.last = self.now;
        }
    }

    fn void(&mut self, n: usize) {
        let Some((under_way, k)) = self.ending(n) else { return };
        self.sessions.void(under_way, ms(self.now));
        let Some(k) = k else { return };
        let known = self.known.get_mut(&k).unwrap();
        (known.requests, known.last) = (known.requests - 1, self.now);
        if known.requests == 0 {
            self.known.remove(&k);
        }
    }

    /// The session of a key unless it is over.
    fn alive(&mut self, k: usize) -> Option<&mut Known> {
        let is_over = self.now > self.deadline(self.known.get(&k)?);
        self.known.get_mut(&k).filter(|_| !is_over)
    }

    fn status(&mut self, k: usize) -> SessionStatus {
        match self.alive(k) {
            None => SessionStatus::New,
            Some(known) if known.is_open => SessionStatus::Admitted,
            Some(_) => SessionStatus::Ended,
        }
    }

    fn pool(&self, tier: u8) -> (u32, Option<u32>) {
        let state = self.sessions.state();
        let pool = state.pools.iter().find(|pool| pool.tier.0 == tier);
        pool.map_or((0, Some(0)), |pool| (pool.open, pool.cap))
    }

    fn has_slot(&self, tier: u8) -> bool {
        let free = |(open, cap): (u32, Option<u32>)| cap.is_none_or(|cap| open < cap);
        free(self.pool(0)) || tier != 0 && free(self.pool(tier))
    }

    fn apply(&mut self, op: Op) {
        let now = ms(self.now);
        match op {
            Op::Touch(k) => {
                let expected = self.status(k);
                assert_eq!(self.sessions.status(key(k), now), expected);
                let (status, under_way) = self.sessions.touch(key(k), Cost::ONE, now);
                assert_eq!((status, under_way.is_some()), (expected, expected == SessionStatus::Admitted));
                self.note(k);
                self.begins(k, under_way);
            }
            Op::Admit(k, tier) => self.admit(k, tier),
            Op::Readmit(k, tier, ago) => self.readmit(k, tier, self.now - ago),
            Op::Finish(n) => self.finish(n),
            Op::Void(n) => self.void(n),
            Op::FinishAll => (0..self.under_way.len()).for_each(|n| self.finish(n)),
            Op::End(k) => {
                let was_open = self.status(k) == SessionStatus::Admitted;
                assert_eq!(self.sessions.end(key(k), Ender::Origin, now), was_open);
                if was_open {
                    self.note_end(k);
                }
            }
            Op::EndOf(n) => {
                let Some(n) = n.checked_rem(self.under_way.len()) else { return };
                let k = self.key_of(self.under_way[n].1);
                let has_ended = self.sessions.end_of(&mut self.under_way[n].0, Ender::Origin, now);
                assert_eq!(has_ended, k.is_some());
                k.into_iter().for_each(|k| self.note_end(k));
            }
            Op::Leave(k) => {
                let was_open = self.status(k) == SessionStatus::Admitted;
                assert_eq!(self.sessions.leave(key(k), now), was_open);
                if was_open {
                    self.known.remove(&k);
                }
            }
            Op::Rename(n, to) => self.rename(n, to),
            Op::EndAll => {
                self.sessions.end_all(now);
                let open: Vec<usize> =
                    self.known.iter().filter(|(_, known)| known.is_open).map(|(k, _)| *k).collect();
                open.into_iter().for_each(|k| self.note_end(k));
            }
            Op::Pass(by) => self.now += by,
            Op::Tick => self.tick(),
            Op::Configure(config) => {
                self.forget();
                self.sessions.configure(&config, now);
                (self.config, self.configured) = (config, self.now);
            }
        }
        self.check();
    }

    /// Removes sessions that are over, so that another configuration does not revive them.
    fn forget(&mut self) {
        let (keys, now) = (self.known.keys().copied().collect::<Vec<_>>(), ms(self.now));
        for k in keys {
            if self.alive(k).is_none() {
                assert_eq!(self.sessions.touch(key(k), Cost::ONE, now), (SessionStatus::New, None));
                self.known.remove(&k);
            }
        }
    }

    fn note_end(&mut self, k: usize) {
        if self.config.remembers_ended {
            let was_busy = self.busy(&self.known[&k]) > 0;
            let known = self.known.get_mut(&k).unwrap();
            known.is_open = false;
            if was_busy {
                known.last = self.now;
            }
        } else {
            self.known.remove(&k);
        }
    }

    fn note(&mut self, k: usize) {
        let now = self.now;
        if let Some(known) = self.alive(k).filter(|known| known.is_open) {
            known.last = known.last.max(now);
            known.requests += 1;
        }
    }

    /// A request that ends at once; it removes the session if that is over.
    fn find(&mut self, k: usize) {
        if let (_, Some(under_way)) = self.sessions.touch(key(k), Cost::ZERO, ms(self.now)) {
            self.sessions.finish(under_way, ms(self.now));
        }
        self.note(k);
    }

    fn admit(&mut self, k: usize, tier: u8) {
        let status = self.status(k);
        self.find(k);
        let has_slot = self.has_slot(tier);
        assert!(!has_slot || self.sessions.has_slot(TierId(tier)));
        let is_full = self.sessions.state().entries >= self.config.max_entries as u64;
        let expected = match status {
            SessionStatus::Admitted => Ok(()),
            SessionStatus::New if is_full => Err(NoSessionSlot::TableFull),
            _ if has_slot => Ok(()),
            _ => Err(NoSessionSlot::Taken),
        };
        let admitted = self.sessions.admit(key(k), TierId(tier), Cost::ONE, ms(self.now));
        assert_eq!(admitted.as_ref().map(|_| ()).map_err(|e| *e), expected);
        match status {
            SessionStatus::Admitted => self.note(k),
            _ if expected.is_ok() => self.insert(k, self.now, tier),
            _ => {}
        }
        self.begins(k, admitted.ok());
    }

    fn readmit(&mut self, k: usize, tier: u8, first: u64) {
        let status = self.status(k);
        self.find(k);
        let is_full = self.sessions.state().entries >= self.config.max_entries as u64;
        let is_too_old = self.now - first > self.config.max_age.as_millis() as u64;
        let expected = match status {
            SessionStatus::Admitted => true,
            SessionStatus::Ended => false,
            SessionStatus::New => !is_full && !is_too_old,
        };
        let readmitted = self.sessions.readmit(key(k), TierId(tier), ms(first), ms(self.now));
        assert_eq!(readmitted.is_some(), expected);
        match status {
            SessionStatus::New if expected => self.insert(k, first, tier),
            _ => self.note(k),
        }
        self.begins(k, readmitted);
    }

    fn rename(&mut self, n: usize, to: usize) {
        let Some(n) = n.checked_rem(self.under_way.len()) else { return };
        let id = self.under_way[n].1;
        let from = self.key_of(id);
        assert_eq!(self.sessions.rename(&mut self.under_way[n].0, key(to), ms(self.now)), from.is_some());
        let Some(from) = from.filter(|from| *from != to) else { return };
        assert_eq!(self.under_way[n].0.key(), key(to));
        let moved = self.known.remove(&from).unwrap();
        let Some(other) = self.alive(to).map(|known| known.id) else {
            self.known.insert(to, moved);
            return;
        };
        let all = self.under_way.iter_mut();
        all.filter(|(_, id)| *id == moved.id).for_each(|(_, id)| *id = other);
    }

    fn tick(&mut self) {
        let gate = Totals::default();
        let seen = SessionInputs { capacity: Rate::MAX, is_measured: true, gate: &gate, waiting: 0 };
        self.sessions.tick(&seen, ms(self.now));
        let lately = |known: &&Known| self.now <= self.deadline(known).max(self.configured) + FOUND_MS;
        let open = self.known.values().filter(lately).filter(|known| known.is_open).count() as u64;
        assert!(self.sessions.count().open <= open, "a session that is over was not found");
        let entries = self.known.values().filter(lately).count() as u64;
        assert!(self.sessions.state().entries <= entries, "a session that is over was not forgotten");
    }

    fn check(&mut self) {
        let state = self.sessions.state();
        assert_eq!(state.count.begun + state.readmitted, state.count.open + state.ended.sum());
        let open: u64 = state.pools.iter().map(|pool| u64::from(pool.open)).sum();
        assert_eq!(open, state.count.open);
        let alive: Vec<usize> = (0..KEYS).filter(|k| self.status(*k) == SessionStatus::Admitted).collect();
        assert!(alive.len() as u64 <= open, "an open session has no slot");
        let mut listed = HashMap::new();
        let mut page = SessionPage { next: Some(0), ..SessionPage::default() };
        while let Some(from) = page.next {
            page = self.sessions.list(from, 3);
            assert!(page.sessions.len() <= 3);
            listed.extend(page.sessions.iter().map(|line| (line.key, *line)));
        }
        assert_eq!(listed.len() as u64, open, "listed and counted");
        let keys: HashSet<SessionKey> = listed.keys().copied().collect();
        for k in alive {
            assert!(keys.contains(&key(k)));
            let (line, known) = (listed[&key(k)], self.known[&k]);
            assert_eq!((line.begun, line.last), (ms(known.begun), ms(known.last)));
            assert_eq!((line.requests, line.tier.0), (known.requests, known.tier));
            assert_eq!(usize::from(line.under_way), self.busy(&known));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn the_table_does_as_the_model(config in config(), ops in prop::collection::vec(op(), 1..120)) {
        let mut model = Model::new(config);
        ops.into_iter().for_each(|op| model.apply(op));
    }
}
