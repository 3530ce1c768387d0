//! Policies in force over real sockets: what a client sees of each action (WAC 3.3).

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use tidegate_core::classify::Paths;
use tidegate_core::policies::{Action, ActivePolicy, Policy, PolicySet, RouteId, RuleId, Scope};
use tidegate_core::units::Cost;
use tidegate_gateway::shared::policies::stats::Done;

use crate::whole::harness::{Gate, Origin, admin, ask, connect, get, read_head, until};

const LIGHTER: &str = r#"
[origin]
replicas = ["ORIGIN"]
[explain]
header = "full"
[[lighter]]
name = "here"
to = "/lite{path}"
[[lighter]]
name = "elsewhere"
to = "/lite.html"
redirect = true
"#;

pub fn refuse(action: Action) -> ActivePolicy {
    order(Policy::Refuse, action)
}

pub fn order(policy: Policy, action: Action) -> ActivePolicy {
    ActivePolicy { rule: RuleId(0), scope: Scope::default(), policy, action, is_shadow: false }
}

/// Puts these in force, as rules would; all belong to the rule "cpu".
pub fn publish(gate: &Gate, policies: Vec<ActivePolicy>) {
    let shared = gate.server().shared();
    let records = vec![Some(shared.policies.record("cpu", "red", "cpu=0.97, rate=412/s"))];
    shared.policies.publish(PolicySet::new(policies), records, &shared.drain);
}

fn done(gate: &Gate, done: Done) -> u64 {
    gate.server().shared().policies.ledger.of("cpu").get(done)
}

/// How a client's stream ended.
#[derive(PartialEq, Eq, Debug)]
pub enum Seen {
    /// The stream ended after these bytes.
    End(String),
    /// It was reset after these bytes.
    Reset(String),
}

pub fn read_out(stream: &mut TcpStream) -> Seen {
    let (mut all, mut bytes) = (Vec::new(), [0; 4096]);
    let text = |all: &[u8]| String::from_utf8_lossy(all).into_owned();
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return Seen::End(text(&all)),
            Ok(n) => all.extend_from_slice(&bytes[..n]),
            Err(e) if e.kind() == ErrorKind::ConnectionReset => return Seen::Reset(text(&all)),
            Err(e) => panic!("{e} after {}", text(&all)),
        }
    }
}

const GET: &[u8] = b"GET /a HTTP/1.1\r\nHost: shop.example\r\n\r\n";

#[test]
fn a_refused_request_is_answered_as_the_action_says() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, LIGHTER);
    let browser = "Accept: text/html\r\nAccept-Language: de\r\n";
    // action, request headers, what the answer must contain, how it is counted
    let table: [(Action, &str, &[&str], Done); 6] = [
        (
            Action::Answer { status: 503 },
            "",
            &["HTTP/1.1 503", "retry-after: 5", "application/problem+json", "\"rule\":\"cpu\""],
            Done::Answer,
        ),
        (Action::Answer { status: 429 }, browser, &["HTTP/1.1 429", "\"status\":429"], Done::Answer),
        (
            Action::Page { status: 503 },
            browser,
            &[
                "HTTP/1.1 503",
                "text/html",
                "<html lang=\"de\"",
                "überlastet",
                "retry-after: 5",
                "href=\"/a?q=1\"",
            ],
            Done::Page,
        ),
        (Action::Page { status: 503 }, "", &["HTTP/1.1 503", "urn:tidegate:problem:overloaded"], Done::Page),
        (Action::Lighter(RouteId(0)), "", &["HTTP/1.1 200", "lite"], Done::Lighter),
        (Action::Lighter(RouteId(1)), "", &["HTTP/1.1 302", "location: /lite.html?q=1"], Done::Lighter),
    ];
    for (action, fields, wanted, how) in table {
        publish(&gate, vec![refuse(action)]);
        let before = done(&gate, how);
        let request =
            format!("GET /a?q=1 HTTP/1.1\r\nHost: shop.example\r\n{fields}Connection: close\r\n\r\n");
        let answer = ask(gate.http, &request);
        for word in wanted {
            assert!(answer.contains(word), "{action:?}: {word} in\n{answer}");
        }
        assert_eq!(done(&gate, how), before + 1, "{action:?}");
    }
    publish(&gate, Vec::new());
    assert!(get(gate.http, "/a", "").ends_with("served"));
}

