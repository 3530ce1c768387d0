//! The wheel against a sorted list, over histories of every shape; and its size.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{BLOCK, Wheel};

/// The wheel's model: entries by (time, order of insertion).
#[derive(Default)]
struct Model {
    entries: BTreeMap<(u64, u64), u32>,
    inserted: u64,
    now: u64,
}

impl Model {
    fn push(&mut self, at: u64, item: u32) {
        self.entries.insert((at.max(self.now), self.inserted), item);
        self.inserted += 1;
    }

    fn pop(&mut self) -> Option<(u64, u32)> {
        let ((at, _), item) = self.entries.pop_first()?;
        self.now = at;
        Some((at, item))
    }

    fn peek(&self) -> Option<u64> {
        self.entries.first_key_value().map(|((at, _), _)| *at)
    }
}

/// Times as far ahead as `span` bits, often equal, sometimes in the past, now and then at the end of time.
fn time(rng: &mut StdRng, now: u64, span: u32) -> u64 {
    match rng.random_range(0..20) {
        0 => now.saturating_sub(rng.random_range(0..100)),
        1 => now,
        2 => u64::MAX - rng.random_range(0..3),
        _ => now.saturating_add(rng.random::<u64>() >> (64 - rng.random_range(1..=span))),
    }
}

#[test]
fn any_history_comes_out_in_order() {
    for seed in 0..400 {
        let mut rng = StdRng::seed_from_u64(seed);
        let (mut wheel, mut model) = (Wheel::new(), Model::default());
        let span = rng.random_range(1..=63);
        // Crowds that grow, that shrink, and that stay.
        let pushes = rng.random_range(0.3..0.8);
        for step in 0..3_000 {
            if rng.random_bool(pushes) {
                let at = time(&mut rng, model.now, span);
                wheel.push(at, step);
                model.push(at, step);
            } else {
                assert_eq!(wheel.pop(), model.pop(), "seed {seed}, step {step}");
            }
            assert_eq!(wheel.peek(), model.peek(), "seed {seed}, step {step}");
            assert_eq!(wheel.len(), model.entries.len(), "seed {seed}, step {step}");
        }
        while let Some(expected) = model.pop() {
            assert_eq!(wheel.pop(), Some(expected), "seed {seed}, at the end");
        }
        assert_eq!((wheel.pop(), wheel.peek(), wheel.is_empty()), (None, None, true));
    }
}

#[test]
fn equal_times_keep_their_order_over_every_level() {
    let mut wheel = Wheel::new();
    // The same far instant, set from ever nearer: from another level each time.
    let far = 1 << 40;
    let mut set = 0;
    for bits in (0..40).rev() {
        wheel.push(far, set);
        wheel.push(far - (1 << bits), u32::MAX);
        set += 1;
        assert_eq!(wheel.pop(), Some((far - (1 << bits), u32::MAX)));
    }
    for expected in 0..set {
        assert_eq!(wheel.pop(), Some((far, expected)));
    }
}

#[test]
fn a_look_ahead_does_not_keep_earlier_timers_out() {
    let mut wheel = Wheel::new();
    wheel.push(10_000_000, 'b');
    assert_eq!(wheel.peek(), Some(10_000_000));
    wheel.push(5_000_000, 'a');
    assert_eq!(wheel.peek(), Some(5_000_000));
    assert_eq!(wheel.pop(), Some((5_000_000, 'a')));
    // The past is over: due now.
    wheel.push(1, 'x');
    assert_eq!(wheel.pop(), Some((5_000_000, 'x')));
    assert_eq!(wheel.pop(), Some((10_000_000, 'b')));
}

#[test]
fn an_entry_takes_under_24_bytes_and_the_steady_state_no_memory() {
    assert_eq!(size_of::<(u64, u32)>(), 16);
    let mut rng = StdRng::seed_from_u64(1);
    let mut wheel = Wheel::new();
    let entries = 200_000;
    for item in 0..entries {
        wheel.push(rng.random_range(0..60_000_000), item);
    }
    let bytes = wheel.blocks.len() * BLOCK * 16 + wheel.blocks.capacity() * 8 + wheel.next.capacity() * 4;
    assert!(bytes / entries as usize <= 24, "{} bytes an entry", bytes / entries as usize);
    let mut hold = |wheel: &mut Wheel<u32>, turns: u32| {
        for _ in 0..turns {
            let (at, item) = wheel.pop().expect("never empty");
            wheel.push(at + rng.random_range(0..60_000_000), item);
        }
    };
    hold(&mut wheel, 1_000_000);
    let arena = wheel.next.len();
    hold(&mut wheel, 1_000_000);
    let most = (entries as usize / BLOCK + wheel.slots.len()) * 5 / 4;
    assert!(wheel.next.len() <= arena.max(most), "{} blocks, then {}", arena, wheel.next.len());
}

#[test]
fn entries_due_soon_are_announced() {
    let mut wheel = Wheel::new();
    for (at, item) in [(6_000_000, 'c'), (5_000_000, 'a'), (5_000_100, 'b')] {
        wheel.push(at, item);
    }
    let mut told = Vec::new();
    assert_eq!(wheel.pop_with(|item| told.push(item)), Some((5_000_000, 'a')));
    told.sort_unstable();
    assert_eq!(told, ['a', 'b']);
}
