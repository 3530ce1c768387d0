//! Encodes content for sending (RFC 9112 6, 7.1). What is sent is what the head has said, or an error.

use crate::fields::Fields;
use crate::parse::Framing;

use super::trailers::is_forbidden_trailer;

/// The content is not as long as the head says: the connection must be closed, for its peer cannot tell where
/// the message ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrongLength {
    /// More content than `Content-Length`, or content where there must be none.
    #[error("more content than the head announced")]
    TooLong,
    /// Less content than `Content-Length`.
    #[error("less content than the head announced")]
    TooShort,
}

/// What surrounds a piece of content on the wire.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    size: [u8; Self::LONGEST],
    size_len: u8,
    after: &'static [u8],
}

impl Frame {
    /// Sixteen digits and CRLF.
    const LONGEST: usize = 18;
    const PLAIN: Self = Self { size: [0; Self::LONGEST], size_len: 0, after: b"" };

    fn chunk(len: u64) -> Self {
        let mut frame = Self::PLAIN;
        let digits = (u64::BITS - len.leading_zeros()).div_ceil(4).max(1) as usize;
        for (at, digit) in frame.size[..digits].iter_mut().enumerate() {
            *digit = b"0123456789abcdef"[(len >> (4 * (digits - 1 - at)) & 15) as usize];
        }
        frame.size[digits..digits + 2].copy_from_slice(b"\r\n");
        (frame.size_len, frame.after) = (digits as u8 + 2, b"\r\n");
        frame
    }

    /// To be sent before the piece: empty, or a chunk's size.
    pub fn before(&self) -> &[u8] {
        &self.size[..self.size_len as usize]
    }

    /// To be sent after the piece.
    pub fn after(&self) -> &'static [u8] {
        self.after
    }
}

/// Frames the content of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyEncoder {
    framing: Framing,
}

impl BodyEncoder {
    /// Content framed as the head says.
    pub fn new(framing: Framing) -> Self {
        Self { framing }
    }

    /// What surrounds the next `len` bytes of content. Nothing may be sent for an empty piece: an empty chunk
    /// would be the last.
    ///
    /// # Errors
    /// They are more than the head has announced.
    pub fn frame(&mut self, len: usize) -> Result<Frame, WrongLength> {
        let len = len as u64;
        match &mut self.framing {
            _ if len == 0 => Ok(Frame::PLAIN),
            Framing::None => Err(WrongLength::TooLong),
            Framing::Fixed(left) => {
                *left = left.checked_sub(len).ok_or(WrongLength::TooLong)?;
                Ok(Frame::PLAIN)
            }
            Framing::Chunked => Ok(Frame::chunk(len)),
            Framing::UntilClose => Ok(Frame::PLAIN),
        }
    }

    /// Writes a piece with what surrounds it.
    ///
    /// # Errors
    /// As [`BodyEncoder::frame`].
    pub fn write(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<(), WrongLength> {
        let frame = self.frame(data.len())?;
        for part in [frame.before(), data, frame.after()] {
            out.extend_from_slice(part);
        }
        Ok(())
    }

    /// Writes what follows the last piece: the last chunk and the trailers, which no other framing has.
    ///
    /// # Errors
    /// Less was sent than the head has announced.
    pub fn finish(&mut self, trailers: Option<&Fields>, out: &mut Vec<u8>) -> Result<(), WrongLength> {
        match std::mem::replace(&mut self.framing, Framing::None) {
            Framing::Fixed(1..) => Err(WrongLength::TooShort),
            Framing::Chunked => {
                out.extend_from_slice(b"0\r\n");
                for (name, value) in trailers.into_iter().flat_map(Fields::iter) {
                    if !is_forbidden_trailer(&name.to_ascii_lowercase()) {
                        for part in [name, b": ", value, b"\r\n"] {
                            out.extend_from_slice(part);
                        }
                    }
                }
                out.extend_from_slice(b"\r\n");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Whether all that the head has announced was sent. Chunked content and content until the connection's
    /// end are complete with [`BodyEncoder::finish`] only.
    pub fn is_complete(&self) -> bool {
        matches!(self.framing, Framing::None | Framing::Fixed(0))
    }
}
