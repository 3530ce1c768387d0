//! Defaults of a scenario.

use super::{Discipline, Errors, Follow, Kind, Mode, OriginSpec, PathSpec, Stage, Step};
use crate::dist::Dist;

impl Default for Kind {
    /// Somebody at a browser. Nielsen puts the limit of attention at ten seconds; with nothing but a blank
    /// page to look at, half of that, give or take half. A reload follows within a second or two.
    fn default() -> Self {
        Self {
            name: "visitor".into(),
            weight: 1.0,
            steps: vec![Step::default()],
            patience: Dist::Uniform(2.5, 7.5),
            wait_limit: Dist::Never,
            retries: 2,
            pause: Dist::Uniform(0.5, 1.5),
            no_show: 0.0,
            early: 0.0,
            late: 0.0,
            late_by: Dist::Exponential(10.0),
            follow: Follow::Page,
            cookies: true,
            browser: true,
            tamper: 0.0,
            replay: 0.0,
            tier: String::new(),
            until: None,
            sessions: None,
        }
    }
}

impl Default for Step {
    /// The front page, and on at once.
    fn default() -> Self {
        Self {
            method: "GET".into(),
            path: "/".into(),
            form: None,
            think: Dist::Fixed(0.0),
            weight: None,
            parts: 0,
            part: "/static/{n}".into(),
            of_type: String::new(),
            costly: false,
        }
    }
}

impl Default for OriginSpec {
    /// WebQ's server (section VI-B): ten workers at 100 ms, so 100 requests per second. A backlog of 128 is
    /// what servers get from `listen` unless they ask for more.
    fn default() -> Self {
        Self {
            workers: 10,
            backlog: 128,
            contention: 0.01,
            replicas: 1,
            mode: Mode::Sleep,
            stages: vec![Stage::new("app", 10)],
            paths: vec![PathSpec { demand: vec![(0, Dist::Fixed(0.1))], ..PathSpec::default() }],
            notices_leavers: false,
            pause: None,
            neighbour: None,
            changes: Vec::new(),
            shop: None,
        }
    }
}

impl Stage {
    /// First come, first served.
    pub fn new(name: &str, servers: u32) -> Self {
        Self { name: name.into(), servers, discipline: Discipline::Fifo }
    }
}

impl Default for PathSpec {
    fn default() -> Self {
        Self {
            path: "**".into(),
            demand: Vec::new(),
            body_bytes: DEFAULT_BODY_BYTES,
            stream: None,
            errors: Errors::default(),
        }
    }
}

impl Default for Errors {
    /// None. An error that costs no work is an answer of a millisecond.
    fn default() -> Self {
        Self { share: 0.0, demand: Dist::Fixed(0.001), status: 500 }
    }
}

/// Length of an answer for which the scenario says none, in bytes: the smallest of real pages.
pub const DEFAULT_BODY_BYTES: usize = 400;
