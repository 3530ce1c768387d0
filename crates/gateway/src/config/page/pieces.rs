//! The content of an answer in a few pieces: what was written for its visitor, and between it the large parts
//! that all answers share, which are not copied.

use bytes::Bytes;

use crate::upstream::socket::SMALL;

/// Shared parts of one content: style and script.
const SHARED: usize = 2;
/// A part of its own before and behind each.
const MOST: usize = 2 * SHARED + 1;

#[derive(Clone, Debug, Default)]
pub struct Pieces([Bytes; MOST]);

impl Pieces {
    /// One piece, in the thread's memory for small bodies: without an allocation of its own.
    pub fn copy_of(whole: &[u8]) -> Self {
        let mut buffer = SMALL.take();
        buffer.extend_from_slice(whole);
        let piece = buffer.split().freeze();
        SMALL.give_back(buffer);
        piece.into()
    }

    /// The bytes that are left.
    pub fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Bytes::is_empty)
    }

    /// Takes the next piece.
    pub fn take(&mut self) -> Option<Bytes> {
        self.0.iter_mut().find(|piece| !piece.is_empty()).map(std::mem::take)
    }
}

impl<T: Into<Bytes>> From<T> for Pieces {
    fn from(whole: T) -> Self {
        let mut pieces = Self::default();
        pieces.0[0] = whole.into();
        pieces
    }
}

/// A content that is being written.
#[derive(Default)]
pub(crate) struct Draft {
    pub(crate) text: Vec<u8>,
    /// Shared parts, and where in the text they stand.
    shared: [(usize, Bytes); SHARED],
    count: usize,
}

impl AsMut<Vec<u8>> for Draft {
    fn as_mut(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }
}

impl Draft {
    /// Puts a shared part behind what was written.
    pub(crate) fn share(&mut self, part: &Bytes) {
        match self.shared.get_mut(self.count) {
            Some(next) => {
                *next = (self.text.len(), part.clone());
                self.count += 1;
            }
            // A template that has one of them twice.
            None => self.text.extend_from_slice(part),
        }
    }

    pub(crate) fn finish(self) -> Pieces {
        let text = Bytes::from(self.text);
        let (mut pieces, mut next, mut from) = (Pieces::default(), 0, 0);
        for (at, part) in self.shared.into_iter().take(self.count) {
            (pieces.0[next], pieces.0[next + 1]) = (text.slice(from..at), part);
            (next, from) = (next + 2, at);
        }
        pieces.0[next] = text.slice(from..);
        pieces
    }
}
