//! HTTP/1.1 (RFC 9110, RFC 9112) without sockets, clocks or a runtime: bytes in, verdicts out.
//!
//! ```text
//!  visitor ─► RequestParser ──► RequestHead ───► (stages) ───► write_request ──► origin
//!             BodyDecoder ────► pieces ──────────────────────► BodyEncoder ────►
//!             ◄── write_response ◄── (stages) ◄── ResponseHead ◄── ResponseParser ◄──
//!             ◄────── BodyEncoder ◄──────────────────── pieces ◄── BodyDecoder ◄──
//! ```
//!
//! Strict on purpose: whatever two parsers may read in two ways is refused, so that what is passed on has
//! been understood in exactly one way. No verdict depends on how the bytes were cut into pieces. What is
//! refused, and why: `docs/http.md`.
//!
//! Knows nothing of rooms or gates, and decides nothing but what is a message.

pub mod name;
pub mod target;

mod bytes;
mod error;
mod recycle;

mod fields;
mod request;
mod response;

mod body;
mod parse;
mod write;

pub use body::decode::{BodyDecoder, Piece};
pub use body::encode::{BodyEncoder, Frame, WrongLength};
pub use body::trailers::is_forbidden_trailer;
pub use bytes::{alphanumeric_and, decimal, is_text, is_token, list};
pub use error::{BadBody, BadResponse, Refusal};
pub use fields::Fields;
pub use name::{Known, Name};
pub use parse::Framing;
pub use parse::request::{Facts, HeadLimits, RequestParser};
pub use parse::response::{Asked, ResponseFacts, ResponseLimits, ResponseParser, Stage};
pub use request::{RequestHead, to_map};
pub use response::ResponseHead;
pub use write::{CONTINUE, write_interim, write_request, write_response};
