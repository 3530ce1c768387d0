//! What a proxy owes to HTTP besides carrying it: requests and responses made fit for the other side.
//!
//! Pure functions on heads (RFC 9110, 9112, 7239). The wire has seen to the framing before; here it is about meaning:
//! who is asked ([`check`]), what may be passed on ([`prepare_request`], [`prepare_response`]), and who asks
//! ([`client_ip`]).

mod check;
mod forwarded;
mod hops;
mod request;
mod response;

pub use check::{Reject, Target, check};
pub use forwarded::{beside_addresses, client_ip, node};
pub use request::{ForwardContext, prepare_request, request_id};
pub use response::{
    BadContentLength, BadResponse, ResponseFraming, content_length, prepare_response, prepare_trailers,
    settle_framing,
};

#[cfg(test)]
mod tests;
