//! Lines of a stream, in a buffer of fixed size.

use std::io::{self, Read};

/// Longest line that is looked at, without its end. Servers limit a request line to some 8 KiB.
pub const MAX_LINE: usize = 1 << 20;
/// Read at once: what comes from the system's cache still lies in the processor's when it is looked at.
const BLOCK: usize = 128 << 10;

/// Gives out the lines of a stream one by one.
pub struct Lines<R> {
    from: R,
    buffer: Vec<u8>,
    /// What was read and not yet given out: `buffer[start..end]`.
    start: usize,
    end: usize,
    /// Up to here there is no line break.
    searched: usize,
    /// The rest of a line that is too long is thrown away.
    skipping: bool,
    too_long: u64,
}

impl<R: Read> Lines<R> {
    /// Of a stream, which is read as lines are asked for.
    pub fn new(from: R) -> Self {
        let buffer = vec![0; MAX_LINE + 2 * BLOCK];
        Self { from, buffer, start: 0, end: 0, searched: 0, skipping: false, too_long: 0 }
    }

    /// Lines of more than [`MAX_LINE`] bytes, which were not given out.
    pub fn too_long(&self) -> u64 {
        self.too_long
    }

    /// The next line, without its end (`\n` or `\r\n`); `None` at the end of the stream.
    ///
    /// # Errors
    /// The stream cannot be read.
    pub fn next_line(&mut self) -> io::Result<Option<&[u8]>> {
        let range = loop {
            match memchr::memchr(b'\n', &self.buffer[self.searched..self.end]) {
                Some(at) => {
                    let range = self.start..self.searched + at;
                    self.start = range.end + 1;
                    self.searched = self.start;
                    if std::mem::take(&mut self.skipping) {
                        continue;
                    }
                    if range.len() > MAX_LINE {
                        self.too_long += 1;
                        continue;
                    }
                    break range;
                }
                None => self.searched = self.end,
            }
            if self.end - self.start > MAX_LINE {
                self.too_long += u64::from(!self.skipping);
                self.skipping = true;
            }
            if self.skipping {
                self.start = self.end;
            }
            if self.fill()? == 0 {
                let rest = self.start..self.end;
                self.start = self.end;
                if rest.is_empty() {
                    return Ok(None);
                }
                break rest;
            }
        };
        let line = &self.buffer[range];
        Ok(Some(line.strip_suffix(b"\r").unwrap_or(line)))
    }

    /// Reads a block behind what is there. 0: the stream has ended.
    fn fill(&mut self) -> io::Result<usize> {
        if self.buffer.len() - self.end < BLOCK {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.searched -= self.start;
            self.start = 0;
        }
        loop {
            match self.from.read(&mut self.buffer[self.end..][..BLOCK]) {
                Ok(read) => {
                    self.end += read;
                    return Ok(read);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Gives at most as many bytes at once as the list says, again and again.
    struct Drops<'a>(&'a [u8], Vec<usize>, usize);

    impl Read for Drops<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let most = self.1[self.2 % self.1.len()];
            self.2 += 1;
            let count = most.min(into.len()).min(self.0.len());
            into[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn all(from: impl Read) -> (Vec<Vec<u8>>, u64) {
        let mut lines = Lines::new(from);
        let mut out = Vec::new();
        while let Some(line) = lines.next_line().expect("memory") {
            out.push(line.to_vec());
        }
        (out, lines.too_long())
    }

    #[test]
    fn line_ends_and_a_last_line_without_one() {
        let (lines, too_long) = all(&b"one\r\n\ntwo\nthree"[..]);
        assert_eq!(lines, [&b"one"[..], b"", b"two", b"three"]);
        assert_eq!(too_long, 0);
        assert_eq!(all(&b""[..]).0.len(), 0);
    }

    #[test]
    fn lines_that_are_too_long_are_counted_and_left_out() {
        let longest = vec![b'x'; MAX_LINE];
        for extra in [1, BLOCK, 5 * BLOCK, 3 * MAX_LINE] {
            let long = vec![b'y'; MAX_LINE + extra];
            let text = [b"a", longest.as_slice(), &long, b"b", &long].join(&b'\n');
            let (lines, too_long) = all(text.as_slice());
            assert_eq!(lines.iter().map(Vec::len).collect::<Vec<_>>(), [1, MAX_LINE, 1], "{extra}");
            assert_eq!(too_long, 2, "{extra}");
        }
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_how_the_stream_comes(
            lines in prop::collection::vec("[a-z]{0,40}", 0..200),
            drops in prop::collection::vec(1_usize..60, 1..20),
        ) {
            let text = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
            let (read, _) = all(Drops(text.as_bytes(), drops, 0));
            let read: Vec<_> = read.into_iter().map(|line| String::from_utf8(line).expect("ASCII")).collect();
            prop_assert_eq!(read, lines);
        }
    }
}
