//! What is encoded is decoded as it was, in whatever pieces; lengths are kept or refused.

use proptest::prelude::*;

use super::decode::{BodyDecoder, Piece};
use super::encode::{BodyEncoder, WrongLength};
use crate::error::BadBody;
use crate::fields::Fields;
use crate::parse::Framing;

/// Everything that a decoder finds in pieces of at most `size` bytes: content, trailers and bytes left over.
fn decoded(decoder: &mut BodyDecoder, wire: &[u8], size: usize) -> (Vec<u8>, Option<Fields>, usize) {
    let (mut content, mut trailers, mut at) = (Vec::new(), None, 0);
    while at < wire.len() {
        let end = (at + size).min(wire.len());
        loop {
            let (n, piece) = decoder.decode(&wire[at..end]);
            if let Piece::Data(range) = &piece {
                content.extend_from_slice(&wire[at..][range.clone()]);
            }
            at += n;
            match piece {
                Piece::Data(_) => {}
                Piece::More => break,
                Piece::Trailers(fields) => trailers = Some(fields),
                Piece::End => return (content, trailers, wire.len() - at),
                Piece::Bad(bad) => panic!("{bad}"),
            }
        }
    }
    (content, trailers, 0)
}

proptest! {
    #[test]
    fn chunks_come_back(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8),
        size in 1usize..50,
    ) {
        let mut wire = Vec::new();
        let mut encoder = BodyEncoder::new(Framing::Chunked);
        for piece in &pieces {
            encoder.write(piece, &mut wire).unwrap();
        }
        let mut trailers = Fields::new();
        trailers.append("x-sum".into(), b"1");
        trailers.append("content-length".into(), b"7");
        encoder.finish(Some(&trailers), &mut wire).unwrap();
        wire.extend_from_slice(b"next");
        let mut decoder = BodyDecoder::request(Framing::Chunked, 0);
        let (content, trailers, left) = decoded(&mut decoder, &wire, size);
        prop_assert_eq!(content, pieces.concat());
        prop_assert!(decoder.is_done());
        let trailers = trailers.expect("one is allowed");
        prop_assert_eq!((trailers.len(), trailers.get("x-sum".into())), (1, Some(&b"1"[..])));
        prop_assert!(left <= 4);
    }
}

#[test]
fn a_fixed_length_is_kept_to_the_byte() {
    let mut out = Vec::new();
    let mut encoder = BodyEncoder::new(Framing::Fixed(5));
    encoder.write(b"hel", &mut out).unwrap();
    assert!(!encoder.is_complete());
    assert_eq!(encoder.clone().finish(None, &mut out), Err(WrongLength::TooShort));
    assert_eq!(encoder.write(b"lo!", &mut out), Err(WrongLength::TooLong));
    encoder.write(b"lo", &mut out).unwrap();
    assert!(encoder.is_complete() && encoder.finish(None, &mut out).is_ok());
    assert_eq!(out, b"hello");
    assert_eq!(BodyEncoder::new(Framing::None).write(b"x", &mut out), Err(WrongLength::TooLong));
    let mut decoder = BodyDecoder::response(Framing::Fixed(5));
    assert_eq!(decoder.remaining(), Some(5));
    assert_eq!(decoded(&mut decoder, b"hello!", 2).0, b"hello");
    assert!(decoder.is_done() && decoder.close().is_ok());
}

#[test]
fn an_empty_piece_is_not_the_last_chunk() {
    let mut out = Vec::new();
    let mut encoder = BodyEncoder::new(Framing::Chunked);
    for piece in [&b""[..], b"0123456789abcdef", b""] {
        encoder.write(piece, &mut out).unwrap();
    }
    assert!(!encoder.is_complete());
    encoder.finish(None, &mut out).unwrap();
    assert_eq!(out, b"10\r\n0123456789abcdef\r\n0\r\n\r\n");
    let frame = BodyEncoder::new(Framing::Chunked).frame(0xfffff).unwrap();
    assert_eq!((frame.before(), frame.after()), (&b"fffff\r\n"[..], &b"\r\n"[..]));
}

#[test]
fn the_end_of_the_connection_ends_only_what_has_no_other_end() {
    let mut decoder = BodyDecoder::response(Framing::UntilClose);
    assert_eq!(decoded(&mut decoder, b"all of it", 4).0, b"all of it");
    assert_eq!((decoder.remaining(), decoder.is_done()), (None, false));
    assert!(decoder.close().is_ok() && decoder.is_done());
    for framing in [Framing::Fixed(5), Framing::Chunked] {
        let mut decoder = BodyDecoder::response(framing);
        decoder.decode(b"4");
        assert_eq!(decoder.close(), Err(BadBody::Incomplete));
        assert!(matches!(decoder.decode(b"x"), (0, Piece::Bad(BadBody::Incomplete))));
    }
    assert!(BodyDecoder::request(Framing::None, 0).is_done());
}

#[test]
fn nothing_is_read_after_a_mistake() {
    let mut decoder = BodyDecoder::request(Framing::Chunked, 0);
    assert!(matches!(decoder.decode(b"3\r\nabcX"), (6, Piece::Data(range)) if range == (3..6)));
    assert!(matches!(decoder.decode(b"X\r\n0\r\n\r\n"), (0, Piece::Bad(BadBody::ChunkEnd))));
    assert!(matches!(decoder.decode(b"\r\n0\r\n\r\n"), (0, Piece::Bad(BadBody::ChunkEnd))));
}
