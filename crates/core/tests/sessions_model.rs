//! The table of sessions against a model that has no cleverness: a map and its deadlines.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::gate::Totals;
use tidegate_core::orders::TierId;
use tidegate_core::session::*;
use tidegate_core::units::{Cost, Rate, Timestamp};

const START: u64 = 1_800_000_000_000;
/// Longest time from a session's end until the tick has found it: a bucket of the wheel.
const FOUND_MS: u64 = 132;
const KEYS: usize = 24;

/// Some share a shard, and some the cell in which the search for them begins.
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
    /// Begun so many milliseconds ago.
    Readmit(usize, u8, u64),
    Void(usize),
    End(usize),
    Leave(usize),
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
        2 => key().prop_map(Op::Void),
        2 => key().prop_map(Op::End),
        1 => key().prop_map(Op::Leave),
        1 => (key(), key()).prop_map(|(a, b)| Op::Rename(a, b)),
        1 => Just(Op::EndAll),
        6 => prop_oneof![0u64..300, 0u64..3_000, 60_000u64..200_000].prop_map(Op::Pass),
        4 => Just(Op::Tick),
        1 => config().prop_map(Op::Configure),
    ]
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Known {
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
    /// When the set-up was last changed.
    configured: u64,
    known: HashMap<usize, Known>,
}

impl Model {
    fn new(config: SessionConfig) -> Self {
        let sessions = Sessions::new(&config, ms(START));
        Self { sessions, config, now: START, configured: START, known: HashMap::new() }
    }

    fn deadline(&self, known: &Known) -> u64 {
        let ms = |span: Duration| span.as_millis() as u64;
        (known.last + ms(self.config.timeout)).min(known.begun + ms(self.config.max_age))
    }

    /// Whoever is over is nobody.
    fn alive(&mut self, k: usize) -> Option<&mut Known> {
        let is_over = self.now > self.deadline(self.known.get(&k)?);
        self.known.get_mut(&k).filter(|_| !is_over)
    }

    fn standing(&mut self, k: usize) -> Standing {
        match self.alive(k) {
            None => Standing::New,
            Some(known) if known.is_open => Standing::Admitted,
            Some(_) => Standing::Ended,
        }
    }

    fn pool(&self, tier: u8) -> (u32, Option<u32>) {
        let state = self.sessions.state();
        let pool = state.pools.iter().find(|pool| pool.tier.0 == tier);
        pool.map_or((0, Some(0)), |pool| (pool.open, pool.cap))
    }

    fn has_place(&self, tier: u8) -> bool {
        let free = |(open, cap): (u32, Option<u32>)| cap.is_none_or(|cap| open < cap);
        free(self.pool(0)) || tier != 0 && free(self.pool(tier))
    }

