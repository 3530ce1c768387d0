//! Field names (RFC 9110 5.1): a few dozen are known, and are found by the parser's one pass.

use crate::bytes::{repeat, word};

/// Declares [`Known`] and one constant for each in [`name`](self).
macro_rules! known {
    ($($variant:ident $constant:ident $text:literal)*) => {
        /// A name that the gateway asks for, or that a message's framing depends on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Known { $(#[doc = $text] $variant),* }

        impl Known {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// In lower case.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }

            /// As a line begins with it.
            pub(crate) const fn with_colon(self) -> &'static str {
                match self { $(Self::$variant => concat!($text, ": ")),* }
            }
        }

        $(#[doc = $text] pub const $constant: Name<'static> = Name::Known(Known::$variant);)*
    };
}

known! {
    Accept ACCEPT "accept"
    AcceptEncoding ACCEPT_ENCODING "accept-encoding"
    AcceptLanguage ACCEPT_LANGUAGE "accept-language"
    Age AGE "age"
    Allow ALLOW "allow"
    Authorization AUTHORIZATION "authorization"
    CacheControl CACHE_CONTROL "cache-control"
    Connection CONNECTION "connection"
    ContentEncoding CONTENT_ENCODING "content-encoding"
    ContentLength CONTENT_LENGTH "content-length"
    ContentRange CONTENT_RANGE "content-range"
    ContentType CONTENT_TYPE "content-type"
    Cookie COOKIE "cookie"
    Date DATE "date"
    Etag ETAG "etag"
    Expect EXPECT "expect"
    Expires EXPIRES "expires"
    Forwarded FORWARDED "forwarded"
    Host HOST "host"
    Http2Settings HTTP2_SETTINGS "http2-settings"
    IfModifiedSince IF_MODIFIED_SINCE "if-modified-since"
    IfNoneMatch IF_NONE_MATCH "if-none-match"
    IfRange IF_RANGE "if-range"
    KeepAlive KEEP_ALIVE "keep-alive"
    LastModified LAST_MODIFIED "last-modified"
    Location LOCATION "location"
    MaxForwards MAX_FORWARDS "max-forwards"
    Origin ORIGIN "origin"
    Pragma PRAGMA "pragma"
    Priority PRIORITY "priority"
    ProxyAuthorization PROXY_AUTHORIZATION "proxy-authorization"
    ProxyConnection PROXY_CONNECTION "proxy-connection"
    Range RANGE "range"
    Referer REFERER "referer"
    RetryAfter RETRY_AFTER "retry-after"
    SecFetchDest SEC_FETCH_DEST "sec-fetch-dest"
    SecFetchMode SEC_FETCH_MODE "sec-fetch-mode"
    SecFetchSite SEC_FETCH_SITE "sec-fetch-site"
    SecGpc SEC_GPC "sec-gpc"
    SecPurpose SEC_PURPOSE "sec-purpose"
    Server SERVER "server"
    ServerTiming SERVER_TIMING "server-timing"
    SetCookie SET_COOKIE "set-cookie"
    Te TE "te"
    Trailer TRAILER "trailer"
    TransferEncoding TRANSFER_ENCODING "transfer-encoding"
    Upgrade UPGRADE "upgrade"
    UserAgent USER_AGENT "user-agent"
    Vary VARY "vary"
    Via VIA "via"
    WwwAuthenticate WWW_AUTHENTICATE "www-authenticate"
    XContentTypeOptions X_CONTENT_TYPE_OPTIONS "x-content-type-options"
    XForwardedFor X_FORWARDED_FOR "x-forwarded-for"
    XForwardedHost X_FORWARDED_HOST "x-forwarded-host"
    XForwardedProto X_FORWARDED_PROTO "x-forwarded-proto"
    XRealIp X_REAL_IP "x-real-ip"
    XRequestId X_REQUEST_ID "x-request-id"
}

/// How many names are known.
pub(crate) const COUNT: usize = Known::ALL.len();

/// The known names by [`slot`]: a name is compared with one other at most.
static TABLE: [Option<Known>; SLOTS] = {
    let mut table = [None; SLOTS];
    let mut i = 0;
    while i < COUNT {
        let at = slot(Known::ALL[i].as_str().as_bytes());
        assert!(table[at].is_none(), "two names share a slot: choose other factors");
        table[at] = Some(Known::ALL[i]);
        i += 1;
    }
    table
};

const SLOTS: usize = 256;

