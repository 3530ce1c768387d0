//! Where these parsers are stricter than others, and the paragraph that allows or asks for it.
//!
//! The other list is empty: nothing is accepted here that httparse or hyper refuse.

/// The paragraph of a refusal that others do not share.
pub fn paragraph(refusal: &str) -> Option<&'static str> {
    ALLOWED.iter().find(|(name, _)| *name == refusal).map(|(_, paragraph)| *paragraph)
}

#[rustfmt::skip]
const ALLOWED: &[(&str, &str)] = &[
    // Heads of both directions.
    ("BareLf", "RFC 9112 2.2: a recipient may take LF for a line end, and need not"),
    ("ContentLength", "RFC 9110 8.6, RFC 9112 6.3: one decimal number, anything else is an unrecoverable error"),
    ("TooManyFields", "RFC 9110 5.4: limits are the recipient's"),
    ("HeadTooLarge", "RFC 9110 5.4: limits are the recipient's"),
    // Requests.
    ("RequestLine", "RFC 9112 2.2: one empty line is to be ignored, more than four are not here"),
    ("MethodTooLong", "RFC 9112 3: longer than any that is implemented, 501"),
    ("Target", "RFC 9112 3.2: a request target that the grammar does not have is refused"),
    ("TargetTooLong", "RFC 9112 3: longer than the recipient wishes to parse, 414"),
    ("NoHost", "RFC 9112 3.2: a server must refuse it"),
    ("ManyHosts", "RFC 9112 3.2: a server must refuse it"),
    ("ManyContentLengths", "RFC 9112 6.3: equal ones may be taken for one, and need not"),
    ("TransferEncoding", "RFC 9112 6.3: chunked is not the final coding, or (7) the coding is malformed"),
    ("TwoFramings", "RFC 9112 6.1: a server may refuse it"),
    // Both, 501 to a visitor and 502 for an origin.
    ("TransferCoding", "RFC 9112 6.1: a coding that is not understood, or was not asked for by TE"),
    // Responses.
    ("StatusLine", "RFC 9112 2.2: only servers ignore an empty line before a message"),
    ("Status", "RFC 9110 15: statuses are 100 to 599"),
    ("NotAsked", "RFC 9110 7.8: a server must not switch to a protocol that was not asked for"),
    ("NoUpgrade", "RFC 9110 15.2.2: 101 must have Upgrade"),
    // Content.
    ("ChunkSize", "RFC 9112 7.1: at least one digit, and nothing but an extension after them"),
    ("ChunkExtension", "RFC 9112 7.1.1: no control characters, and a limit on their length"),
    ("Trailer", "RFC 9112 7.1.2, 2.2: trailer lines end with CRLF"),
    ("ForbiddenTrailer", "RFC 9110 6.5.1: fields that must not be trailers"),
];
