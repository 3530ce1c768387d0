//! What a ticket is bound to, so that it cannot be passed on or sold.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of a binding in the MAC's input: one that tells IPv4 from IPv6, and the longest value.
pub(super) const BINDING_BYTES: usize = 17;

/// Bits of an IPv4 address that [`Binding::IpPrefix`] keeps: the range in which carrier-grade NAT rotates.
const V4_PREFIX: u32 = 24;
/// Bits of an IPv6 address that [`Binding::IpPrefix`] keeps: the usual prefix of one subscriber (RFC 6177).
const V6_PREFIX: u32 = 56;

/// What a ticket is bound to when it is issued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Binding {
    /// Nothing: anyone may use it.
    None,
    /// The visitor's address (WebQ III-C).
    Ip(IpAddr),
    /// The /24 (IPv4) or /56 (IPv6) of the visitor's address.
    IpPrefix(IpAddr),
    /// A random value in a cookie of the visitor.
    Cookie([u8; 16]),
}

/// The kind of a [`Binding`], as in the signed payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Kind {
    None = 0,
    Ip = 1,
    IpPrefix = 2,
    Cookie = 3,
}

impl Kind {
    pub(super) fn from_bits(bits: u8) -> Option<Self> {
        [Self::None, Self::Ip, Self::IpPrefix, Self::Cookie].into_iter().find(|&k| k as u8 == bits)
    }
}

impl Binding {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::None => Kind::None,
            Self::Ip(_) => Kind::Ip,
            Self::IpPrefix(_) => Kind::IpPrefix,
            Self::Cookie(_) => Kind::Cookie,
        }
    }

    /// The value, always of the same length. The kind is in the payload.
    pub(super) fn bytes(&self) -> [u8; BINDING_BYTES] {
        let mut out = [0; BINDING_BYTES];
        let ip = match *self {
            Self::None => return out,
            Self::Cookie(nonce) => {
                out[1..].copy_from_slice(&nonce);
                return out;
            }
            // On a dual-stack listener an IPv4 visitor has the address ::ffff:a.b.c.d.
            Self::Ip(ip) => ip.to_canonical(),
            Self::IpPrefix(ip) => prefix(ip.to_canonical()),
        };
        match ip {
            IpAddr::V4(v4) => {
                out[0] = 4;
                out[1..5].copy_from_slice(&v4.octets());
            }
            IpAddr::V6(v6) => {
                out[0] = 6;
                out[1..].copy_from_slice(&v6.octets());
            }
        }
        out
    }
}

fn prefix(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() & (u32::MAX << (32 - V4_PREFIX))).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << (128 - V6_PREFIX))).into(),
    }
}

/// A set of kinds of [`Binding`].
///
/// `BindingKinds::COOKIE.or(BindingKinds::IP_PREFIX)` is what the default configuration accepts: the prefix
/// is used where a client keeps no cookies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BindingKinds(u8);

impl BindingKinds {
    pub const NONE: Self = Self(1 << Kind::None as u8);
    pub const IP: Self = Self(1 << Kind::Ip as u8);
    pub const IP_PREFIX: Self = Self(1 << Kind::IpPrefix as u8);
    pub const COOKIE: Self = Self(1 << Kind::Cookie as u8);

    /// The kinds of either set.
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn has(self, kind: Kind) -> bool {
        self.0 & 1 << kind as u8 != 0
    }
}

/// The visitor that presents a ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Presenter {
    /// The visitor's address, behind trusted proxies.
    pub ip: IpAddr,
    /// The value of the visitor's binding cookie, if there is one.
    pub cookie: Option<[u8; 16]>,
}

impl Presenter {
    /// The binding that a ticket of this kind must have; `None` if the visitor has no such value.
    pub(super) fn binding(&self, kind: Kind) -> Option<Binding> {
        match kind {
            Kind::None => Some(Binding::None),
            Kind::Ip => Some(Binding::Ip(self.ip)),
            Kind::IpPrefix => Some(Binding::IpPrefix(self.ip)),
            Kind::Cookie => self.cookie.map(Binding::Cookie),
        }
    }
}
