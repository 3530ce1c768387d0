//! Which types of requests load which figure, kept up to date while the gate runs.
//!
//! ```text
//! workers' paths ─┐                                   ┌─► GET /v1/correlation, /metrics, tuners
//! class counters ─┼─(control tick)─► thread: counts ──┤
//! figures ────────┘                  windows, analyses └─► throttles (`correlate.auto`)
//! ```
//!
//! The control thread passes on what it has anyway: it swaps the workers' buffers on every tick, and reads
//! counters and figures once a second. Folding paths, the windows and the statistics are on a thread of their
//! own, which nobody waits for.
//!
//! **Bounds.** At most [`MAX_FIGURES`] figures, `correlate.max_types` templates and the classes. A second
//! takes O(types) for each figure; all analyses together take at most a twentieth of the thread's time
//! ([`REST`]).

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_core::correlate::{
    Analysis, AutoThrottles, Judged, Live, MAX_FIGURES, MIN_INTERVALS, TypeAnalysis, TypeName,
};
use tidegate_core::detect::Level;
use tidegate_core::tune::Correlated;
use tidegate_core::units::Timestamp;

pub mod confirm;

use crate::base::audit::By;
use crate::control::congestion::Congestion;
use crate::control::observe::LATE;
use crate::control::throttles::{Action, NewThrottle, Throttles};
use crate::history::host::Host;
use crate::shared::Shared;
use crate::shared::figures::Figures;
use crate::shared::request_paths::Noted;
use confirm::Trial;
use tidegate_settings::{Correlate, DEFAULT, Detector, INTERVAL, RequestTypes, Watched, did_you_mean};

/// Ticks that the thread may be behind before paths are lost.
const BEHIND: usize = 8;
/// All figures are analysed this often; one that is asked for, once a second.
const EVERY: Duration = Duration::from_secs(5);
/// Pause after the analyses, as a multiple of the time they took.
const REST: u32 = 20;

/// Who puts throttles without being asked.
pub const AUTO: &str = "correlate.auto";

/// Figures of the gate itself, behind those of detectors.
const RESPONSE_TIME: &str = "response_time";
const IN_FLIGHT: &str = "in_flight";
const GATE_CPU: &str = "gate_cpu";
const OF_GATE: usize = 3;

/// A figure in the last second.
#[derive(Clone, Debug)]
pub struct FigureNow {
    pub name: Arc<str>,
    /// Whether it is a detector's, and not the gate's.
    pub is_detector: bool,
    /// `None`: not known.
    pub value: Option<f64>,
    /// `None`: it has none.
    pub level: Option<Level>,
    pub fraction: Option<f64>,
    /// From here on the level is red.
    pub red: Option<f64>,
}

/// What the control thread passes on.
struct Batch {
    paths: Vec<Noted>,
    second: Option<Second>,
}

/// A second that has ended.
struct Second {
    at: Timestamp,
    /// Requests of each class that went to the origin since the start.
    classes: Vec<(Arc<str>, u64)>,
    figures: Vec<FigureNow>,
}

/// The correlation of a running gate.
pub struct Correlation {
    shared: Arc<Shared>,
    throttles: Arc<Throttles>,
    /// `None`: the gate ends.
    batches: Mutex<Option<SyncSender<Batch>>>,
    received: Mutex<Option<Receiver<Batch>>>,
    /// Buffers that were read.
    spare: Mutex<Vec<Noted>>,
    /// Requests of batches that the thread could not take.
    lost: AtomicU64,
    counted: Mutex<Counted>,
    /// The last one of each figure.
    analyses: Mutex<BTreeMap<Arc<str>, Known>>,
    trial: Mutex<Option<Trial>>,
}

/// An analysis, and the number of intervals that had ended then.
struct Known {
    ended: u64,
    found: Arc<Analysis>,
}

/// What was counted, as the settings said.
struct Counted {
    settings: Correlate,
    live: Live,
    /// The counters of classes a second ago.
    classes: BTreeMap<Arc<str>, u64>,
    figures: Vec<FigureNow>,
    last: Option<Timestamp>,
}

