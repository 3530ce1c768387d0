//! Tidegate's data plane: carries requests in and performs what the core decides.

pub mod settings;
