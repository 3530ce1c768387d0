//! Content of messages (RFC 9112 6 and 7).

pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod trailers;

#[cfg(test)]
mod tests;
