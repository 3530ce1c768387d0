//! The configuration in force, compiled: what a reload replaces with one pointer swap.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::capacity::{self, Estimator, Load};
use tidegate_core::classify::{ClassRule, Classifier, ClassifyError, Rules};
use tidegate_core::control::{Bounds, Control as Steering};
use tidegate_core::desk::{Entrance, SessionRules};
use tidegate_core::gate::GateConfig;
use tidegate_core::ingress::{Ingress, IngressConfig};
use tidegate_core::room::RoomConfig;
use tidegate_core::ticket::{BindingKinds, KeyError, KeyRing};
use tidegate_core::units::{ClassId, Cost, Rate, Timestamp};

use crate::congestion::plan::{Plan, PlanError};
use crate::page::{PageError, Pages};
use crate::settings::{self, Role, Settings};

/// What a request needs to know of the configuration.
pub struct Live {
    /// As written.
    pub settings: Settings,
    /// Request head to class.
    pub classifier: Arc<Classifier>,
    /// By class id; the last is the default class.
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
}

/// Why a configuration cannot be put in force.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// A class's match.
    #[error(transparent)]
    Classify(#[from] ClassifyError),
    /// A key.
    #[error("room.keys: {0}")]
    Keys(#[from] KeyError),
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

impl Live {
    /// Compiles `settings`; `keys` is the ring's lines, from the settings or the state directory.
    ///
    /// # Errors
    /// Whatever `tidegate check` would have said of the parts that are compiled here.
    pub fn new(settings: Settings, keys: &[String]) -> Result<Self, LiveError> {
        let known = settings.classes();
        let Some((_, matched)) = known.split_last() else { unreachable!("there is a default class") };
        let classifier = Rules::compile(matched.iter().map(rule).collect())?;
        let classes = class_facts(&settings, &known);
        capacity::by_name(settings.estimator(), &settings.capacity.options())?;
        let keys = Arc::new(KeyRing::parse(&keys.join("\n"))?);
        let pages = Arc::new(Pages::new(&settings.room)?);
        let all_navigations = settings.room.classes.is_empty();
        let bindings = bindings(settings.room.binding);
        let gate = gate_config(&settings, &known);
        let ingress = Ingress::new(&ingress_config(&known));
        let classifier = Arc::new(classifier);
        let plan = Arc::new(Plan::new(&settings, &class_names(&classes))?);
        Ok(Self {
            settings,
            classifier,
            classes,
            keys,
            bindings,
            pages,
            all_navigations,
            ingress,
            plan,
            gate,
        })
    }

    /// The same with other values of [tunables](crate::settings::Tunable). What is compiled from other keys is shared: a change
    /// costs microseconds.
    ///
    /// # Errors
    /// The estimator's name, which the settings have checked.
    pub fn tuned(&self, settings: Settings) -> Result<Self, LiveError> {
        if settings.estimator() != self.settings.estimator() {
            capacity::by_name(settings.estimator(), &settings.capacity.options())?;
        }
        let known = settings.classes();
        let classes = class_facts(&settings, &known);
        let plan = match settings.rule == self.settings.rule {
            true => self.plan.clone(),
            false => Arc::new(self.plan.tuned(&settings, &class_names(&classes))?),
        };
        Ok(Self {
            classifier: self.classifier.clone(),
            classes,
            keys: self.keys.clone(),
            bindings: self.bindings,
            pages: self.pages.clone(),
            all_navigations: settings.room.classes.is_empty(),
            gate: gate_config(&settings, &known),
            ingress: Ingress::new(&ingress_config(&known)),
            plan,
            settings,
        })
    }

    /// The class's facts; an id from before a reload falls back to the default class.
    pub fn class(&self, id: ClassId) -> &ClassFacts {
        self.classes.get(id.index()).unwrap_or(&self.classes[self.classes.len() - 1])
    }

    /// Whether requests of a class meet the room. (Parts of pages then pass with whoever was let in.)
    pub fn meets_room(&self, id: ClassId) -> bool {
        self.settings.room.enabled && (self.all_navigations || self.class(id).waits)
    }

    /// What guards the way to the desk for a class that waits, or one that does not.
    pub fn entrance(&self, waits: bool) -> Entrance<'_> {
        Entrance { ingress: &self.ingress, max_wait: self.settings.room.max_wait, waits }
    }

    /// How long a session's pass holds.
    pub fn session_rules(&self) -> SessionRules {
        SessionRules { timeout: self.settings.session.timeout, max_age: self.settings.session.max_age }
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
        let named = |facts: &ClassFacts| old.classes.iter().position(|o| o.name == facts.name);
        let before: Vec<_> =
            self.classes.iter().map(|facts| named(facts).map(|id| ClassId(id as u8))).collect();
        self.ingress = old.ingress.succeed(&ingress_config(&self.settings.classes()), &before, now);
        // Otherwise it is the same.
        if let Some(plan) = Arc::get_mut(&mut self.plan) {
            plan.succeed(&old.plan, now);
        }
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
        let (tunables, _) = self.steering().tick(&[], &Load::default(), Timestamp::default());
        tunables.outflow
    }

    /// How long the gate waits for requests in progress after SIGTERM.
    pub fn drain_timeout(&self) -> Duration {
        self.settings.limits.drain_timeout
    }
}

fn gate_config(settings: &Settings, classes: &[settings::Class]) -> GateConfig {
    let origin = &settings.origin;
    // More could not be sent anywhere.
    let of_all = origin.max_in_flight_per_replica.saturating_mul(origin.replicas.len());
    let limits = [origin.max_in_flight, of_all].into_iter().filter(|limit| *limit > 0).min();
    GateConfig {
        max_in_flight: limits.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX)),
        max_queue: settings.queue.max_length,
        max_queue_wait: settings.queue.max_wait,
        scheduler: settings.queue.scheduler,
        classes: classes.iter().map(settings::Class::gate_config).collect(),
    }
}

fn ingress_config(classes: &[settings::Class]) -> Vec<IngressConfig> {
    classes.iter().map(settings::Class::ingress_config).collect()
}

fn class_names(classes: &[ClassFacts]) -> Vec<&str> {
    classes.iter().map(|facts| &*facts.name).collect()
}

fn class_facts(settings: &Settings, known: &[settings::Class]) -> Vec<ClassFacts> {
    let facts = |class: &settings::Class| ClassFacts {
        name: class.name.as_str().into(),
        cost: class.work(),
        waits: settings.room.classes.contains(&class.name),
    };
    known.iter().map(facts).collect()
}

fn rule(class: &settings::Class) -> ClassRule {
    let m = &class.matches;
    ClassRule {
        method: m.method.clone(),
        path: m.path.clone(),
        host: m.host.clone(),
        header: m.header.clone(),
        cookie: m.cookie.clone(),
        query: m.query.clone(),
        client: m.client.clone(),
    }
}

fn bindings(binding: settings::Binding) -> BindingKinds {
    match binding {
        settings::Binding::None => BindingKinds::NONE,
        settings::Binding::Ip => BindingKinds::IP,
        settings::Binding::IpPrefix => BindingKinds::IP_PREFIX,
        settings::Binding::Cookie => BindingKinds::COOKIE.or(BindingKinds::IP_PREFIX),
    }
}
