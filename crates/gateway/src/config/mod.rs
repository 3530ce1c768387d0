//! The configuration in force, compiled: what a reload replaces with one pointer swap.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::capacity::{self, Estimator, GateLoad};
use tidegate_core::classify::{Classifier, ClassifyError, RequestHead, Rules};
use tidegate_core::control::{Bounds, Control as Steering};
use tidegate_core::gate::{ClassConfig, GateConfig};
use tidegate_core::ingress::{Ingress, IngressConfig};
use tidegate_core::measure::{ClassTotals, Snapshot};
use tidegate_core::room::RoomConfig;
use tidegate_core::ticket::{BindingKinds, KeyError, KeyRing};
use tidegate_core::units::{ClassId, Cost, Rate, Share, Timestamp};

use crate::config::authoriser::Authoriser;
use crate::config::page::{PageError, Pages};
use crate::config::tiers::{TierError, Tiers};
use congestion_plan::{Plan, PlanError};
use tidegate_settings::{Role, Settings};

mod admission;
pub mod authoriser;
mod class_ids;
pub mod congestion_plan;
pub mod page;
mod parties;
mod sessions;
pub mod tiers;

pub use class_ids::ClassTag;

/// What a request needs to know of the configuration.
pub struct Config {
    /// As written.
    pub settings: Settings,
    /// Request head to the class's place in the file.
    classifier: Arc<Classifier>,
    /// The classes' ids in the order of the file, the default class last.
    order: Vec<ClassId>,
    /// By class id, those that a reload has removed among them.
    pub classes: Vec<ClassFacts>,
    /// Seals and opens tickets.
    pub keys: Arc<KeyRing>,
    /// Bindings a ticket may have.
    pub bindings: BindingKinds,
    /// What waiting visitors see.
    pub pages: Arc<Pages>,
    /// No class is named in `room.classes`: every navigation waits.
    pub all_navigations: bool,
    /// Who may come in, by class.
    pub ingress: Ingress,
    /// Service levels.
    pub tiers: Arc<Tiers>,
    /// Applications that rules ask, in the order of the file.
    pub applications: Vec<Arc<Authoriser>>,
    /// Detectors and rules.
    pub plan: Arc<Plan>,
    gate: GateConfig,
}

/// One class, as the request path sees it.
#[derive(Clone, Debug)]
pub struct ClassFacts {
    /// Its name in metrics and logs.
    pub name: Arc<str>,
    /// Its work.
    pub cost: Cost,
    /// Named in `room.classes`.
    pub waits: bool,
    /// Its number in tickets and cookies.
    pub mark: ClassTag,
    /// A reload has removed it: nobody new comes, who is there is served by its last rules.
    pub is_gone: bool,
    /// What was counted under its id before it was this class's.
    before: Option<Arc<ClassTotals>>,
}

impl ClassFacts {
    /// What this class has seen, of what was counted under its id.
    pub fn totals<'t>(&self, counted: &'t ClassTotals) -> Cow<'t, ClassTotals> {
        match &self.before {
            Some(before) => Cow::Owned(counted.since(before)),
            None => Cow::Borrowed(counted),
        }
    }
}