#[test]
fn the_lighter_url_itself_is_served_and_a_form_is_refused() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, LIGHTER);
    publish(&gate, vec![refuse(Action::Lighter(RouteId(0)))]);
    assert!(get(gate.http, "/lite/a", "").ends_with("lite"));
    publish(&gate, vec![refuse(Action::Lighter(RouteId(1)))]);
    assert!(get(gate.http, "/lite.html", "").ends_with("lite"), "not redirected to itself");
    let post = "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nConnection: close\r\n\r\nab";
    assert!(ask(gate.http, post).starts_with("HTTP/1.1 503"));
    publish(&gate, vec![order(Policy::Reroute(RouteId(0)), Action::Answer { status: 503 })]);
    assert!(get(gate.http, "/a", "").ends_with("lite"));
    assert!(ask(gate.http, post).ends_with("served"), "forms are not rerouted");
    // A target with two slashes would be another host.
    publish(&gate, vec![refuse(Action::Lighter(RouteId(1)))]);
    assert!(get(gate.http, "//evil.example", "").contains("location: /lite.html"));
}

#[test]
fn connections_are_turned_away_before_they_are_read() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, LIGHTER);
    publish(&gate, vec![refuse(Action::Close)]);
    assert_eq!(read_out(&mut connect(gate.http)), Seen::End(String::new()));
    publish(&gate, vec![refuse(Action::Reset)]);
    assert_eq!(read_out(&mut connect(gate.http)), Seen::Reset(String::new()));
    assert_eq!((done(&gate, Done::Close), done(&gate, Done::Reset)), (1, 1));
}

/// A policy for some URLs only, so that the request must be read.
fn of(urls: &str, action: Action) -> ActivePolicy {
    let urls = Some(Paths::compile([urls]).unwrap());
    ActivePolicy { scope: Scope { urls, ..Scope::default() }, ..refuse(action) }
}

#[test]
fn requests_are_refused_at_connection_level() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, LIGHTER);
    for (action, how) in
        [(Action::Close, Done::Close), (Action::Reset, Done::Reset), (Action::Stop, Done::Stop)]
    {
        publish(&gate, vec![of("/a", action)]);
        let mut stream = connect(gate.http);
        stream.write_all(b"GET /b HTTP/1.1\r\nHost: shop.example\r\n\r\n").unwrap();
        assert!(read_head(&mut stream).unwrap().starts_with("HTTP/1.1 200"));
        stream.read_exact(&mut [0; 6]).unwrap();
        stream.write_all(GET).unwrap();
        let seen = read_out(&mut stream);
        let wanted = match action {
            Action::Close => Seen::End(String::new()),
            _ => Seen::Reset(String::new()),
        };
        assert_eq!(seen, wanted, "{action:?}");
        assert_eq!(done(&gate, how), 1, "{action:?}");
    }
    // Even if its body has not been read, the visitor sees the end of the stream, not a reset.
    publish(&gate, vec![of("/a", Action::Close)]);
    let mut stream = connect(gate.http);
    stream.write_all(b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nabc").unwrap();
    assert_eq!(read_out(&mut stream), Seen::End(String::new()));
}

#[test]
fn an_ended_connection_gets_an_answer_and_is_closed() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, LIGHTER);
    publish(&gate, vec![of("/a", Action::End)]);
    let mut stream = connect(gate.http);
    stream.write_all(&[GET, GET].concat()).unwrap();
    let Seen::End(answer) = read_out(&mut stream) else { panic!("reset") };
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("connection: close"), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1").count(), 1, "nothing more is read");
}

#[test]
fn answers_under_way_are_stopped_or_ended_by_a_new_policy() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, LIGHTER);
    gate.server().shared().policies.watch(true);
    let send = |target: &str| {
        let mut stream = connect(gate.http);
        stream.write_all(format!("GET {target} HTTP/1.1\r\nHost: shop.example\r\n\r\n").as_bytes()).unwrap();
        stream
    };
    let mut dripping = send("/drip");
    assert!(read_head(&mut dripping).unwrap().starts_with("HTTP/1.1 200"));
    dripping.read_exact(&mut [0; 6]).unwrap();
    let mut idle = send("/drip2");
    read_head(&mut idle).unwrap();
    idle.read_exact(&mut [0; 6]).unwrap();
    let mut held = send("/hold");
    origin.holds();
    // Nothing is read or written on these connections, so they must be woken.
    publish(&gate, vec![of("/drip", Action::Stop)]);
    assert_eq!(read_out(&mut dripping), Seen::Reset(String::new()));
    assert_eq!(done(&gate, Done::Stop), 1, "the other answers go on");
    publish(&gate, vec![of("/hold", Action::End)]);
    until(|| done(&gate, Done::End).to_string(), |n| n == "1");
    // The answer is one answer, however often it is told to end.
    publish(&gate, vec![of("/hold", Action::End), of("/drip2", Action::End)]);
    until(|| done(&gate, Done::End).to_string(), |n| n == "2");
    origin.release();
    let Seen::End(answer) = read_out(&mut held) else { panic!("reset") };
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.ends_with("served"),
        "the answer is completed: {answer}"
    );
    assert_eq!(done(&gate, Done::End), 2);
    // A policy for everybody also ends answers that began before requests were remembered.
    publish(&gate, vec![refuse(Action::Stop)]);
    assert_eq!(read_out(&mut idle), Seen::Reset(String::new()));
}

