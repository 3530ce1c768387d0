//! The rules for SYNs of a running gate: put, removed, followed from the file, kept over reloads and
//! restarts, and the thread that hands them to the kernel.
//!
//! Only the thread changes what is in force. Who puts a rule waits for it, and so learns what the kernel
//! says.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_core::policing::agent::Change;
use tidegate_core::units::Timestamp;
use tidegate_kernel::KernelError;
use tidegate_settings::{Mistake, SynRule, json_of, toml_of};

use super::KernelControl;
use super::adapt::{Adapter, Sources};
use super::book::{Adapted, Book, InForce, Made};
use super::state::{Adder, KernelState};
use crate::base::audit::{Audit, By, Entry};
use crate::config::Config;
use crate::shared::Shared;

/// Who sets rates without being asked.
const AGENT: &str = "kernel.adapt";
/// Counters are read this often.
const EVERY: Duration = Duration::from_secs(1);

/// Why a rule is not put or removed. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum SynRuleError {
    #[error("{}", told(.0))]
    Wrong(Vec<Mistake>),
    #[error(
        "the rule {0} stands in the file: set `syn_rule.{0}.rate` and other tunables, or change the file"
    )]
    OfFile(String),
    #[error("there is no rule {0}")]
    Unknown(String),
    #[error("the rule {name} cannot be in force: {why}")]
    Aside { name: String, why: String },
    #[error("the kernel refuses the rules: {0}")]
    Refused(#[from] KernelError),
    #[error("rules for SYNs have no effect here: {0}")]
    NoEffect(String),
    #[error("the gate ends")]
    Over,
}

