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

    /// Numbers of the places in use, ascending.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        (0..self.places.len() as u32).filter(|at| self.places[*at as usize].is_some()).collect()
    }
}
