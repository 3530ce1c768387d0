//! Tickets and passes: sealing, opening, forgery, bindings, key rotation and the format.

use std::net::IpAddr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use sha2::Sha256;
use tidegate_core::ticket::*;
use tidegate_core::units::{ClassId, Cost, Timestamp};

const ALL: BindingKinds =
    BindingKinds::NONE.or(BindingKinds::IP).or(BindingKinds::IP_PREFIX).or(BindingKinds::COOKIE);
const COOKIE: [u8; 16] = *b"0123456789abcdef";

fn ring() -> KeyRing {
    KeyRing::generate(7, [0x42; 32])
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn visitor() -> Presenter {
    Presenter { ip: ip("203.0.113.9"), cookie: Some(COOKIE) }
}

fn example() -> Ticket {
    Ticket {
        class: ClassId(3),
        cost: Cost::from_hundredths(250),
        issued: Timestamp::from_millis(1_700_000_000_123),
        wait: Duration::from_millis(90_000),
        arrived: Timestamp::from_millis(1_700_000_000_000),
        nonce: 0x0123_4567_89ab_cdef,
    }
}

fn example_pass() -> Pass {
    Pass {
        kind: PassKind::Session,
        class: ClassId(3),
        issued: Timestamp::from_millis(1_700_000_100_000),
        first: Timestamp::from_millis(1_700_000_000_000),
        nonce: 99,
    }
}

fn bindings() -> [Binding; 4] {
    let v = visitor();
    [Binding::None, Binding::Ip(v.ip), Binding::IpPrefix(v.ip), Binding::Cookie(COOKIE)]
}

fn any_ip() -> impl Strategy<Value = IpAddr> {
    prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u8; 16]>().prop_map(IpAddr::from)]
}