impl Correlation {
    pub fn new(shared: Arc<Shared>, throttles: Arc<Throttles>) -> Self {
        let (batches, received) = sync_channel(BEHIND);
        let counted = Counted::new(&shared.config.load().settings.correlate);
        Self {
            shared,
            throttles,
            batches: Mutex::new(Some(batches)),
            received: Mutex::new(Some(received)),
            spare: Mutex::default(),
            lost: AtomicU64::new(0),
            counted: Mutex::new(counted),
            analyses: Mutex::default(),
            trial: Mutex::default(),
        }
    }

    /// On every control tick: takes what the workers have noted.
    pub(crate) fn tick(&self) {
        self.pass(None);
    }

    /// Once a second, instead of a tick: passes on its counts and figures too.
    pub(crate) fn second(&self, f: &Figures, congestion: &Congestion) {
        let live = self.shared.config.load();
        if !live.settings.correlate.enabled {
            return self.pass(None);
        }
        let classes = f.classes(&live).filter(|class| !class.facts.is_gone);
        let forwarded = classes.filter_map(|class| Some((class.facts.name.clone(), class.totals?.forwarded)));
        let mut figures: Vec<_> = congestion
            .seconds(f.at)
            .map(|(detector, second)| FigureNow::of_detector(detector, second.reading, second.judgement))
            .take(MAX_FIGURES - OF_GATE)
            .collect();
        let response = f.window.total().response.mean.map(|mean| mean.as_secs_f64());
        figures.push(FigureNow::of_gate(RESPONSE_TIME, response));
        figures.push(FigureNow::of_gate(IN_FLIGHT, Some(f.gate.in_flight.into())));
        self.pass(Some(Second { at: f.at, classes: forwarded.collect(), figures }));
    }

    fn pass(&self, second: Option<Second>) {
        let paths = self.shared.paths.take(&mut self.spare.lock());
        if paths.is_empty() && second.is_none() {
            return;
        }
        let batches = self.batches.lock();
        let Some(sender) = batches.as_ref() else { return };
        if let Err(TrySendError::Full(batch)) = sender.try_send(Batch { paths, second }) {
            let lost = batch.paths.iter().map(Noted::requests).sum();
            self.lost.fetch_add(lost, Ordering::Relaxed);
            self.spare.lock().extend(batch.paths);
        }
    }

    /// Ends the thread.
    pub fn end(&self) {
        self.batches.lock().take();
    }

    /// What the thread does until the end.
    fn run(&self) {
        let Some(batches) = self.received.lock().take() else { return };
        let (mut host, mut auto) = (Host::default(), AutoThrottles::default());
        let mut next_analyses = Timestamp::default();
        while let Ok(Batch { paths, second }) = batches.recv() {
            let live = self.shared.config.load_full();
            let has_ended = self.take_in(&live.settings.correlate, &paths, second, &mut host);
            self.spare.lock().extend(paths);
            if !has_ended {
                continue;
            }
            let figures = self.figures();
            self.confirm_interval(|name| figures.iter().find(|(of, _)| *of.name == *name)?.0.value);
            let now = self.shared.clock.now();
            if now >= next_analyses {
                self.analyse_all(&figures);
                let took = self.shared.clock.now().since(now);
                next_analyses = now + EVERY.max(took * REST);
                self.throttle_culprits(&mut auto, &figures, now);
            }
        }
    }

    /// Takes in a batch. Whether an interval has ended.
    fn take_in(
        &self,
        settings: &Correlate,
        paths: &[Noted],
        second: Option<Second>,
        host: &mut Host,
    ) -> bool {
        let mut counted = self.counted.lock();
        if !counted.settings.counts_as(settings) {
            *counted = Counted::new(settings);
        }
        counted.settings.clone_from(settings);
        counted.live.count_other(self.lost.swap(0, Ordering::Relaxed));
        for noted in paths {
            noted.paths().for_each(|path| counted.live.count_path(path));
            counted.live.count_other(noted.without_path);
        }
        let Some(mut second) = second else { return false };
        let cpu = Some(f64::from(host.read().cpu)).filter(|cpu| !cpu.is_nan());
        second.figures.push(FigureNow::of_gate(GATE_CPU, cpu));
        counted.end_second(second)
    }

