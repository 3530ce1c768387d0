//! Tidegate's data plane: carries requests in and performs what the core decides.
//!
//! ```text
//! server                                   builds and owns everything
//! admin                                    API, metrics, explanations
//! proxy │ control                          one request │ the control tick; they meet in `shared` only
//! shared                                   what both sides touch
//! config                                   the settings, compiled for running
//! http │ upstream │ history                visitors' connections │ the origin's │ the measurement database
//! base                                     clock, logs, files
//! ```
//!
//! A module imports from lower layers and from its own; `crates/core/tests/tidy.rs` checks it.

// Names say most of it; the core keeps the lint for its public items.
#![allow(missing_docs)]

pub mod admin;
pub mod base;
pub mod config;
pub mod control;
pub mod history;
pub mod http;
pub mod proxy;
pub mod server;
pub mod shared;
pub mod upstream;