prop_compose! {
    fn any_ticket()(
        class: u8, cost in 1..=Cost::MAX.hundredths(), issued in 0u64..1 << 48, wait: u32, before: u32,
        nonce: u64,
    ) -> Ticket {
        Ticket {
            class: ClassId(class),
            cost: Cost::from_hundredths(cost),
            issued: Timestamp::from_millis(issued),
            wait: Duration::from_millis(wait.into()),
            arrived: Timestamp::from_millis(issued.saturating_sub(before.into())),
            nonce,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_ticket_survives_sealing_and_opening(
        ticket in any_ticket(), ip in any_ip(), cookie: [u8; 16], kind in 0..4usize,
    ) {
        let binding = [Binding::None, Binding::Ip(ip), Binding::IpPrefix(ip), Binding::Cookie(cookie)][kind];
        let sealed = ring().seal(&ticket, &binding);
        prop_assert_eq!(sealed.as_str().len(), Ticket::TEXT_LEN);
        let presenter = Presenter { ip, cookie: Some(cookie) };
        prop_assert_eq!(ring().open(sealed.as_bytes(), &presenter, ALL), Ok(ticket));
    }

    #[test]
    fn a_pass_survives_sealing_and_opening(
        page: bool, class: u8, issued in 0u64..1 << 48, age in 0u64..1 << 40, nonce: u64, ip in any_ip(),
    ) {
        let kind = if page { PassKind::Page } else { PassKind::Session };
        let first = Timestamp::from_millis(issued.saturating_sub(age));
        let pass = Pass { kind, class: ClassId(class), issued: Timestamp::from_millis(issued), first, nonce };
        let sealed = ring().seal_pass(&pass, &Binding::Ip(ip));
        prop_assert_eq!(sealed.as_str().len(), Pass::TEXT_LEN);
        let presenter = Presenter { ip, cookie: None };
        prop_assert_eq!(ring().open_pass(sealed.as_bytes(), &presenter, ALL), Ok(pass));
    }

    #[test]
    fn no_bytes_cause_a_panic(text in prop::collection::vec(any::<u8>(), 0..90)) {
        prop_assert!(ring().open(&text, &visitor(), ALL).is_err());
        prop_assert!(ring().open_pass(&text, &visitor(), ALL).is_err());
    }
}

/// A million alterations of valid tickets and passes, none accepted.
#[test]
fn altered_tickets_are_refused() {
    const ROUNDS: usize = 1_000_000;
    let (ring, mut rng) = (ring(), StdRng::seed_from_u64(1));
    let sealed: Vec<_> = bindings().iter().map(|b| ring.seal(&example(), b)).collect();
    let passes: Vec<_> = bindings().iter().map(|b| ring.seal_pass(&example_pass(), b)).collect();
    let mut by_error = [0usize; 4];
    let mut round = 0;
    while by_error.iter().sum::<usize>() < ROUNDS {
        round += 1;
        let (from, other) = (rng.random_range(0..4), rng.random_range(0..4));
        let pass = round % 4 == 3;
        let (valid, donor) = match pass {
            true => (passes[from].as_bytes(), passes[other].as_bytes()),
            false => (sealed[from].as_bytes(), sealed[other].as_bytes()),
        };
        let text = alter(valid, donor, &mut rng);
        if [valid, donor].contains(&text.as_slice()) {
            continue; // Two swaps or splices may cancel out, which is no alteration.
        }
        let outcome = match pass {
            true => ring.open_pass(&text, &visitor(), ALL).map(|_| ()),
            false => ring.open(&text, &visitor(), ALL).map(|_| ()),
        };
        match outcome {
            Ok(()) => panic!("round {round}: accepted {}", String::from_utf8_lossy(&text)),
            Err(e) => by_error[e as usize] += 1,
        }
    }
    let forged = by_error[TicketError::Forged as usize];
    assert!(
        forged > ROUNDS / 4,
        "only {forged} reached the tag: the test would not notice if it were ignored"
    );
}

fn alter(valid: &[u8], donor: &[u8], rng: &mut StdRng) -> Vec<u8> {
    let mut bytes = URL_SAFE_NO_PAD.decode(valid).unwrap();
    let at = rng.random_range(0..bytes.len());
    match rng.random_range(0..8) {
        0 | 1 => bytes[at] ^= 1 << rng.random_range(0..8),
        2 => bytes[at] = bytes[at].wrapping_add(rng.random_range(1..=255)),
        3 => (0..rng.random_range(2..9)).for_each(|_| {
            let at = rng.random_range(0..bytes.len());
            bytes[at] = rng.random();
        }),
        4 => {
            let with = rng.random_range(0..bytes.len());
            bytes.swap(at, with);
        }
        5 => {
            // The head of one ticket and the tail of another with another binding.
            let donor = URL_SAFE_NO_PAD.decode(donor).unwrap();
            bytes[at..].copy_from_slice(&donor[at..]);
        }
        6 => bytes.truncate(at),
        _ => {
            let mut text = valid.to_vec();
            let at = rng.random_range(0..text.len());
            text[at] = rng.random();
            return text;
        }
    }
    URL_SAFE_NO_PAD.encode(bytes).into_bytes()
}

/// Other visitors are refused if and only if the binding differs.
#[test]
fn a_ticket_is_tied_to_its_visitor() {
    type Bind = fn(IpAddr) -> Binding;
    let cases: &[(Bind, &str, &str, bool)] = &[
        (Binding::Ip, "203.0.113.9", "203.0.113.9", true),
        (Binding::Ip, "203.0.113.9", "203.0.113.10", false),
        (Binding::Ip, "203.0.113.9", "::ffff:203.0.113.9", true),
        (Binding::Ip, "::ffff:203.0.113.9", "203.0.113.9", true),
        (Binding::Ip, "203.0.113.9", "::203.0.113.9", false),
        (Binding::Ip, "2001:db8::1", "2001:db8::2", false),
        (Binding::IpPrefix, "203.0.113.9", "203.0.113.255", true),
        (Binding::IpPrefix, "203.0.113.9", "::ffff:203.0.113.77", true),
        (Binding::IpPrefix, "203.0.113.9", "203.0.112.9", false),
        (Binding::IpPrefix, "2001:db8:0:aa00::1", "2001:db8:0:aaff:ffff::9", true),
        (Binding::IpPrefix, "2001:db8:0:aa00::1", "2001:db8:0:ab00::1", false),
        // The first bytes of both addresses are equal: only their family differs.
        (Binding::IpPrefix, "32.1.13.0", "2001:d00::", false),
        (|_| Binding::None, "203.0.113.9", "198.51.100.1", true),
        (|_| Binding::Cookie(COOKIE), "203.0.113.9", "198.51.100.1", true),
    ];
    for (binding, made_for, shown_by, accepted) in cases {
        let sealed = ring().seal(&example(), &binding(ip(made_for)));
        let presenter = Presenter { ip: ip(shown_by), cookie: Some(COOKIE) };
        let expected = if *accepted { Ok(example()) } else { Err(TicketError::Forged) };
        assert_eq!(
            ring().open(sealed.as_bytes(), &presenter, ALL),
            expected,
            "{made_for} shown by {shown_by}"
        );
    }
    let sealed = ring().seal(&example(), &Binding::Cookie(COOKIE));
    for cookie in [None, Some([0; 16]), Some(*b"0123456789abcdeF")] {
        let presenter = Presenter { cookie, ..visitor() };
        assert_eq!(ring().open(sealed.as_bytes(), &presenter, ALL), Err(TicketError::Forged), "{cookie:?}");
    }
}

#[test]
fn only_accepted_kinds_of_binding_count() {
    let kinds = [BindingKinds::NONE, BindingKinds::IP, BindingKinds::IP_PREFIX, BindingKinds::COOKIE];
    for (made, binding) in bindings().iter().enumerate() {
        let sealed = ring().seal(&example(), binding);
        for (asked, &kind) in kinds.iter().enumerate() {
            let expected = if made == asked { Ok(example()) } else { Err(TicketError::Forged) };
            assert_eq!(ring().open(sealed.as_bytes(), &visitor(), kind), expected, "{binding:?}, {kind:?}");
        }
        assert_eq!(
            ring().open(sealed.as_bytes(), &visitor(), BindingKinds::default()),
            Err(TicketError::Forged)
        );
    }
}

#[test]
fn tickets_remain_valid_over_a_rotation() {
    let (old, new) = (KeyRing::entry(1, &[1; 32]), KeyRing::entry(2, &[2; 32]));
    let before = KeyRing::parse(&old).unwrap();
    let during = KeyRing::parse(&format!("{new}\n{old}")).unwrap();
    let after = KeyRing::parse(&new).unwrap();
    let early = before.seal(&example(), &Binding::None);
    let late = during.seal(&example(), &Binding::None);
    let open = |ring: &KeyRing, text: &Sealed| ring.open(text.as_bytes(), &visitor(), ALL);
    assert_eq!(open(&during, &early), Ok(example()), "made before the rotation");
    assert_eq!(open(&during, &late), Ok(example()));
    assert_eq!(open(&after, &late), Ok(example()), "the new key signs");
    assert_eq!(open(&after, &early), Err(TicketError::UnknownKey));
    // Whoever shows it: nothing can be known about it.
    let stranger = Presenter { ip: [198, 51, 100, 1].into(), cookie: None };
    let bound = before.seal(&example(), &Binding::Cookie(COOKIE));
    let opened = after.open(bound.as_bytes(), &stranger, BindingKinds::default());
    assert_eq!(opened, Err(TicketError::UnknownKey));
    assert_eq!(Ticket::claimed_arrival(bound.as_bytes()), Some(example().arrived));
    assert_eq!(Ticket::claimed_arrival(&bound.as_bytes()[1..]), None);
    let same_id = KeyRing::generate(1, [3; 32]);
    assert_eq!(open(&same_id, &early), Err(TicketError::Forged), "another secret under the same id");
}

/// The format, written a second time: tag(domain, payload, binding) with plain HMAC.
fn seal_by_hand(domain: &[u8], payload: &[u8], binding: &[u8; 17]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(&[0x42; 32]).unwrap();
    let mut block = domain.to_vec();
    block.resize(64, 0);
    for part in [&block, payload, binding] {
        mac.update(part);
    }
    let tag = mac.finalize().into_bytes();
    URL_SAFE_NO_PAD.encode([payload, &tag[..16]].concat())
}

fn payload_by_hand(version: u8, kind: u8) -> Vec<u8> {
    let t = example();
    let mut payload = vec![version << 4 | kind, 7];
    payload.extend(&t.issued.as_millis().to_be_bytes()[2..]);
    payload.extend(90_000u32.to_be_bytes());
    payload.extend(123u32.to_be_bytes());
    payload.push(3);
    payload.extend(250u32.to_be_bytes());
    payload.extend(t.nonce.to_be_bytes());
    payload
}

#[test]
fn the_format_is_as_documented() {
    let none = [0; 17];
    let good = payload_by_hand(1, 0);
    let domain = b"tidegate ticket v1\0";
    let open = |text: &str| ring().open(text.as_bytes(), &visitor(), ALL);
    assert_eq!(ring().seal(&example(), &Binding::None).as_str(), seal_by_hand(domain, &good, &none));
    assert_eq!(open(&seal_by_hand(domain, &good, &none)), Ok(example()));

    assert_eq!(
        open(&seal_by_hand(b"tidegate pass v1\0", &good, &none)),
        Err(TicketError::Forged),
        "other domain"
    );
    assert_eq!(open(&seal_by_hand(domain, &payload_by_hand(2, 0), &none)), Err(TicketError::Version));
    assert_eq!(
        open(&seal_by_hand(domain, &payload_by_hand(1, 4), &none)),
        Err(TicketError::Malformed),
        "kind 4"
    );
    // A thief turns a ticket tied to an address into one tied to nothing, keeping its tag.
    let tied = URL_SAFE_NO_PAD.decode(ring().seal(&example(), &Binding::Ip(visitor().ip)).as_str()).unwrap();
    let mut loose = tied.clone();
    loose[0] = 0x10;
    assert_eq!(open(&URL_SAFE_NO_PAD.encode(loose)), Err(TicketError::Forged));
}

/// Golden texts: a change here breaks every ticket in use. Raise the version instead.
#[test]
fn golden() {
    let cases = [
        (Binding::None, "EAcBi8_laHsAAV-QAAAAewMAAAD6ASNFZ4mrze9MKQXtZhBq0ALKs7pmTO70"),
        (Binding::Ip(ip("203.0.113.9")), "EQcBi8_laHsAAV-QAAAAewMAAAD6ASNFZ4mrze-9jmhYBfcASEapUQ6p99I0"),
        (
            Binding::IpPrefix(ip("2001:db8:1:2::3")),
            "EgcBi8_laHsAAV-QAAAAewMAAAD6ASNFZ4mrze_x6voi2qLy9ZduaThbEPAy",
        ),
        (Binding::Cookie(COOKIE), "EwcBi8_laHsAAV-QAAAAewMAAAD6ASNFZ4mrze85OBx9Af9F0UvifWkJ_p35"),
    ];
    for (binding, text) in cases {
        assert_eq!(ring().seal(&example(), &binding).as_str(), text, "{binding:?}");
    }
    assert_eq!(
        ring().seal_pass(&example_pass(), &Binding::None).as_str(),
        "EAcAAYvP5u6gAAABhqADAAAAAAAAAGOM2SPws4oqzS-OTgWSHDMq"
    );
}

#[test]
fn a_ticket_has_one_spelling() {
    let text = ring().seal(&example(), &Binding::None).as_str().to_owned();
    let spellings = [
        format!("{text}="),
        format!("{text}=="),
        format!(" {text}"),
        format!("{text}\n"),
        format!("{text}A"),
        text[..text.len() - 1].to_owned(),
        format!("{}=", &text[..text.len() - 1]),
        String::new(),
    ];
    for spelling in spellings {
        assert_eq!(
            ring().open(spelling.as_bytes(), &visitor(), ALL),
            Err(TicketError::Malformed),
            "{spelling:?}"
        );
    }
    // The other base64 alphabet.
    let standard = text.replace('-', "+").replace('_', "/");
    assert_ne!(standard, text, "the example has a character that differs");
    assert_eq!(ring().open(standard.as_bytes(), &visitor(), ALL), Err(TicketError::Malformed));
}

#[test]
fn too_large_numbers_are_cut_not_wrapped() {
    let ticket = Ticket { wait: Duration::MAX, arrived: Timestamp::default(), ..example() };
    let sealed = ring().seal(&ticket, &Binding::None);
    let back = ring().open(sealed.as_bytes(), &visitor(), ALL).unwrap();
    assert_eq!(back.wait, Duration::from_millis(u32::MAX.into()));
    assert_eq!(back.issued.since(back.arrived), Duration::from_millis(u32::MAX.into()));
    let late = Ticket { arrived: ticket.issued + Duration::from_secs(1), ..example() };
    let sealed = ring().seal(&late, &Binding::None);
    let back = ring().open(sealed.as_bytes(), &visitor(), ALL).unwrap();
    assert_eq!(back.arrived, back.issued, "no one arrives after the ticket was made");
}

#[test]
fn errors_of_a_key_ring_do_not_repeat_the_secret() {
    let secret = "0123456789abcdefABCDEF0123456789abcdef0123456789abcdef0123456789";
    let good = format!("3:{secret}");
    let cases = [
        (String::new(), KeyError::Empty),
        (" ,\n".into(), KeyError::Empty),
        (secret.into(), KeyError::Form { entry: 0 }),
        (format!("256:{secret}"), KeyError::Id { entry: 0 }),
        (format!("-1:{secret}"), KeyError::Id { entry: 0 }),
        (format!("{good},4:{}", &secret[1..]), KeyError::Secret { entry: 1 }),
        (format!("{good} 4:{}g", &secret[1..]), KeyError::Secret { entry: 1 }),
        (format!("4:é{}", &secret[2..]), KeyError::Secret { entry: 0 }),
        (format!("{good}\n{good}"), KeyError::Duplicate { entry: 1, id: 3 }),
    ];
    for (text, expected) in cases {
        let error = KeyRing::parse(&text).unwrap_err();
        assert!(!error.to_string().contains(&secret[1..20]), "{error}");
        assert_eq!(error, expected, "{text}");
    }
    let ring = KeyRing::parse(&format!("{good},\n 9:{secret}")).unwrap();
    assert_eq!(ring.ids().collect::<Vec<_>>(), [3, 9]);
    assert_eq!(format!("{ring:?}"), "KeyRing(ids [3, 9], secrets hidden)");
    let sealed = ring.seal(&example(), &Binding::None);
    assert_eq!(format!("{sealed:?}"), "Sealed(60 characters)");
    let entry = KeyRing::entry(5, &[0xa7; 32]);
    assert_eq!(entry, format!("5:{}", "a7".repeat(32)));
    let again = KeyRing::parse(&entry).unwrap().seal(&example(), &Binding::None);
    assert_eq!(again.as_str(), KeyRing::generate(5, [0xa7; 32]).seal(&example(), &Binding::None).as_str());
}

#[test]
fn a_ticket_tells_how_long_its_visitor_has_waited_since_it_first_came() {
    let ticket = example();
    let now = ticket.issued + Duration::from_secs(90);
    assert_eq!(ticket.waited(now), Some(Duration::from_millis(90_123)), "since its arrival");
    // A late visitor's new ticket, which is for now.
    let again = Ticket { wait: Duration::ZERO, ..ticket };
    assert_eq!(again.waited(now), Some(Duration::from_millis(90_123)));
    // What tokengen gives a visitor who need not wait.
    let at_once = Ticket { arrived: ticket.issued, ..again };
    assert_eq!(at_once.waited(now), None);
}
