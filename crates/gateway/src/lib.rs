//! Tidegate's data plane: carries requests in and performs what the core decides.

pub mod access;
pub mod log;
pub mod hygiene;
pub mod settings;
pub mod wire;

pub mod deadline;
pub mod socket;

pub mod balance;
