//! The cases of `tests/conformance/`: what is accepted and refused, each with its paragraph of RFC 9110, 9112
//! or 3986, whole and in pieces.

use tidegate_http::{
    Asked, BodyDecoder, Fields, Framing, HeadLimits, Piece, RequestParser, ResponseLimits, ResponseParser,
    Stage,
};

const LIMITS: HeadLimits = HeadLimits { bytes: 4096, fields: 32, target: 1024, body: 8192 };
const RESPONSE_LIMITS: ResponseLimits = ResponseLimits { bytes: 4096, fields: 32 };

#[derive(Default)]
struct Case {
    name: String,
    asked: Asked,
    bytes: Vec<u8>,
    /// The connection ends after the bytes.
    closes: bool,
    expected: Vec<String>,
}

/// Reads a file of cases; its head says how it is written.
fn cases(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines() {
        let Some((mark, rest)) = line.split_at_checked(2) else { continue };
        if mark == "# " {
            let (name, paragraph) = rest.split_once(" | RFC ").or(rest.split_once(" | WHATWG ")).unwrap();
            assert!(!paragraph.is_empty(), "{name}: no paragraph");
            cases.push(Case { name: name.into(), ..Case::default() });
        }
        let Some(case) = cases.last_mut() else { continue };
        match mark {
            "? " => match rest {
                "HEAD" => case.asked.head = true,
                "Upgrade" => case.asked.upgrade = true,
                other => panic!("{}: asked {other}", case.name),
            },
            "> " if rest == "\\$" => case.closes = true,
            "> " => case.bytes.extend(unescaped(rest)),
            "< " => case.expected.push(String::from_utf8(unescaped(rest)).unwrap_or_else(|_| rest.into())),
            "# " | "; " | "@ " => {}
            _ => panic!("what is {line}?"),
        }
    }
    cases
}

fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((plain, escape)) = rest.split_once('\\') {
        bytes.extend(plain.bytes());
        let len = match escape.as_bytes()[0] {
            b'(' => {
                let (inside, _) = escape[1..].split_once(')').unwrap();
                let (n, what) = inside.split_once('*').unwrap();
                bytes.extend(unescaped(what).repeat(n.parse().unwrap()));
                inside.len() + 2
            }
            b'x' => {
                bytes.push(u8::from_str_radix(&escape[1..3], 16).unwrap());
                3
            }
            plain => {
                bytes.push(match plain {
                    b'r' => b'\r',
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'\\' => b'\\',
                    other => panic!("\\{}", char::from(other)),
                });
                1
            }
        };
        rest = &escape[len..];
    }
    bytes.extend(rest.bytes());
    bytes
}

/// What a receiver of these bytes understands, in the words of the files. `Err`: it reads no further.
trait Receiver {
    /// Takes what it can of `bytes`, which begin where it stopped; how much that was.
    fn receive(&mut self, bytes: &[u8], log: &mut Vec<String>) -> Result<usize, ()>;
    fn is_within_content(&self) -> bool;
    fn close(&mut self, log: &mut Vec<String>);
}

/// Gives a receiver everything, in pieces that end at `cuts`.
fn understood(mut receiver: impl Receiver, case: &Case, cuts: &[usize]) -> Vec<String> {
    let mut log = Vec::new();
    let mut from = 0;
    for &end in cuts.iter().chain(&[case.bytes.len()]) {
        loop {
            match receiver.receive(&case.bytes[from..end], &mut log) {
                Err(()) => return log,
                Ok(0) => break,
                Ok(n) => from += n,
            }
        }
    }
    if case.closes {
        receiver.close(&mut log);
    } else if from < case.bytes.len() || log.is_empty() || receiver.is_within_content() {
        log.push("more".into());
    }
    log
}

/// The content of a message, while it comes.
struct Content {
    /// How the message is told when it is complete.
    line: String,
    decoder: BodyDecoder,
    bytes: Vec<u8>,
    trailers: Option<Fields>,
}

impl Content {
    fn new(line: String, decoder: BodyDecoder) -> Self {
        Self { line, decoder, bytes: Vec::new(), trailers: None }
    }

    /// Whether the message is complete, and how much of `bytes` was used.
    fn receive(
        &mut self,
        bytes: &[u8],
        log: &mut Vec<String>,
    ) -> Result<(bool, usize), tidegate_http::BadBody> {
        let mut at = 0;
        loop {
            let (n, piece) = self.decoder.decode(&bytes[at..]);
            match piece {
                Piece::Data(range) => self.bytes.extend_from_slice(&bytes[at..][range]),
                Piece::Trailers(fields) => self.trailers = Some(fields),
                Piece::More => return Ok((false, at + n)),
                Piece::Bad(bad) => return Err(bad),
                Piece::End => {
                    self.tell(log);
                    return Ok((true, at + n));
                }
            }
            at += n;
        }
    }

    fn tell(&mut self, log: &mut Vec<String>) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        log.push(format!("{} {}", self.line, text(&self.bytes)).trim_end_matches(' ').into());
        for (name, value) in self.trailers.iter().flat_map(Fields::iter) {
            let value =
                String::from_utf8(value.to_vec()).unwrap_or_else(|_| value.escape_ascii().to_string());
            log.push(format!("trailer {} {value}", text(name)).trim_end_matches(' ').into());
        }
    }
}

