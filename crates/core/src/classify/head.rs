//! The request head that rules are matched against, borrowed from the data plane's own types.

use std::net::IpAddr;

/// A borrowed view of a request head.
#[derive(Clone, Copy)]
pub struct RequestHead<'a> {
    /// The method as sent.
    pub method: &'a str,
    /// The path as sent, without the query.
    pub path: &'a str,
    /// The query as sent, without the `?`; empty if there is none.
    pub query: &'a str,
    /// The requested host, with or without port.
    pub host: &'a str,
    /// The visitor's address, behind trusted proxies.
    pub client: IpAddr,
    pub fields: &'a dyn Fields,
}

/// Header fields, in any representation.
pub trait Fields {
    /// Whether `test` holds for any value of the field `name` (in lower case), in the order sent.
    fn any(&self, name: &str, test: &mut dyn FnMut(&[u8]) -> bool) -> bool;
}

/// Name and value of each field; names in any case.
impl Fields for [(&str, &[u8])] {
    fn any(&self, name: &str, test: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.iter().any(|(n, value)| n.eq_ignore_ascii_case(name) && test(value))
    }
}

impl<const N: usize> Fields for [(&str, &[u8]); N] {
    fn any(&self, name: &str, test: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.as_slice().any(name, test)
    }
}

/// Whether `test` holds for any cookie `name` (RFC 6265, 4.2.1), without the quotes around its value.
pub(super) fn any_cookie(fields: &dyn Fields, name: &str, test: &mut dyn FnMut(&[u8]) -> bool) -> bool {
    fields.any("cookie", &mut |line| {
        line.split(|&b| b == b';').any(|pair| {
            let Some(equals) = pair.iter().position(|&b| b == b'=') else { return false };
            let (key, value) = (pair[..equals].trim_ascii(), pair[equals + 1..].trim_ascii());
            key == name.as_bytes() && test(unquote(value))
        })
    })
}

fn unquote(value: &[u8]) -> &[u8] {
    match value {
        [b'"', inner @ .., b'"'] => inner,
        _ => value,
    }
}

/// Whether `test` holds for any query parameter `name`, given its decoded value.
pub(super) fn any_query(query: &str, name: &str, mut test: impl FnMut(FormBytes<'_>) -> bool) -> bool {
    query.split('&').any(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        FormBytes(key.as_bytes()).eq(name.bytes()) && test(FormBytes(value.as_bytes()))
    })
}

/// The bytes of an `application/x-www-form-urlencoded` text (URL standard, 5.1), decoded while iterating.
pub(super) struct FormBytes<'a>(&'a [u8]);

impl Iterator for FormBytes<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        match first {
            b'+' => Some(b' '),
            b'%' => match super::path::hex(rest) {
                Some(byte) => {
                    self.0 = &rest[2..];
                    Some(byte)
                }
                None => Some(b'%'),
            },
            byte => Some(byte),
        }
    }
}
