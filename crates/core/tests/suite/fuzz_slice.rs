//! A reproducible slice of the fuzzing: random bytes and altered valid inputs.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidegate_core::ticket::{Pass, PassKind, Ticket};
use tidegate_core::units::{ClassId, Cost, Timestamp};

use super::fuzz;

const CASES: usize = 100_000;

/// Runs `target` on random bytes and altered `seeds`; returns the number of inputs accepted.
fn slice(seed: u64, seeds: &[Vec<u8>], target: fn(&[u8]) -> bool) -> usize {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut valid = 0;
    for case in 0..CASES {
        let mut input = match case % 4 {
            0 => (0..rng.random_range(0..128)).map(|_| rng.random()).collect(),
            _ => seeds[rng.random_range(0..seeds.len())].clone(),
        };
        for _ in 0..rng.random_range(0..4) {
            alter(&mut input, &mut rng);
        }
        valid += usize::from(target(&input));
    }
    valid
}

fn alter(input: &mut Vec<u8>, rng: &mut StdRng) {
    let at = rng.random_range(0..=input.len());
    match rng.random_range(0..5) {
        0 if at < input.len() => input[at] = rng.random(),
        1 if at < input.len() => input[at] ^= 1 << rng.random_range(0..8),
        2 => input.insert(at, b"*?%/.&=+;:\"\0\xff"[rng.random_range(0..13)]),
        3 => input.truncate(at),
        _ => {
            let tail = input[at..].to_vec();
            input.extend(tail);
            input.truncate(4096);
        }
    }
}

#[test]
fn tickets() {
    let issued = Timestamp::from_secs(1_700_000_000);
    let wait = Duration::from_secs(9);
    let ticket = Ticket { class: ClassId(1), cost: Cost::ONE, issued, wait, arrived: issued, nonce: 5 };
    let pass = Pass { kind: PassKind::Page, class: ClassId(1), issued, first: issued, nonce: 6 };
    let mut seeds = Vec::new();
    for binding in fuzz::ticket::bindings() {
        seeds.push(fuzz::ticket::ring().seal(&ticket, &binding).as_bytes().to_vec());
        seeds.push(fuzz::ticket::ring().seal_pass(&pass, &binding).as_bytes().to_vec());
    }
    let valid = slice(1, &seeds, fuzz::ticket::run);
    // Only the unaltered ones: about a quarter of three quarters.
    assert!((CASES / 6..CASES / 4).contains(&valid), "{valid} accepted");
}

#[test]
fn rules_and_requests() {
    let piece = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let input = |on: &[u8], texts: [&str; 8]| {
        let mut out = [&[on.len() as u8], on].concat();
        texts.iter().for_each(|t| out.extend(piece(t)));
        out
    };
    let seeds = [
        input(
            &[1, 1, 1, 1, 1],
            ["/a/%62/../c", "n=v+1", "a.example:80", "n", "v 1", "/a/*", "*.example", "v*"],
        ),
        input(&[1], ["/a/b/c/a/b/c", "", "", "", "", "/**/a*?/**/c", "", ""]),
        input(&[0, 0, 0, 1, 0], ["/", "", "", "tier", "\"gold\"", "", "", "g?*d"]),
        input(&[0, 0, 0, 0, 1], ["/", "%71=%00&q", "", "q", "", "", "", "*"]),
    ];
    let fitted = slice(2, &seeds, fuzz::classify::run);
    assert!((CASES / 6..CASES * 9 / 10).contains(&fitted), "{fitted} fitted");
}
