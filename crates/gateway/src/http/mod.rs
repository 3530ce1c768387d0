//! HTTP/1.1 without any knowledge of rooms and gates: framing, checks, forwarding fields, targets.

pub mod hygiene;
pub mod socket;
pub mod target;
pub mod wire;
