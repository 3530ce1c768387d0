//! Buffers that a thread uses again: a head takes its memory from a free list and returns it when it is
//! dropped, so that the steady state allocates nothing and an idle connection owns nothing.
//!
//! The lists are bounded in number and in the size of what they keep: one large head does not stay for ever.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// Buffers kept by a thread, of each kind: as many heads as a worker usually has at once.
const KEPT: usize = 256;
/// Largest buffer that is kept, in bytes: with all of them, a thread's lists are bounded by 4 MiB.
const LARGEST: usize = 8 << 10;
/// Capacity of a new buffer: what most heads need.
const FIRST: usize = 1 << 10;

/// What has a free list of its own.
pub(crate) trait Pooled: Sized + 'static {
    /// Capacity of a new buffer.
    const CAPACITY: usize;
    /// Calls `f` with the thread's list; `None` while the thread ends.
    fn with_list<R>(f: impl FnOnce(&mut Vec<Vec<Self>>) -> R) -> Option<R>;
}

impl Pooled for u8 {
    const CAPACITY: usize = FIRST;
    fn with_list<R>(f: impl FnOnce(&mut Vec<Vec<u8>>) -> R) -> Option<R> {
        thread_local!(static TEXTS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) });
        TEXTS.try_with(|list| list.try_borrow_mut().ok().map(|mut list| f(&mut list))).ok().flatten()
    }
}

/// A vector from the thread's free list. It takes memory with the first [`Recycled::grown`] only.
pub(crate) struct Recycled<T: Pooled>(Vec<T>);

impl<T: Pooled> Recycled<T> {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// The vector to write to, with memory from the free list if it had none.
    pub(crate) fn grown(&mut self) -> &mut Vec<T> {
        if self.0.capacity() == 0 {
            self.0 = T::with_list(Vec::pop).flatten().unwrap_or_else(|| Vec::with_capacity(T::CAPACITY));
        }
        &mut self.0
    }
}

impl<T: Pooled> Drop for Recycled<T> {
    fn drop(&mut self) {
        if self.0.capacity() == 0 || self.0.capacity() * size_of::<T>() > LARGEST {
            return;
        }
        let mut buffer = std::mem::take(&mut self.0);
        buffer.clear();
        T::with_list(|list| {
            if list.len() < KEPT {
                list.push(buffer);
            }
        });
    }
}

impl<T: Pooled + Copy> Clone for Recycled<T> {
    fn clone(&self) -> Self {
        let mut copy = Self::new();
        if !self.0.is_empty() {
            copy.grown().extend_from_slice(&self.0);
        }
        copy
    }
}

impl<T: Pooled> Default for Recycled<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Pooled> Deref for Recycled<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T: Pooled> DerefMut for Recycled<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_returns_to_the_list_and_large_memory_does_not() {
        let mut text = Recycled::<u8>::new();
        text.grown().extend_from_slice(b"abc");
        let at = text.as_ptr();
        drop(text);
        let mut next = Recycled::<u8>::new();
        assert!(next.grown().is_empty(), "what was in it is gone");
        assert_eq!(next.grown().as_ptr(), at);
        next.grown().resize(LARGEST + 1, 0);
        drop(next);
        assert!(u8::with_list(|list| list.iter().all(|kept| kept.capacity() <= LARGEST)).unwrap());
    }
}
