//! A proxy's duties by RFC 9110, 9112 and 7239: requests and responses are prepared for the other side.
//!
//! Pure functions on heads, which they edit in place. The framing of requests has been checked before; here
//! it is about meaning: which host is asked ([`check`]), what may be passed on ([`prepare_request`],
//! [`prepare_response`]), and who asks ([`client_ip`]).

mod check;
mod forwarded;
mod hops;
mod request;
mod response;

pub use check::{Reject, Target, check};
pub use forwarded::{beside_addresses, client_ip};
pub use request::{ForwardContext, asks_to_switch, prepare_request, request_id};
pub use response::{BadContentLength, BadStatus, content_length, prepare_response, prepare_trailers};

#[cfg(test)]
mod tests;