/// Why a configuration cannot be put in force.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A class's match.
    #[error(transparent)]
    Classify(#[from] ClassifyError),
    /// A key.
    #[error("room.keys: {0}")]
    Keys(#[from] KeyError),
    /// A service level's key.
    #[error(transparent)]
    Tier(#[from] TierError),
    /// The page template or logo.
    #[error(transparent)]
    Page(#[from] PageError),
    /// The estimator's name.
    #[error("capacity.estimator: {0}")]
    Estimator(#[from] capacity::UnknownEstimator),
    /// A rule.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

impl Config {
    /// Compiles `settings`; `keys` is the ring's lines, from the settings or the state directory.
    ///
    /// # Errors
    /// Whatever `tidegate check` would have said of the parts that are compiled here.
    pub fn new(settings: Settings, keys: &[String]) -> Result<Self, ConfigError> {
        let known = settings.classes();
        let Some((_, matched)) = known.split_last() else { unreachable!("there is a default class") };
        let classifier = Rules::compile(matched.iter().map(parties::rule).collect())?;
        let classes = class_facts(&settings, &known);
        capacity::by_name(settings.estimator(), &settings.capacity.options())?;
        let keys = Arc::new(KeyRing::parse(&keys.join("\n"))?);
        let pages = Arc::new(Pages::new(&settings.room)?);
        let all_navigations = settings.room.classes.is_empty();
        let bindings = bindings(settings.room.binding);
        let gate = gate_config(&settings, &known);
        let ingress = Ingress::new(&ingress_config(&known));
        let classifier = Arc::new(classifier);
        let applications = settings.application.iter().map(|one| Arc::new(Authoriser::new(one))).collect();
        let order = (0..=u8::MAX).map(ClassId).take(known.len()).collect();
        Ok(Self {
            plan: Arc::new(Plan::new(&settings, &congestion_plan::class_names(&classes))?),
            tiers: Arc::new(parties::tiers(&settings, &classes)?),
            settings,
            classifier,
            order,
            classes,
            keys,
            bindings,
            pages,
            all_navigations,
            ingress,
            applications,
            gate,
        })
    }

    /// The same with other values of [tunables](tidegate_settings::Tunable). What is compiled from other keys is shared: a change
    /// costs microseconds.
    ///
    /// # Errors
    /// The estimator's name, which the settings have checked.
    pub fn tuned(&self, settings: Settings) -> Result<Self, ConfigError> {
        if settings.estimator() != self.settings.estimator() {
            capacity::by_name(settings.estimator(), &settings.capacity.options())?;
        }
        let known = settings.classes();
        let mut tuned = Self {
            classifier: self.classifier.clone(),
            order: self.order.clone(),
            classes: class_facts(&settings, &known),
            keys: self.keys.clone(),
            bindings: self.bindings,
            pages: self.pages.clone(),
            all_navigations: settings.room.classes.is_empty(),
            gate: gate_config(&settings, &known),
            plan: self.plan.clone(),
            tiers: self.tiers.clone(),
            applications: self.applications.clone(),
            ingress: Ingress::default(),
            settings,
        };
        tuned.arrange(self);
        for (facts, before) in tuned.classes.iter_mut().zip(&self.classes) {
            facts.before.clone_from(&before.before);
        }
        tuned.tune_rules(self);
        Ok(tuned)
    }

    /// Gives each class the id that the class of its name has in `old`, so that whatever is kept by ids stays that of the same
    /// class. To be called before anything else is done with a reloaded configuration. `is_idle`: nobody waits in an id or is
    /// at the origin; `total`: all counts so far.
    pub fn follow(&mut self, old: &Self, total: &Snapshot, is_idle: impl Fn(ClassId) -> bool) {
        let ids = (0..=u8::MAX).map(ClassId);
        let before: Vec<_> = old
            .classes
            .iter()
            .zip(ids)
            .map(|(facts, id)| class_ids::Before {
                name: &facts.name,
                is_gone: facts.is_gone,
                is_idle: is_idle(id),
            })
            .collect();
        let names: Vec<&str> = self.classes.iter().map(|facts| &*facts.name).collect();
        self.order = class_ids::number(&names, &before, total.classes().len());
        self.arrange(old);
        self.plan = self.plan.renumbered(&self.settings, &self.classes);
        for (id, (facts, before)) in self.classes.iter_mut().zip(&old.classes).enumerate() {
            facts.before = match facts.name == before.name {
                true => before.before.clone(),
                false => total.classes().get(id).cloned().map(Arc::new),
            };
        }
    }

    /// Ids that were another class's in `old`.
    pub fn taken_over<'l>(&'l self, old: &'l Self) -> impl Iterator<Item = ClassId> + 'l {
        let both = (0..=u8::MAX).zip(self.classes.iter().zip(&old.classes));
        both.filter(|(_, (now, then))| now.name != then.name).map(|(id, _)| ClassId(id))
    }

    /// Puts what is in the order of the file into that of the ids; those that have none in the file keep what `old` has.
    fn arrange(&mut self, old: &Self) {
        let len = self.order.iter().map(|id| id.index() + 1).max().unwrap_or_default().max(old.classes.len());
        let order = &self.order;
        let gone = |id: usize| ClassFacts { is_gone: true, waits: false, ..old.classes[id].clone() };
        self.classes = by_id(order, std::mem::take(&mut self.classes), len, gone);
        // What was guaranteed is promised to others now.
        let gone = |id: usize| ClassConfig { guarantee: Share::ZERO, ..old.gate.class(ClassId(id as u8)) };
        self.gate.classes = by_id(order, std::mem::take(&mut self.gate.classes), len, gone);
        self.ingress = Ingress::new(&self.ingress_config());
    }

    /// By id; nobody comes to those that are gone.
    fn ingress_config(&self) -> Vec<IngressConfig> {
        let known = ingress_config(&self.settings.classes());
        by_id(&self.order, known, self.classes.len(), |_| IngressConfig::default())
    }

    /// The class of a request.
    pub fn classify(&self, head: &RequestHead<'_>) -> ClassId {
        self.order[self.classifier.classify(head).index()]
    }

    /// The configured classes with their ids, in the order of the file, the default class last; then those that have gone.
    pub fn in_order(&self) -> impl Iterator<Item = (ClassId, &ClassFacts)> {
        let gone = self.classes.iter().enumerate().filter(|(_, facts)| facts.is_gone);
        let configured = self.order.iter().map(|id| (*id, &self.classes[id.index()]));
        configured.chain(gone.map(|(id, facts)| (ClassId(id as u8), facts)))
    }

    /// A configured class by its name.
    pub fn named(&self, name: &str) -> Option<ClassId> {
        self.order.iter().copied().find(|id| *self.classes[id.index()].name == *name)
    }

    /// A configured class by its number in tickets.
    pub fn marked(&self, mark: ClassTag) -> Option<ClassId> {
        self.order.iter().copied().find(|id| self.classes[id.index()].mark == mark)
    }

    /// The class's facts; an id that nobody has falls back to the default class.
    pub fn class(&self, id: ClassId) -> &ClassFacts {
        let Some(default) = self.order.last() else { unreachable!("there is a default class") };
        self.classes.get(id.index()).unwrap_or(&self.classes[default.index()])
    }

    /// Whether requests of a class meet the room. (Parts of pages then pass with whoever was let in.)
    pub fn meets_room(&self, id: ClassId) -> bool {
        self.settings.room.enabled && (self.all_navigations || self.class(id).waits)
    }

    /// For the room.
    pub fn room_config(&self) -> RoomConfig {
        let r = &self.settings.room;
        RoomConfig {
            max_wait: r.max_wait,
            grace: r.grace,
            // One process has one clock: only tokencheck meets tickets by another's.
            tolerance: match self.settings.role {
                Role::TokenCheck { .. } => r.tolerance,
                Role::Gate | Role::TokenGen { .. } => Duration::ZERO,
            },
            burst: r.burst,
            overbook_max: r.overbook_max,
            rise_to_newcomers: r.rise_to_newcomers,
            after_restart_accept: r.after_restart_accept,
            class_costs: self.costs(),
        }
    }

    /// For tier 2.
    pub fn gate_config(&self) -> GateConfig {
        self.gate.clone()
    }

    /// As [`Live::gate_config`], to look at.
    pub fn gate(&self) -> &GateConfig {
        &self.gate
    }

    /// Goes on where another configuration's ingress buckets stand, told by their classes' names. To be called before this
    /// one is put in force.
    pub fn succeed(&mut self, old: &Self, now: Timestamp) {
        let before: Vec<_> = self.classes.iter().map(|facts| old.named(&facts.name)).collect();
        self.ingress = old.ingress.succeed(&self.ingress_config(), &before, now);
        self.succeed_parties(old, now);
    }

    /// The control side: the estimator within the operator's bounds.
    pub fn steering(&self) -> Steering {
        Steering::new(self.estimator(None), self.bounds())
    }

    /// The estimator; one that discovers starts from `known` if there is such a figure and the operator gave none.
    pub fn estimator(&self, known: Option<Rate>) -> Box<dyn Estimator> {
        let s = &self.settings;
        let mut options = s.capacity.options();
        if s.discovers() {
            options.rate = options.rate.or(known);
        }
        // A search that the operator's limit holds back would never end.
        if let Some(most) = self.gate.max_in_flight {
            options.bottleneck.max_in_flight = options.bottleneck.max_in_flight.min(most);
        }
        capacity::by_name(s.estimator(), &options).unwrap_or_else(|_| unreachable!("checked by Live::new"))
    }

    /// The operator's bounds.
    pub fn bounds(&self) -> Bounds {
        let c = &self.settings.capacity;
        Bounds {
            capacity: c.most().unwrap_or(Rate::MAX),
            floor: c.least(),
            max_in_flight: self.gate.max_in_flight,
        }
    }

    /// Work of one request of each class, by id.
    pub fn costs(&self) -> Vec<Cost> {
        self.classes.iter().map(|c| c.cost).collect()
    }

    /// What the room starts with: what the estimator says before it has seen anything.
    pub fn initial_capacity(&self) -> Rate {
        let (tunables, _) = self.steering().tick(&[], &GateLoad::default(), Timestamp::default());
        tunables.outflow
    }

    /// How long the gate waits for requests in progress after SIGTERM.
    pub fn drain_timeout(&self) -> Duration {
        self.settings.limits.drain_timeout
    }
}

fn gate_config(settings: &Settings, classes: &[tidegate_settings::Class]) -> GateConfig {
    let origin = &settings.origin;
    // More could not be sent anywhere.
    let of_all = origin.max_in_flight_per_replica.saturating_mul(origin.replicas.len());
    let limits = [origin.max_in_flight, of_all].into_iter().filter(|limit| *limit > 0).min();
    GateConfig {
        max_in_flight: limits.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX)),
        max_queue: settings.queue.max_length,
        max_queue_wait: settings.queue.max_wait,
        scheduler: settings.queue.scheduler,
        classes: classes.iter().map(tidegate_settings::Class::gate_config).collect(),
    }
}

fn ingress_config(classes: &[tidegate_settings::Class]) -> Vec<IngressConfig> {
    classes.iter().map(tidegate_settings::Class::ingress_config).collect()
}

fn class_facts(settings: &Settings, known: &[tidegate_settings::Class]) -> Vec<ClassFacts> {
    let names: Vec<&str> = known.iter().map(|class| class.name.as_str()).collect();
    let facts = |(class, mark): (&tidegate_settings::Class, ClassTag)| ClassFacts {
        name: class.name.as_str().into(),
        cost: class.work(),
        waits: settings.room.classes.contains(&class.name),
        mark,
        is_gone: false,
        before: None,
    };
    known.iter().zip(class_ids::marks(&names)).map(facts).collect()
}

/// What is in the order of the file, by ids; `gone` is asked for those without a place in it.
fn by_id<T>(order: &[ClassId], known: Vec<T>, len: usize, gone: impl Fn(usize) -> T) -> Vec<T> {
    let mut all: Vec<Option<T>> = std::iter::repeat_with(|| None).take(len).collect();
    order.iter().zip(known).for_each(|(id, value)| all[id.index()] = Some(value));
    all.into_iter().enumerate().map(|(id, value)| value.unwrap_or_else(|| gone(id))).collect()
}

fn bindings(binding: tidegate_settings::Binding) -> BindingKinds {
    match binding {
        tidegate_settings::Binding::None => BindingKinds::NONE,
        tidegate_settings::Binding::Ip => BindingKinds::IP,
        tidegate_settings::Binding::IpPrefix => BindingKinds::IP_PREFIX,
        tidegate_settings::Binding::Cookie => BindingKinds::COOKIE.or(BindingKinds::IP_PREFIX),
    }
}
