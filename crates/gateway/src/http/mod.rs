//! HTTP/1.1, independent of the waiting room and the gate: framing, checks, forwarding fields, targets.

pub mod hygiene;
pub mod proxy_header;
pub mod socket;
pub mod stream;
pub mod target;
pub mod tls;
pub mod visitor_body;
pub mod visitor_link;
pub mod wire;
