//! Sections about the gate itself: listeners, origin, limits, waiting room, queue, history, logs. Larger
//! subjects have files of their own: [`super::class`], [`super::capacity`], [`super::session`],
//! [`super::congestion`], [`super::enforcing`].

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use tidegate_core::scheduler::Scheduling;

use super::kinds::net::*;
use super::kinds::quantity::{Count, DAY, HOUR, MIN, MS, Number, Portion, S, Size, secs, span, span_or_zero};
use super::kinds::{Choice, Flag, List, Named, OneOf, PathName};
use super::proxy_protocol::{ProxyHeader, ProxyProtocol};

named! {
    /// What is admitted by the room.
    pub enum Unit {
        /// Every request of a waiting class is admitted by itself.
        Request = "request",
        /// A visitor is admitted once and then comes and goes with a pass.
        #[default] Session = "session",
    }

    /// To what a ticket is tied, so that it cannot be given away.
    pub enum Binding {
        /// A random cookie; where a client keeps no cookies, its address prefix.
        #[default] Cookie = "cookie",
        /// /24 or /56 of the visitor's address.
        IpPrefix = "ip-prefix",
        /// The visitor's address (WebQ III-C).
        Ip = "ip",
        None = "none",
    }
}

impl Named for Scheduling {
    const NAMES: &'static [(&'static str, Self)] =
        &[("priority", Self::Priority), ("round-robin", Self::RoundRobin), ("deficit", Self::Deficit)];
}

named! {
    /// What the origin is spoken to in.
    pub enum OriginProtocol {
        #[default] Http1 = "http1",
        /// HTTP/2, from the first byte on.
        Http2 = "h2",
        /// What the origin chooses when TLS is set up (ALPN).
        Auto = "auto",
    }

    /// Form of log lines.
    pub enum LogFormat {
        #[default] Text = "text",
        Json = "json",
    }

    /// Form of the access log.
    pub enum AccessLog {
        #[default] Off = "off",
        /// Apache's combined form.
        Combined = "combined",
        /// One JSON object per line.
        Json = "json",
    }
}

