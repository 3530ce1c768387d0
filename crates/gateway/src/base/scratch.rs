//! A buffer for text that is put together and copied at once, in memory that the thread uses again.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// Buffers kept by a thread: as many as are in use at the same time.
const KEPT: usize = 8;
/// Largest capacity that is kept, in bytes.
const LARGEST: usize = 16 << 10;

thread_local!(static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) });

/// Empty at first.
pub struct Scratch(Vec<u8>);

impl Scratch {
    #[expect(clippy::new_without_default, reason = "it is taken from somewhere, not made of nothing")]
    pub fn new() -> Self {
        Self(SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten().unwrap_or_default())
    }

    pub fn text(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    pub fn number(&mut self, n: u64) {
        self.text(itoa::Buffer::new().format(n));
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let mut buffer = std::mem::take(&mut self.0);
        if buffer.capacity() == 0 || buffer.capacity() > LARGEST {
            return;
        }
        buffer.clear();
        // A thread that ends has no list any more.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < KEPT {
                spare.push(buffer);
            }
        });
    }
}

impl Deref for Scratch {
    type Target = Vec<u8>;
    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_and_what_was_in_it_is_gone() {
        let (mut one, mut other) = (Scratch::new(), Scratch::new());
        one.text("a text of some length, ");
        one.number(42);
        other.text("another");
        assert_eq!((&one[..], &other[..]), (&b"a text of some length, 42"[..], &b"another"[..]));
        let at = one.as_ptr();
        drop(one);
        let next = Scratch::new();
        assert_eq!((next.len(), next.as_ptr()), (0, at));
        let mut large = next;
        large.resize(LARGEST + 1, 0);
        drop(large);
        SPARE.with_borrow(|spare| assert!(spare.iter().all(|kept| kept.capacity() <= LARGEST)));
    }
}
