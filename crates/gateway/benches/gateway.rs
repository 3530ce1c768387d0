//! What the gateway's share of a request costs, without sockets and hyper: `cargo bench -p tidegate-gateway`,
//! nanoseconds per call.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use http::{Method, Version};
use tidegate_core::correlate::templates::TemplateSettings;
use tidegate_core::correlate::{Columns, DEFAULT_INTERVALS, Live, MAX_FIGURES, Settings};
use tidegate_core::policies::{
    Action, ActivePolicy, Policy, PolicyDecision, PolicyRequest, PolicySet, RuleId, Scope, TierId,
};
use tidegate_core::units::{ClassId, Cost, Timestamp};
use tidegate_gateway::config::page::{Kind, Pages, View};
use tidegate_gateway::http::hygiene;
use tidegate_gateway::http::hygiene::ForwardContext;
use tidegate_gateway::proxy::navigation::RequestKind;
use tidegate_gateway::shared::Drain;
use tidegate_gateway::shared::policies::PublishedPolicies;
use tidegate_gateway::shared::request_paths::RequestPaths;
use tidegate_http::{HeadLimits, RequestHead, RequestParser};
use tidegate_settings::Room;
use tokio::sync::watch;

const CALLS: u32 = 10_000;
const ROUNDS: usize = 21;

/// As a browser asks for a page.
const FIELDS: [(&str, &str); 10] = [
    ("host", "shop.example"),
    ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"),
    ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
    ("accept-language", "de,en-US;q=0.7,en;q=0.3"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("connection", "keep-alive"),
    ("cookie", "session=0123456789abcdef; consent=yes"),
    ("upgrade-insecure-requests", "1"),
    ("sec-fetch-dest", "document"),
    ("sec-fetch-mode", "navigate"),
];

/// Prints the median over the rounds. What `prepare` makes is not timed.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn bench<T>(name: &str, prepare: impl Fn() -> T, mut call: impl FnMut(T)) {
    let mut rounds: Vec<u128> = (0..ROUNDS)
        .map(|_| {
            let inputs: Vec<T> = (0..CALLS).map(|_| prepare()).collect();
            let start = Instant::now();
            inputs.into_iter().for_each(&mut call);
            start.elapsed().as_nanos() / u128::from(CALLS)
        })
        .collect();
    rounds.sort_unstable();
    println!("{name:28} {:8} ns", rounds[ROUNDS / 2]);
}

fn main() {
    heads();
    policies();
    pages();
    correlation();
}

/// What a request pays for being counted by its path, and what the correlation's own thread does with it.
fn correlation() {
    let paths = RequestPaths::new(4);
    let (worker, mut spare) = (paths.of_worker(0), Vec::new());
    let mut noted = 0;
    bench(
        "note a path",
        || (),
        |()| {
            // A tick, every 4,000 requests; its own cost is in the figure.
            noted += 1;
            if noted % 4_000 == 0 {
                let taken = paths.take(&mut spare);
                spare.extend(taken);
            }
            worker.note(black_box("/rubis/item/4711/bids"));
        },
    );

    const TYPES: usize = 100;
    let words = ["search", "item", "user", "bid", "buy", "sell", "about", "home", "list", "page"];
    let path = |n: usize| format!("/{}/{}/{}", words[n % 10], words[n / 10 % 10], n * 7919);
    let all: Vec<String> = (0..TYPES).map(path).collect();
    let settings = || TemplateSettings { max_types: TYPES, ..TemplateSettings::default() };
    let mut live = Live::new(DEFAULT_INTERVALS, settings());
    let mut at = 0;
    bench(
        "fold and count a path",
        || (),
        |()| {
            at = (at + 1) % TYPES;
            live.count_path(black_box(&all[at]));
        },
    );
    let names: Vec<std::sync::Arc<str>> = (0..MAX_FIGURES).map(|n| format!("figure{n}").into()).collect();
    let mut second = 0_u32;
    let mut end_second = |live: &mut Live| {
        second = second.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        all.iter().take(second as usize >> 8 & 63).for_each(|path| live.count_path(path));
        let figures: Vec<_> =
            names.iter().map(|name| (name.clone(), Some(f64::from(second >> 16)))).collect();
        live.end_interval(&figures, 1);
    };
    once("a second, 100 types, 16 figures", 3 * DEFAULT_INTERVALS, || end_second(&mut live));
    let columns = live.columns("figure0").expect("a figure");
    let settings = Settings { max_lag: 2, ..Settings::default() };
    once("analyse a figure, 100 types", 21, || _ = black_box(columns.clone().analyse(&settings, 1.0)));
    let columns = Columns { types: columns.types.into_iter().take(16).collect(), ..columns };
    once("analyse a figure, 16 types", 21, || _ = black_box(columns.clone().analyse(&settings, 1.0)));
}

