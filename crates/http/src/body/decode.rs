//! Decodes content as its bytes arrive, without copying it (RFC 9112 6.3, 7.1).
//!
//! Strict: a chunk size is followed by `;` or CRLF and nothing else, and a bare LF is an error everywhere. No
//! byte after an error is read, so that nothing can be taken for a trailer or for the next message.

use std::ops::Range;

use super::trailers::{Forbidden, Trailers};
use crate::error::BadBody;
use crate::fields::Fields;
use crate::parse::Framing;

/// Bytes of chunk extensions in one body. Nobody uses them.
const MAX_EXTENSIONS: u32 = 4 << 10;
/// Hexadecimal digits of a chunk size: what fits 64 bits, leading zeros counted.
const MAX_SIZE_DIGITS: u8 = 16;

/// What the bytes given to [`BodyDecoder::decode`] had.
#[derive(Debug)]
pub enum Piece {
    /// Content: this part of the input.
    Data(Range<usize>),
    /// Nothing more; all of the input is consumed.
    More,
    /// The trailer section; after all content.
    Trailers(Fields),
    /// The message is complete. Bytes that are left belong to the next.
    End,
    /// The content is invalid. Everything before was not.
    Bad(BadBody),
}

/// Finds the content of one message.
#[derive(Clone)]
pub struct BodyDecoder {
    state: State,
    forbidden: Forbidden,
    /// Bytes of content that may still come; `u64::MAX`: no limit.
    allowance: u64,
    extensions: u32,
    trailers: Option<Box<Trailers>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Fixed(u64),
    UntilClose,
    Size {
        value: u64,
        digits: u8,
    },
    /// White space after a size, in responses.
    SizePadding {
        size: u64,
    },
    Extension {
        size: u64,
    },
    SizeLf {
        size: u64,
    },
    Data(u64),
    DataCr,
    DataLf,
    Trailer,
    EndLf,
    Done,
    Failed(BadBody),
}

impl BodyDecoder {
    /// A request's content framed like this, of at most `max` bytes (0: no limit).
    pub fn request(framing: Framing, max: u64) -> Self {
        let is_limited = max > 0 && framing == Framing::Chunked;
        Self::new(framing, if is_limited { max } else { u64::MAX }, Forbidden::Refused)
    }

    /// A response's. Chunk sizes may be padded with white space, as old servers do; fields that must not be
    /// trailers are left out.
    pub fn response(framing: Framing) -> Self {
        Self::new(framing, u64::MAX, Forbidden::Dropped)
    }

    fn new(framing: Framing, allowance: u64, forbidden: Forbidden) -> Self {
        let state = match framing {
            Framing::None | Framing::Fixed(0) => State::Done,
            Framing::Fixed(n) => State::Fixed(n),
            Framing::Chunked => State::Size { value: 0, digits: 0 },
            Framing::UntilClose => State::UntilClose,
        };
        Self { state, forbidden, allowance, extensions: 0, trailers: None }
    }

    /// Decodes the next piece. Returns how many bytes of `input` are consumed with it: they are not to be
    /// given again. Call it until it says [`Piece::More`], [`Piece::End`] or [`Piece::Bad`].
    pub fn decode(&mut self, input: &[u8]) -> (usize, Piece) {
        let mut at = 0;
        loop {
            let left = match self.state {
                State::Done => return (at, self.end()),
                State::Failed(bad) => return (at, Piece::Bad(bad)),
                State::Fixed(left) | State::Data(left) => left,
                State::UntilClose => u64::MAX,
                _ => 0,
            };
            let Some(&b) = input.get(at) else { return (at, Piece::More) };
            if left > 0 {
                let n = usize::try_from(left).unwrap_or(usize::MAX).min(input.len() - at);
                self.state = match (self.state, left - n as u64) {
                    (State::UntilClose, _) => State::UntilClose,
                    (State::Fixed(_), 0) => State::Done,
                    (State::Fixed(_), left) => State::Fixed(left),
                    (_, 0) => State::DataCr,
                    (_, left) => State::Data(left),
                };
                return (at + n, Piece::Data(at..at + n));
            }
            match self.step(b) {
                Ok(next) => self.state = next,
                Err(bad) => {
                    self.state = State::Failed(bad);
                    return (at, Piece::Bad(bad));
                }
            }
            at += 1;
        }
    }