    fn analyse_all(&self, figures: &[(FigureNow, usize)]) {
        self.analyses.lock().retain(|name, _| figures.iter().any(|(figure, _)| figure.name == *name));
        for (figure, intervals) in figures {
            if *intervals >= MIN_INTERVALS {
                self.analysis(&figure.name);
            }
        }
    }

    /// Throttles the culprits of red detectors, if the operator wants that.
    fn throttle_culprits(&self, auto: &mut AutoThrottles, figures: &[(FigureNow, usize)], now: Timestamp) {
        let live = self.shared.config.load_full();
        let settings = &live.settings.correlate.auto;
        if !settings.enabled {
            *auto = AutoThrottles::default();
            return;
        }
        let is_reason =
            |name: &str| settings.figures.is_empty() || settings.figures.iter().any(|one| one == name);
        let judged = |figure: &FigureNow| {
            let is_red = figure.level? == Level::Red;
            Some(Judged { analysis: self.analysis(&figure.name)?, is_red, threshold: figure.red })
        };
        let detectors = figures.iter().map(|(figure, _)| figure).filter(|figure| is_reason(&figure.name));
        let detectors: Vec<_> = detectors.filter_map(judged).collect();
        let bounds = settings.bounds(live.settings.correlate.window);
        let throttled = self.throttles.all();
        let suspect = self.with_trial(|trial| trial.suspicion.name.clone());
        let is_spared = |name: &TypeName| {
            let text = name.to_string();
            settings.is_spared(name)
                || suspect.as_ref() == Some(name)
                || throttled.iter().any(|one| *one.name == *text)
        };
        for (figure, of) in auto.decide(&detectors, &bounds, is_spared, now) {
            let wanted = NewThrottle {
                name: of.name.to_string(),
                action: Action::Rate(of.rate),
                lasts: Some(settings.lasts),
            };
            let why = format!("{figure} is red, and {} loads it", of.name);
            if let Err(e) = self.throttles.put(&wanted, By { who: AUTO, why: &why }) {
                tracing::warn!(of = %of.name, error = %e, "not throttled");
            }
        }
    }

    /// The figures in the last second, each with the intervals that are known.
    pub fn figures(&self) -> Vec<(FigureNow, usize)> {
        let counted = self.counted.lock();
        let intervals = |name: &str| {
            let found = counted.live.figures().find(|(known, _)| ***known == *name);
            found.map_or(0, |(_, intervals)| intervals)
        };
        counted.figures.iter().map(|figure| (figure.clone(), intervals(&figure.name))).collect()
    }

    /// When the last interval ended.
    pub fn last_interval(&self) -> Option<Timestamp> {
        self.counted.lock().last
    }

    /// What the window of a figure says now, computed at most once per interval. Takes some milliseconds, and
    /// must not be called on the control thread. `None`: there is no such figure.
    pub fn analysis(&self, figure: &str) -> Option<Arc<Analysis>> {
        let counted = self.counted.lock();
        let (ended, settings) = (counted.live.ended(), counted.settings.analysis());
        if let Some(known) = self.analyses.lock().get(figure)
            && known.ended == ended
            && known.found.settings == settings
        {
            return Some(known.found.clone());
        }
        let columns = counted.live.columns(figure)?;
        drop(counted);
        let found = Arc::new(columns.analyse(&settings, INTERVAL.as_secs_f64()));
        self.analyses.lock().insert(found.figure.clone(), Known { ended, found: found.clone() });
        Some(found)
    }