/// A hash of length and three letters without case, by which all known names differ (factors found by trial).
const fn slot(name: &[u8]) -> usize {
    const fn letter(b: u8) -> usize {
        (b | 0x20) as usize
    }
    let len = name.len();
    let (first, last, third_last) = (name[0], name[len - 1], name[len.saturating_sub(3)]);
    (len * 11 + letter(first) * 28 + letter(last) * 12 + letter(third_last) * 2) % SLOTS
}

/// The known names as numbers, eight bytes each.
static WORDS: [[u64; LONGEST / 8]; COUNT] = {
    let mut words = [[0; LONGEST / 8]; COUNT];
    let mut i = 0;
    while i < COUNT {
        let name = Known::ALL[i].as_str().as_bytes();
        assert!(name.len() <= LONGEST);
        words[i] = in_words(name);
        i += 1;
    }
    words
};

/// No known name is longer.
const LONGEST: usize = 24;

const fn in_words(name: &[u8]) -> [u64; LONGEST / 8] {
    match name.len() {
        0..=8 => [word(name), 0, 0],
        9..=16 => [word(name.split_at(8).0), word(name.split_at(8).1), 0],
        17..=LONGEST => {
            let (first, rest) = name.split_at(16);
            [word(first.split_at(8).0), word(first.split_at(8).1), word(rest)]
        }
        _ => [0; LONGEST / 8],
    }
}

/// Whether `name`, of the same length, is `known` in whatever case.
fn is_same(name: &[u8], known: Known) -> bool {
    let differs = |(name, lower): (&u64, &u64)| {
        // Letters may differ in one bit; other characters of known names have no bit of 0x40.
        let case = (lower & repeat(0x40)) >> 1;
        (name ^ lower) & !case
    };
    in_words(name).iter().zip(&WORDS[known as usize]).fold(0, |acc, pair| acc | differs(pair)) == 0
}

impl Known {
    /// The known name that `name` is, in whatever case.
    pub fn of(name: &[u8]) -> Option<Self> {
        if name.is_empty() {
            return None;
        }
        TABLE[slot(name)].filter(|known| known.as_str().len() == name.len() && is_same(name, *known))
    }
}

/// A field name to ask for or to add.
#[derive(Clone, Copy, Debug)]
pub enum Name<'a> {
    /// One of the table above.
    Known(Known),
    /// Any other, in lower case.
    Other(&'a str),
}

impl<'a> Name<'a> {
    /// The name `text`, which is compared without case and written as it is.
    pub fn of(text: &'a str) -> Self {
        Known::of(text.as_bytes()).map_or(Self::Other(text), Self::Known)
    }

    /// As it is written to a message.
    pub fn as_str(self) -> &'a str {
        match self {
            Self::Known(known) => known.as_str(),
            Self::Other(text) => text,
        }
    }

    /// The same name, known if it can be.
    #[inline]
    pub(crate) fn resolved(self) -> Self {
        match self {
            Self::Known(_) => self,
            Self::Other(text) => Self::of(text),
        }
    }
}

impl From<Known> for Name<'_> {
    fn from(known: Known) -> Self {
        Self::Known(known)
    }
}

impl<'a> From<&'a str> for Name<'a> {
    fn from(text: &'a str) -> Self {
        Self::of(text)
    }
}

impl<'a> From<&'a http::HeaderName> for Name<'a> {
    fn from(name: &'a http::HeaderName) -> Self {
        Self::of(name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_name_is_found_in_any_case_and_no_other() {
        for known in Known::ALL {
            let text = known.as_str();
            assert_eq!(Known::of(text.as_bytes()), Some(*known));
            assert_eq!(Known::of(text.to_uppercase().as_bytes()), Some(*known));
            assert_eq!(Known::of(format!("{text}x").as_bytes()), None);
            assert_eq!(text, text.to_lowercase(), "lower case");
            assert!(matches!(Name::Other(text).resolved(), Name::Known(k) if k == *known));
        }
        assert_eq!(Known::of(b""), None);
        for b in 0..=255u8 {
            let is_host = matches!(b, b'h' | b'H');
            assert_eq!(Known::of(&[b, b'o', b's', b't']).is_some(), is_host, "{b}");
            assert_eq!(Known::of(&[b"content", &[b][..], b"length"].concat()).is_some(), b == b'-', "{b}");
        }
        assert_eq!(Known::of(&[b'a'; 300]), None);
    }
}
