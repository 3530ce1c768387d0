//! What is refused, and the status of each refusal (RFC 9110 15, RFC 9112 2.2, 3, 5, 6 and 7).

/// Why a request head is refused. It is answered at once, and the connection is closed.
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
    /// The method is empty or no token (RFC 9110 9.1).
    #[error("malformed method")]
    Method,
    /// The method is longer than any that is registered.
    #[error("method too long")]
    MethodTooLong,
    /// The request target has a character or a form that RFC 9112 3.2 does not allow.
    #[error("malformed request target")]
    Target,
    /// Neither HTTP/1.1 nor HTTP/1.0 (RFC 9110 2.5).
    #[error("HTTP version not supported")]
    Version,
    /// HTTP/1.1 without a `Host` field (RFC 9112 3.2).
    #[error("Host is missing")]
    NoHost,
    /// RFC 9112 3.2.
    #[error("more than one Host")]
    ManyHosts,
    /// `Content-Length` is not one decimal number below 2^63.
    #[error("malformed Content-Length")]
    ContentLength,
    /// RFC 9112 6.3 allows to accept equal ones; the next parser may not.
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
    /// Longer than the limit (RFC 9112 3).
    #[error("request target too long")]
    TargetTooLong,
    /// Larger than the limit (RFC 9110 5.4).
    #[error("request head too large")]
    HeadTooLarge,
    /// More than the limit (RFC 9110 5.4).
    #[error("too many header fields")]
    TooManyFields,
    /// `Content-Length` is beyond the limit (RFC 9110 15.5.14).
    #[error("request body too large")]
    BodyTooLarge,
    /// RFC 9110 15.5.9.
    #[error("request head not complete in time")]
    TooSlow,
}

impl Refusal {
    /// Status and reason phrase of the answer.
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
    pub fn response(self) -> Vec<u8> {
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

/// Why a body was cut off.
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
    /// More content than the limit.
    #[error("request body too large")]
    TooLarge,
    /// Silence for too long.
    #[error("request body not sent in time")]
    TooSlow,
    /// The connection ended before the content did (RFC 9112 8).
    #[error("body not complete")]
    Incomplete,
}

impl BadBody {
    /// Status of the answer to a request with such a body.
    pub const fn status(self) -> u16 {
        match self {
            Self::TooLarge => 413,
            Self::TooSlow => 408,
            _ => 400,
        }
    }
}

/// Why an origin's response head is refused. It becomes a 502, and its connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum BadResponse {
    /// Not `HTTP/1.x SP three digits`, and a reason phrase if there is one (RFC 9112 4). Also an empty line
    /// before it: the origin sent more than it said.
    #[error("the origin answered with a malformed status line")]
    StatusLine,
    /// Neither HTTP/1.1 nor HTTP/1.0 (RFC 9110 2.5).
    #[error("the origin answered with an unsupported HTTP version")]
    Version,
    /// Not 100 to 599 (RFC 9110 15).
    #[error("the origin answered with an invalid status")]
    Status,
    /// RFC 9112 2.2.
    #[error("the origin's head has a line ended by a bare LF")]
    BareLf,
    /// RFC 9112 2.2.
    #[error("the origin's head has a bare CR")]
    BareCr,
    /// RFC 9110 5.5.
    #[error("the origin's head has a control character")]
    Control,
    /// RFC 9112 5.2 asks a gateway to discard the message, or to unfold it.
    #[error("the origin's head has a folded line")]
    Fold,
    /// RFC 9112 5.1.
    #[error("the origin's head has a malformed field name")]
    FieldName,
    /// Larger than the limit.
    #[error("the origin's head is too large")]
    HeadTooLarge,
    /// More than the limit.
    #[error("the origin's head has too many fields")]
    TooManyFields,
    /// `Content-Length` is not one line with one decimal number below 2^63 (RFC 9112 6.3).
    #[error("the origin answered with a malformed Content-Length")]
    ContentLength,
    /// A transfer coding other than one `chunked`, which was not asked for and cannot be passed on, or one
    /// in HTTP/1.0 (RFC 9112 6.1).
    #[error("the origin answered with a transfer coding that was not asked for")]
    TransferCoding,
    /// RFC 9110 15.2.2.
    #[error("the origin answered 101 without being asked to upgrade")]
    NotAsked,
    /// RFC 9110 15.2.2.
    #[error("the origin answered 101 without Upgrade")]
    NoUpgrade,
}

/// What may be wrong with a line of any head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadLine {
    BareLf,
    BareCr,
    Control,
    Fold,
    FieldName,
    TooManyFields,
}

/// The same mistakes by the names of an error type.
macro_rules! from_bad_line {
    ($($error:ident)*) => {$(
        impl From<BadLine> for $error {
            fn from(bad: BadLine) -> Self {
                match bad {
                    BadLine::BareLf => Self::BareLf,
                    BadLine::BareCr => Self::BareCr,
                    BadLine::Control => Self::Control,
                    BadLine::Fold => Self::Fold,
                    BadLine::FieldName => Self::FieldName,
                    BadLine::TooManyFields => Self::TooManyFields,
                }
            }
        }
    )*};
}

from_bad_line!(Refusal BadResponse);
