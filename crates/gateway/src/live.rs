//! The configuration in force, compiled: what a reload replaces with one pointer swap.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::capacity::{self, Estimator, Load};
use tidegate_core::classify::{ClassRule, Classifier, ClassifyError, Rules};
use tidegate_core::control::{Bounds, Control as Steering};
use tidegate_core::desk::SessionRules;
use tidegate_core::gate::GateConfig;
use tidegate_core::room::RoomConfig;
use tidegate_core::ticket::{BindingKinds, KeyError, KeyRing};
use tidegate_core::units::{ClassId, Cost, Rate, Timestamp};

use crate::page::{PageError, Pages};
use crate::settings::{self, Role, Settings};

/// What a request needs to know of the configuration.
pub struct Live {
    /// As written.
    pub settings: Settings,
    /// Request head to class.
    pub classifier: Classifier,
    /// By class id; the last is the default class.
    pub classes: Vec<ClassFacts>,
    /// Seals and opens tickets.
    pub keys: KeyRing,
    /// Bindings a ticket may have.
    pub bindings: BindingKinds,
    /// What waiting visitors see.
    pub pages: Pages,
    /// No class is named in `room.classes`: every navigation waits.
    pub all_navigations: bool,
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
}

impl Live {
    /// Compiles `settings`; `keys` is the ring's lines, from the settings or the state directory.
    ///
    /// # Errors
    /// Whatever `tidegate check` would have said of the parts that are compiled here.
    pub fn new(settings: Settings, keys: &[String]) -> Result<Self, LiveError> {
        let classifier = Rules::compile(settings.class.iter().map(rule).collect())?;
        let mut classes: Vec<ClassFacts> = settings
            .class
            .iter()
            .map(|c| ClassFacts {
                name: c.name.as_str().into(),
                cost: Cost::class_cost(c.cost).unwrap_or(Cost::ONE),
                waits: settings.room.classes.contains(&c.name),
            })
            .collect();
        classes.push(ClassFacts {
            name: "default".into(),
            cost: Cost::ONE,
            waits: settings.room.classes.iter().any(|n| n == "default"),
        });
        capacity::by_name(settings.estimator(), &settings.capacity.options())?;
        let keys = KeyRing::parse(&keys.join("\n"))?;
        let pages = Pages::new(&settings.room)?;
        let all_navigations = settings.room.classes.is_empty();
        let bindings = bindings(settings.room.binding);
        Ok(Self { settings, classifier, classes, keys, bindings, pages, all_navigations })
    }

    /// The class's facts; an id from before a reload falls back to the default class.
    pub fn class(&self, id: ClassId) -> &ClassFacts {
        self.classes.get(id.index()).unwrap_or(&self.classes[self.classes.len() - 1])
    }

    /// Whether requests of a class meet the room. (Parts of pages then pass with whoever was let in.)
    pub fn meets_room(&self, id: ClassId) -> bool {
        self.settings.room.enabled && (self.all_navigations || self.class(id).waits)
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
        let limit = self.settings.origin.max_in_flight;
        let default_priority = settings::Class::default().priority;
        GateConfig {
            max_in_flight: (limit > 0).then(|| u32::try_from(limit).unwrap_or(u32::MAX)),
            max_queue: self.settings.queue.max_length,
            max_queue_wait: self.settings.queue.max_wait,
            priorities: self.settings.class.iter().map(|c| c.priority).chain([default_priority]).collect(),
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
        if let Some(most) = self.gate_config().max_in_flight {
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
            max_in_flight: self.gate_config().max_in_flight,
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