fn told(mistakes: &[Mistake]) -> String {
    let lines = mistakes.iter().map(|Mistake { key, expected, got, hint, .. }| {
        let hint = hint.as_ref().map_or_else(String::new, |hint| format!(" {hint}"));
        format!("{key}: expected {expected}; got {got}.{hint}")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A rule of the API as it is kept over a restart.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SavedSynRule {
    name: String,
    /// Its keys with their values.
    rule: serde_json::Map<String, Value>,
    since_ms: u64,
    by: String,
    why: String,
}

/// What the thread is asked for.
enum Order {
    /// The configuration has changed. The sender is told once the rules are in force.
    Follow(Option<SyncSender<()>>),
    Put(Box<Made>, SyncSender<Result<(), SynRuleError>>),
    Remove(String, SyncSender<Result<(), SynRuleError>>),
    End,
}

/// The rules for SYNs.
pub struct SynRules {
    shared: Arc<Shared>,
    audit: Arc<Audit>,
    kernel: Arc<KernelControl>,
    /// Held during a change by the API, until it is in the audit.
    changing: Mutex<()>,
    /// Changed by the thread alone.
    book: Mutex<Book>,
    state: Mutex<Arc<KernelState>>,
    orders: Sender<Order>,
    received: Mutex<Option<Receiver<Order>>>,
    sources: Sources,
}

impl SynRules {
    /// With the rules that an earlier process has left. They are in force once the thread runs.
    pub(crate) fn new(
        audit: Arc<Audit>,
        kernel: Arc<KernelControl>,
        sources: Sources,
        saved: &[SavedSynRule],
    ) -> Self {
        let (orders, received) = channel();
        let mut book = Book::default();
        for saved in saved {
            match saved.restored() {
                Ok(made) => {
                    tracing::info!(rule = saved.name, by = saved.by, "rule for SYNs from before the restart");
                    book.made.insert(saved.name.clone(), made);
                }
                Err(mistakes) => {
                    tracing::warn!(rule = saved.name, why = told(&mistakes), "no longer a rule for SYNs");
                }
            }
        }
        Self {
            shared: sources.shared.clone(),
            audit,
            kernel,
            changing: Mutex::default(),
            book: Mutex::new(book),
            state: Mutex::default(),
            orders,
            received: Mutex::new(Some(received)),
            sources,
        }
    }

    /// As it was told last: at most a second old.
    pub fn state(&self) -> Arc<KernelState> {
        self.state.lock().clone()
    }

    /// Makes a rule, or replaces one that was made so. In force when this returns. Waits for the kernel and
    /// the audit's disk.
    ///
    /// # Errors
    /// It is wrong, or cannot be in force. Nothing has changed then.
    pub fn put(&self, rule: SynRule, by: By<'_>) -> Result<(), SynRuleError> {
        let _others_wait = self.changing.lock();
        self.check_priority(&rule)?;
        let old = self.book.lock().made.get(&rule.name).map_or(Value::Null, |made| json_of_rule(&made.rule));
        let (name, new) = (rule.name.clone(), json_of_rule(&rule));
        let now = self.shared.clock.now();
        let made = Made { rule, by: by.who.into(), why: by.why.into(), since_ms: now.as_millis() };
        self.ask(|answer| Order::Put(Box::new(made), answer))?;
        tracing::info!(rule = name, to = %new, who = by.who, "rule for SYNs");
        self.audit.record(by, &[Entry { action: "syn-rule", key: Some(name), old, new }], now);
        Ok(())
    }

    /// Removes a rule that [`SynRules::put`] has made. Waits for the kernel and the audit's disk.
    ///
    /// # Errors
    /// There is none, or the kernel refuses the others. Nothing has changed then.
    pub fn remove(&self, name: &str, by: By<'_>) -> Result<(), SynRuleError> {
        let _others_wait = self.changing.lock();
        let old = match self.book.lock().made.get(name) {
            Some(made) => json_of_rule(&made.rule),
            None if self.is_of_file(name) => return Err(SynRuleError::OfFile(name.into())),
            None => return Err(SynRuleError::Unknown(name.into())),
        };
        self.ask(|answer| Order::Remove(name.into(), answer))?;
        tracing::info!(rule = name, who = by.who, "no rule for SYNs any more");
        let entry = Entry { action: "syn-rule", key: Some(name.into()), old, new: Value::Null };
        self.audit.record(by, &[entry], self.shared.clock.now());
        Ok(())
    }

    /// A rule that [`SynRules::put`] has made.
    pub fn made(&self, name: &str) -> Option<SynRule> {
        self.book.lock().made.get(name).map(|made| made.rule.clone())
    }

    pub fn is_of_file(&self, name: &str) -> bool {
        self.shared.config.load().settings.syn_rule.iter().any(|rule| rule.name == name)
    }

    /// Who has made a rule, and why; `None`: it stands in the file.
    pub fn made_by(&self, name: &str) -> Option<(String, String)> {
        self.book.lock().made.get(name).map(|made| (made.by.clone(), made.why.clone()))
    }

    fn check_priority(&self, rule: &SynRule) -> Result<(), SynRuleError> {
        let count = self.kernel.priorities();
        if usize::from(rule.priority) < count {
            return Ok(());
        }
        let expected = match count {
            1 => "0: the gate was started without an order of priorities (kernel.priorities)".into(),
            count => format!("less than {count}, the number of priorities since the start"),
        };
        let mistake = Mistake {
            file: String::new(),
            line: 0,
            column: 0,
            key: "priority".into(),
            expected,
            got: rule.priority.to_string(),
            hint: None,
            excerpt: None,
        };
        Err(SynRuleError::Wrong(vec![mistake]))
    }

    fn ask<T>(
        &self,
        order: impl FnOnce(SyncSender<Result<T, SynRuleError>>) -> Order,
    ) -> Result<T, SynRuleError> {
        let (answer, answered) = sync_channel(1);
        self.orders.send(order(answer)).map_err(|_| SynRuleError::Over)?;
        answered.recv().unwrap_or(Err(SynRuleError::Over))
    }

    /// Follows a change of the configuration, soon. Waits for nothing.
    pub(crate) fn follow_config(&self) {
        let _ = self.orders.send(Order::Follow(None));
    }

    /// Waits until all changes of the configuration so far are in force.
    pub fn settle(&self) {
        let (done, is_done) = sync_channel(1);
        if self.orders.send(Order::Follow(Some(done))).is_ok() {
            let _ = is_done.recv();
        }
    }

    /// Ends the thread.
    pub(crate) fn end(&self) {
        let _ = self.orders.send(Order::End);
    }

    pub(crate) fn to_save(&self) -> Vec<SavedSynRule> {
        self.book.lock().made.values().map(SavedSynRule::new).collect()
    }
}

impl SavedSynRule {
    fn new(made: &Made) -> Self {
        let Made { rule, by, why, since_ms } = made;
        let values = rule.to_values().into_iter().map(|(key, value)| (key.to_owned(), json_of(&value)));
        Self {
            name: rule.name.clone(),
            rule: values.collect(),
            since_ms: *since_ms,
            by: by.clone(),
            why: why.clone(),
        }
    }

    fn restored(&self) -> Result<Made, Vec<Mistake>> {
        let values = self.rule.iter().filter_map(|(key, value)| Some((key.as_str(), toml_of(value)?)));
        let rule = SynRule::from_values(&self.name, values)?;
        Ok(Made { rule, by: self.by.clone(), why: self.why.clone(), since_ms: self.since_ms })
    }
}

/// A rule as it is put, without its name.
pub fn json_of_rule(rule: &SynRule) -> Value {
    let values = rule.to_values().into_iter().map(|(key, value)| (key.to_owned(), json_of(&value)));
    Value::Object(values.collect())
}

/// What the thread has.
struct Runner {
    rules: Arc<SynRules>,
    /// What was handed to the kernel last.
    in_force: InForce,
    adder: Adder,
    adapter: Adapter,
}

impl Runner {
    fn run(mut self, orders: &Receiver<Order>) {
        let shared = self.rules.shared.clone();
        let mut told_at = shared.clock.now();
        loop {
            let now = shared.clock.now();
            let every = shared.config.load().settings.kernel.adapt_every;
            // A clock that was set back makes nobody wait longer.
            let left = EVERY.saturating_sub(now.since(told_at)).min(EVERY);
            let left = self.adapter.left(every, now).map_or(left, |adapts| adapts.min(left));
            match orders.recv_timeout(left) {
                Ok(Order::End) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(Order::Follow(done)) => {
                    self.follow();
                    if let Some(done) = done {
                        let _ = done.send(());
                    }
                }
                Ok(Order::Put(made, answer)) => {
                    let name = made.rule.name.clone();
                    let put = self.change(&name, |book| _ = book.made.insert(name.clone(), *made));
                    let _ = answer.send(put);
                }
                Ok(Order::Remove(name, answer)) => {
                    let removed = self.change(&name, |book| _ = book.made.remove(&name));
                    let _ = answer.send(removed);
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.tell();
                    told_at = shared.clock.now();
                    if self.adapter.left(every, told_at).is_some_and(|left| left.is_zero()) {
                        self.adapt(told_at);
                    }
                }
            }
        }
    }

    /// Lets the agent decide, by figures that were just read.
    fn adapt(&mut self, now: Timestamp) {
        let changes = self.adapter.decide(&self.rules.sources, &self.rules.state(), now);
        if changes.is_empty() {
            return;
        }
        let mut entries = Vec::new();
        let mut book = self.rules.book.lock();
        for Change { name, rate, burst, why } in changes {
            let Some(ruled) = self.in_force.rules.iter().find(|ruled| ruled.rule.name == name) else {
                continue;
            };
            let most = ruled.rule.max_rate;
            let before = match rate < most {
                true => book.adapted.insert(name.clone(), Adapted { rate, burst }),
                false => book.adapted.remove(&name),
            };
            tracing::debug!(rule = name, rate, burst, %why, "adapted");
            // The audit has when it begins and when it is over; what is in between is in the history.
            if before.is_some() != (rate < most) {
                tracing::info!(rule = name, rate, %why, "the agent sets the rate");
                let shown = |rate: f64| if rate.is_finite() { rate.into() } else { Value::Null };
                let old = before.map_or(most, |adapted| adapted.rate);
                let key = Some(format!("syn_rule.{name}.rate"));
                entries.push((
                    Entry { action: "adapt", key, old: shown(old), new: shown(rate) },
                    why.to_string(),
                ));
            }
        }
        drop(book);
        self.follow();
        for (entry, why) in entries {
            self.rules.audit.record(By { who: AGENT, why: &why }, &[entry], now);
        }
    }

    fn wanted(&self, book: &Book, config: &Config) -> InForce {
        book.in_force(&config.settings.syn_rule, self.rules.kernel.max_rules())
    }

    /// Puts in force what configuration and book say.
    fn follow(&mut self) {
        let config = self.rules.shared.config.load_full();
        let mut book = self.rules.book.lock();
        let configured = book.configured(&config.settings.syn_rule, self.rules.kernel.max_rules());
        if self.adapter.follow(&config.settings.kernel, &configured.rules()) {
            book.adapted.clear();
        }
        let wanted = self.wanted(&book, &config);
        drop(book);
        // Those that are refused are tried again with the next change.
        if wanted.rules == self.in_force.rules || self.rules.kernel.follow(&wanted.rules()) {
            self.in_force = wanted;
        }
        self.tell();
    }

    /// Changes the book, if the kernel takes the rules that follow from it.
    fn change(&mut self, name: &str, change: impl FnOnce(&mut Book)) -> Result<(), SynRuleError> {
        let mut book = self.rules.book.lock().clone();
        change(&mut book);
        let config = self.rules.shared.config.load_full();
        let wanted = self.wanted(&book, &config);
        let is_put = book.made.contains_key(name);
        if is_put && config.settings.syn_rule.iter().any(|rule| rule.name == name) {
            return Err(SynRuleError::OfFile(name.into()));
        }
        let note = format!("the rule {name} of the API is set aside: ");
        if is_put && let Some(why) = wanted.notes.iter().find_map(|line| line.strip_prefix(&note)) {
            return Err(SynRuleError::Aside { name: name.into(), why: why.into() });
        }
        let kernel = &self.rules.kernel;
        kernel.set_rules(&wanted.rules())?;
        if is_put && let Some(why) = kernel.why_not() {
            return Err(SynRuleError::NoEffect(why));
        }
        let configured = book.configured(&config.settings.syn_rule, kernel.max_rules());
        self.adapter.follow(&config.settings.kernel, &configured.rules());
        *self.rules.book.lock() = book;
        self.in_force = wanted;
        self.tell();
        Ok(())
    }

    /// Reads the counters and tells how everything is.
    fn tell(&mut self) {
        let (rules, now) = (&self.rules, self.rules.shared.clock.now());
        let mut state = self.adder.state(rules.kernel.read(), &self.in_force, rules.kernel.priorities(), now);
        state.agent = self.adapter.view();
        *rules.state.lock() = Arc::new(state);
    }
}

/// Puts the rules in force, and starts the thread. Waits for the kernel.
pub fn spawn(rules: Arc<SynRules>) -> io::Result<()> {
    let Some(orders) = rules.received.lock().take() else { return Ok(()) };
    let (in_force, adder, adapter) = Default::default();
    let mut runner = Runner { rules, in_force, adder, adapter };
    // Here, so that who asks right after the start sees how it is.
    runner.follow();
    std::thread::Builder::new().name("kernel".into()).spawn(move || runner.run(&orders))?;
    Ok(())
}
