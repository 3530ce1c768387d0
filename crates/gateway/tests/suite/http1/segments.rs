//! Framing does not depend on segments.

use proptest::prelude::*;

use super::harness::{converse, run};

const STREAMS: &[&str] = &[
    "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nPOST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello\r\nGET /3 HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST /1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n00b\r\nhello\r\nworl\r\n0\r\nX-Sum: 9\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\nX: a\n\r\n",
    "POST /1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nHost: b\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST /1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
];

/// Only the date field may differ.
fn without_date(raw: &str) -> String {
    raw.lines().filter(|l| !l.starts_with("date: ")).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_single_cut_gives_the_same_result() {
    for stream in STREAMS {
        let bytes = stream.as_bytes();
        let whole = run(converse(&[bytes]));
        for cut in 1..bytes.len() {
            let got = run(converse(&[&bytes[..cut], &bytes[cut..]]));
            assert_eq!((&got.seen, &got.events), (&whole.seen, &whole.events), "cut at {cut} of {stream:?}");
            assert_eq!(without_date(&got.raw), without_date(&whole.raw), "cut at {cut} of {stream:?}");
        }
    }
}

#[test]
fn byte_by_byte_gives_the_same_result() {
    for stream in STREAMS {
        let whole = run(converse(&[stream.as_bytes()]));
        let bytes: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
        let got = run(converse(&bytes));
        assert_eq!((&got.seen, &got.statuses), (&whole.seen, &whole.statuses), "{stream:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn any_cuts_give_the_same_result(
        which in 0..STREAMS.len(),
        mut cuts in prop::collection::vec(0usize..200, 0..8),
    ) {
        let bytes = STREAMS[which].as_bytes();
        cuts.retain(|&c| c < bytes.len());
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|w| &bytes[w[0]..w[1]]);
        let pieces: Vec<&[u8]> = pieces.filter(|p| !p.is_empty()).collect();
        let whole = run(converse(&[bytes]));
        let got = run(converse(&pieces));
        prop_assert_eq!(got.seen, whole.seen);
        prop_assert_eq!(got.events, whole.events);
    }
}
