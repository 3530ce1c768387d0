//! A visitor's connection: raw bytes in; what the service saw and the response out.

mod harness;

mod departure;
mod interim;
mod refusals;
mod segments;
mod sockets;
mod streams;
mod timeouts;
