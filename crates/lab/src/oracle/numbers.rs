//! Sets of numbers, hashed with one multiplication: nobody chooses the numbers to make them collide, and the
//! oracle looks them up millions of times a second.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

/// Fibonacci hashing (Knuth, The Art of Computer Programming, 6.4).
#[derive(Default)]
pub(super) struct Multiply(u64);

impl Hasher for Multiply {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers of 64 bits are hashed");
    }

    fn write_u64(&mut self, n: u64) {
        // Tables look at the lowest and the highest bits.
        self.0 = n.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
    }
}

pub(super) type NumberSet = HashSet<u64, BuildHasherDefault<Multiply>>;
