//! The settings, compiled for running. A reload replaces the whole with one pointer swap.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::admission::SessionRules;
use tidegate_core::capacity::{self, Estimator, GateLoad};
use tidegate_core::class_costs::CostSource;
use tidegate_core::classify::{self, ClassRule, Classifier, ClassifyError, Rules};
use tidegate_core::control::{Bounds, Control as Steering};
use tidegate_core::gate::{ClassConfig, GateConfig};
use tidegate_core::ingress::{Ingress, IngressConfig};
use tidegate_core::measure::{ClassTotals, Snapshot};
use tidegate_core::policies::TierId;
use tidegate_core::room::RoomConfig;
use tidegate_core::session::{Cap, SessionConfig};
use tidegate_core::ticket::{BindingKinds, KeyError, KeyRing};
use tidegate_core::units::{ClassId, Rate, Share, Timestamp};
use tidegate_http::{Fields, Name, RequestHead};

use crate::config::authoriser::Authoriser;
use crate::config::page::{PageError, Pages};
use crate::config::tiers::{TierError, Tiers};
use crate::http::target;
use crate::http::tls::{TlsError, VisitorTls};
use crate::upstream::tls::{ClientTls, ClientTlsError};
use congestion_plan::{Plan, PlanError};
use tidegate_settings::{Class, RequestTypes, Role, SessionBy, SessionMax, Settings};

mod admission;
pub mod authoriser;
mod class_ids;
pub mod congestion_plan;
pub mod page;
pub mod tiers;

pub use class_ids::ClassTag;

pub struct Config {
    pub settings: Settings,
    /// From a request head to the class's index in the file.
    classifier: Arc<Classifier>,
    /// The classes' ids in the order of the file, the default class last.
    order: Vec<ClassId>,
    /// By class id; classes that a reload has removed are among them.
    pub classes: Vec<ClassFacts>,
    pub keys: Arc<KeyRing>,
    pub bindings: BindingKinds,
    pub pages: Arc<Pages>,
    /// No class is named in `room.classes`: every navigation waits.
    pub all_navigations: bool,
    pub ingress: Ingress,
    pub tiers: Arc<Tiers>,
    /// Counts under a level's id from the time when the id was another level's.
    before_tiers: Vec<Option<Arc<ClassTotals>>>,
    /// Applications that rules ask, in the order of the file.
    pub applications: Vec<Arc<Authoriser>>,
    pub plan: Arc<Plan>,
    gate: GateConfig,
    /// How visitors are met at `listen.https`.
    pub tls: Option<Arc<VisitorTls>>,
    /// How connections to replicas and to other `https://` addresses begin.
    pub origin_tls: Option<Arc<ClientTls>>,
    pub calls_tls: Option<Arc<ClientTls>>,
}

#[derive(Clone, Debug)]
pub struct ClassFacts {
    pub name: Arc<str>,
    /// What it costs by the configuration. What a request is charged: [`tidegate_core::class_costs`].
    pub cost: CostSource,
    pub waits: bool,
    pub mark: ClassTag,
    /// A reload has removed it. New requests are of other classes; requests under way follow its last rules.
    pub is_gone: bool,
    /// Counts under its id from the time when the id was another class's.
    before: Option<Arc<ClassTotals>>,
}

