//! The session of a request: what the request shows becomes a key of the table.
//!
//! A key is a 128-bit number that no client can choose: the nonce of a pass, which the gate has made and
//! signed, or HMAC-SHA-256 (RFC 2104), truncated to half as RFC 2104 section 5 permits, of a value chosen by
//! the client or the network, under a secret of this process. So clients cannot aim at one shard or bucket,
//! values of different kinds never give one key, and the keys that operators see reveal nothing of the
//! cookies. The secret is not stored; neither is the table.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tidegate_core::session::SessionKey;
use tidegate_core::units::Timestamp;
use tidegate_http::{Fields, name};

use crate::config::tiers::cookies;
use crate::shared::sessions::set_cookie::{unquoted, value_kept};
use tidegate_settings::{Session, SessionBy};

/// Longest cookie value that may name a session: browsers keep no longer ones (RFC 6265 6.1).
const MAX_VALUE: usize = 4096;
/// Bits of an IPv6 address that identify a client, which chooses the other bits itself (RFC 4291 2.5.4).
pub(super) const V6_CLIENT: u32 = 64;
/// Bits that identify a client's network, as in tickets.
const V4_PREFIX: u32 = 24;
const V6_PREFIX: u32 = 56;

pub(crate) struct Keys(Hmac<Sha256>);

impl Keys {
    pub(crate) fn new(secret: &[u8; 32]) -> Self {
        let Ok(mac) = Hmac::new_from_slice(secret) else { unreachable!("any length will do") };
        Self(mac)
    }

    pub(crate) fn of_cookie(&self, value: &[u8]) -> Option<SessionKey> {
        // Applications clear a cookie by emptying it.
        let is_one = !value.is_empty() && value.len() <= MAX_VALUE;
        is_one.then(|| self.hashed(b'c', value))
    }

    /// The key that a request shows by its cookie, address or connection. `None`: it shows none.
    pub(crate) fn shown(
        &self,
        session: &Session,
        fields: &Fields,
        client: IpAddr,
        connection: u64,
    ) -> Option<SessionKey> {
        match session.key {
            SessionBy::Pass => None,
            SessionBy::Cookie => {
                cookies(fields, &session.cookie).next().and_then(|value| self.of_cookie(unquoted(value)))
            }
            SessionBy::Ip => Some(self.of_address(b'i', client, 32, V6_CLIENT)),
            SessionBy::IpPrefix => Some(self.of_address(b'p', client, V4_PREFIX, V6_PREFIX)),
            SessionBy::Connection => Some(self.hashed(b'n', &connection.to_be_bytes())),
        }
    }

    /// The key of the application's cookie that an answer sets; of several, browsers keep the last. `None`:
    /// the answer sets none, or removes it.
    pub(crate) fn set(&self, name: &str, fields: &Fields, now: Timestamp) -> Option<SessionKey> {
        let mut values = fields.get_all(name::SET_COOKIE).filter_map(|field| value_kept(field, name, now));
        self.of_cookie(values.next_back()?)
    }

    fn of_address(&self, kind: u8, client: IpAddr, v4_bits: u32, v6_bits: u32) -> SessionKey {
        match client.to_canonical() {
            IpAddr::V4(v4) => {
                let kept = Ipv4Addr::from_bits(v4.to_bits() & (u32::MAX << (32 - v4_bits)));
                self.hashed(kind, &kept.octets())
            }
            IpAddr::V6(v6) => {
                let kept = Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << (128 - v6_bits)));
                self.hashed(kind, &kept.octets())
            }
        }
    }

    /// The kind is hashed first, so that a cookie with the bytes of an address gives another key.
    fn hashed(&self, kind: u8, value: &[u8]) -> SessionKey {
        let mut mac = self.0.clone();
        mac.update(&[kind]);
        mac.update(value);
        let tag = mac.finalize().into_bytes();
        let mut half = [0; 16];
        half.copy_from_slice(&tag[..16]);
        SessionKey(u128::from_be_bytes(half))
    }
}

#[cfg(test)]
mod tests {
    use tidegate_http::Name;

    use super::*;

    const SECRET: [u8; 32] = [7; 32];

    fn by(key: SessionBy) -> Session {
        Session { key, cookie: "JSESSIONID".into(), ..Session::default() }
    }

