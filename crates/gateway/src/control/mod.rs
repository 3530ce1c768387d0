//! The control side: what happens once a tick, and what changes while the gate runs.

pub mod acme;
pub mod capacity;
pub mod config_store;
pub mod congestion;
pub mod correlation;
pub mod driver;
pub mod feedback;
pub mod health;
pub mod kernel;
pub mod learned;
pub mod observe;
pub mod peers;
pub mod tcp;
pub mod throttles;
pub mod tuners;
