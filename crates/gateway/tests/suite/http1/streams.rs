//! Mutated streams of requests through a whole connection: nothing panics, and the service sees every request
//! that is accepted exactly once.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidegate_gateway::http::http1::Http1Event;

use super::harness::{converse, run};

const STREAM: &str = "POST /1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n00b\r\nhello\r\nworl\r\n0\r\nX-Sum: 9\r\n\r\n\
                      POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello\
                      GET /3 HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n\r\n";
const SPICE: &[u8] = b"\r\n\t\0 :;,0159afF/x\x7f\x80";

#[test]
fn mutated_streams_are_served_or_refused() {
    let mut rng = StdRng::seed_from_u64(7);
    let mut whole = 0;
    for _ in 0..5_000 {
        let mut bytes = STREAM.as_bytes().to_vec();
        for _ in 0..rng.random_range(1..4) {
            let at = rng.random_range(0..bytes.len());
            let spice = SPICE[rng.random_range(0..SPICE.len())];
            match rng.random_range(0..3) {
                0 => bytes[at] = spice,
                1 => bytes.insert(at, spice),
                _ => drop(bytes.remove(at)),
            }
        }
        let got = run(converse(&[&bytes]));
        let input = bytes.escape_ascii().to_string();
        let requests = got.events.iter().filter(|e| **e == Http1Event::Request).count();
        let refused = got.events.iter().filter(|e| matches!(e, Http1Event::Refused(_))).count();
        assert_eq!(got.seen.len(), requests, "{input}\n{got:?}");
        assert_eq!(got.statuses.len(), requests + refused, "{input}\n{got:?}");
        assert!(!got.seen.iter().any(|s| s.contains("other")), "{input}\n{got:?}");
        whole += usize::from(requests == 3);
    }
    // Enough requests must be accepted for the test to mean something.
    assert!(whole > 500, "{whole}");
}
