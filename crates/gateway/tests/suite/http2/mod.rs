//! HTTP/2 over loopback sockets: with a client of the `h2` crate, and with frames written by hand.

mod floods;
mod frames;
mod harness;
mod heads;
mod lifetime;
mod messages;
mod origin;
mod origin_websocket;
mod websocket;
