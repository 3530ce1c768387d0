//! Chunked content: this decoder, and one that is put together from httparse's functions.

use tidegate_http::{BadBody, BodyDecoder, Fields, Framing, Piece};

use super::Counts;

/// What a decoder makes of some bytes.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    More,
    /// With its length on the wire and its trailers.
    End(usize, Vec<(Vec<u8>, Vec<u8>)>),
    Bad(BadBody),
}

/// Compares one body, as that of a request and as that of a response.
pub fn compare(input: &[u8], cuts: &[usize], counts: &mut Counts) {
    let (theirs, their_content) = theirs(input);
    for is_request in [true, false] {
        let (ours, content) = ours(is_request, input, &[]);
        let pieces = self::ours(is_request, input, cuts);
        assert_eq!((&ours, &content), (&pieces.0, &pieces.1), "in pieces {cuts:?}: {}", input.escape_ascii());
        match (&ours, &theirs) {
            (Verdict::End(len, trailers), Verdict::End(their_len, their_trailers)) => {
                counts.both_accept += 1;
                assert_eq!((len, &content), (their_len, &their_content), "{}", input.escape_ascii());
                let all = their_trailers.iter().filter(|pair| is_request || trailers.contains(pair));
                assert!(trailers.iter().eq(all), "trailers of {}", input.escape_ascii());
            }
            (Verdict::End(..), _) => panic!("{theirs:?} by httparse: {}", input.escape_ascii()),
            (Verdict::More, Verdict::End(..)) => panic!("complete for httparse: {}", input.escape_ascii()),
            (Verdict::More, _) => counts.incomplete += 1,
            (Verdict::Bad(bad), Verdict::End(..)) => counts.stricter("httparse", bad, input),
            (Verdict::Bad(_), Verdict::More) => counts.earlier += 1,
            (Verdict::Bad(_), Verdict::Bad(_)) => counts.both_refuse += 1,
        }
    }
}

fn pairs(fields: &Fields) -> Vec<(Vec<u8>, Vec<u8>)> {
    fields.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
}

fn ours(is_request: bool, input: &[u8], cuts: &[usize]) -> (Verdict, Vec<u8>) {
    let framing = Framing::Chunked;
    let mut decoder =
        if is_request { BodyDecoder::request(framing, 0) } else { BodyDecoder::response(framing) };
    let (mut content, mut trailers, mut at) = (Vec::new(), Vec::new(), 0);
    for &end in cuts.iter().chain(&[input.len()]) {
        loop {
            let (n, piece) = decoder.decode(&input[at..end.max(at)]);
            let from = at;
            at += n;
            match piece {
                Piece::Data(range) => content.extend_from_slice(&input[from..][range]),
                Piece::Trailers(fields) => trailers = pairs(&fields),
                Piece::More => break,
                Piece::End => return (Verdict::End(at, trailers), content),
                Piece::Bad(bad) => return (Verdict::Bad(bad), content),
            }
        }
    }
    (Verdict::More, content)
}

fn theirs(input: &[u8]) -> (Verdict, Vec<u8>) {
    let (mut content, mut at) = (Vec::new(), 0);
    loop {
        let size = match httparse::parse_chunk_size(&input[at..]) {
            Ok(httparse::Status::Complete((n, size))) => {
                at += n;
                size
            }
            Ok(httparse::Status::Partial) => return (Verdict::More, content),
            Err(_) => return (Verdict::Bad(BadBody::ChunkSize), content),
        };
        if size == 0 {
            break;
        }
        let rest = &input[at..];
        let n = usize::try_from(size).unwrap_or(usize::MAX);
        content.extend_from_slice(&rest[..n.min(rest.len())]);
        match rest.get(n..).map(|after| after.get(..2).unwrap_or(after)) {
            Some(b"\r\n") => at += n + 2,
            Some([] | b"\r") | None => return (Verdict::More, content),
            Some(_) => return (Verdict::Bad(BadBody::ChunkEnd), content),
        }
    }
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let verdict = match httparse::parse_headers(&input[at..], &mut headers) {
        Ok(httparse::Status::Complete((n, trailers))) => {
            let pairs = trailers.iter().map(|h| (h.name.as_bytes().to_vec(), h.value.to_vec()));
            Verdict::End(at + n, pairs.collect())
        }
        Ok(httparse::Status::Partial) => Verdict::More,
        Err(_) => Verdict::Bad(BadBody::Trailer),
    };
    (verdict, content)
}