fn framing_word(framing: Framing) -> &'static str {
    match framing {
        Framing::None => "none",
        Framing::Fixed(_) => "fixed",
        Framing::Chunked => "chunked",
        Framing::UntilClose => "close",
    }
}

#[derive(Default)]
struct Visitor {
    parser: RequestParser,
    content: Option<Content>,
}

impl Receiver for Visitor {
    fn receive(&mut self, bytes: &[u8], log: &mut Vec<String>) -> Result<usize, ()> {
        if let Some(content) = &mut self.content {
            let (is_complete, n) = content.receive(bytes, log).map_err(|bad| {
                log.push(format!("bad {} {bad:?}", bad.status()));
            })?;
            if is_complete {
                self.content = None;
            }
            return Ok(n);
        }
        let parsed = self.parser.parse(bytes, &LIMITS).map_err(|refusal| {
            log.push(format!("refused {} {refusal:?}", refusal.status().0));
        })?;
        let Some((head, facts)) = parsed else { return Ok(0) };
        let line = format!("message {} {} {}", head.method(), head.target(), framing_word(facts.framing));
        let mut content = Content::new(line, BodyDecoder::request(facts.framing, LIMITS.body));
        if content.decoder.is_done() {
            content.tell(log);
        } else {
            self.content = Some(content);
        }
        Ok(facts.len)
    }

    fn is_within_content(&self) -> bool {
        self.content.is_some()
    }

    fn close(&mut self, _: &mut Vec<String>) {
        unreachable!("no case of requests ends the connection")
    }
}

struct Origin {
    asked: Asked,
    parser: ResponseParser,
    content: Option<Content>,
}

impl Receiver for Origin {
    fn receive(&mut self, bytes: &[u8], log: &mut Vec<String>) -> Result<usize, ()> {
        if let Some(content) = &mut self.content {
            let (is_complete, n) = content.receive(bytes, log).map_err(|bad| {
                log.push(format!("bad {bad:?}"));
            })?;
            if is_complete {
                self.content = None;
            }
            return Ok(n);
        }
        let parsed = self.parser.parse(bytes, self.asked, &RESPONSE_LIMITS).map_err(|bad| {
            log.push(format!("refused {bad:?}"));
        })?;
        let Some((head, facts)) = parsed else { return Ok(0) };
        assert!(!head.fields.contains(tidegate_http::name::TRANSFER_ENCODING));
        match facts.stage {
            Stage::Interim => log.push(format!("interim {}", head.status().as_u16())),
            Stage::Switched => {
                log.push("switched".into());
                return Err(());
            }
            Stage::Final => {
                let keep = if facts.keep_alive { "keep" } else { "drop" };
                let framing = framing_word(facts.framing);
                let line = format!("response {} {framing} {keep}", head.status().as_u16());
                let mut content = Content::new(line, BodyDecoder::response(facts.framing));
                if content.decoder.is_done() {
                    content.tell(log);
                } else {
                    self.content = Some(content);
                }
            }
        }
        Ok(facts.len)
    }

    fn is_within_content(&self) -> bool {
        self.content.is_some()
    }

    fn close(&mut self, log: &mut Vec<String>) {
        let Some(content) = &mut self.content else { return };
        match content.decoder.close() {
            Ok(()) => content.tell(log),
            Err(bad) => log.push(format!("bad {bad:?}")),
        }
    }
}

/// Runs every case whole, byte by byte and cut once at many places.
fn run<R: Receiver>(cases: &[Case], receiver: impl Fn(&Case) -> R) {
    let mut failures = Vec::new();
    for case in cases {
        let len = case.bytes.len();
        let mut check = |cuts: &[usize]| {
            let got = understood(receiver(case), case, cuts);
            if got != case.expected {
                failures.push(format!("{} (cut at {cuts:?}): {got:?}, not {:?}", case.name, case.expected));
            }
        };
        check(&[]);
        for cut in (1..len).step_by((len / 500).max(1)) {
            check(&[cut]);
        }
        if len < 2000 {
            check(&(1..len).collect::<Vec<_>>());
        }
    }
    let first: Vec<_> = failures.iter().filter(|f| f.contains("[]")).collect();
    assert!(failures.is_empty(), "{} failures, whole:\n{first:#?}\n{:?}", failures.len(), failures.first());
}

#[test]
fn requests() {
    let cases = cases(include_str!("conformance/requests.txt"));
    assert!(cases.len() > 300, "{}", cases.len());
    run(&cases, |_| Visitor::default());
}

#[test]
fn contents_of_requests() {
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut cases = cases(include_str!("conformance/contents.txt"));
    assert!(cases.len() > 100, "{}", cases.len());
    for case in &mut cases {
        case.bytes.splice(0..0, head.iter().copied());
        if !case.expected.contains(&"more".into()) {
            case.bytes.extend_from_slice(b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n");
        }
    }
    run(&cases, |_| Visitor::default());
}

#[test]
fn responses() {
    let cases = cases(include_str!("conformance/responses.txt"));
    assert!(cases.len() > 100, "{}", cases.len());
    run(&cases, |case| Origin { asked: case.asked, parser: ResponseParser::new(), content: None });
}
