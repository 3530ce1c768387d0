//! A tuner's view of this gate: the figures of the last second when its run began, and the history.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::tune::{ALL, Correlated, View};
use tidegate_core::units::{Rate, Timestamp};

use crate::base::clock::Clock;
use crate::config::Config;
use crate::control::correlation::Correlation;
use crate::control::observe;
use crate::history::History;
use crate::history::metrics::{self, Scope};
use crate::shared::figures::Figures;
use tidegate_settings::did_you_mean;

/// Every request refused on purpose, whatever the reason: the sum of the history's `shed_…`.
pub(crate) const SHED: &str = "shed";

pub struct LiveView {
    pub(super) clock: Arc<Clock>,
    pub(super) config: Arc<Config>,
    pub(super) figures: Arc<Figures>,
    pub(super) history: Arc<History>,
    pub(super) correlation: Arc<Correlation>,
}

impl LiveView {
    /// The class's id; `None`: all of them.
    fn class(&self, name: &str) -> Result<Option<usize>, String> {
        let configured = self.config.in_order().filter(|(_, facts)| !facts.is_gone);
        let names = || configured.map(|(_, facts)| &*facts.name);
        match self.config.named(name) {
            Some(id) => Ok(Some(id.index())),
            None if name == ALL => Ok(None),
            None => Err(unknown("class", name, names())),
        }
    }

    fn over(
        &self,
        metric: &str,
        class: &str,
        ask: impl Fn(&str) -> Option<f64>,
    ) -> Result<Option<f64>, String> {
        self.class(class)?;
        match find(metric)? {
            (Scope::Class | Scope::Gate, _) => Ok(ask(metric)),
            (Scope::Detector, _) => Err(of_detector(metric)),
        }
    }
}

fn unknown<'n>(what: &str, name: &str, known: impl Iterator<Item = &'n str>) -> String {
    let hint = did_you_mean(name, known).unwrap_or_default();
    format!("there is no {what} {name:?}. {hint}").trim_end().into()
}

fn of_detector(metric: &str) -> String {
    format!("{metric} is of a detector: expected a figure of a class or of the gate")
}

fn find(metric: &str) -> Result<(Scope, usize), String> {
    metrics::find(metric).ok_or_else(|| {
        let all = Scope::Class.metrics().iter().chain(Scope::Gate.metrics());
        unknown("figure", metric, all.map(|metric| metric.name))
    })
}

impl View for LiveView {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn figure(&self, metric: &str, class: &str) -> Result<Option<f64>, String> {
        let second = match self.class(class)? {
            Some(id) => observe::class(&self.figures, id),
            None => Some(observe::all(&self.figures)),
        };
        let Some(second) = second else { return Ok(None) };
        if metric == SHED {
            return Ok(Some(second.figures.shed_per_s.iter().sum()));
        }
        match find(metric)? {
            (Scope::Class, at) => {
                Ok(Some(f64::from(metrics::class_values(&second)[at])).filter(|value| value.is_finite()))
            }
            (Scope::Gate, _) => Err(format!("{metric} is of the gate: ask for its mean or peak")),
            (Scope::Detector, _) => Err(of_detector(metric)),
        }
    }

    fn peak(&self, metric: &str, class: &str, span: Duration) -> Result<Option<f64>, String> {
        self.over(metric, class, |metric| self.history.peak(metric, class, span))
    }

    fn mean(&self, metric: &str, class: &str, span: Duration) -> Result<Option<f64>, String> {
        self.over(metric, class, |metric| self.history.mean(metric, class, span))
    }

    fn capacity(&self) -> Option<Rate> {
        Some(self.figures.tunables.capacity).filter(|capacity| *capacity < Rate::MAX)
    }

    fn is_overloaded(&self) -> bool {
        self.figures.is_overloaded
    }

    fn correlation(&self, of_type: &str, figure: &str) -> Result<Option<Correlated>, String> {
        self.correlation.seen(of_type, figure)
    }

    fn get(&self, name: &str) -> Option<String> {
        self.config.settings.value_of(name)
    }
}