    /// Whether the last byte of the message has been seen. Trailers may still be taken.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// How many bytes of content are to come, if that is known.
    pub fn remaining(&self) -> Option<u64> {
        match self.state {
            State::Done => Some(0),
            State::Fixed(left) => Some(left),
            _ => None,
        }
    }

    /// The connection has ended.
    ///
    /// # Errors
    /// The content has not.
    pub fn close(&mut self) -> Result<(), BadBody> {
        match self.state {
            State::Done => Ok(()),
            State::UntilClose => {
                self.state = State::Done;
                Ok(())
            }
            State::Failed(bad) => Err(bad),
            _ => {
                self.state = State::Failed(BadBody::Incomplete);
                Err(BadBody::Incomplete)
            }
        }
    }

    fn end(&mut self) -> Piece {
        let trailers = self.trailers.take().and_then(|trailers| trailers.finish());
        trailers.map_or(Piece::End, Piece::Trailers)
    }

    fn step(&mut self, b: u8) -> Result<State, BadBody> {
        Ok(match (self.state, b) {
            (State::Size { digits: 1.., value }, b'\r') => self.sized(value)?,
            (State::Size { digits: 1.., value }, b';') => State::Extension { size: value },
            (State::Size { digits: 1.., value }, b' ' | b'\t') if self.forbidden == Forbidden::Dropped => {
                self.padding(value)?
            }
            (State::Size { digits, value }, _) => {
                let digit = char::from(b).to_digit(16).ok_or(BadBody::ChunkSize)?;
                if digits == MAX_SIZE_DIGITS {
                    return Err(BadBody::ChunkSize);
                }
                State::Size { value: value << 4 | u64::from(digit), digits: digits + 1 }
            }
            (State::SizePadding { size }, b' ' | b'\t') => self.padding(size)?,
            (State::SizePadding { size } | State::Extension { size }, b'\r') => self.sized(size)?,
            (State::SizePadding { size }, b';') => State::Extension { size },
            (State::SizePadding { .. }, _) => return Err(BadBody::ChunkSize),
            (State::Extension { size }, b'\t' | 0x20..=0x7e | 0x80..) => {
                self.count_extension()?;
                State::Extension { size }
            }
            (State::Extension { .. }, _) => return Err(BadBody::ChunkExtension),
            (State::SizeLf { size: 0 }, b'\n') => State::Trailer,
            (State::SizeLf { size }, b'\n') => State::Data(size),
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::Size { value: 0, digits: 0 },
            (State::Trailer, b'\r') if self.trailers.as_ref().is_none_or(|t| t.is_at_start()) => State::EndLf,
            (State::Trailer, _) => {
                self.trailers.get_or_insert_default().push(b, self.forbidden)?;
                State::Trailer
            }
            (State::EndLf, b'\n') => State::Done,
            _ => return Err(BadBody::ChunkEnd),
        })
    }

    fn sized(&mut self, size: u64) -> Result<State, BadBody> {
        self.allowance = self.allowance.checked_sub(size).ok_or(BadBody::TooLarge)?;
        Ok(State::SizeLf { size })
    }

    /// Counts as an extension: it is bounded with these.
    fn padding(&mut self, size: u64) -> Result<State, BadBody> {
        self.count_extension()?;
        Ok(State::SizePadding { size })
    }

    fn count_extension(&mut self) -> Result<(), BadBody> {
        self.extensions += 1;
        if self.extensions > MAX_EXTENSIONS { Err(BadBody::ChunkExtension) } else { Ok(()) }
    }
}
