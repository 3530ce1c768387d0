//! Tidegate's decisions.
//!
//! ```text
//!  request ─► classify ─► ingress ─► admission (room, session) ─► gate (queue, scheduler, bucket) ─► origin
//!                                       ▲                          ▲
//!  control tick:  measure ──────────────┴──────── capacity ────────┘
//! ```
//!
//! Pure: no clock, sockets, threads, async or randomness of its own. Time and randomness are arguments, so
//! that the gateway and the simulator run the same code.
#![allow(missing_docs, reason = "names say what most fields are; docs are for what they cannot say")]

pub mod admission;
pub mod bucket;
pub mod capacity;
pub mod class_costs;
pub mod classify;
pub mod control;
pub mod correlate;
pub mod detect;
pub mod gate;
pub mod histogram;
pub mod ingress;
pub mod measure;
pub mod policies;
pub mod policing;
pub mod queue;
pub mod redeem;
pub mod room;
pub mod rules;
pub mod scheduler;
pub mod session;
pub mod slots;
pub mod throttle;
pub mod ticket;
pub mod tune;
pub mod units;
pub mod virtual_clock;

mod bits;
mod decaying;
mod mutants;
mod origin_flow;
mod queue_target;
mod ring;
mod sync;

pub use ring::SlotLoad;
