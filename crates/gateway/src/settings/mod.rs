//! The configuration as the rest of the program sees it: checked, typed, complete.
//!
//! Every key has a default and a doc comment; `tidegate config default` prints both.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

mod defaults;

/// Everything `tidegate run` needs to know.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Settings {
    /// What this process does: everything, or one half of the two-process form.
    pub role: Role,
    /// Where visitors and operators connect.
    pub listen: Listen,
    /// The service behind the gate.
    pub origin: Origin,
    /// How forwarded requests present themselves.
    pub proxy: Proxy,
    /// What one visitor may take: time and size.
    pub limits: Limits,
    /// How much the origin can serve.
    pub capacity: Capacity,
    /// The waiting room.
    pub room: Room,
    /// Admitted sessions, when the room admits sessions.
    pub session: Session,
    /// Admitted requests that wait for a free place at the origin.
    pub queue: Queue,
    /// Logs.
    pub log: Log,
    /// Request classes, first match wins.
    pub class: Vec<Class>,
}

/// What this process does.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Role {
    /// All in one.
    #[default]
    Gate,
    /// Hands out places (WebQ's TokenGen): redirects to `check_url` when it is a visitor's turn.
    TokenGen {
        /// Public base URL of the tokencheck process, e.g. `https://check.shop.example`.
        check_url: String,
    },
    /// Checks places and forwards (WebQ's TokenCheck).
    TokenCheck {
        /// Public base URL of the tokengen process: visitors without a valid ticket are sent there.
        gen_url: String,
        /// Base URL of the tokengen process's admin listener: observations go there.
        feedback_url: String,
    },
}

/// `[listen]`
#[derive(Clone, Debug, PartialEq)]
pub struct Listen {
    /// Address for visitors.
    pub http: SocketAddr,
    /// Address of the admin API. Beyond loopback it needs `admin_token`.
    pub admin: SocketAddr,
    /// Bearer token of the admin API; empty: none asked (loopback only).
    pub admin_token: String,
    /// Worker threads; 0: one per core.
    pub workers: usize,
    /// Length of the kernel's accept queue per worker.
    pub backlog: u32,
}

/// `[origin]`
#[derive(Clone, Debug, PartialEq)]
pub struct Origin {
    /// `HOST:PORT` of every replica.
    pub replicas: Vec<String>,
    /// Requests the origin works on at once, all replicas together; 0: no limit.
    pub max_in_flight: usize,
    /// Time to establish a connection.
    pub connect_timeout: Duration,
    /// Time from the end of the request to the first byte of the response.
    pub first_byte_timeout: Duration,
    /// Longest silence inside a response body.
    pub read_timeout: Duration,
    /// How long an idle connection is kept for reuse.
    pub idle_timeout: Duration,
    /// Idle connections kept per worker and replica.
    pub max_idle: usize,
    /// Retries as a share of requests (0..=1).
    pub retry_budget: f64,
    /// `Host` sent to the origin; empty: the visitor's.
    pub host: String,
    /// Active health checks.
    pub health: Health,
    /// Passive ejection.
    pub eject: Eject,
}

/// `[origin.health]`
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    /// Path to ask for; empty: no active checks.
    pub path: String,
    /// Time between checks.
    pub every: Duration,
    /// Time a check may take.
    pub timeout: Duration,
    /// Successes in a row before an unhealthy replica is used again.
    pub rise: u32,
    /// Failures in a row before a replica is left out.
    pub fall: u32,
}

/// `[origin.eject]`
#[derive(Clone, Debug, PartialEq)]
pub struct Eject {
    /// Failures in a row (refused, reset, timed out) before a replica is left out; 0: never.
    pub failures: u32,
    /// For how long; doubled with every ejection in a row, up to ten times.
    pub for_: Duration,
}

/// `[proxy]`
#[derive(Clone, Debug, PartialEq)]
pub struct Proxy {
    /// Peers whose `Forwarded` and `X-Forwarded-*` fields are believed.
    pub trusted: Vec<IpNet>,
    /// Name in `Via`; empty: no `Via`.
    pub via: String,
    /// Also send `Forwarded` (RFC 7239), not only `X-Forwarded-*`.
    pub forwarded: bool,
    /// Add `Server-Timing` and `X-Request-Id` to responses.
    pub server_timing: bool,
}

/// `[limits]`
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Visitor connections at once.
    pub max_connections: usize,
    /// Time to send a complete request head.
    pub header_timeout: Duration,
    /// How long a connection may stay idle between requests.
    pub idle_timeout: Duration,
    /// Longest silence inside a request body or while the visitor does not read.
    pub body_timeout: Duration,
    /// Longest whole request, from its first byte to the last of the response; 0: no limit.
    pub request_timeout: Duration,
    /// Bytes in a request head.
    pub max_header_bytes: usize,
    /// Fields in a request head.
    pub max_headers: usize,
    /// Bytes in a request target.
    pub max_uri_bytes: usize,
    /// Bytes in a request body; 0: no limit.
    pub max_body_bytes: u64,
    /// Time for requests in progress to end after SIGTERM.
    pub drain_timeout: Duration,
}

