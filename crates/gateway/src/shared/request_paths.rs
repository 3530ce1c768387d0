//! Paths of requests that go to the origin, on their way from the workers to the correlation.
//!
//! ```text
//! worker ─► its own buffer ─► (control tick: swapped) ─► thread of the correlation: templates, counts
//! ```
//!
//! A worker appends the path, and allocates nothing. The control thread takes the buffer and leaves an empty
//! one: the lock is held for some dozens of nanoseconds by both. What does not fit before the next tick is
//! counted without its path.

use std::sync::Arc;

use parking_lot::Mutex;

/// Bytes of all workers' buffers together, and of one at least and at most. In a tick of 100 ms a worker
/// notes up to some 8,000 paths of 30 bytes.
const TOTAL: usize = 1 << 20;
const SMALLEST: usize = 16 << 10;
const LARGEST: usize = 256 << 10;

/// Longest part of a path that is noted; templates are shorter.
pub const MAX_NOTED: usize = 1024;

/// Bytes before each path: its length.
const LENGTH: usize = 2;

/// What a worker has noted since it was taken last.
#[derive(Default)]
pub struct Noted {
    bytes: Vec<u8>,
    /// Requests whose path did not fit.
    pub without_path: u64,
}

/// A worker's buffer. Aligned to two cache lines, because adjacent lines are fetched in pairs.
#[repr(align(128))]
pub struct PathBuffer(Mutex<Noted>);

/// The buffers of all workers.
pub struct RequestPaths {
    workers: Vec<Arc<PathBuffer>>,
    capacity: usize,
}

impl Noted {
    fn of(capacity: usize) -> Self {
        Self { bytes: Vec::with_capacity(capacity), without_path: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.without_path == 0
    }

    /// Requests, with their path and without.
    pub fn requests(&self) -> u64 {
        self.without_path + self.paths().count() as u64
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.without_path = 0;
    }

    /// The paths, in the order in which they were noted.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || {
            let (length, behind) = rest.split_first_chunk::<LENGTH>()?;
            let (path, behind) = behind.split_at_checked(u16::from_le_bytes(*length).into())?;
            rest = behind;
            // A path that was cut within a character; the parser lets none in that is not UTF-8.
            Some(match std::str::from_utf8(path) {
                Ok(path) => path,
                Err(e) => std::str::from_utf8(&path[..e.valid_up_to()]).unwrap_or_default(),
            })
        })
    }
}

impl PathBuffer {
    /// Notes a request that goes to the origin.
    pub fn note(&self, path: &str) {
        let path = &path.as_bytes()[..path.len().min(MAX_NOTED)];
        let mut noted = self.0.lock();
        if noted.bytes.capacity() - noted.bytes.len() < LENGTH + path.len() {
            noted.without_path += 1;
            return;
        }
        noted.bytes.extend_from_slice(&(path.len() as u16).to_le_bytes());
        noted.bytes.extend_from_slice(path);
    }
}

impl RequestPaths {
    pub fn new(workers: usize) -> Self {
        let capacity = (TOTAL / workers.max(1)).clamp(SMALLEST, LARGEST);
        let buffer = || Arc::new(PathBuffer(Mutex::new(Noted::of(capacity))));
        Self { workers: std::iter::repeat_with(buffer).take(workers).collect(), capacity }
    }

    /// The buffer of a worker.
    pub fn of_worker(&self, index: usize) -> Arc<PathBuffer> {
        self.workers[index].clone()
    }

    /// Takes what the workers have noted; `spare` are buffers that were taken before, and read.
    pub fn take(&self, spare: &mut Vec<Noted>) -> Vec<Noted> {
        let taken = self.workers.iter().filter_map(|worker| {
            let mut empty = spare.pop().unwrap_or_else(|| Noted::of(self.capacity));
            empty.clear();
            let mut noted = worker.0.lock();
            if noted.is_empty() {
                drop(noted);
                spare.push(empty);
                return None;
            }
            Some(std::mem::replace(&mut *noted, empty))
        });
        taken.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_come_out_as_they_went_in() {
        let paths = RequestPaths::new(2);
        let long = "/".repeat(MAX_NOTED + 9);
        paths.of_worker(0).note("/a");
        paths.of_worker(0).note("");
        paths.of_worker(1).note(&long);
        let mut spare = Vec::new();
        let taken = paths.take(&mut spare);
        assert_eq!(taken[0].paths().collect::<Vec<_>>(), ["/a", ""]);
        assert_eq!(taken[1].paths().collect::<Vec<_>>(), [&long[..MAX_NOTED]]);
        assert!(paths.take(&mut spare).is_empty(), "they were taken");
    }

    #[test]
    fn a_full_buffer_counts_and_does_not_grow() {
        let paths = RequestPaths::new(1000);
        let worker = paths.of_worker(999);
        let fits = SMALLEST / (LENGTH + 10);
        (0..fits + 7).for_each(|_| worker.note("/123456789"));
        let mut spare = vec![Noted::of(SMALLEST)];
        let taken = paths.take(&mut spare).pop().expect("it noted");
        assert_eq!((taken.paths().count(), taken.without_path), (fits, 7));
        assert_eq!(taken.bytes.capacity(), SMALLEST);
        worker.note("/a");
        spare.push(taken);
        let again = paths.take(&mut spare).pop().expect("it noted");
        assert_eq!((again.paths().count(), again.without_path), (1, 0));
    }

    #[test]
    fn a_path_that_is_cut_within_a_character_is_still_text() {
        let paths = RequestPaths::new(1);
        paths.of_worker(0).note(&format!("/{}", "é".repeat(MAX_NOTED)));
        let taken = paths.take(&mut Vec::new());
        assert_eq!(taken[0].paths().next().map(str::len), Some(MAX_NOTED - 1));
    }
}
