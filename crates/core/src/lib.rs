//! Tidegate's decisions.
//!
//! ```text
//!  request ─► classify ─► ingress ─► admission (room, session) ─► gate (queue, scheduler, bucket) ─► origin
//!                                       ▲                          ▲
//!  control tick:  measure ──────────────┴──────── capacity ────────┘
//! ```
//!
//! Pure: no clock, sockets, threads, async or randomness of its own. Time and randomness are arguments, so
//! that the gateway and the simulator run the same code. Modules are declared in the order of the flow.

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
