//! Tidegate's decisions.
//!
//! ```text
//!  request ─► classify ─► ingress ─► room (slots, hand, ticket, redeem) ─► gate (queue, scheduler, bucket) ─► origin
//!                                       ▲ session                             ▲
//!  control tick:  measure ──────────────┴──────────── capacity ───────────────┘
//! ```
//!
//! Pure: no clock, no sockets, no threads, no async, no randomness of its own. Time and randomness come in as
//! arguments, events go in, decisions come out, so that the gateway and the simulator run the same code.
//! Modules stand in the order of the flow.

pub mod units;

pub mod classify;

pub mod room;

pub mod slots;

mod ring;
pub use ring::SlotLoad;

mod decaying;
mod mutants;
mod sync;

pub mod bucket;

pub mod ingress;

pub mod policies;

mod queue_target;
pub mod virtual_clock;

pub mod ticket;

pub mod redeem;

pub mod session;

pub mod gate;
pub mod queue;
pub mod scheduler;

pub mod histogram;
pub mod measure;

pub mod detect;
pub mod rules;

pub mod capacity;

pub mod admission;

pub mod control;

pub mod tune;