    fn of(session: &Session, cookies: &str, client: &str) -> Option<SessionKey> {
        Keys::new(&SECRET).shown(session, &lines(name::COOKIE, &[cookies]), client.parse().unwrap(), 1)
    }

    fn lines(name: Name<'_>, values: &[&str]) -> Fields {
        let mut fields = Fields::new();
        values.iter().for_each(|value| fields.append(name, value.as_bytes()));
        fields
    }

    #[test]
    fn a_key_depends_on_the_cookie_value_and_the_secret_alone() {
        let session = by(SessionBy::Cookie);
        let one = of(&session, "a=b; JSESSIONID=one; c=d", "192.0.2.1");
        assert!(one.is_some());
        assert_eq!(one, of(&session, "JSESSIONID=one", "2001:db8::1"), "wherever it comes from");
        assert_eq!(one, of(&session, "JSESSIONID=\"one\"", "192.0.2.1"));
        assert_ne!(one, of(&session, "JSESSIONID=two", "192.0.2.1"));
        assert_ne!(one, Keys::new(&[8; 32]).of_cookie(b"one"));
        for none in ["", "jsessionid=one", "XJSESSIONID=one", "JSESSIONID=", "JSESSIONID=\"\""] {
            assert_eq!(of(&session, none, "192.0.2.1"), None, "{none}");
        }
        assert_eq!(of(&session, &format!("JSESSIONID={}", "x".repeat(MAX_VALUE + 1)), "192.0.2.1"), None);
    }

    #[test]
    fn the_key_of_a_set_cookie_is_that_of_the_cookie_sent_back() {
        let session = by(SessionBy::Cookie);
        let keys = Keys::new(&SECRET);
        let fields = ["other=1", "JSESSIONID=old; Path=/", "JSESSIONID=new; Path=/; HttpOnly"];
        let set = |fields: &[&str], now| keys.set("JSESSIONID", &lines(name::SET_COOKIE, fields), now);
        let now = Timestamp::from_secs(1_795_331_289);
        assert_eq!(set(&fields, now), of(&session, "JSESSIONID=new", "192.0.2.1"));
        for cleared in [
            "JSESSIONID=; Max-Age=0",
            "JSESSIONID=deleted; expires=Thu, 01-Jan-1970 00:00:01 GMT; Max-Age=0",
            "JSESSIONID=deleted; expires=Thu, 01-Jan-1970 00:00:01 GMT",
        ] {
            assert_eq!(set(&["JSESSIONID=old", cleared], now), None, "{cleared}");
            let renewed = set(&[cleared, "JSESSIONID=old"], now);
            assert_eq!(renewed, of(&session, "JSESSIONID=old", "192.0.2.1"));
        }
        assert_eq!(set(&[], now), None);
    }

    #[test]
    fn address_bits_that_clients_can_choose_do_not_change_the_key() {
        use SessionBy::{Ip, IpPrefix};
        for (key, one, other, is_same) in [
            (Ip, "192.0.2.1", "192.0.2.1", true),
            (Ip, "192.0.2.1", "::ffff:192.0.2.1", true),
            (Ip, "192.0.2.1", "192.0.2.2", false),
            (Ip, "2001:db8::1", "2001:db8::ffff:2", true),
            (Ip, "2001:db8::1", "2001:db8:0:1::1", false),
            (IpPrefix, "192.0.2.1", "192.0.2.200", true),
            (IpPrefix, "192.0.2.1", "192.0.3.1", false),
            (IpPrefix, "2001:db8::1", "2001:db8:0:ff::1", true),
            (IpPrefix, "2001:db8::1", "2001:db8:0:100::1", false),
        ] {
            let session = by(key);
            assert_eq!(of(&session, "", one) == of(&session, "", other), is_same, "{key:?} {one} {other}");
        }
        assert_ne!(of(&by(Ip), "", "192.0.2.0"), of(&by(IpPrefix), "", "192.0.2.0"), "kinds are apart");
        assert!(of(&by(SessionBy::Pass), "tgp=x", "192.0.2.0").is_none());
    }

    #[test]
    fn each_connection_has_its_own_key() {
        let keys = Keys::new(&SECRET);
        let of = |connection| {
            let client = [192, 0, 2, 1].into();
            keys.shown(&by(SessionBy::Connection), &Fields::new(), client, connection)
        };
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }
}
