//! The control side: what happens once a tick, and what changes while the gate runs.

pub mod driver;

pub mod capacity;
pub mod config_store;
pub mod congestion;
pub mod health;
pub mod observe;

pub mod tuners;

pub mod feedback;
