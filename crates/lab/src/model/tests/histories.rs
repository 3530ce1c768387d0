//! The rules together, under random histories.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::rules::tiers;
use crate::model::*;
use crate::scenario::{Discipline, Spell};

/// An event of a replica.
#[derive(Clone, Debug)]
enum Op {
    Submit { path: usize },
    Leave { which: usize },
    Advance { us: u64 },
    ToNext,
    Speed(f64),
    Workers(u32),
    Errors(f64),
    Crash,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0..4usize).prop_map(|path| Op::Submit { path }),
        2 => any::<usize>().prop_map(|which| Op::Leave { which }),
        4 => (0..3000u64).prop_map(|us| Op::Advance { us }),
        4 => Just(Op::ToNext),
        1 => (0.1..4.0).prop_map(Op::Speed),
        1 => (0..6u32).prop_map(Op::Workers),
        1 => (0.0..1.0).prop_map(Op::Errors),
        1 => Just(Op::Crash),
    ]
}

/// The spec's parts beside workers and lines.
#[derive(Clone, Copy, Debug)]
struct Extras {
    app_is_shared: bool,
    db_is_shared: bool,
    disturbed: bool,
    streams: bool,
}

fn extras() -> impl Strategy<Value = Extras> {
    any::<[bool; 4]>().prop_map(|[app_is_shared, db_is_shared, disturbed, streams]| Extras {
        app_is_shared,
        db_is_shared,
        disturbed,
        streams,
    })
}

/// A history and what must be true of it.
struct History {
    model: Model,
    now: u64,
    /// Requests whose end is still to come: id, when they came, whether their visitor has left.
    present: BTreeMap<u64, (u64, bool)>,
    tickets: Vec<(u64, Ticket)>,
    next: u64,
    most_workers: u32,
    db_servers: u32,
}

impl History {
    fn new(notices_leavers: bool, db_servers: u32, extras: Extras) -> Self {
        let demands =
            |app: &str, db: &str| vec![(0, app.parse().expect("a time")), (1, db.parse().expect("a time"))];
        let path = |demand| PathSpec { path: "/**".into(), demand, body_bytes: 0, ..PathSpec::default() };
        let spec = OriginSpec {
            paths: vec![
                path(demands("1ms", "exponential(2ms)")),
                path(vec![(1, "uniform(0, 1ms)".parse().expect("a time")), (1, Dist::Fixed(0.0))]),
                path(Vec::new()),
                path(demands("exponential(1ms)", "1500us")),
            ],
            contention: 0.1,
            notices_leavers,
            ..tiers(3, 0.0, db_servers, 0.0)
        };
        let mut spec = OriginSpec { backlog: 4, ..spec };
        let discipline = |shared| if shared { Discipline::Sharing } else { Discipline::Fifo };
        spec.stages[0].discipline = discipline(extras.app_is_shared);
        spec.stages[1].discipline = discipline(extras.db_is_shared);
        if extras.disturbed {
            let dist = |text: &str| text.parse::<Dist>().expect("a time");
            let spell =
                |speed| Spell { every: dist("exponential(9ms)"), lasts: dist("uniform(0, 4ms)"), speed };
            (spec.pause, spec.neighbour) = (Some(spell(0.0)), Some(spell(0.3)));
        }
        if extras.streams {
            spec.paths[0].stream = Some(Dist::Exponential(0.003));
            spec.paths[2].stream = Some(Dist::Uniform(0.0, 0.001));
        }
        Self {
            model: Model::new(&spec, 7),
            now: 0,
            present: BTreeMap::new(),
            tickets: Vec::new(),
            next: 0,
            most_workers: 3,
            db_servers,
        }
    }

    fn advance(&mut self, to: u64) {
        let (mut last, present) = (0, &mut self.present);
        self.model.advance(to, &mut |done| {
            let (came, left) = match done.part {
                Part::Head { .. } => present[&done.id],
                _ => present.remove(&done.id).expect("present, and over only once"),
            };
            assert_eq!(done.wasted, left);
            assert!(done.at_us >= came && done.at_us >= last && done.at_us <= to, "{done:?}");
            last = done.at_us;
        });
        self.now = to;
    }

    fn play(&mut self, op: &Op) {
        let now = self.now;
        match *op {
            Op::Submit { path } => {
                let id = self.next;
                self.next += 1;
                if let Ok(ticket) = self.model.submit(id, path, now) {
                    self.present.insert(id, (now, false));
                    self.tickets.push((id, ticket));
                }
            }
            Op::Leave { which } if !self.tickets.is_empty() => {
                let (id, ticket) = self.tickets[which % self.tickets.len()];
                let to_come = self.model.leave(ticket, now);
                if to_come {
                    self.present.get_mut(&id).expect("present").1 = true;
                } else {
                    self.present.remove(&id);
                }
            }
            Op::Leave { .. } => {}
            Op::Advance { us } => self.advance(now + us),
            Op::ToNext => self.advance(self.model.next_event().unwrap_or(now)),
            Op::Speed(speed) => self.model.set_speed(speed, now),
            Op::Workers(workers) => {
                self.model.set_workers(workers, now);
                self.most_workers = self.most_workers.max(workers);
            }
            Op::Errors(share) => self.model.set_errors(share, now),
            Op::Crash => {
                let mut lost = self.model.crash(now);
                lost.sort_unstable();
                assert!(lost.into_iter().eq(std::mem::take(&mut self.present).into_keys()));
            }
        }
    }

    fn check(&self) {
        let stats = self.model.stats();
        assert!(stats.adds_up(), "{stats:?}");
        assert_eq!(stats.submitted, self.next);
        assert_eq!(stats.present(), self.present.len());
        assert!(stats.queued <= 4 && stats.in_service <= self.most_workers as usize, "{stats:?}");
        let workers = self.model.workers() as usize;
        assert!(stats.queued == 0 || stats.in_service >= workers, "an idle worker while somebody waits");
        let stages = self.model.stages();
        for stage in &stages {
            assert!(stage.queued == 0 || stage.busy >= stage.servers, "an idle server: {stage:?}");
        }
        assert!(stages[1].busy <= self.db_servers);
        assert_eq!(stages[0].servers, self.model.workers(), "the application follows the workers");
        let all: u64 = stages[1].busy_us.iter().chain(&stages[1].idle_us).sum();
        // Each figure is rounded down to a microsecond.
        let slack = 2 * u64::from(self.db_servers);
        assert!(all.abs_diff(self.now * u64::from(self.db_servers)) <= slack, "{stages:?}");
    }
}

proptest! {
    #[test]
    fn every_request_is_somewhere(
        ops in prop::collection::vec(op(), 1..200),
        notices_leavers: bool,
        db_servers in 1..4u32,
        extras in extras(),
    ) {
        // Three workers at first: three database servers would follow them.
        let mut history = History::new(notices_leavers, if db_servers == 3 { 4 } else { db_servers }, extras);
        for op in &ops {
            history.play(op);
            history.check();
        }
        history.model.set_workers(2, history.now);
        while let Some(next) = history.model.next_event() {
            history.advance(next);
            history.check();
        }
        prop_assert_eq!(history.model.stats().present(), 0, "everything ends");
    }
}
