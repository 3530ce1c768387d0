//! HTTP, independent of the waiting room and the gate: framing, checks, forwarding fields, targets.

pub(crate) mod body_rate;
pub mod http1;
pub mod http2;
pub mod hygiene;
pub mod proxy_header;
pub mod socket;
pub mod stream;
pub mod target;
pub(crate) mod timer;
pub mod tls;
pub mod tunnel_io;
pub mod visitor_body;
pub mod visitor_link;