impl ClassFacts {
    /// This class's part of what was counted under its id.
    pub fn totals<'t>(&self, counted: &'t ClassTotals) -> Cow<'t, ClassTotals> {
        match &self.before {
            Some(before) => Cow::Owned(counted.since(before)),
            None => Cow::Borrowed(counted),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error(transparent)]
    Classify(#[from] ClassifyError),
    #[error("room.keys: {0}")]
    Keys(#[from] KeyError),
    #[error(transparent)]
    Tier(#[from] TierError),
    #[error(transparent)]
    Page(#[from] PageError),
    #[error("capacity.estimator: {0}")]
    Estimator(#[from] capacity::UnknownEstimator),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    ClientTls(#[from] ClientTlsError),
}

impl Config {
    /// Compiles `settings`; `keys` is the ring's lines, from the settings or the state directory.
    pub fn new(settings: Settings, keys: &[String]) -> Result<Self, ConfigError> {
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
        let calls_tls = ClientTls::of_calls(&settings)?.map(Arc::new);
        let authoriser = |one| Arc::new(Authoriser::new(one, calls_tls.clone()));
        let applications = settings.application.iter().map(authoriser).collect();
        let order = (0..=u8::MAX).map(ClassId).take(known.len()).collect();
        // By its index in the file, which is its id until a reload.
        let class =
            |name: &str| known.iter().position(|class| class.name == name).map(|id| ClassId(id as u8));
        Ok(Self {
            plan: Arc::new(Plan::new(&settings, &congestion_plan::class_names(&classes))?),
            tiers: Arc::new(Tiers::new(&settings, class)?),
            before_tiers: Vec::new(),
            tls: VisitorTls::new(&settings)?.map(Arc::new),
            origin_tls: ClientTls::of_origin(&settings.origin)?.map(Arc::new),
            calls_tls,
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

    /// The same with other values of [tunables](tidegate_settings::Tunable). What is compiled from other keys
    /// is shared, so that a change costs microseconds.
    ///
    /// # Errors
    /// The estimator's name, or a rule's condition, which the settings have checked.
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
            tiers: match settings.tier == self.settings.tier {
                true => self.tiers.clone(),
                false => Arc::new(self.tiers.tuned(&settings)),
            },
            before_tiers: self.before_tiers.clone(),
            applications: self.applications.clone(),
            tls: self.tls.clone(),
            origin_tls: self.origin_tls.clone(),
            calls_tls: self.calls_tls.clone(),
            ingress: Ingress::default(),
            settings,
        };
        tuned.arrange(self);
        for (facts, before) in tuned.classes.iter_mut().zip(&self.classes) {
            facts.before.clone_from(&before.before);
        }
        let parts =
            |s: &'_ Settings| (s.rule.clone(), s.detector.clone(), s.tier.clone(), s.enforcement.clone());
        if parts(&tuned.settings) != parts(&self.settings) {
            tuned.plan = self.plan.tuned(&self.settings, &tuned.settings, &tuned.classes)?;
        }
        Ok(tuned)
    }

    /// Gives each class the id that the class of the same name has in `old`, so that what is kept by ids
    /// stays with its class. To be called before anything else is done with a reloaded configuration.
    /// `is_idle`: no request of the class waits or is at the origin; `total`: all counts so far.
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
        let names = |of: &Self| of.tiers.names().map(str::to_owned).collect::<Vec<_>>();
        let (now, before) = (names(self), names(old));
        self.before_tiers = (0..=now.len())
            .map(|id| match id.checked_sub(1) {
                Some(at) if before.get(at) != Some(&now[at]) => total.tiers().get(id).cloned().map(Arc::new),
                _ => old.before_tiers.get(id).cloned().flatten(),
            })
            .collect();
        for (id, (facts, before)) in self.classes.iter_mut().zip(&old.classes).enumerate() {
            facts.before = match facts.name == before.name {
                true => before.before.clone(),
                false => total.classes().get(id).cloned().map(Arc::new),
            };
        }
    }

    /// The part of what was counted under its id that is of this service level.
    pub fn tier_totals<'t>(&self, id: TierId, counted: &'t ClassTotals) -> Cow<'t, ClassTotals> {
        match self.before_tiers.get(usize::from(id.0)) {
            Some(Some(before)) => Cow::Owned(counted.since(before)),
            _ => Cow::Borrowed(counted),
        }
    }

    /// Ids that were another class's in `old`.
    pub fn taken_over<'l>(&'l self, old: &'l Self) -> impl Iterator<Item = ClassId> + 'l {
        let both = (0..=u8::MAX).zip(self.classes.iter().zip(&old.classes));
        both.filter(|(_, (now, then))| now.name != then.name).map(|(id, _)| ClassId(id))
    }

    /// Reorders what is in the order of the file by id; ids without a class in the file keep what `old` has.
    fn arrange(&mut self, old: &Self) {
        let len = self.order.iter().map(|id| id.index() + 1).max().unwrap_or_default().max(old.classes.len());
        let order = &self.order;
        let gone = |id: usize| ClassFacts { is_gone: true, waits: false, ..old.classes[id].clone() };
        self.classes = by_id(order, std::mem::take(&mut self.classes), len, gone);
        // Its guaranteed share is given to others now.
        let gone = |id: usize| ClassConfig { guarantee: Share::ZERO, ..old.gate.class(ClassId(id as u8)) };
        self.gate.classes = by_id(order, std::mem::take(&mut self.gate.classes), len, gone);
        self.ingress = Ingress::new(&self.ingress_config());
    }

    /// By id; classes that have gone get no requests.
    fn ingress_config(&self) -> Vec<IngressConfig> {
        let known = ingress_config(&self.settings.classes());
        by_id(&self.order, known, self.classes.len(), |_| IngressConfig::default())
    }

    pub fn classify(&self, head: &classify::RequestHead<'_>) -> ClassId {
        self.order[self.classifier.classify(head).index()]
    }

    /// The configured classes with their ids, in the order of the file, the default class last; then those
    /// that have gone.
    pub fn in_order(&self) -> impl Iterator<Item = (ClassId, &ClassFacts)> {
        let gone = self.classes.iter().enumerate().filter(|(_, facts)| facts.is_gone);
        let configured = self.order.iter().map(|id| (*id, &self.classes[id.index()]));
        configured.chain(gone.map(|(id, facts)| (ClassId(id as u8), facts)))
    }

    pub fn named(&self, name: &str) -> Option<ClassId> {
        self.order.iter().copied().find(|id| *self.classes[id.index()].name == *name)
    }

    pub fn marked(&self, mark: ClassTag) -> Option<ClassId> {
        self.order.iter().copied().find(|id| self.classes[id.index()].mark == mark)
    }

    /// The class's facts; those of the default class for an unused id.
    pub fn class(&self, id: ClassId) -> &ClassFacts {
        let Some(default) = self.order.last() else { unreachable!("there is a default class") };
        self.classes.get(id.index()).unwrap_or(&self.classes[default.index()])
    }

    /// Whether the paths of a class's requests tell their type for the correlation.
    pub fn notes_path(&self, class: ClassId) -> bool {
        let correlate = &self.settings.correlate;
        correlate.enabled
            && match correlate.types {
                RequestTypes::Auto => self.order.last() == Some(&class),
                RequestTypes::Class => false,
                RequestTypes::Path => true,
            }
    }

    /// Whether a part of the query belongs to the type.
    pub fn notes_query(&self) -> bool {
        !self.settings.correlate.parameters.is_empty()
    }

    /// Whether requests of a class meet the room. (Parts of a page then pass with its visitor.)
    pub fn meets_room(&self, id: ClassId) -> bool {
        self.settings.room.enabled && (self.all_navigations || self.class(id).waits)
    }

    pub fn room_config(&self) -> RoomConfig {
        let r = &self.settings.room;
        RoomConfig {
            max_wait: r.max_wait,
            grace: r.grace,
            // Only tokencheck sees tickets made by another process's clock.
            tolerance: match self.settings.role {
                Role::TokenCheck { .. } => r.tolerance,
                Role::Gate | Role::TokenGen { .. } => Duration::ZERO,
            },
            burst: r.burst,
            overbook_max: r.overbook_max,
            rise_to_newcomers: r.rise_to_newcomers,
            prefix_share: r.prefix_share,
            after_restart_accept: r.after_restart_accept,
            class_costs: self.cost_sources(),
        }
    }

    pub fn gate(&self) -> &GateConfig {
        &self.gate
    }

    /// Takes over the state of another configuration's ingress buckets, quotas and verdicts, by the names of
    /// their owners. To be called before this one is put in force.
    pub fn succeed(&mut self, old: &Self, now: Timestamp) {
        let before: Vec<_> = self.classes.iter().map(|facts| old.named(&facts.name)).collect();
        self.ingress = old.ingress.succeed(&self.ingress_config(), &before, now);
        congestion_plan::succeed(&mut self.plan, &old.plan, now);
        // After tuning the levels are shared with `old`, and have their state.
        if let Some(tiers) = Arc::get_mut(&mut self.tiers) {
            tiers.succeed(&old.tiers, now);
        }
        // After tuning it is shared with `old`.
        if let (Some(tls), Some(old)) = (self.tls.as_mut().and_then(Arc::get_mut), &old.tls) {
            tls.succeed(old);
        }
        for one in &mut self.applications {
            if let Some(before) = old.applications.iter().find(|o| o.settings == one.settings) {
                before.believe(self.calls_tls.clone());
                *one = before.clone();
            }
        }
    }

    pub fn steering(&self) -> Steering {
        Steering::new(self.estimator(None), self.bounds())
    }

    /// The estimator; one that discovers starts from `known` if the operator gave no figure.
    pub fn estimator(&self, known: Option<Rate>) -> Box<dyn Estimator> {
        let s = &self.settings;
        let mut options = s.capacity.options();
        if s.discovers() {
            options.rate = options.rate.or(known);
        } else if let Role::TokenCheck { .. } = s.role {
            // Tokengen limits, and says by how much; until then tickets do.
            options.rate = Some(Rate::MAX);
        }
        // A search above the operator's limit would never end.
        if let Some(most) = self.gate.max_in_flight {
            options.bottleneck.max_in_flight = options.bottleneck.max_in_flight.min(most);
        }
        capacity::by_name(s.estimator(), &options).unwrap_or_else(|_| unreachable!("checked by Config::new"))
    }

    pub fn bounds(&self) -> Bounds {
        let c = &self.settings.capacity;
        Bounds {
            capacity: c.most().unwrap_or(Rate::MAX),
            floor: c.least(),
            max_in_flight: self.gate.max_in_flight,
        }
    }

    /// What one request of each class costs by the configuration, by id.
    pub fn cost_sources(&self) -> Vec<CostSource> {
        self.classes.iter().map(|c| c.cost).collect()
    }

    /// The outflow that the room starts with: what the estimator says before any measurement.
    pub fn initial_capacity(&self) -> Rate {
        let (tunables, _) = self.steering().tick(&[], &GateLoad::default(), Timestamp::default());
        tunables.outflow
    }

    pub fn session_rules(&self) -> SessionRules {
        SessionRules { timeout: self.settings.session.timeout, max_age: self.settings.session.max_age }
    }

    /// Whether sessions are admitted here: tokengen's visitors have theirs at tokencheck.
    pub fn counts_sessions(&self) -> bool {
        self.settings.counts_sessions() && !matches!(self.settings.role, Role::TokenGen { .. })
    }

    pub fn session_config(&self) -> SessionConfig {
        let session = &self.settings.session;
        let slots = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let own = self.tiers.iter().filter(|(_, tier)| tier.max_sessions > 0);
        SessionConfig {
            timeout: session.timeout,
            max_age: session.max_age,
            cap: match session.max {
                SessionMax::None => Cap::None,
                SessionMax::Discovered => Cap::Discovered,
                SessionMax::Fixed(n) => Cap::Fixed(n),
            },
            max_entries: session.max_entries,
            // Only a pass would be valid again; a returning cookie or address is a new session.
            remembers_ended: session.key == SessionBy::Pass,
            pools: own.map(|(id, tier)| (id, slots(tier.max_sessions))).collect(),
        }
    }

    pub(crate) fn tier_of(&self, fields: &Fields, client: IpAddr, now: Timestamp) -> TierId {
        if self.tiers.is_empty() { TierId(0) } else { self.tiers.of(fields, client, now) }
    }

    pub(crate) fn class_of(&self, head: &RequestHead, client: IpAddr, tier: TierId) -> ClassId {
        let head = classify::RequestHead {
            method: head.method().as_str(),
            path: head.path(),
            query: head.query().unwrap_or_default(),
            host: if self.classifier.asks_host() { target::host(head) } else { "" },
            client,
            fields: &HeadFields(&head.fields),
        };
        self.classify_for(&head, tier)
    }
}

fn rule(class: &Class) -> ClassRule {
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

struct HeadFields<'a>(&'a Fields);

impl classify::Fields for HeadFields<'_> {
    fn any(&self, name: &str, test: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.0.get_all(Name::of(name)).any(test)
    }
}

fn gate_config(settings: &Settings, classes: &[Class]) -> GateConfig {
    let origin = &settings.origin;
    // All replicas together take no more.
    let of_all = origin.max_in_flight_per_replica.saturating_mul(origin.replicas.len());
    let limits = [origin.max_in_flight, of_all].into_iter().filter(|limit| *limit > 0).min();
    GateConfig {
        max_in_flight: limits.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX)),
        max_queue: settings.queue.max_length,
        max_queue_wait: settings.queue.max_wait,
        scheduler: settings.queue.scheduler,
        classes: classes.iter().map(Class::gate_config).collect(),
    }
}

fn ingress_config(classes: &[Class]) -> Vec<IngressConfig> {
    classes.iter().map(Class::ingress_config).collect()
}

fn class_facts(settings: &Settings, known: &[Class]) -> Vec<ClassFacts> {
    let names: Vec<&str> = known.iter().map(|class| class.name.as_str()).collect();
    let facts = |(class, mark): (&Class, ClassTag)| ClassFacts {
        name: class.name.as_str().into(),
        cost: class.cost_source(),
        waits: settings.room.classes.contains(&class.name),
        mark,
        is_gone: false,
        before: None,
    };
    known.iter().zip(class_ids::tags(&names)).map(facts).collect()
}

/// Reorders by id what is in the order of the file; `gone` makes the values of ids without a class.
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
