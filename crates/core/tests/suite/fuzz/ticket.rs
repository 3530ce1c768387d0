//! Text of a ticket or pass: no panic, and an accepted text is exactly as it was sealed.

use std::net::{IpAddr, Ipv4Addr};

use tidegate_core::ticket::{Binding, BindingKinds, KeyRing, Presenter};

const COOKIE: [u8; 16] = [9; 16];
const VISITOR: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9));
const ALL: BindingKinds =
    BindingKinds::NONE.or(BindingKinds::IP).or(BindingKinds::IP_PREFIX).or(BindingKinds::COOKIE);

/// The ring that the target verifies with.
pub fn ring() -> KeyRing {
    KeyRing::generate(1, [7; 32])
}

/// A visitor's binding of each kind.
pub fn bindings() -> [Binding; 4] {
    [Binding::None, Binding::Ip(VISITOR), Binding::IpPrefix(VISITOR), Binding::Cookie(COOKIE)]
}

/// The fuzz target. Returns whether the text was accepted.
pub fn run(data: &[u8]) -> bool {
    let ring = ring();
    let visitor = Presenter { ip: VISITOR, cookie: Some(COOKIE) };
    let mut accepted = false;
    if let Ok(ticket) = ring.open(data, &visitor, ALL) {
        let again = bindings().map(|b| ring.seal(&ticket, &b));
        assert!(again.iter().any(|s| s.as_bytes() == data), "a second spelling of {ticket:?}");
        accepted = true;
    }
    if let Ok(pass) = ring.open_pass(data, &visitor, ALL) {
        let again = bindings().map(|b| ring.seal_pass(&pass, &b));
        assert!(again.iter().any(|s| s.as_bytes() == data), "a second spelling of {pass:?}");
        accepted = true;
    }
    // A mistyped key ring is an error, not a panic.
    let _ = std::str::from_utf8(data).map(KeyRing::parse);
    accepted
}
