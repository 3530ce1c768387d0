//! A testbed of real kernels: a server, a switch and client machines, each in a network namespace of its own,
//! joined by cables (veth). What a testbed's file describes is played over real sockets, with the mechanisms
//! of [`tidegate_kernel`] at the server (Voigt et al., "In-kernel mechanisms for adaptive control of
//! overloaded web servers", sections 3 to 5).
//!
//! ```text
//!  clients, 10.77.1.1 ... ──┐
//!  clients, 10.77.2.1 ... ──┼─ switch ── server, 10.77.0.1:80: policing ─► queues by priority ─► processes
//!  flood, 198.18.0.0/15 ────┘  (bridge)                                                         └─► CPU
//! ```
//!
//! The namespaces have no names: the kernel removes them, their cables and whatever is attached to these with
//! the process, however it ends. The flood works in nothing else than such a namespace.

mod addresses;
mod clients;
mod cpu;
mod flood;
mod gate;
mod namespace;
mod network;
mod play;
mod server;
mod spec;
mod trouble;

#[cfg(test)]
mod tests;

pub use play::{Order, play};
pub use spec::{Acceptor, ClientSpec, Policing, RuleSpec, Testbed, Work, is_described, keys};
pub use trouble::Trouble;