/// `[capacity]`
#[derive(Clone, Debug, PartialEq)]
pub struct Capacity {
    /// Name of the estimator.
    pub estimator: String,
    /// Cost units per second; 0: unlimited until a number is set.
    pub rate: f64,
}

/// What is admitted by the room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Unit {
    /// Every request of a waiting class takes a place.
    #[default]
    Request,
    /// A visitor takes one place and then comes and goes with a pass.
    Session,
}

/// To what a ticket is tied, so that it cannot be handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Binding {
    /// A random cookie; where a client keeps no cookies, its address prefix.
    #[default]
    Cookie,
    /// /24 or /56 of the visitor's address.
    IpPrefix,
    /// The visitor's address (WebQ III-C).
    Ip,
    /// Nothing.
    None,
}

/// `[room]`
#[derive(Clone, Debug, PartialEq)]
pub struct Room {
    /// Off: nobody waits, requests only meet the origin's in-flight limit.
    pub enabled: bool,
    /// Names of the classes that wait; empty: every navigation.
    pub classes: Vec<String>,
    /// What is admitted.
    pub unit: Unit,
    /// Longest wait handed out; beyond it the answer is "full".
    pub max_wait: Duration,
    /// How late a visitor may come and keep the place.
    pub grace: Duration,
    /// How early a visitor may come (clock drift between gates).
    pub tolerance: Duration,
    /// Capacity's worth of visitors that may enter in one instant; "1s" is WebQ's rule.
    pub burst: Duration,
    /// Most promises per second, as a multiple of capacity, when visitors are known not to show up.
    pub overbook_max: f64,
    /// Who gets the new room when capacity rises: the waiting in order (`false`) or newcomers (`true`, WebQ III-D).
    pub rise_to_newcomers: bool,
    /// To what tickets are tied.
    pub binding: Binding,
    /// After a crash, tickets whose turn had come: `true` admits them again, `false` gives a new place.
    pub after_restart_accept: bool,
    /// Status of the waiting page and of the API answer.
    pub status: u16,
    /// Form bodies kept over the wait, in bytes; 0: none.
    pub max_form_bytes: usize,
    /// Operator's own page template.
    pub template: Option<PathBuf>,
    /// Logo: a file (SVG or PNG, embedded in the page).
    pub logo: Option<PathBuf>,
    /// Heading of the page; empty: the localised default.
    pub title: String,
    /// Hosts a return URL may name; empty: only the host that was asked.
    pub hosts: Vec<String>,
    /// Directory that keeps keys and promises over a restart; empty: chosen by user and port.
    pub state_dir: Option<PathBuf>,
    /// Key ring: `ID:64 hex digits`, the first signs, all verify; empty: made at random and kept in `state_dir`.
    pub keys: Vec<String>,
}

/// `[session]`
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// Inactivity after which a pass ends.
    pub timeout: Duration,
    /// Age at which a pass ends in any case.
    pub max_age: Duration,
}

/// `[queue]`
#[derive(Clone, Debug, PartialEq)]
pub struct Queue {
    /// Admitted requests that may wait for the origin at once.
    pub max_length: usize,
    /// Longest wait there.
    pub max_wait: Duration,
}

/// Form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// Form of the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AccessLog {
    /// None.
    #[default]
    Off,
    /// Apache's combined form.
    Combined,
    /// One JSON object per line.
    Json,
}

/// `[log]`
#[derive(Clone, Debug, PartialEq)]
pub struct Log {
    /// `error`, `warn`, `info`, `debug`, `trace`, or a filter of `tracing`.
    pub level: String,
    /// Form of log lines.
    pub format: LogFormat,
    /// Form of the access log.
    pub access: AccessLog,
    /// File of the access log; empty: standard output.
    pub access_file: Option<PathBuf>,
}

/// `[[class]]`
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Its name in metrics, logs and `room.classes`.
    pub name: String,
    /// Which requests; every given condition must hold.
    pub matches: Match,
    /// Relative hardness; 1.0 is average.
    pub cost: f64,
    /// Lower goes first at the origin.
    pub priority: u8,
}

/// `class.match`: every given condition must hold; within one condition any value may.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Match {
    /// Methods.
    pub method: Vec<String>,
    /// Path globs: `*` within a segment, `**` across segments, `?` one character.
    pub path: Vec<String>,
    /// Hosts, `*.` for any subdomain.
    pub host: Vec<String>,
    /// Header fields: name and value glob.
    pub header: Vec<(String, String)>,
    /// Cookies: name and value glob.
    pub cookie: Vec<(String, String)>,
    /// Query parameters: name and value glob.
    pub query: Vec<(String, String)>,
    /// Client networks.
    pub client: Vec<IpNet>,
}
