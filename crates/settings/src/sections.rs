//! Every key of the configuration: name, documentation, type, default, bounds. The one place to add or change a key.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use tidegate_core::ingress::Refusal;
use tidegate_core::queue::{DEFAULT_INTERVAL, DEFAULT_TARGET, DisciplineKind};
use tidegate_core::scheduler::Scheduling;
use tidegate_core::units::Rate;

use super::classes::Switch;
use super::declare::{Block, Key, Kind, Section, Tune, join};
use super::estimators::{AUTO, EstimatorName};
use super::kinds::net::*;
use super::kinds::quantity::{ClassCost, Count, Number, Portion, RateOrNone, Size, span, span_or_zero};
use super::kinds::{Choice, Flag, List, OneOf, PathName};
use super::read::Reader;
use super::rivals::{Aimd, Gradient, Gradient2, Vegas};
use super::tree::{Node, Table};
use super::tuning::{Bottleneck, PowerRatio};
use super::{AccessLog, Binding, LogFormat, Unit};

const fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

const MS: u64 = 1;
const S: u64 = 1_000;
const MIN: u64 = 60 * S;
const HOUR: u64 = 60 * MIN;
const DAY: u64 = 24 * HOUR;

section! {
    /// Where visitors and operators connect.
    pub struct Listen {
        /// Address for visitors.
        [restart] http: SocketAddr = ([0, 0, 0, 0], 8080).into() => Address;
        /// Address of the admin API. Beyond loopback it needs `admin_token`.
        [restart] admin: SocketAddr = ([127, 0, 0, 1], 9090).into() => Address;
        /// Bearer token of the admin API; empty: none asked (loopback only).
        admin_token: String = String::new() => SECRET;
        /// Bearer token that may only read (`GET`); empty: none.
        admin_read_token: String = String::new() => SECRET;
        /// Worker threads; 0: one per core.
        [restart] workers: usize = 0 => Count(0..=1024);
        /// Length of the kernel's accept queue per worker.
        [restart] backlog: u32 = 4096 => Count(1..=65_535);
    }
}

section! {
    /// The service behind the gate.
    pub struct Origin [tunable] {
        /// `HOST:PORT` of every replica.
        [fixed] replicas: Vec<String> = Vec::new() => List(REPLICA);
        /// Requests the origin works on at once, all replicas together; 0: no limit.
        max_in_flight: usize = 0 => Count(0..=1_000_000);
        /// Requests a replica works on at once; 0: no limit.
        max_in_flight_per_replica: usize = 0 => Count(0..=1_000_000);
        /// Time to establish a connection.
        connect_timeout: Duration = secs(3) => span(MS, 5 * MIN);
        /// Time from the end of the request to the first byte of the response.
        first_byte_timeout: Duration = secs(60) => span(MS, DAY);
        /// Longest silence inside a response body.
        read_timeout: Duration = secs(60) => span(MS, DAY);
        /// How long an idle connection is kept for reuse.
        idle_timeout: Duration = secs(60) => span(MS, DAY);
        /// Idle connections kept per worker and replica.
        max_idle: usize = 256 => Count(0..=65_535);
        /// Retries as a share of requests (0..=1).
        retry_budget: f64 = 0.2 => Portion;
        /// `Host` sent to the origin; empty: the visitor's.
        [fixed] host: String = String::new() => HOST_FIELD;
    }
    with {
        /// Active health checks.
        health: Health;
        /// Passive ejection.
        eject: Eject;
    }
}

section! {
    /// Active health checks.
    pub struct Health [fixed] {
        /// Path to ask for; empty: no active checks.
        path: String = String::new() => HEALTH_PATH;
        /// Time between checks.
        every: Duration = secs(2) => span(100 * MS, HOUR);
        /// Time a check may take.
        timeout: Duration = secs(1) => span(MS, HOUR);
        /// Successes in a row before an unhealthy replica is used again.
        rise: u32 = 2 => Count(1..=1000);
        /// Failures in a row before a replica is left out.
        fall: u32 = 3 => Count(1..=1000);
    }
}

section! {
    /// Passive ejection: a replica that fails real requests is left out for a while.
    pub struct Eject {
        /// Failures in a row (refused, reset, timed out) before a replica is left out; 0: never.
        failures: u32 = 5 => Count(0..=1000);
        /// For how long; doubled with every ejection in a row, up to ten times. At most a second where connections are refused.
        for_ as "for": Duration = secs(5) => span(MS, HOUR);
    }
}

