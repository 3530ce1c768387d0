//! Origins and crowds drawn from a seed, so that a law is judged on what nobody tuned it on.
//!
//! | what | range |
//! |---|---|
//! | servers in all (the knee) | 1 to 60, evenly in the logarithm |
//! | replicas | one; with 4 or more servers in a third of the cases 2 to 4 |
//! | mean service | 5 ms to 1.4 s, evenly in the logarithm |
//! | kind of service | fixed, normal, uniform, exponential, lognormal, bimodal, classes of different cost |
//! | discipline | three in ten share the processor, the others serve in turn |
//! | contention | half none, the others 0 to 1.5 |
//! | course | nothing, slower, faster, wobbling, stolen CPU, pauses, correlated service, replicas leave or join |
//! | crowd | 1.15 to 4 times what the origin can serve at its fastest |
//! | visitors | three in ten give up and try again |
//! | length | 60 or 150 s; above 1,000 requests per second 20 to 60 s |
//!
//! A seed is the whole of an origin, and draws the same on every machine. The experiment's file says which
//! seeds are for tuning and which are reported.

use super::Setting;
use crate::split_mix::{GOLDEN, mix};

/// Capacity above which a run is shorter, in requests per second: a run of 150 s at 12,000 would take longer
/// than all others of a table together.
const FAST: f64 = 1_000.0;
/// Requests of such a run, about.
const FAST_REQUESTS: f64 = 60_000.0;
/// Requests that may be present at once where they share a processor: no bound that a law ever meets.
const SHARED_PLACES: u32 = 4_000;

/// The origin and the crowd of a seed.
pub fn drawn(seed: u64) -> Setting {
    let mut dice = Dice(mix(seed));
    let origin = Origin::draw(&mut dice);
    let crowd = Crowd::draw(&mut dice, &origin);
    let about = format!("{}; {}", origin.about(), crowd.about);
    let set = origin.keys(&crowd).into_iter().chain(crowd.keys);
    let set = set.map(|(key, value)| (key.to_owned(), value)).collect();
    Setting { name: format!("drawn-{seed}"), about, set }
}

/// Evenly distributed numbers from a counter.
struct Dice(u64);

