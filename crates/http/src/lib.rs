//! HTTP/1.1 (RFC 9110, RFC 9112) without sockets, clocks or a runtime: bytes in, verdicts out.
//!
//! Strict on purpose: whatever two parsers may read in two ways is refused, so that what is passed on has been
//! understood in exactly one way. No verdict depends on how the bytes were cut into pieces.
//!
//! Knows nothing of rooms or gates, and decides nothing but what is a message.

pub mod name;
pub mod target;

mod bytes;
mod recycle;

mod fields;
mod request;
mod response;

pub use bytes::{alphanumeric_and, decimal, is_text, is_token, list};
pub use fields::Fields;
pub use name::{Known, Name};
pub use request::{RequestHead, to_map};
pub use response::ResponseHead;
