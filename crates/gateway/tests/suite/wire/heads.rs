//! Random and mutated heads: there is no panic, and the parsers behind the scan read what it accepts in the
//! same way.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidegate_gateway::http::wire::{Framing, HeadLimits, HeadScan, fuzz_head};

const SEEDS: &[&str] = &[
    "GET /a/b?c=d HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: x\r\nAccept: */*\r\n\r\n",
    "POST http://a.example:80/x HTTP/1.1\r\nHost: a.example:80\r\nContent-Length: 17\r\n\r\n",
    "PUT / HTTP/1.1\r\nHost: [::1]:80\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n",
    "OPTIONS * HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n",
];

/// Bytes with a meaning to a parser, for mutations.
const SPICE: &[u8] = b"\r\n\t\0 :;,/?#%\\\"{}`^|[]@*\x7f\x80\xff0919afZ";

fn mutate(rng: &mut StdRng, head: &mut Vec<u8>) {
    for _ in 0..rng.random_range(1..5) {
        let at = rng.random_range(0..head.len().max(1)).min(head.len().saturating_sub(1));
        match rng.random_range(0..5) {
            0 => head[at] = SPICE[rng.random_range(0..SPICE.len())],
            1 => head.insert(at, SPICE[rng.random_range(0..SPICE.len())]),
            2 if head.len() > 1 => drop(head.remove(at)),
            3 => {
                let end = rng.random_range(at..head.len());
                let piece = head[at..end].to_vec();
                let to = rng.random_range(0..head.len());
                head.splice(to..to, piece);
            }
            _ => head[at] = rng.random(),
        }
    }
}

#[test]
fn a_hundred_thousand_mutated_heads_are_read_alike() {
    let mut rng = StdRng::seed_from_u64(0x7469_6465);
    let mut accepted = 0;
    for i in 0..100_000 {
        let mut head = SEEDS[i % SEEDS.len()].as_bytes().to_vec();
        mutate(&mut rng, &mut head);
        fuzz_head(&head);
        let limits = HeadLimits { bytes: 4096, fields: 32, target: 1024, body: 0 };
        if let Ok(Some(facts)) = HeadScan::default().scan(&head, &limits) {
            accepted += 1;
            let mut fields = [httparse::EMPTY_HEADER; 32];
            let mut request = httparse::Request::new(&mut fields);
            request.parse(&head).unwrap();
            assert_eq!(facts.framing, framing_by_httparse(&request), "{:?}", head.escape_ascii().to_string());
        }
    }
    // Enough heads must be accepted for the test to mean something.
    assert!(accepted > 10_000, "{accepted}");
}

/// RFC 9112 6.3 as a plain reading of parsed fields.
fn framing_by_httparse(request: &httparse::Request<'_, '_>) -> Framing {
    let all = |name: &str| {
        let values = request.headers.iter().filter(|h| h.name.eq_ignore_ascii_case(name));
        values.map(|h| std::str::from_utf8(h.value).unwrap()).collect::<Vec<_>>()
    };
    match (&all("transfer-encoding")[..], &all("content-length")[..]) {
        ([], []) => Framing::None,
        ([te], []) if te.eq_ignore_ascii_case("chunked") => Framing::Chunked,
        ([], [n]) => match n.parse::<u64>().unwrap() {
            0 => Framing::None,
            n => Framing::Fixed(n),
        },
        other => panic!("ambiguous framing accepted: {other:?}"),
    }
}

#[test]
fn random_bytes_do_not_panic() {
    let mut rng = StdRng::seed_from_u64(1);
    for _ in 0..20_000 {
        let bytes: Vec<u8> = (0..rng.random_range(0..80)).map(|_| rng.random()).collect();
        fuzz_head(&bytes);
    }
}
