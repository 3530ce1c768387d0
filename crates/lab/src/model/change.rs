//! What changes a replica while it runs: speed, workers, errors, a crash, the weather.

use super::Model;
use super::slab::Line;

impl Model {
    /// From now on every server works at `speed` (1.0: as the spec says), also on what it has under way.
    ///
    /// # Panics
    /// The speed is not above zero: callers check what they read.
    pub fn set_speed(&mut self, speed: f64, now_us: u64) {
        assert!(speed > 0.0 && speed.is_finite(), "speed {speed}");
        self.tell(now_us);
        self.speed = speed;
        self.repace(now_us);
    }

    /// Changes the number of workers. More of them start on the backlog at once; of fewer, those too many end what they
    /// have first. A stage with as many servers as workers keeps it so.
    pub fn set_workers(&mut self, workers: u32, now_us: u64) {
        self.tell(now_us);
        self.workers = workers;
        let work = self.pace.work(now_us);
        for index in 0..self.stages.len() {
            if self.stages[index].follows_workers {
                self.stages[index].flush(&self.pace, now_us);
                self.stages[index].resize(workers, work);
                self.feed_servers(index, work);
            }
        }
        while self.in_service() < self.workers
            && let Some(slot) = self.waiting.pop(&mut self.jobs)
        {
            self.stats.in_service += 1;
            self.begin(slot, work);
        }
    }

    /// From now on this share of all requests is answered with an error, whatever their paths say. Those present keep
    /// their fate.
    pub fn set_errors(&mut self, share: f64, now_us: u64) {
        self.tell(now_us);
        self.fates.set_errors(share);
    }

    /// The process dies and is back at once, empty. Returns the ids of all requests present: they are lost.
    pub fn crash(&mut self, now_us: u64) -> Vec<u64> {
        self.tell(now_us);
        let work = self.pace.work(now_us);
        let slots: Vec<u32> = self.jobs.slots().collect();
        let lost = slots.iter().map(|slot| self.jobs.get(*slot).id).collect();
        slots.iter().for_each(|slot| self.jobs.remove(*slot));
        self.ends.clear();
        self.streams.clear();
        self.waiting = Line::default();
        self.stages.iter_mut().for_each(|stage| stage.empty(work));
        self.stats.lost += slots.len() as u64;
        (self.stats.in_service, self.stats.failing, self.stats.streaming) = (0, 0, 0);
        lost
    }

    /// Spells begin and end at `at_us`.
    pub(super) fn turn(&mut self, at_us: u64) {
        let Some(weather) = &mut self.weather else { return };
        weather.turn(at_us);
        self.repace(at_us);
    }

    /// When the weather changes; `u64::MAX`: never.
    pub(super) fn weather_us(&self) -> u64 {
        self.weather.as_ref().map_or(u64::MAX, |weather| weather.next_us())
    }

    fn repace(&mut self, now_us: u64) {
        let speed = self.speed * self.weather.as_ref().map_or(1.0, |weather| weather.factor());
        for stage in &mut self.stages {
            stage.flush(&self.pace, now_us);
        }
        self.pace.change(speed, now_us);
    }
}
