//! The kernel's mechanisms with real sockets, in network namespaces of their own.

#[allow(dead_code, reason = "the unit tests use the rest")]
mod frames;
mod net;
mod order;
mod policing;
mod rights;
mod survival;
