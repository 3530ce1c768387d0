//! One request, from its connection to its answer.

pub mod accept;
pub mod connection;
pub mod context;
pub mod cookies;
mod counted;
mod handshake;
mod http2;
pub mod listeners;
pub mod navigation;
mod news;
pub mod respond;
pub mod response_body;
pub mod serve;
pub mod stages;
pub mod tcp;
