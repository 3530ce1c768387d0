//! Tidegate in the kernel: SYNs are policed before the stack sees them, and connections wait to be accepted
//! in the order of their priority (Voigt et al., "In-kernel mechanisms for adaptive control of overloaded
//! web servers").
//!
//! ```text
//!  SYN ─► interface ─► XDP: syn_police.bpf.c ─► stack ─► sk_reuseport: prioritise.bpf.c ─► listen queue
//!                      or nftables                                                         of a priority
//!                          ▲                                       ▲
//!                          └────── rules (table, program) ─────────┘
//! ```
//!
//! Rules are those of [`tidegate_core::policing`]. [`attach`] polices by XDP where that works and by
//! nftables otherwise; [`Policer`] and [`Nft`] are the two, [`SynPolicing`] what they have in common.
//! [`Priorities`] orders accepts, with or without policing. [`probe`] tells what works on this machine, and
//! why something does not.
//!
//! Nothing is pinned and nothing outlives the process: programs hang on links and on sockets, the table of
//! nftables belongs to a socket. All of it ends with the process, also after `kill -9`.
#![allow(missing_docs, reason = "names say what most fields are; docs are for what they cannot say")]

mod attach;
mod error;
mod layout;
mod link;
mod nft;
mod policer;
mod policing;
mod priorities;
mod probe;
mod program;
mod table;
mod types;

pub use attach::attach;
pub use error::KernelError;
pub use link::interfaces_of;
pub use nft::Nft;
pub use policer::Policer;
pub use policing::SynPolicing;
pub use priorities::{Priorities, PriorityConfig, accept_first, listen};
pub use probe::{Finding, InterfaceReport, Report, probe};
pub use program::{Programs, is_built};
pub use types::{AttachedTo, Mechanism, Mode, PolicerConfig, RuleCounters, Totals, XdpMode};
