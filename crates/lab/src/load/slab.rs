//! Visitors by number, numbers used again.

/// A list with holes. Grows by quarters: doubling would leave half of a million visitors' memory unused.
pub(super) struct Slab<T> {
    items: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(super) const fn new() -> Self {
        Self { items: Vec::new(), free: Vec::new() }
    }

    /// Keeps an item and returns its number.
    pub(super) fn insert(&mut self, item: T) -> u32 {
        if let Some(number) = self.free.pop() {
            self.items[number as usize] = Some(item);
            return number;
        }
        if self.items.len() == self.items.capacity() {
            self.items.reserve_exact((self.items.len() / 4).max(64));
        }
        self.items.push(Some(item));
        (self.items.len() - 1) as u32
    }

    /// The item of that number. A number without one is a defect: who holds a number holds the item.
    pub(super) fn get(&mut self, number: u32) -> &mut T {
        self.items[number as usize].as_mut().expect("numbers are given up with their items")
    }

    /// Lets an item go; its number will be another's.
    pub(super) fn remove(&mut self, number: u32) -> Option<T> {
        let item = self.items[number as usize].take()?;
        self.free.push(number);
        Some(item)
    }

    /// Takes all that is left.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> {
        self.free.clear();
        std::mem::take(&mut self.items).into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again_and_memory_is_not_wasted() {
        let mut slab = Slab::new();
        let numbers: Vec<u32> = (0..10_000).map(|i| slab.insert(i)).collect();
        assert_eq!(numbers, (0..10_000).collect::<Vec<_>>());
        assert!(slab.items.capacity() <= 12_500);
        assert_eq!(slab.remove(17), Some(17));
        assert_eq!(slab.remove(17), None);
        assert_eq!(slab.insert(99_999), 17);
        *slab.get(17) += 1;
        assert_eq!(slab.drain().filter(|item| *item == 100_000).count(), 1);
        assert_eq!(slab.insert(1), 0);
    }
}
