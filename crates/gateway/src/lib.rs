//! Tidegate's data plane: carries requests in and performs what the core decides.

pub mod access;
pub mod log;
pub mod hygiene;
pub mod page;
pub mod settings;
pub mod wire;

pub mod body;
pub mod deadline;
pub mod socket;

pub mod balance;
pub mod dispatch;
pub mod health;
pub mod pool;
pub mod tunnel;
