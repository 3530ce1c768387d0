//! Request heads: these parsers and httparse.

use http::Version;
use tidegate_http::{Facts, Framing, Refusal, RequestHead, RequestParser, name, write_request};

use super::{Counts, LIMITS};

type Verdict = Result<Option<(RequestHead, Facts)>, Refusal>;

/// Compares one head.
pub fn compare(input: &[u8], cuts: &[usize], counts: &mut Counts) {
    let ours = RequestParser::new().parse(input, &LIMITS);
    same_in_pieces(&ours, input, cuts);
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut request = httparse::Request::new(&mut headers);
    match (&ours, request.parse(input)) {
        (Ok(Some((head, facts))), Ok(httparse::Status::Complete(len))) => {
            counts.both_accept += 1;
            assert_eq!(facts.len, len, "{}", input.escape_ascii());
            same_head(head, facts, &request, input);
            if counts.both_accept.is_multiple_of(16) {
                same_when_written(head, facts);
            }
        }
        (Ok(Some(_)), theirs) => {
            panic!("httparse does not accept what is accepted: {theirs:?} {}", input.escape_ascii())
        }
        (Ok(None), Ok(httparse::Status::Complete(_))) => {
            panic!("complete for httparse only: {}", input.escape_ascii())
        }
        (Ok(None), _) => counts.incomplete += 1,
        (Err(refusal), Ok(httparse::Status::Complete(_))) => counts.stricter("httparse", refusal, input),
        (Err(_), Ok(httparse::Status::Partial)) => counts.earlier += 1,
        (Err(_), Err(_)) => counts.both_refuse += 1,
    }
}

fn same_head(head: &RequestHead, facts: &Facts, theirs: &httparse::Request<'_, '_>, input: &[u8]) {
    let told = || input.escape_ascii().to_string();
    assert_eq!(Some(head.method().as_str()), theirs.method, "{}", told());
    assert_eq!(Some(head.target()), theirs.path, "{}", told());
    assert_eq!(Some(u8::from(head.version() == Version::HTTP_11)), theirs.version, "{}", told());
    let pairs = theirs.headers.iter().map(|h| (h.name.as_bytes(), h.value));
    assert!(head.fields.iter().eq(pairs), "fields of {}", told());
    assert_eq!(facts.framing, plain_framing(theirs.headers), "{}", told());
}

/// RFC 9112 6.3 as a plain reading of parsed fields.
fn plain_framing(headers: &[httparse::Header<'_>]) -> Framing {
    let all = |name: &str| {
        let mut values = headers.iter().filter(|h| h.name.eq_ignore_ascii_case(name));
        let first = values.next().map(|h| std::str::from_utf8(h.value).unwrap());
        assert!(values.next().is_none(), "two lines of {name} are accepted");
        first
    };
    match (all("transfer-encoding"), all("content-length")) {
        (None, None) => Framing::None,
        (Some(coding), None) if coding.eq_ignore_ascii_case("chunked") => Framing::Chunked,
        (None, Some(n)) => match n.parse::<u64>().unwrap() {
            0 => Framing::None,
            n => Framing::Fixed(n),
        },
        other => panic!("ambiguous framing is accepted: {other:?}"),
    }
}

fn same_in_pieces(whole: &Verdict, input: &[u8], cuts: &[usize]) {
    let mut parser = RequestParser::new();
    for &end in cuts {
        match parser.parse(&input[..end], &LIMITS) {
            Ok(None) => {}
            early => return same_verdict(whole, &early, input),
        }
    }
    same_verdict(whole, &parser.parse(input, &LIMITS), input);
}

fn same_verdict(whole: &Verdict, pieces: &Verdict, input: &[u8]) {
    let is_same = match (whole, pieces) {
        (Ok(Some((a, facts_a))), Ok(Some((b, facts_b)))) => {
            facts_a == facts_b && a.target() == b.target() && a.fields.iter().eq(b.fields.iter())
        }
        (Ok(None), Ok(None)) => true,
        (Err(a), Err(b)) => a == b,
        _ => false,
    };
    assert!(is_same, "{whole:?} whole and {pieces:?} in pieces: {}", input.escape_ascii());
}

/// What is written is read as the same request.
fn same_when_written(head: &RequestHead, facts: &Facts) {
    let mut out = Vec::new();
    write_request(&mut out, head, facts.framing, b"");
    let limits = tidegate_http::HeadLimits { bytes: 2 * LIMITS.bytes, fields: 2 * LIMITS.fields, ..LIMITS };
    let host = head.fields.get(name::HOST).is_some();
    if !host {
        return;
    }
    let (again, facts_again) = RequestParser::new().parse(&out, &limits).unwrap().expect("complete");
    assert_eq!((facts_again.framing, facts_again.len), (facts.framing, out.len()));
    assert_eq!(again.method(), head.method());
    assert_eq!(again.path_and_query(), head.path_and_query());
    let framing = |name: &[u8]| {
        name.eq_ignore_ascii_case(b"content-length") || name.eq_ignore_ascii_case(b"transfer-encoding")
    };
    let (before, after) = (head.fields.iter(), again.fields.iter());
    assert!(before.filter(|(n, _)| !framing(n)).eq(after.filter(|(n, _)| !framing(n))), "{out:?}");
}
