//! Numbered places for things that come and go by the million: a vector with a list of free places.

/// A slab. Numbers are reused; who must not mistake a newcomer for who left keeps a generation with it.
pub(crate) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.places[at as usize] = Some(value);
                at
            }
            None => {
                self.places.push(Some(value));
                u32::try_from(self.places.len() - 1).expect("four thousand million visitors at once")
            }
        }
    }

    pub(crate) fn get(&self, at: u32) -> Option<&T> {
        self.places.get(at as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.places.get_mut(at as usize)?.as_mut()
    }

    /// As [`Slab::get_mut`], for who holds a number only as long as the thing is there: anything else is a defect.
    pub(crate) fn held(&mut self, at: u32) -> &mut T {
        self.get_mut(at).expect("numbers are given up with their things")
    }

    /// Looks at both ends of these places: a million things do not fit any cache, and misses of memory that do not wait for
    /// each other cost a tenth of as many one by one. Changes nothing.
    pub(crate) fn look_at(&self, numbers: &[u32], ends: impl Fn(&T) -> u64) {
        let seen = numbers.iter().filter_map(|at| self.get(*at)).fold(0, |seen, thing| seen ^ ends(thing));
        // Whatever comes of it, it must not be optimised away.
        std::hint::black_box(seen);
    }

    pub(crate) fn remove(&mut self, at: u32) -> Option<T> {
        let value = self.places.get_mut(at as usize)?.take()?;
        self.free.push(at);
        Some(value)
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Takes all that is left.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> {
        self.free.clear();
        std::mem::take(&mut self.places).into_iter().flatten()
    }

    /// Numbers of the places in use, ascending.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        (0..self.places.len() as u32).filter(|at| self.places[*at as usize].is_some()).collect()
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