    fn apply(&mut self, op: Op) {
        let now = ms(self.now);
        match op {
            Op::Touch(k) => {
                let expected = self.standing(k);
                assert_eq!(self.sessions.standing(key(k), now), expected);
                assert_eq!(self.sessions.touch(key(k), Cost::ONE, now), expected);
                self.note(k);
            }
            Op::Admit(k, tier) => self.admit(k, tier),
            Op::Readmit(k, tier, ago) => self.readmit(k, tier, self.now - ago),
            Op::Void(k) => {
                self.sessions.void(key(k), now);
                if self.standing(k) == Standing::Admitted {
                    let known = self.alive(k).unwrap();
                    known.requests = known.requests.max(1) - 1;
                    if known.requests == 0 {
                        self.known.remove(&k);
                    }
                }
            }
            Op::End(k) => {
                let was_open = self.standing(k) == Standing::Admitted;
                assert_eq!(self.sessions.end(key(k), Ender::Origin, now), was_open);
                if was_open {
                    self.note_end(k);
                }
            }
            Op::Leave(k) => {
                let was_open = self.standing(k) == Standing::Admitted;
                assert_eq!(self.sessions.leave(key(k), now), was_open);
                if was_open {
                    self.known.remove(&k);
                }
            }
            Op::Rename(from, to) => self.rename(from, to),
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

    /// Those that are over now; another configuration does not call them back.
    fn forget(&mut self) {
        let (keys, now) = (self.known.keys().copied().collect::<Vec<_>>(), ms(self.now));
        for k in keys {
            if self.alive(k).is_none() {
                self.sessions.touch(key(k), Cost::ONE, now);
                self.known.remove(&k);
            }
        }
    }

    fn note_end(&mut self, k: usize) {
        if self.config.remembers_ended {
            self.known.get_mut(&k).unwrap().is_open = false;
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

    fn admit(&mut self, k: usize, tier: u8) {
        let standing = self.standing(k);
        // Found only now that it is over, if it is.
        self.sessions.touch(key(k), Cost::ZERO, ms(self.now));
        self.note(k);
        let has_place = self.has_place(tier);
        assert!(!has_place || self.sessions.has_place(TierId(tier)));
        let is_full = self.sessions.state().entries >= self.config.max_entries as u64;
        let expected = match standing {
            Standing::Admitted => Ok(()),
            Standing::New if is_full => Err(NoPlace::TableFull),
            _ if has_place => Ok(()),
            _ => Err(NoPlace::Taken),
        };
        assert_eq!(self.sessions.admit(key(k), TierId(tier), Cost::ONE, ms(self.now)), expected);
        match standing {
            Standing::Admitted => self.note(k),
            _ if expected.is_ok() => {
                let (begun, last) = (self.now, self.now);
                self.known.insert(k, Known { begun, last, requests: 1, is_open: true, tier });
            }
            _ => {}
        }
    }

    fn readmit(&mut self, k: usize, tier: u8, first: u64) {
        let standing = self.standing(k);
        self.sessions.touch(key(k), Cost::ZERO, ms(self.now));
        self.note(k);
        let is_full = self.sessions.state().entries >= self.config.max_entries as u64;
        let is_too_old = self.now - first > self.config.max_age.as_millis() as u64;
        let expected = match standing {
            Standing::Admitted => true,
            Standing::Ended => false,
            Standing::New => !is_full && !is_too_old,
        };
        assert_eq!(self.sessions.readmit(key(k), TierId(tier), ms(first), ms(self.now)), expected);
        match standing {
            Standing::New if expected => {
                self.known
                    .insert(k, Known { begun: first, last: self.now, requests: 1, is_open: true, tier });
            }
            _ => {
                let now = self.now;
                if let Some(known) = self.alive(k).filter(|known| known.is_open) {
                    known.last = now;
                }
            }
        }
    }

    fn rename(&mut self, from: usize, to: usize) {
        let was_open = self.standing(from) == Standing::Admitted;
        assert_eq!(self.sessions.rename(key(from), key(to), ms(self.now)), was_open);
        if was_open && from != to {
            let moved = self.known.remove(&from).unwrap();
            if self.alive(to).is_none() {
                self.known.insert(to, moved);
            }
        }
    }

    fn tick(&mut self) {
        let gate = Totals::default();
        let seen = SessionsSeen { capacity: Rate::MAX, is_measured: true, gate: &gate, waiting: 0 };
        self.sessions.tick(&seen, ms(self.now));
        let lately = |known: &&Known| self.now <= self.deadline(known).max(self.configured) + FOUND_MS;
        let open = self.known.values().filter(lately).filter(|known| known.is_open).count() as u64;
        assert!(self.sessions.count().open <= open, "somebody is over and was not found");
        let entries = self.known.values().filter(lately).count() as u64;
        assert!(self.sessions.state().entries <= entries, "somebody is over and was not forgotten");
    }

    fn check(&mut self) {
        let state = self.sessions.state();
        assert_eq!(state.count.begun + state.readmitted, state.count.open + state.ended.sum());
        let open: u64 = state.pools.iter().map(|pool| u64::from(pool.open)).sum();
        assert_eq!(open, state.count.open);
        let alive: Vec<usize> = (0..KEYS).filter(|k| self.standing(*k) == Standing::Admitted).collect();
        assert!(alive.len() as u64 <= open, "an open session has no place");
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
