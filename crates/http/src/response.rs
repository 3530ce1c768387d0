//! The head of a response (RFC 9112 4): status, reason, version and fields.

use std::fmt;

use http::{StatusCode, Version};

use crate::fields::Fields;
use crate::recycle::Recycled;
use crate::request::{add_fields, to_map};

/// A response without its content. Its memory is recycled (see [`Fields`]).
#[derive(Clone)]
pub struct ResponseHead {
    status: StatusCode,
    version: Version,
    /// The reason phrase that was sent, if it is not the usual one.
    reason: Option<Recycled<Vec<u8>>>,
    /// The field lines.
    pub fields: Fields,
}

impl ResponseHead {
    /// A head without fields, of HTTP/1.1.
    pub fn new(status: StatusCode) -> Self {
        Self { status, version: Version::HTTP_11, reason: None, fields: Fields::new() }
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Another status, with the usual reason phrase.
    pub fn set_status(&mut self, status: StatusCode) {
        (self.status, self.reason) = (status, None);
    }

    /// The reason phrase: as it was sent, which may be empty, or the usual one of the status.
    pub fn reason(&self) -> &[u8] {
        match &self.reason {
            Some(sent) => sent.get().map_or(b"", |text| text),
            None => self.status.canonical_reason().unwrap_or_default().as_bytes(),
        }
    }

    pub(crate) fn set_reason(&mut self, reason: &[u8]) {
        if reason == self.reason() {
            return;
        }
        let mut sent = Recycled::<Vec<u8>>::new();
        if !reason.is_empty() {
            sent.grown().extend_from_slice(reason);
        }
        self.reason = Some(sent);
    }

    /// HTTP/1.0, HTTP/1.1 or HTTP/2.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Another version.
    pub fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// The same head as hyper has it. Its reason phrase is the usual one.
    pub fn from_parts(parts: &http::response::Parts) -> Self {
        let mut head = Self::new(parts.status);
        head.version = parts.version;
        add_fields(&mut head.fields, &parts.headers);
        head
    }

    /// The same head for hyper, without its reason phrase.
    pub fn to_parts(&self) -> http::response::Parts {
        let (mut parts, ()) = http::Response::new(()).into_parts();
        parts.status = self.status;
        parts.version = self.version;
        parts.headers = to_map(&self.fields);
        parts
    }
}

impl fmt::Debug for ResponseHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} {:?}", self.version, self.status, self.fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name;

    #[test]
    fn the_reason_is_what_was_sent_until_the_status_changes() {
        let mut head = ResponseHead::new(StatusCode::OK);
        assert_eq!(head.reason(), b"OK");
        head.set_reason(b"Fine");
        assert_eq!(head.reason(), b"Fine");
        head.set_reason(b"");
        assert_eq!(head.reason(), b"");
        head.set_status(StatusCode::NOT_FOUND);
        assert_eq!(head.reason(), b"Not Found");
        assert_eq!(ResponseHead::new(StatusCode::from_u16(299).unwrap()).reason(), b"");
    }

    #[test]
    fn hypers_parts_come_back_as_they_were() {
        let mut head = ResponseHead::new(StatusCode::CREATED);
        head.fields.append(name::SET_COOKIE, b"a=1");
        head.fields.append(name::SET_COOKIE, b"b=2");
        let back = ResponseHead::from_parts(&head.to_parts());
        assert_eq!((back.status(), back.version()), (StatusCode::CREATED, Version::HTTP_11));
        assert_eq!(back.fields.get_all(name::SET_COOKIE).collect::<Vec<_>>(), [b"a=1", b"b=2"]);
    }
}
