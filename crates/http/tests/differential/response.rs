//! Response heads: these parsers and httparse.

use tidegate_http::{Asked, BadResponse, ResponseFacts, ResponseHead, ResponseParser, name};

use super::{Counts, RESPONSE_LIMITS};

type Verdict = Result<Option<(ResponseHead, ResponseFacts)>, BadResponse>;

/// Compares one head.
pub fn compare(input: &[u8], cuts: &[usize], counts: &mut Counts) {
    let asked = Asked { head: false, upgrade: true };
    let ours = ResponseParser::new().parse(input, asked, &RESPONSE_LIMITS);
    same_in_pieces(&ours, asked, input, cuts);
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut headers);
    match (&ours, response.parse(input)) {
        (Ok(Some((head, facts))), Ok(httparse::Status::Complete(len))) => {
            counts.both_accept += 1;
            assert_eq!(facts.len, len, "{}", input.escape_ascii());
            same_head(head, &response, input);
        }
        (Ok(Some(_)), theirs) => {
            panic!("httparse does not accept what is accepted: {theirs:?} {}", input.escape_ascii())
        }
        (Ok(None), Ok(httparse::Status::Complete(_))) => {
            panic!("complete for httparse only: {}", input.escape_ascii())
        }
        (Ok(None), _) => counts.incomplete += 1,
        (Err(bad), Ok(httparse::Status::Complete(_))) => counts.stricter("httparse", bad, input),
        (Err(_), Ok(httparse::Status::Partial)) => counts.earlier += 1,
        (Err(_), Err(_)) => counts.both_refuse += 1,
    }
}

fn same_head(head: &ResponseHead, theirs: &httparse::Response<'_, '_>, input: &[u8]) {
    assert_eq!(Some(head.status().as_u16()), theirs.code, "{}", input.escape_ascii());
    // httparse says that a reason phrase above ASCII is empty.
    if head.reason().is_ascii() {
        assert_eq!(Some(head.reason()), theirs.reason.map(str::as_bytes), "{}", input.escape_ascii());
    }
    let is_framing = |name: &[u8]| {
        name.eq_ignore_ascii_case(b"transfer-encoding") || name.eq_ignore_ascii_case(b"content-length")
    };
    assert!(!head.fields.contains(name::TRANSFER_ENCODING));
    let pairs = theirs.headers.iter().map(|h| (h.name.as_bytes(), h.value));
    let ours = head.fields.iter().filter(|(name, _)| !is_framing(name));
    assert!(ours.eq(pairs.filter(|(name, _)| !is_framing(name))), "fields of {}", input.escape_ascii());
}

fn same_in_pieces(whole: &Verdict, asked: Asked, input: &[u8], cuts: &[usize]) {
    let mut parser = ResponseParser::new();
    for &end in cuts {
        match parser.parse(&input[..end], asked, &RESPONSE_LIMITS) {
            Ok(None) => {}
            early => return same_verdict(whole, &early, input),
        }
    }
    same_verdict(whole, &parser.parse(input, asked, &RESPONSE_LIMITS), input);
}

fn same_verdict(whole: &Verdict, pieces: &Verdict, input: &[u8]) {
    let is_same = match (whole, pieces) {
        (Ok(Some((a, facts_a))), Ok(Some((b, facts_b)))) => {
            facts_a == facts_b && a.reason() == b.reason() && a.fields.iter().eq(b.fields.iter())
        }
        (Ok(None), Ok(None)) => true,
        (Err(a), Err(b)) => a == b,
        _ => false,
    };
    assert!(is_same, "{whole:?} whole and {pieces:?} in pieces: {}", input.escape_ascii());
}
