//! A detector with counters and a clock that the test sets.

use std::time::Duration;

use tidegate_core::detect::{
    Common, Criterion, DetectorInputs, JudgeConfig, Judgement, Level, Limit, Reading, Resource, Sampling,
    SessionCount,
};
use tidegate_core::measure::{Event, Shard, Snapshot};
use tidegate_core::units::{ClassId, Timestamp};

pub const TICK: Duration = Duration::from_millis(100);

pub fn secs(s: f64) -> Duration {
    Duration::from_secs_f64(s)
}

pub fn fixed(orange: f64, red: f64) -> JudgeConfig {
    JudgeConfig { limit: Limit::Fixed { orange: Some(orange), red }, hysteresis: 0.1, calm: Duration::ZERO }
}

/// A period of one second, checked on every tick with an event, valid for five seconds.
pub fn common(judge: JudgeConfig) -> Common {
    Common { period: secs(1.0), sampling: Sampling::OneIn(1), judge, time_to_live: secs(5.0) }
}

pub struct Bench {
    pub now: Timestamp,
    pub shard: Shard,
    pub connections: u64,
    pub sessions: Option<SessionCount>,
    pub readings: Vec<Option<Reading>>,
    pub detector: Box<dyn Resource + Send>,
}

impl Bench {
    pub fn new(criterion: Criterion, common: &Common) -> Self {
        Self {
            now: Timestamp::from_secs(1_800_000_000),
            shard: Shard::new(2),
            connections: 0,
            sessions: None,
            readings: vec![None],
            detector: criterion.detector(common),
        }
    }

    /// Time passes, and the detector is updated.
    pub fn tick(&mut self, span: Duration) -> Judgement {
        self.now = self.now + span;
        let snapshot = Snapshot::take([&self.shard], self.now);
        self.detector.update(
            &DetectorInputs::new(&snapshot, self.connections, self.sessions, &self.readings),
            self.now,
        );
        let verdict = self.detector.verdict();
        assert_eq!(self.detector.congestion(), verdict.congestion());
        verdict
    }

    pub fn level(&mut self, span: Duration) -> Level {
        self.tick(span).level
    }

    pub fn arrive(&self, class: u8, n: usize) {
        (0..n).for_each(|_| self.shard.arrived(ClassId(class)));
    }

    pub fn serve(&self, class: u8, ms: u64) {
        self.shard.took(ClassId(class), true, Duration::from_millis(ms));
    }

    pub fn fail(&self, class: u8, ms: u64) {
        self.shard.took(ClassId(class), false, Duration::from_millis(ms));
    }

    pub fn connect(&self, n: u64) {
        self.shard.count_many(Event::Connections, n);
    }

    pub fn read(&mut self, value: f64, good_for: Duration) {
        let number = self.readings[0].map_or(0, |reading| reading.number + 1);
        self.readings[0] = Some(Reading { value, at: self.now, good_for, number });
    }

    /// Runs for `span`, calling `each` before every tick.
    pub fn run(&mut self, span: Duration, mut each: impl FnMut(&mut Self)) -> Judgement {
        let mut last = self.detector.verdict();
        for _ in 0..(span.as_micros() / TICK.as_micros()) {
            each(self);
            last = self.tick(TICK);
        }
        last
    }
}