/// Prints the median and the longest of some calls, in microseconds.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn once(name: &str, times: usize, mut call: impl FnMut()) {
    let mut took: Vec<u128> = (0..times)
        .map(|_| {
            let start = Instant::now();
            call();
            start.elapsed().as_micros()
        })
        .collect();
    took.sort_unstable();
    println!("{name:34} {:8} µs, longest {} µs", took[times / 2], took[times - 1]);
}

fn request() -> RequestHead {
    let mut head = RequestHead::new(Method::GET, "/search?q=tide+tables&page=2", Version::HTTP_11);
    FIELDS.iter().for_each(|(name, value)| head.fields.append((*name).into(), value.as_bytes()));
    head
}

fn heads() {
    let mut head = b"GET /search?q=tide+tables&page=2 HTTP/1.1\r\n".to_vec();
    for (name, value) in FIELDS {
        head.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    head.extend_from_slice(b"\r\n");
    let limits = HeadLimits { bytes: 16 << 10, fields: 100, target: 8 << 10, body: 1 << 30 };
    bench("head parse", RequestParser::new, |mut parser| {
        black_box(parser.parse(black_box(&head), &limits)).ok();
    });
    bench("head check", request, |mut head| {
        black_box(hygiene::check(&mut head)).ok();
    });
    let fields = request().fields;
    bench(
        "kind of request",
        || (),
        |()| {
            black_box(RequestKind::of(black_box(&fields)));
        },
    );
    let context = ForwardContext {
        peer: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
        trusted: false,
        scheme: "http",
        via: "tidegate",
        forwarded: true,
        host: "",
        request_id: b"0123456789abcdef",
        keep_upgrade: false,
        is_own_cookie: tidegate_settings::is_gate_cookie,
    };
    bench("prepare request", request, |mut head| {
        hygiene::prepare_request(&mut head, &context);
        black_box(&head);
    });
}

/// What a request pays for rules: nothing in force, and one policy that is not for it.
fn policies() {
    let (enforcement, wake) = (PublishedPolicies::default(), watch::Sender::new(Drain::No));
    let pass = |enforcement: &PublishedPolicies| match black_box(enforcement).word() {
        0 => true,
        _ => asks(enforcement),
    };
    // What a load costs that is not atomic, and the benchmark's own share.
    let plain = std::cell::Cell::new(0u64);
    bench("a plain word", || (), |()| _ = black_box(black_box(&plain).get() == 0));
    bench("policies, none in force", || (), |()| _ = black_box(pass(&enforcement)));
    let scope = Scope { new_sessions: true, ..Scope::default() };
    let action = Action::Answer { status: 503 };
    let policy = ActivePolicy { rule: RuleId(0), scope, policy: Policy::Refuse, action, is_shadow: false };
    enforcement.publish(
        PolicySet::new(vec![policy]),
        vec![Some(enforcement.record("cpu", "red", "cpu=0.97"))],
        &wake,
    );
    bench("policies, one for others", || (), |()| _ = black_box(pass(&enforcement)));
}

/// As the request path has it: out of the way.
#[inline(never)]
fn asks(enforcement: &PublishedPolicies) -> bool {
    let asked = PolicyRequest {
        path: "/search",
        query: "",
        class: ClassId(0),
        cost: Cost::ONE,
        tier: TierId(0),
        visitor: 0,
        is_new_session: false,
        is_plain: true,
    };
    let standing = enforcement.standing();
    let decision = standing.set.decide(&asked, 0, Timestamp::from_secs(1), &mut |_| ());
    matches!(decision, PolicyDecision::Pass)
}

fn pages() {
    let pages = Pages::new(&Room::default()).expect("the built-in page");
    let ticket = "A".repeat(60);
    let view = View {
        kind: Kind::Waiting,
        lang: pages.language(None),
        status: 503,
        wait: Duration::from_millis(240_250),
        place: 12_345,
        waited: Duration::from_secs(60),
        poll: Duration::from_secs(5),
        target: "/search?q=tide+tables&page=2",
        ticket: Some(&ticket),
        status_path: "/.tidegate/status?c=0",
        check_url: None,
        form: None,
        refresh: Some(Duration::from_secs(20)),
    };
    bench(
        "page",
        || (),
        |()| {
            let mut out = Vec::new();
            pages.waiting(black_box(&view), &mut out);
            black_box(out);
        },
    );
    bench(
        "page in pieces",
        || (),
        |()| {
            black_box(pages.pieces(black_box(&view)));
        },
    );
    bench(
        "API answer",
        || (),
        |()| {
            let mut out = Vec::new();
            pages.api(black_box(&view), &mut out);
            black_box(out);
        },
    );
}
