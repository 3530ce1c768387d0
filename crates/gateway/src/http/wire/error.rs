//! What the wire refuses, and the status of each refusal.

use std::error::Error;
use std::io;

/// Why a request head does not reach the service: the wire answers it itself and closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// A line ended in LF without CR. RFC 9112 2.2 allows to accept it, but then two parsers may disagree.
    #[error("line ended by a bare LF")]
    BareLf,
    /// CR without LF inside a line (RFC 9112 2.2).
    #[error("bare CR in the request head")]
    BareCr,
    /// NUL, another control character or DEL.
    #[error("control character in the request head")]
    Control,
    /// A field line that starts with white space (RFC 9112 5.2).
    #[error("folded header line")]
    Fold,
    /// Field name empty or not a token, white space before the colon, or no colon (RFC 9112 5.1).
    #[error("malformed field name")]
    FieldName,
    /// The request line is not `method SP target SP version`.
    #[error("malformed request line")]
    RequestLine,
    #[error("malformed method")]
    Method,
    /// The method is longer than any that is registered.
    #[error("method too long")]
    MethodTooLong,
    /// The request target has a character or a form that RFC 9112 3.2 does not allow.
    #[error("malformed request target")]
    Target,
    #[error("HTTP version not supported")]
    Version,
    /// HTTP/1.1 without a `Host` field (RFC 9112 3.2).
    #[error("Host is missing")]
    NoHost,
    #[error("more than one Host")]
    ManyHosts,
    /// `Content-Length` is not one decimal number below 2^63.
    #[error("malformed Content-Length")]
    ContentLength,
    #[error("more than one Content-Length")]
    ManyContentLengths,
    /// `Transfer-Encoding` is not exactly one `chunked` (RFC 9112 6.1).
    #[error("malformed Transfer-Encoding")]
    TransferEncoding,
    /// A transfer coding before `chunked` that the gateway does not know (RFC 9112 6.1 asks for 501).
    #[error("transfer coding not implemented")]
    TransferCoding,
    /// `Transfer-Encoding` next to `Content-Length` (RFC 9112 6.1).
    #[error("both Transfer-Encoding and Content-Length")]
    TwoFramings,
    #[error("request target too long")]
    TargetTooLong,
    #[error("request head too large")]
    HeadTooLarge,
    #[error("too many header fields")]
    TooManyFields,
    #[error("request body too large")]
    BodyTooLarge,
    #[error("request head not complete in time")]
    TooSlow,
}

impl Refusal {
    pub const fn status(self) -> (u16, &'static str) {
        match self {
            Self::MethodTooLong | Self::TransferCoding => (501, "Not Implemented"),
            Self::Version => (505, "HTTP Version Not Supported"),
            Self::TargetTooLong => (414, "URI Too Long"),
            Self::HeadTooLarge | Self::TooManyFields => (431, "Request Header Fields Too Large"),
            Self::BodyTooLarge => (413, "Content Too Large"),
            Self::TooSlow => (408, "Request Timeout"),
            _ => (400, "Bad Request"),
        }
    }

    /// The whole response: minimal, and the last on its connection.
    pub(crate) fn response(self) -> Vec<u8> {
        let (status, phrase) = self.status();
        let reason = self.to_string();
        format!(
            "HTTP/1.1 {status} {phrase}\r\nconnection: close\r\ncontent-type: text/plain; charset=utf-8\r\n\
             content-length: {}\r\n\r\n{reason}\n",
            reason.len() + 1
        )
        .into_bytes()
    }
}

/// Why the wire cut off a request body: what a service finds with [`is_bad_body`] in the error of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum BadBody {
    /// A chunk size that is not 1 to 16 hexadecimal digits.
    #[error("malformed chunk size")]
    ChunkSize,
    /// A chunk extension with a control character, or too many bytes of extensions.
    #[error("malformed or oversized chunk extension")]
    ChunkExtension,
    /// Something else than CRLF where it is required; also a bare LF.
    #[error("chunk not ended by CRLF")]
    ChunkEnd,
    /// A trailer line that is not a field, or a trailer section beyond its limits.
    #[error("malformed or oversized trailer section")]
    Trailer,
    /// A field that must not be a trailer: framing, routing, authentication, content (RFC 9110 6.5.1).
    #[error("field not allowed in a trailer")]
    ForbiddenTrailer,
    #[error("request body too large")]
    TooLarge,
    #[error("request body not sent in time")]
    TooSlow,
}

impl BadBody {
    pub const fn status(self) -> u16 {
        match self {
            Self::TooLarge => 413,
            Self::TooSlow => 408,
            _ => 400,
        }
    }

    pub(crate) fn into_io(self) -> io::Error {
        let kind = match self {
            Self::TooSlow => io::ErrorKind::TimedOut,
            _ => io::ErrorKind::InvalidData,
        };
        io::Error::new(kind, self)
    }
}

/// The wire's verdict on a request body, if `error` or one of its causes is one.
///
/// hyper hands the wire's `io::Error` to the reader of the body as the source of a `hyper::Error`.
pub fn is_bad_body(error: &(dyn Error + 'static)) -> Option<BadBody> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(bad) = error.downcast_ref::<BadBody>() {
            return Some(*bad);
        }
        if let Some(inner) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref)
            && let Some(bad) = inner.downcast_ref::<BadBody>()
        {
            return Some(*bad);
        }
        next = error.source();
    }
    None
}