#[test]
fn a_policy_in_shadow_refuses_nothing_but_is_reported() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, LIGHTER);
    publish(&gate, vec![ActivePolicy { is_shadow: true, ..refuse(Action::Close) }]);
    let answer = get(gate.http, "/a", "");
    assert!(answer.ends_with("served"), "{answer}");
    assert!(
        answer.contains("rule=\"cpu\"; action=shadow; level=\"red\"; figures=\"cpu=0.97, rate=412/s\""),
        "{answer}"
    );
    assert_eq!(gate.server().shared().policies.ledger.of("cpu").would(), 1);
    let metrics = admin(&gate, "/metrics");
    assert!(metrics.contains("tidegate_rule_would_refuse_total{rule=\"cpu\"} 1"), "{metrics}");
    let state = admin(&gate, "/v1/state");
    assert!(state.contains("\"would_refuse\":1"), "{state}");
}

#[test]
fn a_refusal_is_explained_by_its_id() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, LIGHTER);
    publish(&gate, vec![refuse(Action::Answer { status: 503 })]);
    let answer = get(gate.http, "/a?b", "");
    let id = answer.split("tidegate-decision: id=").nth(1).unwrap().split(';').next().unwrap();
    let told = admin(&gate, &format!("/v1/explain/{id}"));
    for word in
        ["\"rule\":\"cpu\"", "\"action\":\"answer\"", "\"level\":\"red\"", "rate=412/s", "\"path\":\"/a\""]
    {
        assert!(told.contains(word), "{word} in {told}");
    }
    assert!(admin(&gate, "/v1/explain/0123").starts_with("HTTP/1.1 404"));
}

#[test]
fn a_policy_sends_classes_to_the_room_that_otherwise_never_wait() {
    let origin = Origin::start();
    let gate = Gate::start(
        &origin,
        "[origin]\nreplicas = [\"ORIGIN\"]\n[capacity]\nrate = 1\n[room]\nclasses = [\"page\"]\n[[class]]\nname = \"page\"\nmatch = { path = \"/page\" }\n",
    );
    assert!((0..20).all(|_| get(gate.http, "/a", "").ends_with("served")), "it does not wait");
    publish(&gate, vec![order(Policy::Room, Action::Answer { status: 503 })]);
    until(|| get(gate.http, "/a", "a=b"), |answer| answer.contains("set-cookie: tg"));
}

#[test]
fn a_rate_limit_refuses_requests_beyond_it() {
    use tidegate_core::bucket::BucketConfig;
    use tidegate_core::bucket::SharedBucket;
    use tidegate_core::units::Rate;
    let origin = Origin::start();
    let gate = Gate::start(&origin, LIGHTER);
    let config = BucketConfig { rate: Rate::per_second(0.001).unwrap(), burst: Cost::ONE };
    let bucket = SharedBucket::new(&config).unwrap();
    publish(&gate, vec![order(Policy::Limit(bucket), Action::Answer { status: 503 })]);
    assert!(get(gate.http, "/a", "").ends_with("served"));
    let answer = get(gate.http, "/a", "");
    let after = answer.split("retry-after: ").nth(1).unwrap().split('\r').next().unwrap();
    assert!((990..=1_000).contains(&after.parse::<u32>().unwrap()), "{answer}");
}

#[test]
fn a_tunnel_is_ended_and_stopped_by_policies_for_it() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, LIGHTER);
    gate.server().shared().policies.watch(true);
    for (action, seen, how) in [
        (Action::End, Seen::End(String::new()), Done::End),
        (Action::Stop, Seen::Reset(String::new()), Done::Stop),
    ] {
        let mut tunnel = connect(gate.http);
        let switch =
            "GET /tunnel HTTP/1.1\r\nHost: shop.example\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
        tunnel.write_all(switch.as_bytes()).unwrap();
        assert!(read_head(&mut tunnel).unwrap().starts_with("HTTP/1.1 101"));
        let mut echo = || {
            tunnel.write_all(b"word").unwrap();
            tunnel.read_exact(&mut [0; 4]).unwrap();
        };
        echo();
        // Policies for other URLs do not touch it, nor does one that refuses requests only.
        publish(&gate, vec![of("/elsewhere", action), of("/tunnel", Action::Answer { status: 503 })]);
        echo();
        publish(&gate, vec![of("/tunnel", action)]);
        assert_eq!(read_out(&mut tunnel), seen, "{action:?}");
        until(|| done(&gate, how).to_string(), |count| count == "1");
        until(
            || gate.server().shared().upstream(|stats| &stats.tunnels_open).to_string(),
            |open| open == "0",
        );
        publish(&gate, Vec::new());
    }
}