section! {
    /// Where visitors and operators connect.
    pub struct Listen {
        /// Address for visitors, or a Unix socket.
        [restart] http: ListenAt = SocketAddr::from(([0, 0, 0, 0], 8080)).into() => AddressOrPath;
        /// Permissions of a Unix socket: who may connect.
        [restart] unix_mode: String = "0660".into() => MODE;
        /// Address for visitors who speak TLS; empty: none. Its certificates are those of [[certificate]].
        [restart] https: Option<SocketAddr> = None => AddressOrNone;
        /// Visitors who do not speak TLS are sent to the same URL at `https` (308).
        redirect_https: bool = false => Flag;
        /// Connections of visitors begin with a header of the PROXY protocol: "v1", "v2", or "any" of both.
        /// Only peers of `proxy.trusted` may connect then.
        proxy_protocol: ProxyProtocol = ProxyProtocol::Off => Choice;
        /// Address of the admin API. An address other than loopback needs `admin_token`.
        [restart] admin: SocketAddr = ([127, 0, 0, 1], 9090).into() => Address;
        /// The admin API speaks TLS, and nothing else, with the certificates of [[certificate]] or [acme].
        admin_https: bool = false => Flag;
        /// Bearer token of the admin API; empty: none is asked for (loopback only).
        admin_token: String = String::new() => SECRET;
        /// Bearer token that may only read (`GET`); empty: there is none.
        admin_read_token: String = String::new() => SECRET;
        /// Worker threads; 0: one per core.
        [restart] workers: usize = 0 => Count(0..=1024);
        /// Length of the kernel's accept queue per worker.
        [restart] backlog: u32 = 4096 => Count(1..=65_535);
        /// Speak HTTP/2 with visitors who begin with it in clear, or ask for it in TLS (ALPN).
        http2: bool = true => Flag;
    }

    /// HTTP/2 to visitors. New connections take over changed values.
    pub struct Http2 [tunable] {
        /// Requests under way at once on one connection.
        max_streams: u32 = 100 => Count(1..=10_000);
        /// Bytes of one request's body that may come before the origin takes them.
        stream_window: u32 = 256 << 10 => Size { bounds: 64 << 10..=16 << 20, zero: false };
        /// The same for all requests of a connection together.
        connection_window: u32 = 1 << 20 => Size { bounds: 64 << 10..=64 << 20, zero: false };
        /// Requests of one connection that may be taken back (RST_STREAM) at once; a tenth as many per
        /// second for long. A connection with more is ended.
        max_resets: u32 = 200 => Count(10..=100_000);
        /// Frames of one connection that carry nothing (PING, SETTINGS, PRIORITY, empty DATA, unknown ones)
        /// and may come at once; a tenth as many per second for long, and one for each KiB carried. A
        /// connection with more is ended.
        max_control_frames: u32 = 1000 => Count(50..=1_000_000);
    }

    /// The service behind the gate.
    pub struct Origin [tunable] {
        /// `HOST:PORT` of every replica, `https://HOST:PORT` of those that speak TLS, `unix:/PATH` of those
        /// that listen at a Unix socket.
        [fixed] replicas: Vec<String> = Vec::new() => List(REPLICA);
        /// Requests the origin works on at once, all replicas together; 0: no limit.
        max_in_flight: usize = 0 => Count(0..=1_000_000);
        /// Requests a replica works on at once; 0: no limit.
        max_in_flight_per_replica: usize = 0 => Count(0..=1_000_000);
        /// Time to establish a connection.
        connect_timeout: Duration = secs(3) => span(MS, 5 * MIN);
        /// Time from the end of the request to the first byte of the response.
        first_byte_timeout: Duration = secs(60) => span(MS, DAY);
        /// Whether a request whose visitor leaves is broken off at once, and its in-flight slot given to the
        /// next. Most services notice only when they write the answer, and go on working until then: with
        /// `false` the gate waits for that, so that they never work on more requests than the limit says.
        abort_on_close: bool = false => Flag;
        /// Longest silence inside a response body.
        read_timeout: Duration = secs(60) => span(MS, DAY);
        /// How long an idle connection is kept for reuse.
        idle_timeout: Duration = secs(60) => span(MS, DAY);
        /// Idle connections kept per worker and replica.
        max_idle: usize = 256 => Count(0..=65_535);
        /// Retries as a share of requests (0..=1).
        retry_budget: f64 = 0.2 => Portion;
        /// `"http1"`, or `"h2"`: HTTP/2 from the first byte on, for origins that expect it (gRPC servers do);
        /// `"auto"`: what the origin chooses in TLS (ALPN).
        [fixed] protocol: OriginProtocol = OriginProtocol::Http1 => Choice;
        /// HTTP/2 connections per worker and replica.
        http2_connections: usize = 2 => Count(1..=64);
        /// `Host` sent to the origin; empty: the visitor's.
        [fixed] host: String = String::new() => HOST_FIELD;
        /// Authorities that certificates of `https://` replicas must be of, instead of those of the system: a
        /// file in PEM.
        [fixed] ca: Option<PathBuf> = None => PathName::ReadableFile;
        /// Name that the certificates of `https://` replicas must be for; empty: the replica's own host.
        [fixed] server_name: String = String::new() => SERVER_NAME;
        /// Certificate that the gate shows to `https://` replicas: a file in PEM; empty: none.
        [fixed] certificate: Option<PathBuf> = None => PathName::ReadableFile;
        /// The key of `certificate`: a file in PEM.
        [fixed] key: Option<PathBuf> = None => PathName::ReadableFile;
        /// Whether certificates of `https://` replicas are verified. Without that, whoever is between the
        /// gate and the origin can read and change everything.
        [fixed] verify: bool = true => Flag;
        /// Header of the PROXY protocol that connections to replicas begin with, so that they learn who the
        /// visitor is: "v1" or "v2". A connection is then one visitor's request only, and not used again.
        [fixed] proxy_protocol: ProxyHeader = ProxyHeader::Off => Choice;
    }
    with {
        /// Active health checks.
        health: Health;
        /// Passive ejection.
        eject: Eject;
    }

    /// Active health checks.
    pub struct Health {
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

    /// Passive ejection: a replica that fails real requests is left out for a while.
    pub struct Eject [tunable] {
        /// Failures in a row (refused, reset, timed out) before a replica is left out; 0: never.
        failures: u32 = 5 => Count(0..=1000);
        /// How long it is left out; doubled with every ejection in a row, up to ten times. At most a second
        /// if it refused the connection.
        for_ as "for": Duration = secs(5) => span(MS, HOUR);
    }

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

    /// Limits of one visitor: time and size.
    pub struct Limits [tunable] {
        /// Visitor connections at once.
        max_connections: usize = 100_000 => Count(1..=10_000_000);
        /// Time to send a complete request head.
        header_timeout: Duration = secs(10) => span(MS, HOUR);
        /// How long a connection may stay idle between requests.
        idle_timeout: Duration = secs(75) => span(MS, DAY);
        /// Longest silence inside a request body or while the visitor does not read.
        body_timeout: Duration = secs(60) => span(MS, DAY);
        /// Bytes per second that a request body must come with on average, after ten seconds of grace; only
        /// the time counts in which the gateway waits for the visitor. 0: any rate.
        min_body_rate: u64 = 500 => Size { bounds: 1..=1 << 30, zero: true };
        /// Longest whole request, from its first byte to the last byte of the response; 0: no limit.
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

    /// The waiting room.
    pub struct Room [tunable] {
        /// Off: nobody waits in the room; only the in-flight limit of the origin applies.
        enabled: bool = true => Flag;
        /// Names of the classes that wait, `default` for requests that match no class; empty: every
        /// navigation waits.
        classes: Vec<String> = Vec::new() => List(CLASS_NAME);
        /// What is admitted: a visitor once, who then comes and goes as `[session]` says ("session"), or
        /// every request of a waiting class ("request", WebQ's rule).
        [fixed] unit: Unit = Unit::Session => Choice;
        /// Longest wait that a visitor is given; beyond it the answer is "full".
        max_wait: Duration = secs(30 * 60) => span(S, DAY);
        /// How late a visitor may come without losing the turn. Pages ask every second or two, so less than
        /// "5s" would cost visitors their turn who do nothing wrong.
        grace: Duration = secs(60) => span(5 * S, HOUR);
        /// How early a visitor may come (clocks of several gates may differ).
        tolerance: Duration = secs(1) => span(0, MIN);
        /// Visitors that may enter in one instant, as the time in which the capacity serves them; "1s" is
        /// WebQ's rule.
        burst: Duration = Duration::from_millis(200) => span(MS, MIN);
        /// Most visitors called per second, as a multiple of the capacity, when some are known not to show
        /// up.
        overbook_max: f64 = 1.5 => Number(1.0..=10.0);
        /// Who is admitted when the capacity rises: those who wait, in order (`false`), or newcomers (`true`,
        /// WebQ III-D).
        rise_to_newcomers: bool = false => Flag;
        /// Part of the room's positions that the visitors of one address (IPv6: one /56) may hold however
        /// full the room is; one /24 (IPv6: one /48) half as much again. Beyond that they get positions only
        /// while they hold less than is free, so that no client can fill the room. 1: no bound.
        prefix_share: f64 = 0.25 => Number(0.01..=1.0);
        /// To what a ticket is tied, so that it cannot be given away: a random cookie (the address prefix if
        /// a client keeps no cookies), the address prefix (/24 or /56), the address (WebQ III-C), or nothing.
        [fixed] binding: Binding = Binding::Cookie => Choice;
        /// After a restart of machine or container, which loses the list of used tickets, a ticket whose turn
        /// had come is admitted again (`true`) or gets a new turn (`false`).
        [fixed] after_restart_accept: bool = true => Flag;
        /// Status of the waiting page and of the answer to programs.
        status: u16 = 503 => OneOf(&[200, 429, 503]);
        /// Largest form body that is kept while its visitor waits, in bytes; 0: none is kept.
        [fixed] max_form_bytes: usize = 64 << 10 => Size { bounds: 0..=1 << 20, zero: false };
        /// Operator's own page template; empty: the built-in page.
        [fixed] template: Option<PathBuf> = None => PathName::ReadableFile;
        /// Logo: a file (SVG or PNG, embedded in the page); empty: none.
        [fixed] logo: Option<PathBuf> = None => PathName::ReadableFile;
        /// Heading of the page; empty: the localised default.
        [fixed] title: String = String::new() => TITLE;
        /// Hosts a return URL may name; empty: only the host that was asked.
        [fixed] hosts: Vec<String> = Vec::new() => List(HOST_NAME);
        /// Directory that keeps keys, given turns, and what was learned and tuned over a restart; empty:
        /// chosen by user and port.
        [restart] state_dir: Option<PathBuf> = None => PathName::Any;
        /// Key ring: `ID:64 hex digits`. The first key signs, all verify; empty: a random key is made and
        /// kept in `state_dir`.
        [fixed] keys: Vec<String> = Vec::new() => List(KEY);
    }

    /// Admitted requests that wait for an in-flight slot at the origin.
    pub struct Queue [tunable] {
        /// Admitted requests that may wait for the origin at once. Requests held only by the limits of their
        /// own class are counted by class instead: as many again of each such class may wait, or its own
        /// `max_length` if that is less. As each holds a connection, never more than `limits.max_connections`
        /// wait in all.
        max_length: usize = 10_000 => Count(0..=1_000_000);
        /// Longest wait, for classes without a `patience` of their own. Where the capacity is discovered, the
        /// room keeps a queue of a tenth of a second's work here. With less than a second, most visitors are
        /// told to come again although their turn has come, and those who happen to ask at the right instant
        /// overtake them.
        max_wait: Duration = secs(30) => span(MS, HOUR);
        /// Which class is next: "priority" is strict, and first come, first served within a priority;
        /// "round-robin" takes one request of each class in turn and ignores priorities; "deficit" shares the
        /// work within a priority by weight.
        scheduler: Scheduling = Scheduling::Priority => Choice;
    }

    /// The measurement database: a year of measurements, the older the coarser.
    pub struct History {
        /// Off: nothing is kept, and `/v1/history` has no data.
        [restart] enabled: bool = true => Flag;
        /// Directory of `history.db`; empty: `room.state_dir`.
        [restart] dir: Option<PathBuf> = None => PathName::Any;
        /// Most series kept: one for each class, service level and detector, one for all requests, one for
        /// the gate. When there are more, the series that was not written for the longest time is deleted.
        /// The file takes at most about 15 MB per series.
        [restart] max_series: usize = 64 => Count(4..=256);
    }

    /// Tuners: scripts that read measurements and change tunables (docs/tuning.md).
    pub struct Tuners [tunable] {
        /// Directory whose `*.rhai` files are run; new, changed and deleted files are noticed at once. Empty:
        /// no tuners.
        [fixed] dir: Option<PathBuf> = None => PathName::Any;
        /// Time between two runs.
        every: Duration = secs(1) => span(100, HOUR);
    }

    /// Logs.
    pub struct Log [tunable] {
        /// `error`, `warn`, `info`, `debug`, `trace`, `off`, or a filter of `tracing`.
        level: String = "info".into() => LEVEL;
        /// Form of log lines: for people, or one JSON object per line for programs.
        [restart] format: LogFormat = LogFormat::Text => Choice;
        /// Form of the access log: none, Apache's combined form, or one JSON object per line.
        [restart] access: AccessLog = AccessLog::Off => Choice;
        /// File of the access log; empty: standard output.
        [restart] access_file: Option<PathBuf> = None => PathName::Any;
    }
}

impl Origin {
    /// Whether there is a replica that speaks TLS.
    pub fn speaks_tls(&self) -> bool {
        self.replicas.iter().any(|replica| replica.starts_with("https://"))
    }
}
