//! A set of numbers from 0 to 255, one bit each.

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Bits([u64; 4]);

impl Bits {
    pub(crate) fn insert(&mut self, n: usize) {
        self.0[n / 64] |= 1 << (n % 64);
    }

    pub(crate) fn remove(&mut self, n: usize) {
        self.0[n / 64] &= !(1 << (n % 64));
    }

    pub(crate) fn contains(&self, n: usize) -> bool {
        self.0[n / 64] & 1 << (n % 64) != 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The lowest member at or above `from`.
    pub(crate) fn next_from(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut bits = self.0.get(word)? & u64::MAX << (from % 64);
        while bits == 0 {
            word += 1;
            bits = *self.0.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    /// The members, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        std::iter::successors(self.next_from(0), |last| self.next_from(last + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_across_words_are_found() {
        let mut set = Bits::default();
        assert!(set.is_empty());
        for n in [255, 0, 63, 64, 128, 7] {
            set.insert(n);
        }
        set.remove(7);
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 63, 64, 128, 255]);
        assert!(set.contains(63) && !set.contains(7));
    }
}
