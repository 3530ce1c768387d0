//! A visitor's traits, drawn from its seed whenever they are needed, so that none is stored.
//!
//! Each trait has a salt of its own: the same seed and salt give the same value, however often and in
//! whatever order traits are drawn. So a scenario that changes the share of no-shows changes nobody's
//! patience, and a visitor of the simulator is the visitor of the real run. The stream behind a salt is
//! SplitMix64.

use rand::{Rng, RngCore};

use crate::split_mix::{GOLDEN, mix};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Salt {
    Patience,
    WaitLimit,
    Pause,
    Think,
    NoShow,
    Early,
    EarlyAt,
    Late,
    LateBy,
    Tamper,
    TamperAt,
    Replay,
    Jitter,
    Path,
    Step,
    Round,
    Rest,
}

#[derive(Clone, Debug)]
pub(super) struct Draw(u64);

impl Draw {
    /// The stream for `salt`; `turn` separates repeated draws of one trait.
    pub(super) fn new(seed: u64, salt: Salt, turn: u16) -> Self {
        Self(mix(seed ^ mix(u64::from(turn) << 8 | salt as u64)))
    }

    pub(super) fn chance(mut self, share: f64) -> bool {
        // Most shares are none; the simulator asks millions of times a second.
        share > 0.0 && self.unit() < share
    }

    pub(super) fn unit(&mut self) -> f64 {
        self.random()
    }
}

impl RngCore for Draw {
    fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    fn next_u64(&mut self) -> u64 {
        let value = mix(self.0);
        self.0 = self.0.wrapping_add(GOLDEN);
        value
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let value = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&value[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_split_mix_64() {
        // The first outputs of the reference implementation (prng.di.unimi.it/splitmix64.c) from state 0.
        let mut draw = Draw(0);
        let expected = [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f];
        assert_eq!(expected.map(|_| draw.next_u64()), expected);
    }

    #[test]
    fn traits_are_independent_of_each_other() {
        // Shares of all four combinations of two traits, and of one trait in two turns, over consecutive
        // seeds.
        let ask = |seed, salt, turn| Draw::new(seed, salt, turn).chance(0.3);
        let pairs = [((Salt::NoShow, 0), (Salt::Early, 0)), ((Salt::Jitter, 1), (Salt::Jitter, 2))];
        for ((a, at), (b, bt)) in pairs {
            let n = 40_000;
            let both = (0..n).filter(|s| ask(*s, a, at) && ask(*s, b, bt)).count() as f64 / n as f64;
            let one = (0..n).filter(|s| ask(*s, a, at)).count() as f64 / n as f64;
            assert!((both - 0.09).abs() < 0.008, "{a:?} and {b:?}: {both}");
            assert!((one - 0.3).abs() < 0.012, "{a:?}: {one}");
        }
    }

    #[test]
    fn bytes_of_any_number() {
        let mut bytes = [0; 11];
        Draw(0).fill_bytes(&mut bytes);
        assert_eq!(bytes[..8], 0xe220_a839_7b1d_cdaf_u64.to_le_bytes());
        assert_eq!(bytes[8..], 0x6e78_9e6a_a1b9_65f4_u64.to_le_bytes()[..3]);
    }
}
