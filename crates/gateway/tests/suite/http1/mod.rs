//! A visitor's connection: raw bytes in; what the service saw and the response out.

mod harness;

mod departure;
mod framing;
mod interim;
mod memory;
mod refusals;
mod segments;
mod sockets;
mod spliced;
mod streams;
mod timeouts;
mod uploads;