impl Dice {
    /// From 0 to 1, without 1.
    fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        (mix(self.0) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn within(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.share()
    }

    /// From `low` to `high`, with an evenly distributed logarithm.
    fn scale(&mut self, low: f64, high: f64) -> f64 {
        self.within(low.ln(), high.ln()).exp()
    }

    fn chance(&mut self, share: f64) -> bool {
        self.share() < share
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[(self.share() * of.len() as f64) as usize]
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Service {
    Fixed,
    Normal,
    Uniform,
    Exponential,
    Lognormal,
    Bimodal,
    Classes,
}

#[derive(Clone, Copy, PartialEq)]
enum Event {
    Nothing,
    Slower,
    Faster,
    Wobbling,
    StolenCpu,
    Pauses,
    Correlated,
    ReplicasChange,
}

struct Origin {
    workers: u32,
    replicas: u32,
    service_s: f64,
    kind: Service,
    /// From 0 to 1: how much the service times vary, within what their kind allows.
    shape: f64,
    shares_cpu: bool,
    contention: f64,
    event: Event,
    lasts_s: f64,
    /// `origin.change` as TOML.
    changes: Vec<String>,
    spell: Option<(&'static str, String)>,
}

impl Origin {
    fn draw(dice: &mut Dice) -> Self {
        use {Event as E, Service as S};
        let servers = dice.scale(0.8, 60.4).round().max(1.0);
        let service_s = dice.scale(0.005, 1.4);
        let kinds = [S::Fixed, S::Normal, S::Uniform, S::Exponential, S::Lognormal, S::Bimodal, S::Classes];
        let kind = dice.pick(&kinds);
        let shape = dice.share();
        let shares_cpu = dice.chance(0.3);
        let contention = if dice.chance(0.5) { 0.0 } else { dice.within(0.0, 1.5) };
        let events = [
            E::Nothing,
            E::Slower,
            E::Faster,
            E::Wobbling,
            E::StolenCpu,
            E::Pauses,
            E::Correlated,
            E::ReplicasChange,
        ];
        let event = match dice.pick(&events) {
            // Fewer are one replica, which cannot leave.
            E::ReplicasChange if servers < 4.0 => E::Nothing,
            event => event,
        };
        let splits = servers >= 4.0 && (event == E::ReplicasChange || dice.chance(0.33));
        let replicas = if splits { dice.pick(&[2.0, 3.0, 4.0]) } else { 1.0 };
        let workers = (servers / replicas).round();
        let capacity = workers * replicas / service_s;
        let lasts_s = dice.pick(&[60.0, 150.0]);
        let lasts_s = if capacity > FAST { (FAST_REQUESTS / capacity).max(20.0) } else { lasts_s };
        let mut origin = Self {
            workers: workers as u32,
            replicas: replicas as u32,
            service_s,
            kind,
            shape,
            shares_cpu,
            // Those who share the processor are all in service: nobody waits for a worker.
            contention: if shares_cpu { 0.0 } else { contention },
            event,
            lasts_s: lasts_s.round(),
            changes: Vec::new(),
            spell: None,
        };
        origin.draw_event(dice);
        origin
    }

    fn draw_event(&mut self, dice: &mut Dice) {
        let middle_s = (self.lasts_s * dice.within(0.35, 0.6)).round();
        let speed = |at: f64, speed: f64| format!("{{ at = \"{at}s\", speed = {speed:.3} }}");
        match self.event {
            Event::Nothing => {}
            Event::Slower => self.changes.push(speed(middle_s, dice.within(0.3, 0.8))),
            Event::Faster => {
                let before = dice.within(0.3, 0.8);
                self.changes = vec![speed(0.0, before), speed(middle_s, 1.0)];
            }
            Event::Wobbling => {
                let (least, step_s) = (dice.within(0.5, 0.85), dice.within(4.0, 15.0));
                let times = (self.lasts_s / step_s) as usize;
                let change = |i: usize| speed((i as f64 * step_s).round(), dice.within(least, 1.0));
                self.changes = (1..times).map(change).collect();
            }
            Event::StolenCpu => {
                let (lasts_s, left) = (dice.within(3.0, 15.0), dice.within(0.6, 0.8));
                self.spell("neighbour", lasts_s * dice.within(2.0, 4.0), lasts_s, Some(left));
            }
            Event::Pauses => self.spell("pause", dice.within(3.0, 12.0), dice.within(0.1, 0.5), None),
            Event::Correlated => {
                let lasts_s = (self.service_s * dice.within(2.0, 10.0)).max(0.05);
                self.spell("neighbour", lasts_s * 2.0, lasts_s, Some(dice.within(0.4, 0.8)));
            }
            Event::ReplicasChange => {
                let less = (self.replicas - 1).max(1);
                let at = |at: f64, replicas: u32| format!("{{ at = \"{at}s\", replicas = {replicas} }}");
                let leaves = dice.chance(0.5);
                let joins = || vec![at(0.0, less), at(middle_s, self.replicas)];
                self.changes = if leaves { vec![at(middle_s, less)] } else { joins() };
            }
        }
    }

    fn spell(&mut self, what: &'static str, every_s: f64, lasts_s: f64, speed: Option<f64>) {
        let speed = speed.map(|speed| format!(", speed = {speed:.3}")).unwrap_or_default();
        let every = format!("exponential({every_s:.3}s)");
        let lasts = format!("uniform({:.3}s, {:.3}s)", 0.5 * lasts_s, 1.5 * lasts_s);
        self.spell = Some((what, format!("{{ every = \"{every}\", lasts = \"{lasts}\"{speed} }}")));
    }

    /// Requests per second at the greatest speed, about.
    fn capacity(&self) -> f64 {
        f64::from(self.workers * self.replicas) / self.service_s
    }

    /// The distribution of the service times, as a scenario writes it.
    fn service(&self, mean_s: f64) -> String {
        let ms = mean_s * 1e3;
        match self.kind {
            Service::Fixed => format!("{ms:.3}ms"),
            Service::Normal | Service::Classes => {
                format!("normal({ms:.3}ms, {:.3}ms)", (0.05 + 0.35 * self.shape) * ms)
            }
            Service::Uniform => {
                let half = (0.3 + 0.6 * self.shape) * ms;
                format!("uniform({:.3}ms, {:.3}ms)", ms - half, ms + half)
            }
            Service::Exponential => format!("exponential({ms:.3}ms)"),
            Service::Lognormal => format!("lognormal({ms:.3}ms, cv {:.3})", 0.5 + self.shape),
            Service::Bimodal => {
                // One in ten takes 3 to 11 times as long as the others.
                let ratio = 3.0 + 8.0 * self.shape;
                let short = ms / (0.9 + 0.1 * ratio);
                format!("bimodal({short:.3}ms, {:.3}ms, 0.1)", short * ratio)
            }
        }
    }

    fn keys(&self, crowd: &Crowd) -> Vec<(&'static str, String)> {
        let quoted = |text: String| format!("\"{text}\"");
        let mut keys = vec![
            ("deadline", quoted(format!("{}s", self.lasts_s))),
            ("origin.contention", format!("{:.3}", self.contention)),
            ("origin.replicas", self.replicas.to_string()),
            ("origin.service", quoted(self.service(self.service_s))),
        ];
        if self.shares_cpu {
            keys.push(("origin.workers", SHARED_PLACES.to_string()));
            let stage =
                format!("[{{ name = \"app\", servers = {}, discipline = \"sharing\" }}]", self.workers);
            keys.push(("origin.stage", stage));
        } else {
            keys.push(("origin.workers", self.workers.to_string()));
        }
        if self.kind == Service::Classes {
            let (easy_s, hard_s) = crowd.class_services_s(self.service_s);
            let path = |path: &str, mean_s: f64| {
                format!("{{ path = \"/{path}\", demand = {{ app = \"{}\" }} }}", self.service(mean_s))
            };
            keys.push(("origin.path", format!("[{}, {}]", path("easy", easy_s), path("hard", hard_s))));
            if crowd.told_apart {
                let class = |name: &str| {
                    format!("{{ name = \"{name}\", match = {{ path = \"/{name}\" }}, cost = 1 }}")
                };
                keys.push(("gate.class", format!("[{}, {}]", class("easy"), class("hard"))));
                keys.push(("gate.room.classes", "[\"easy\", \"hard\"]".into()));
            }
        }
        if !self.changes.is_empty() {
            keys.push(("origin.change", format!("[{}]", self.changes.join(", "))));
        }
        keys.extend(self.spell.as_ref().map(|(what, spell)| match *what {
            "pause" => ("origin.pause", spell.clone()),
            _ => ("origin.neighbour", spell.clone()),
        }));
        keys
    }

    fn about(&self) -> String {
        let kind = match self.kind {
            Service::Fixed => "fixed",
            Service::Normal => "normal",
            Service::Uniform => "uniform",
            Service::Exponential => "exponential",
            Service::Lognormal => "lognormal",
            Service::Bimodal => "bimodal",
            Service::Classes => "two classes",
        };
        let event = match self.event {
            Event::Nothing => "nothing happens",
            Event::Slower => "becomes slower",
            Event::Faster => "becomes faster",
            Event::Wobbling => "wobbles",
            Event::StolenCpu => "CPU is stolen",
            Event::Pauses => "pauses",
            Event::Correlated => "service is correlated in time",
            Event::ReplicasChange => "replicas leave or join",
        };
        let sharing = if self.shares_cpu { ", shared" } else { "" };
        format!(
            "{} x {} servers of {:.0} ms ({kind}{sharing}), contention {:.2}, {event}, {} s",
            self.replicas,
            self.workers,
            self.service_s * 1e3,
            self.contention,
            self.lasts_s
        )
    }
}

struct Crowd {
    /// Share of the hard class and its service over that of the easy one.
    hard: (f64, f64),
    /// Whether the gate knows the classes apart, at equal configured costs.
    told_apart: bool,
    keys: Vec<(&'static str, String)>,
    about: String,
}

impl Crowd {
    fn draw(dice: &mut Dice, origin: &Origin) -> Self {
        let times = dice.scale(1.15, 4.0);
        let rate = times * origin.capacity();
        let hard = (dice.within(0.1, 0.5), dice.within(2.0, 8.0));
        let told_apart = dice.chance(0.5);
        let patient = !dice.chance(0.3);
        let leaves = if patient {
            "patience = \"never\", retries = 0".to_owned()
        } else {
            let longest_s = 5.0 + 10.0 * origin.service_s;
            format!("patience = \"uniform({:.2}s, {longest_s:.2}s)\", retries = 2", 0.6 * longest_s)
        };
        let visitors = if origin.kind == Service::Classes {
            let kind = |name: &str, weight: f64| {
                format!("{{ name = \"{name}\", weight = {weight:.3}, path = \"/{name}\", {leaves} }}")
            };
            format!("[{}, {}]", kind("easy", 1.0 - hard.0), kind("hard", hard.0))
        } else {
            format!("[{{ name = \"visitor\", {leaves} }}]")
        };
        let keys = vec![("arrivals.phase.0.rate", format!("{rate:.3}")), ("visitor", visitors)];
        let about =
            format!("{times:.2} times the capacity, {}", if patient { "patient" } else { "impatient" });
        Self { hard, told_apart, keys, about }
    }

    /// Mean service of the easy and the hard class, so that the mean of all is `mean_s`.
    fn class_services_s(&self, mean_s: f64) -> (f64, f64) {
        let (share, ratio) = self.hard;
        let easy_s = mean_s / (1.0 - share + share * ratio);
        (easy_s, easy_s * ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::catalog;
    use crate::scenario::{Arrivals, Shape};

    #[test]
    fn every_drawn_origin_is_a_scenario_whose_crowd_exceeds_it() {
        let file =
            catalog::embedded("estimator-tournament").expect("known").unwrap_or_else(|m| panic!("{m}"));
        let mut events = std::collections::BTreeSet::new();
        for seed in 1..=400 {
            let setting = drawn(seed);
            let scenario =
                setting.scenario(&file.source).unwrap_or_else(|m| panic!("{}: {m}", setting.about));
            let origin = &scenario.origin;
            let servers =
                origin.stages.first().map_or(origin.workers, |stage| stage.servers) * origin.replicas;
            assert!((1..=64).contains(&servers), "{}", setting.about);
            let Arrivals::Phases { phases, .. } = &scenario.arrivals else { panic!("phases") };
            let Shape::Flat(rate) = phases[0].rate else { panic!("a steady crowd") };
            let capacity = crate::experiment::known::origin_capacity_rps(&scenario);
            assert!((1.1..4.3).contains(&(rate / capacity)), "{}: {rate} {capacity}", setting.about);
            let (of_origin, _) = setting.about.split_once("; ").expect("origin and crowd");
            events.insert(of_origin.rsplit(", ").nth(1).map(str::to_owned));
        }
        assert_eq!(events.len(), 8, "all events are drawn: {events:?}");
    }

    #[test]
    fn a_seed_draws_the_same_and_another_seed_another() {
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7).set, drawn(8).set);
    }
}
