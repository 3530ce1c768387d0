//! Numbered slots for things that come and go by the million.

/// A slab with numbers of 32 bits. Numbers are reused: whoever must not mistake a newcomer for the one who
/// left keeps a generation with it.
pub(crate) struct Slab<T>(slab::Slab<T>);

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self(slab::Slab::new())
    }
}

impl<T> Slab<T> {
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        u32::try_from(self.0.insert(value)).expect("fewer than 2^32 at once")
    }

    pub(crate) fn get(&self, at: u32) -> Option<&T> {
        self.0.get(at as usize)
    }

    pub(crate) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.0.get_mut(at as usize)
    }

    /// As [`Slab::get_mut`], for a caller who holds a number only as long as the thing is there.
    pub(crate) fn held(&mut self, at: u32) -> &mut T {
        &mut self.0[at as usize]
    }

    /// Reads `ends` of these slots, which changes nothing. A million things do not fit any cache; misses that
    /// do not wait for each other cost a tenth of as many one by one.
    pub(crate) fn look_at(&self, numbers: &[u32], ends: impl Fn(&T) -> u64) {
        let seen = numbers.iter().filter_map(|at| self.get(*at)).fold(0, |seen, thing| seen ^ ends(thing));
        // The compiler must not optimise the reads away.
        std::hint::black_box(seen);
    }

    pub(crate) fn remove(&mut self, at: u32) -> Option<T> {
        self.0.try_remove(at as usize)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> {
        self.0.drain()
    }

    /// Numbers of the slots in use, ascending.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.0.iter().map(|(at, _)| at as u32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again() {
        let mut slab = Slab::default();
        let numbers: Vec<u32> = (0..1_000).map(|i| slab.insert(i)).collect();
        assert_eq!(numbers, (0..1_000).collect::<Vec<_>>());
        assert_eq!(slab.remove(17), Some(17));
        assert_eq!(slab.len(), 999);
        assert_eq!((slab.remove(17), slab.remove(5_000)), (None, None));
        assert_eq!(slab.get(17), None);
        assert!(!slab.numbers().contains(&17));
        assert_eq!(slab.insert(99_999), 17);
        *slab.get_mut(17).expect("in use") += 1;
        assert_eq!(slab.drain().filter(|item| *item == 100_000).count(), 1);
        assert_eq!(slab.len(), 0);
        assert_eq!(slab.insert(1), 0);
    }
}
