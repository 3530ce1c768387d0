//! Who asks, and who is asked: classes and service levels of requests, other applications.

use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, request};
use tidegate_core::classify::{ClassRule, Fields, RequestHead};
use tidegate_core::policies::TierId;
use tidegate_core::units::{ClassId, Timestamp};

use super::{ClassFacts, Config};
use crate::config::congestion_plan;
use crate::config::tiers::{TierError, Tiers};
use crate::http::target;
use tidegate_settings::{Class, Settings};

/// The levels; `classes` in the order of the file.
pub(crate) fn tiers(settings: &Settings, classes: &[ClassFacts]) -> Result<Tiers, TierError> {
    let class =
        |name: &str| classes.iter().position(|facts| &*facts.name == name).map(|id| ClassId(id as u8));
    Tiers::new(settings, class)
}

/// What the core asks of a request to be of the class.
pub(crate) fn rule(class: &Class) -> ClassRule {
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

struct HeadFields<'a>(&'a HeaderMap);

impl Fields for HeadFields<'_> {
    fn any(&self, name: &str, test: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.0.get_all(name).iter().any(|value| test(value.as_bytes()))
    }
}

impl Config {
    /// The service level of a request; nothing is looked at where there are none.
    pub(crate) fn tier_of(&self, headers: &HeaderMap, client: IpAddr, now: Timestamp) -> TierId {
        if self.tiers.is_empty() { TierId(0) } else { self.tiers.of(headers, client, now) }
    }

    /// The class of a request of this service level.
    pub(crate) fn class_of(&self, parts: &request::Parts, client: IpAddr, tier: TierId) -> ClassId {
        if let Some(class) = self.tiers.get(tier).and_then(|tier| tier.class) {
            return self.order[class.index()];
        }
        self.classify(&RequestHead {
            method: parts.method.as_str(),
            path: parts.uri.path(),
            query: parts.uri.query().unwrap_or_default(),
            host: target::host(parts),
            client,
            fields: &HeadFields(&parts.headers),
        })
    }

    /// Rules with the values that tunables have now.
    pub(crate) fn tune_rules(&mut self, old: &Self) {
        if self.settings.rule != old.settings.rule {
            self.plan = old.plan.renumbered(&self.settings, &self.classes);
        }
    }

    /// Goes on with another configuration's rates, quotas and verdicts.
    pub(crate) fn succeed_parties(&mut self, old: &Self, now: Timestamp) {
        congestion_plan::succeed(&mut self.plan, &old.plan, now);
        // Tuning leaves the levels alone: they are the same.
        if let Some(tiers) = Arc::get_mut(&mut self.tiers) {
            tiers.succeed(&old.tiers, now);
        }
        for one in &mut self.applications {
            if let Some(before) = old.applications.iter().find(|o| o.settings() == one.settings()) {
                *one = before.clone();
            }
        }
    }
}