section! {
    /// How forwarded requests present themselves.
    pub struct Proxy {
        /// Peers whose `Forwarded` and `X-Forwarded-*` fields are believed.
        trusted: Vec<IpNet> = Vec::new() => List(Network);
        /// Name in `Via`; empty: no `Via`.
        via: String = "tidegate".into() => VIA;
        /// Also send `Forwarded` (RFC 7239), not only `X-Forwarded-*`.
        forwarded: bool = true => Flag;
        /// Add `Server-Timing` and `X-Request-Id` to responses.
        server_timing: bool = true => Flag;
    }
}

section! {
    /// What one visitor may take: time and size.
    pub struct Limits [tunable] {
        /// Visitor connections at once.
        max_connections: usize = 100_000 => Count(1..=10_000_000);
        /// Time to send a complete request head.
        header_timeout: Duration = secs(10) => span(MS, HOUR);
        /// How long a connection may stay idle between requests.
        idle_timeout: Duration = secs(75) => span(MS, DAY);
        /// Longest silence inside a request body or while the visitor does not read.
        body_timeout: Duration = secs(60) => span(MS, DAY);
        /// Longest whole request, from its first byte to the last of the response; 0: no limit.
        request_timeout: Duration = Duration::ZERO => span_or_zero(MS, 7 * DAY);
        /// Bytes in a request head.
        max_header_bytes: usize = 32 << 10 => Size { bounds: 1 << 10..=1 << 20, zero: false };
        /// Fields in a request head.
        max_headers: usize = 100 => Count(8..=1000);
        /// Bytes in a request target.
        max_uri_bytes: usize = 8 << 10 => Size { bounds: 256..=1 << 20, zero: false };
        /// Bytes in a request body; 0: no limit.
        max_body_bytes: u64 = 0 => Size { bounds: 1..=1 << 50, zero: true };
        /// Time for requests in progress to end after SIGTERM.
        drain_timeout: Duration = secs(30) => span(0, DAY);
    }
}

section! {
    /// How much the origin can serve: found out, or given.
    pub struct Capacity [tunable] {
        /// How it is found out: an algorithm's name, "fixed" for the number in `rate`, or "auto": "fixed" if there is one, else
        /// "bottleneck".
        estimator: String = AUTO.into() => EstimatorName;
        /// Cost units per second: for "fixed" what the origin can serve (0: no limit until a number is set), for the others
        /// where they start (0: where they see fit).
        rate: f64 = 0.0 => RateOrNone;
        /// Never let in more than this, in cost units per second, whatever is found; 0: no bound.
        ceiling: f64 = 0.0 => RateOrNone;
        /// Never let in less than this, in cost units per second, whatever is found; 0: no bound.
        floor: f64 = 0.0 => Number(0.0..=Rate::MAX.get());
    }
    with {
        /// Of "bottleneck".
        bottleneck: Bottleneck;
        /// Of "power-ratio".
        power_ratio: PowerRatio;
        /// Of "aimd".
        aimd: Aimd;
        /// Of "vegas".
        vegas: Vegas;
        /// Of "gradient".
        gradient: Gradient;
        /// Of "gradient2".
        gradient2: Gradient2;
    }
}

section! {
    /// The waiting room.
    pub struct Room [tunable] {
        /// Off: nobody waits, requests only meet the origin's in-flight limit.
        enabled: bool = true => Flag;
        /// Names of the classes that wait, `default` for requests that match none; empty: every navigation.
        classes: Vec<String> = Vec::new() => List(ANY_CLASS_NAME);
        /// What is admitted: every request of a waiting class takes a place, or a visitor takes one place and then
        /// comes and goes, as `[session]` has it.
        [fixed] unit: Unit = Unit::Request => Choice;
        /// Longest wait handed out; beyond it the answer is "full".
        max_wait: Duration = secs(30 * 60) => span(S, DAY);
        /// How late a visitor may come and keep the place.
        grace: Duration = secs(60) => span(0, HOUR);
        /// How early a visitor may come (clock drift between gates).
        tolerance: Duration = secs(1) => span(0, MIN);
        /// Capacity's worth of visitors that may enter in one instant; "1s" is WebQ's rule.
        burst: Duration = Duration::from_millis(200) => span(MS, MIN);
        /// Most promises per second, as a multiple of capacity, when visitors are known not to show up.
        overbook_max: f64 = 1.5 => Number(1.0..=10.0);
        /// Who gets the new room when capacity rises: the waiting in order (`false`) or newcomers (`true`, WebQ III-D).
        rise_to_newcomers: bool = false => Flag;
        /// To what tickets are tied, so that they cannot be handed on: a random cookie (where a client keeps none, its
        /// address prefix), the address prefix (/24 or /56), the address (WebQ III-C), or nothing.
        [fixed] binding: Binding = Binding::Cookie => Choice;
        /// After a crash, tickets whose turn had come: `true` admits them again, `false` gives a new place.
        [fixed] after_restart_accept: bool = true => Flag;
        /// Status of the waiting page and of the API answer.
        status: u16 = 503 => OneOf(&[200, 429, 503]);
        /// Form bodies kept over the wait, in bytes; 0: none.
        [fixed] max_form_bytes: usize = 64 << 10 => Size { bounds: 0..=1 << 20, zero: false };
        /// Operator's own page template; empty: the built-in page.
        [fixed] template: Option<PathBuf> = None => PathName { file: true };
        /// Logo: a file (SVG or PNG, embedded in the page); empty: none.
        [fixed] logo: Option<PathBuf> = None => PathName { file: true };
        /// Heading of the page; empty: the localised default.
        [fixed] title: String = String::new() => TITLE;
        /// Hosts a return URL may name; empty: only the host that was asked.
        [fixed] hosts: Vec<String> = Vec::new() => List(HOST_NAME);
        /// Directory that keeps keys and promises over a restart; empty: chosen by user and port.
        [restart] state_dir: Option<PathBuf> = None => PathName { file: false };
        /// Key ring: `ID:64 hex digits`, the first signs, all verify; empty: made at random and kept in `state_dir`.
        [fixed] keys: Vec<String> = Vec::new() => List(KEY);
    }
}

