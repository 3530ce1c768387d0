//! The wire in front of a real hyper server: raw bytes in; what the service saw and the response out.

mod harness;

mod departure;
mod heads;
mod interim;
mod refusals;
mod segments;
mod sockets;
mod streams;
mod timeouts;
