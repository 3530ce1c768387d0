//! Memory that a thread uses again: a head takes its memory from a free list and returns it when it is
//! dropped, so that the steady state allocates nothing and an idle connection owns nothing. What has none is
//! one word, and so is what has some: heads are moved from stage to stage.
//!
//! The lists are bounded in number and in the size of what they keep: one large head does not stay for ever.

use std::cell::RefCell;

/// Kept by a thread, of each kind: as many heads as a worker usually has at once.
const KEPT: usize = 256;
/// Largest one that is kept, in bytes: a thread's lists are bounded by some MiB.
const LARGEST: usize = 8 << 10;
/// Capacity of a new text: what most heads need.
pub(crate) const TEXT: usize = 1 << 10;

/// A thread's free list.
pub(crate) type List<T> = RefCell<Vec<Box<T>>>;

/// What has a free list of its own.
pub(crate) trait Pooled: Sized + 'static {
    /// A new one with memory.
    fn new() -> Self;
    /// Removes what is in it, and keeps the memory.
    fn clear(&mut self);
    /// Bytes of its memory.
    fn size(&self) -> usize;
    /// Calls `f` with the thread's list; `None` while the thread ends.
    fn with_list<R>(f: impl FnOnce(&List<Self>) -> R) -> Option<R>;
}

macro_rules! pooled {
    ($($of:ty)*) => {$(
        impl Pooled for $of {
            fn new() -> Self {
                Self::with_capacity(TEXT)
            }
            fn clear(&mut self) {
                self.clear();
            }
            fn size(&self) -> usize {
                self.capacity()
            }
            fn with_list<R>(f: impl FnOnce(&List<Self>) -> R) -> Option<R> {
                thread_local!(static LIST: List<$of> = const { RefCell::new(Vec::new()) });
                LIST.try_with(f).ok()
            }
        }
    )*};
}

pooled!(String Vec<u8>);

/// One from the thread's free list. It takes memory with the first [`Recycled::grown`] only.
pub(crate) struct Recycled<T: Pooled>(Option<Box<T>>);

impl<T: Pooled> Recycled<T> {
    pub(crate) const fn new() -> Self {
        Self(None)
    }

    /// `None`: without memory, and so without anything in it.
    pub(crate) fn get(&self) -> Option<&T> {
        self.0.as_deref()
    }

    /// What was grown before.
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }

    /// To write to, with memory from the free list if it had none.
    #[inline]
    pub(crate) fn grown(&mut self) -> &mut T {
        self.0.get_or_insert_with(take)
    }
}

impl<T: Pooled> Drop for Recycled<T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(it) = self.0.take() {
            give_back(it);
        }
    }
}

fn take<T: Pooled>() -> Box<T> {
    let kept = T::with_list(|list| list.try_borrow_mut().ok().and_then(|mut list| list.pop()));
    kept.flatten().unwrap_or_else(|| Box::new(T::new()))
}

fn give_back<T: Pooled>(mut it: Box<T>) {
    if it.size() > LARGEST {
        return;
    }
    it.clear();
    T::with_list(|list| {
        if let Ok(mut list) = list.try_borrow_mut()
            && list.len() < KEPT
        {
            list.push(it);
        }
    });
}

impl<T: Pooled + Clone> Clone for Recycled<T> {
    fn clone(&self) -> Self {
        let mut copy = Self::new();
        if let Some(it) = self.get() {
            copy.grown().clone_from(it);
        }
        copy
    }
}

impl<T: Pooled> Default for Recycled<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_returns_to_the_list_and_large_memory_does_not() {
        let mut text = Recycled::<String>::new();
        assert!(text.get().is_none());
        text.grown().push_str("abc");
        let at = text.grown().as_ptr();
        drop(text);
        let mut next = Recycled::<String>::new();
        assert!(next.grown().is_empty(), "what was in it is gone");
        assert_eq!(next.grown().as_ptr(), at);
        next.grown().reserve(LARGEST + 1);
        drop(next);
        let is_small = |list: &List<String>| list.borrow().iter().all(|kept| kept.capacity() <= LARGEST);
        assert!(String::with_list(is_small).unwrap());
    }
}