section! {
    /// Admitted requests that wait for a free place at the origin.
    pub struct Queue [tunable] {
        /// Admitted requests that may wait for the origin at once. Those that only their own class's limits hold are not counted
        /// here, but by their class: as many again of each such class may wait, or its own `max_length` if that is less. So
        /// never more wait in all than the sum of that over the classes, nor, as each holds a connection, than `limits.max_connections`.
        max_length: usize = 10_000 => Count(0..=1_000_000);
        /// Longest wait there, for classes without a patience of their own. Where the capacity is found out, the room keeps a queue of a tenth of a second's work and some
        /// visitors here: with less than a second most are asked to come again in their turn, and those who ask at the
        /// right instant go first.
        max_wait: Duration = secs(30) => span(MS, HOUR);
        /// Which class is next: "priority" is strict, and within one priority first come, first served; "round-robin" takes one
        /// of each class in turn whatever the priorities; "deficit" shares the work within a priority by the classes' weights.
        scheduler: Scheduling = Scheduling::Priority => Choice;
    }
}

section! {
    /// The measurement database: what was measured, for a year at falling resolution.
    pub struct History {
        /// Off: nothing is kept, and `/v1/history` answers nothing.
        [restart] enabled: bool = true => Flag;
        /// Directory of `history.db`; empty: `room.state_dir`.
        [restart] dir: Option<PathBuf> = None => PathName { file: false };
        /// Most series kept: one a class, one for all requests, one for the gate. When another class comes, the series that has
        /// not been written for longest makes room. The file takes about 10 MB per series at most.
        [restart] max_series: usize = 64 => Count(4..=256);
    }
}

section! {
    /// Tuners: scripts that read what was measured and change tunables (docs/tuning.md).
    pub struct Tuners [tunable] {
        /// Directory whose `*.rhai` files run; a file that comes, changes or goes is noticed at once. Empty: none.
        [fixed] dir: Option<PathBuf> = None => PathName { file: false };
        /// Between two runs.
        every: Duration = secs(1) => span(100, HOUR);
    }
}

section! {
    /// Logs.
    pub struct Log [tunable] {
        /// `error`, `warn`, `info`, `debug`, `trace`, `off`, or a filter of `tracing`.
        level: String = "info".into() => LEVEL;
        /// Form of log lines: for people, or one JSON object per line for programs.
        [restart] format: LogFormat = LogFormat::Text => Choice;
        /// Form of the access log: none, Apache's combined form, or one JSON object per line.
        [restart] access: AccessLog = AccessLog::Off => Choice;
        /// File of the access log; empty: standard output.
        [restart] access_file: Option<PathBuf> = None => PathName { file: false };
    }
}

section! {
    /// Request classes, first match wins; requests that match none are of the class `default` (cost 1, priority 1), which a
    /// class of that name without `match` configures.
    pub struct Class [tunable] {
        /// Its name in metrics, logs and `room.classes`.
        [fixed] name: String = String::new() => ANY_CLASS_NAME;
        /// Relative hardness; 1.0 is average.
        cost: f64 = 1.0 => ClassCost;
        /// Lower goes first at the origin.
        priority: u8 = 1 => Count(0..=255);
        /// Share among the classes of one priority where the scheduler is "deficit".
        weight: u32 = 1 => Count(1..=1000);
        /// Share of the work sent to the origin that the class gets in any case while requests of it wait, whatever the
        /// priorities; all classes together at most 1.
        guarantee: f64 = 0.0 => Portion;
        /// Requests of the class at the origin at once; 0: no limit of its own.
        max_in_flight: usize = 0 => Count(0..=1_000_000);
    }
    with {
        /// Which requests; every given condition must hold.
        matches as "match": Match;
        /// What may come in.
        ingress: Ingress;
        /// Who waits for a free place at the origin.
        queue: ClassQueue;
        /// What may go to the origin.
        egress: Egress;
    }
}

