//! Tests of a whole gate over loopback sockets.

mod abandoned;
mod accept_order;
mod admin;
mod authorisers;
mod changes;
mod classes;
mod correlation;
mod external_estimator;
mod figures;
pub mod harness;
mod large;
mod learned_costs;
mod limits;
mod matrix;
mod multicast;
mod page_passes;
pub mod policies;
mod positions;
mod reload;
mod reload_classes;
mod restart;
#[path = "../../../../kernel/tests/suite/rights.rs"]
mod rights;
mod rule_settings;
mod rules;
mod sessions;
mod sharing;
mod shutdown;
mod slow_disk;
mod tcp;
mod throttles;
mod tiers;
mod tunables;
mod tuners;
mod tunnels;