    /// What the last analysis says of a type, for a tuner.
    ///
    /// # Errors
    /// There is no such type or figure.
    pub(crate) fn seen(&self, of_type: &str, figure: &str) -> Result<Option<Correlated>, String> {
        let name = TypeName::parse(of_type).map_err(|e| format!("{e}; got {of_type:?}"))?;
        let counted = self.counted.lock();
        if !counted.figures.iter().any(|known| *known.name == *figure) && counted.last.is_some() {
            let names = counted.figures.iter().map(|known| &*known.name);
            let hint = did_you_mean(figure, names).unwrap_or_default();
            return Err(format!("there is no figure {figure:?}. {hint}").trim_end().into());
        }
        drop(counted);
        let analyses = self.analyses.lock();
        let found = analyses.get(figure).and_then(|known| known.found.of(&name));
        Ok(found.map(|TypeAnalysis { finding, .. }| Correlated {
            r: finding.correlation.map(|found| found.r),
            p: finding.correlation.map(|found| found.p),
            is_culprit: finding.is_culprit,
            share: finding.share,
            cost: finding.cost.map(|cost| cost.per_request),
        }))
    }

    /// The last analysis of each figure, some seconds old.
    pub fn last_analyses(&self) -> Vec<Arc<Analysis>> {
        self.analyses.lock().values().map(|known| known.found.clone()).collect()
    }
}

impl FigureNow {
    fn of_detector(
        detector: &Detector,
        reading: Option<f64>,
        judgement: tidegate_core::detect::Judgement,
    ) -> Self {
        let is_read = matches!(detector.kind, Watched::Host | Watched::Signal);
        Self {
            name: detector.name.as_str().into(),
            is_detector: true,
            value: if is_read { reading } else { judgement.figure },
            level: Some(judgement.level),
            fraction: judgement.fraction,
            red: judgement.red,
        }
    }

    fn of_gate(name: &str, value: Option<f64>) -> Self {
        Self { name: name.into(), is_detector: false, value, level: None, fraction: None, red: None }
    }
}

impl Counted {
    fn new(settings: &Correlate) -> Self {
        Self {
            live: Live::new(settings.intervals(), settings.templates()),
            settings: settings.clone(),
            classes: BTreeMap::new(),
            figures: Vec::new(),
            last: None,
        }
    }

    /// Whether an interval has ended with it.
    fn end_second(&mut self, second: Second) -> bool {
        let Second { at, classes, mut figures } = second;
        for (name, forwarded) in &classes {
            // A class that is new was counted since an instant that is not known.
            let before = self.classes.insert(name.clone(), *forwarded).unwrap_or(*forwarded);
            let is_a_type = match self.settings.types {
                RequestTypes::Auto => **name != *DEFAULT,
                RequestTypes::Class => true,
                RequestTypes::Path => false,
            };
            if is_a_type {
                self.live.count_class(name, forwarded.saturating_sub(before));
            }
        }
        if self.classes.len() > classes.len() {
            let is_kept = |name: &str| classes.iter().any(|(known, _)| **known == *name);
            self.classes.retain(|name, _| is_kept(name));
            self.live.keep_classes(is_kept);
        }
        // The name of a detector counts before that of a figure of the gate.
        let mut names = Vec::new();
        figures.retain(|figure| {
            let is_new = !names.contains(&figure.name);
            names.push(figure.name.clone());
            is_new
        });
        let merged = merged(self.last.replace(at), at);
        let values: Vec<_> = figures.iter().map(|figure| (figure.name.clone(), figure.value)).collect();
        self.figures = figures;
        match merged {
            Some(merged) => self.live.end_interval(&values, merged),
            None => self.live.skip_interval(),
        }
        merged.is_some()
    }
}

/// Seconds that a late tick has seen as one. `None`: too many; the machine slept or its clock was set.
fn merged(last: Option<Timestamp>, now: Timestamp) -> Option<u64> {
    match now.second().checked_sub(last?.second())? {
        0 => Some(1),
        seconds => (seconds <= LATE).then_some(seconds),
    }
}

/// Starts the thread.
pub fn spawn(correlation: Arc<Correlation>) -> io::Result<()> {
    std::thread::Builder::new().name("correlation".into()).spawn(move || correlation.run())?;
    Ok(())
}

#[cfg(test)]
mod tests;