section! {
    /// A token bucket at the class's entrance, before the waiting room: what may come in.
    pub struct Ingress {
        /// Whether anything is refused; what is off fills up.
        limit: Switch = Switch::On => Choice;
        /// Cost units per second; 0: no limit.
        rate: f64 = 0.0 => Number(0.0..=Rate::MAX.get());
        /// Cost units that may come in one instant; 0: one second's worth of `rate`, and at least one request.
        burst: f64 = 0.0 => Number(0.0..=Rate::MAX.get());
        /// What becomes of more: "shed" is 503 with the time to come again, "room" a place in the waiting room.
        refuse: Refusal = Refusal::Shed => Choice;
    }
}

section! {
    /// The class's queue at the gate.
    pub struct ClassQueue {
        /// Who is next: "fifo" the first, "lifo" the last, "adaptive-lifo" the first until the oldest has waited for `target`,
        /// then the last; "codel" the first, and some are refused to keep the wait near `target`.
        discipline: DisciplineKind = DisciplineKind::Fifo => Choice;
        /// Requests that may wait, whatever holds them; 0, or more than `queue.max_length`: as many as that allows.
        max_length: usize = 0 => Count(0..=1_000_000);
        /// Longest wait: whoever has waited for so long is not sent to the origin any more; 0: `queue.max_wait`.
        patience: Duration = Duration::ZERO => span_or_zero(MS, HOUR);
        /// Of "codel": the wait aimed at. Of "adaptive-lifo": how long the oldest waits before the last goes first.
        target: Duration = DEFAULT_TARGET => span(5, HOUR);
        /// Of "codel": for how long even the shortest wait must be above `target` before anybody is refused.
        interval: Duration = DEFAULT_INTERVAL => span(5, HOUR);
    }
}

section! {
    /// A token bucket at the class's exit: what may go to the origin. The rest waits in the class's queue.
    pub struct Egress {
        /// Cost units per second; 0: no limit.
        rate: f64 = 0.0 => Number(0.0..=Rate::MAX.get());
        /// Cost units that may go in one instant; 0: one second's worth of `rate`, and at least one request. Never less
        /// than one request and 10 ms' worth of `rate`: who waits is let go by a timer, and what it is late for would be lost.
        burst: f64 = 0.0 => Number(0.0..=Rate::MAX.get());
    }
}

section! {
    /// Which requests are of the class: every given condition must hold; within one condition any value may.
    pub struct Match [fixed] {
        /// Methods.
        method: Vec<String> = Vec::new() => List(METHOD);
        /// Path globs: `*` within a segment, `**` across segments, `?` one character.
        path: Vec<String> = Vec::new() => List(PATH_GLOB);
        /// Hosts, `*.` for any subdomain.
        host: Vec<String> = Vec::new() => List(HOST_GLOB);
        /// Header fields: name and value glob.
        header: Vec<(String, String)> = Vec::new() => Pairs { what: "header" };
        /// Cookies: name and value glob.
        cookie: Vec<(String, String)> = Vec::new() => Pairs { what: "cookie" };
        /// Query parameters: name and value glob.
        query: Vec<(String, String)> = Vec::new() => Pairs { what: "query" };
        /// Client networks.
        client: Vec<IpNet> = Vec::new() => List(Network);
    }
}

section! {
    /// Only for `role = "tokengen"`: the process that hands out places.
    pub(crate) struct TokenGenKeys {
        /// Public base URL of the tokencheck process: visitors whose turn it is are sent there.
        [restart] check_url: String = String::new() => BASE_URL;
    }
}

section! {
    /// Only for `role = "tokencheck"`: the process that checks places and forwards.
    pub(crate) struct TokenCheckKeys {
        /// Public base URL of the tokengen process: visitors without a valid ticket are sent there.
        [restart] gen_url: String = String::new() => BASE_URL;
        /// Base URL of the tokengen process's admin listener: observations go there.
        [restart] feedback_url: String = String::new() => BASE_URL;
        /// Bearer token of that listener (`listen.admin_token` of the tokengen process).
        [restart] feedback_token: String = String::new() => SECRET;
    }
}
