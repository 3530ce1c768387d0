//! Tidegate's test bench: what a service and its visitors do, without a service and without visitors.
//!
//! ```text
//!                        ┌─► load ─► client ══ sockets ══► (gate) ══► origin ─┐
//!  scenario ─► crowd ─► visitor                                             model
//!     one       who      what it                                            what it
//!   language   comes   does next                                           can take
//!                        └─► sim ─► (the gate's core, watched by the oracle) ─┘
//!                             │
//!                 both ─► tally ─► outcome ─► report, html, plot ─► demo, experiment
//! ```
//!
//! Crowd, visitors, model, tally and simulator are pure: time and randomness come in as arguments, and one
//! seed gives one run. Only `client`, `load` and `origin` touch sockets; nothing here decides who is
//! admitted.

#![allow(missing_docs, reason = "names say what most items are; docs are for what they cannot say")]

pub mod answer;
pub mod arena;
pub(crate) mod child;
pub mod client;
pub mod cookie_jar;
pub mod crowd;
pub mod demo;
pub mod dist;
mod escape;
pub mod experiment;
pub mod html;
pub mod limits;
pub mod load;
pub mod model;
pub mod oracle;
pub mod origin;
pub mod outcome;
pub mod plot;
pub mod progress;
pub mod report;
pub mod scenario;
pub mod scratch;
pub mod sim;
mod slab;
mod split_mix;
mod spread;
mod stats;
pub mod tally;
pub mod testbed;
mod times;
pub mod tournament;
pub mod visitor;
pub mod visitor_events;
pub mod wheel;
