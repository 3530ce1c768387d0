//! Visitors by number, numbers used again.

/// Items of a page.
const PAGE: usize = 1024;

/// A list with holes, in pages that never move: a vector of a million visitors that grows leaves holes behind, as large
/// as itself.
pub(super) struct Slab<T> {
    pages: Vec<Vec<Option<T>>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(super) const fn new() -> Self {
        Self { pages: Vec::new(), free: Vec::new() }
    }

    /// Keeps an item and returns its number.
    pub(super) fn insert(&mut self, item: T) -> u32 {
        if let Some(number) = self.free.pop() {
            *self.slot(number) = Some(item);
            return number;
        }
        if self.pages.last().is_none_or(|page| page.len() == PAGE) {
            self.pages.push(Vec::with_capacity(PAGE));
        }
        let page = self.pages.len() - 1;
        self.pages[page].push(Some(item));
        (page * PAGE + self.pages[page].len() - 1) as u32
    }

    /// The item of that number. A number without one is a defect: who holds a number holds the item.
    pub(super) fn get(&mut self, number: u32) -> &mut T {
        self.slot(number).as_mut().expect("numbers are given up with their items")
    }

    /// Lets an item go; its number will be another's.
    pub(super) fn remove(&mut self, number: u32) -> Option<T> {
        let item = self.slot(number).take()?;
        self.free.push(number);
        Some(item)
    }

    /// Takes all that is left.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> {
        self.free.clear();
        std::mem::take(&mut self.pages).into_iter().flatten().flatten()
    }

    fn slot(&mut self, number: u32) -> &mut Option<T> {
        &mut self.pages[number as usize / PAGE][number as usize % PAGE]
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
        assert_eq!(slab.pages.len(), 10_000_usize.div_ceil(PAGE));
        assert_eq!(slab.remove(17), Some(17));
        assert_eq!(slab.remove(17), None);
        assert_eq!(slab.insert(99_999), 17);
        *slab.get(17) += 1;
        assert_eq!(slab.drain().filter(|item| *item == 100_000).count(), 1);
        assert_eq!(slab.insert(1), 0);
    }
}
