//! The gate in front of real TCP servers of Debian: Redis and PostgreSQL.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use super::harness::{Config, Gate, Running, TempDir, free_address, wait_for};

/// Whether this machine has a program where Debian puts it.
fn find(candidates: impl IntoIterator<Item = PathBuf>) -> PathBuf {
    candidates.into_iter().find(|path| path.is_file()).expect("scripts/test installs it")
}

fn gate(to: SocketAddr, more: &str) -> (Gate, SocketAddr) {
    let listen = free_address();
    let service = format!("\n[[tcp]]\nname = \"it\"\nlisten = \"{listen}\"\nto = \"{to}\"\n{more}\n");
    (Gate::start(Config::new(&[]).section(&service)), listen)
}

fn succeeded(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("start");
    let (said, errors) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{said}\n{errors}");
    said.into_owned()
}

/// Bytes that the gate has relayed, both ways, and connections.
fn figures(gate: &Gate) -> (u64, u64) {
    let metrics = gate.admin("GET", "/metrics", "").text();
    let of = |begin: &str| -> u64 {
        let lines = metrics.lines().filter(|line| line.starts_with(begin));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    };
    (of("tidegate_tcp_bytes_total{"), of("tidegate_tcp_connections_total{listener=\"it\",result=\"relayed\""))
}

/// What the process has read and written by read(2) and write(2), and by whatever copies through it.
fn copied(pid: u32) -> u64 {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).expect("of a process of ours");
    let of = |key: &str| -> u64 {
        let line = io.lines().find_map(|line| line.strip_prefix(key)).expect(key);
        line.trim().parse().expect("a number")
    };
    of("rchar:") + of("wchar:")
}

/// A Redis without a file.
fn redis() -> (Running, SocketAddr) {
    let address = free_address();
    let port = address.port().to_string();
    let mut command = Command::new("redis-server");
    command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    let server = Running::start(command.stdout(Stdio::null()));
    wait_for("Redis", || TcpStream::connect(address).ok());
    (server, address)
}

/// Sends a line to Redis, and reads as many lines of the answer.
fn said(stream: &mut BufReader<TcpStream>, command: &str, lines: usize) -> Vec<String> {
    stream.get_mut().write_all(format!("{command}\r\n").as_bytes()).expect("sent");
    (0..lines).map(|_| line(stream)).collect()
}

fn line(stream: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).expect("an answer");
    line.trim_end().to_owned()
}

#[test]
fn redis_is_relayed() {
    let (_server, address) = redis();
    let (gate, at) = gate(address, "");
    let client = || BufReader::new(TcpStream::connect(at).expect("accepted"));
    let (mut one, mut two) = (client(), client());
    assert_eq!(said(&mut one, "SET tide high", 1), ["+OK"]);
    assert_eq!(said(&mut two, "GET tide", 2), ["$4", "high"]);
    // A subscriber says nothing for as long as it likes.
    assert_eq!(said(&mut one, "SUBSCRIBE sea", 6)[5], ":1");
    for n in 0..100 {
        let word = format!("wave-{n}");
        assert_eq!(said(&mut two, &format!("PUBLISH sea {word}"), 1), [":1"]);
        let heard: Vec<_> = (0..7).map(|_| line(&mut one)).collect();
        assert_eq!(heard[6], word);
    }
    // Values larger than any buffer on the way.
    let large = "x".repeat(8 << 20);
    assert_eq!(said(&mut two, &format!("SET large {large}"), 1), ["+OK"]);
    assert_eq!(said(&mut two, "GET large", 2)[1], large);
    // Its own load generator: 50 connections, pipelined.
    let port = at.port().to_string();
    let mut bench = Command::new("redis-benchmark");
    bench.args([
        "-h",
        "127.0.0.1",
        "-p",
        &port,
        "-n",
        "20000",
        "-c",
        "50",
        "-P",
        "8",
        "-q",
        "-t",
        "set,get,lpush",
    ]);
    let report = succeeded(&mut bench);
    assert!(report.contains("GET:") && !report.to_lowercase().contains("error"), "{report}");
    assert!(figures(&gate).1 > 50);
}

/// What is relayed does not pass through the process.
#[test]
fn relayed_bytes_are_not_read_by_the_gate() {
    let (_server, address) = redis();
    let (gate, at) = gate(address, "");
    let mut client = BufReader::new(TcpStream::connect(at).expect("accepted"));
    let large = "x".repeat(16 << 20);
    let (before, _) = figures(&gate);
    let copies = copied(gate.pid());
    for _ in 0..4 {
        assert_eq!(said(&mut client, &format!("SET large {large}"), 1), ["+OK"]);
    }
    let (relayed, copies) = (figures(&gate).0 - before, copied(gate.pid()) - copies);
    assert!(relayed >= 64 << 20, "{relayed}");
    assert!(copies < 1 << 20, "{copies} bytes of {relayed}");
}

/// More clients than connections are allowed: nobody fails, and the server never sees more.
#[test]
fn a_server_sees_no_more_connections_than_are_allowed() {
    let (_server, address) = redis();
    let (gate, at) = gate(address, "max_connections = 4");
    let clients: Vec<_> = (0..20)
        .map(|n| {
            std::thread::spawn(move || {
                let mut client = BufReader::new(TcpStream::connect(at).expect("accepted"));
                let connected = said(&mut client, "INFO clients", 2)[1].clone();
                let all: Vec<_> =
                    std::iter::from_fn(|| Some(line(&mut client)).filter(|l| !l.is_empty())).collect();
                assert_eq!(said(&mut client, &format!("SET of-{n} {n}"), 2)[1], "+OK");
                let count = all.iter().find_map(|line| line.strip_prefix("connected_clients:"));
                count.unwrap_or_else(|| panic!("{connected} {all:?}")).parse::<u64>().expect("a number")
            })
        })
        .collect();
    for client in clients {
        let connected = client.join().expect("served");
        assert!((1..=4).contains(&connected), "{connected}");
    }
    assert_eq!(figures(&gate).1, 20);
}

/// PostgreSQL in a directory of its own. It refuses to run as root.
struct Postgres {
    dir: TempDir,
    bin: PathBuf,
    _server: Running,
    address: SocketAddr,
}

impl Postgres {
    fn start() -> Self {
        let versions = fs::read_dir("/usr/lib/postgresql").expect("scripts/test installs it");
        let bins = versions.map(|entry| entry.expect("a folder").path().join("bin"));
        let bin = find(bins.map(|bin| bin.join("initdb"))).parent().expect("a folder").to_owned();
        let dir = TempDir::new();
        let data = dir.path().join("data");
        fs::create_dir(&data).expect("a folder");
        if is_root() {
            succeeded(Command::new("chown").arg("-R").arg("postgres").arg(dir.path()));
        }
        let as_user = |program: &str| {
            let mut command = Command::new(bin.join(program));
            if is_root() {
                command.uid(user_id("postgres")).gid(user_id("postgres"));
            }
            command.current_dir("/");
            command
        };
        succeeded(as_user("initdb").arg("-D").arg(&data).args(["-U", "postgres", "-A", "trust", "-N"]));
        let address = free_address();
        let port = address.port().to_string();
        let mut server = as_user("postgres");
        server.arg("-D").arg(&data).args(["-p", &port, "-h", "127.0.0.1", "-F"]).arg("-k").arg(dir.path());
        let server = Running::start(server.stdout(Stdio::null()).stderr(Stdio::null()));
        let postgres = Self { dir, bin, _server: server, address };
        wait_for("PostgreSQL", || {
            postgres.client("pg_isready", address).status().expect("start").success().then_some(())
        });
        postgres
    }

    /// A program of PostgreSQL that connects to `at`.
    fn client(&self, program: &str, at: SocketAddr) -> Command {
        let mut command = Command::new(self.bin.join(program));
        command.args(["-h", "127.0.0.1", "-p", &at.port().to_string(), "-U", "postgres"]);
        command.stdout(Stdio::piped()).current_dir(self.dir.path());
        command
    }
}

fn is_root() -> bool {
    succeeded(Command::new("sh").args(["-c", "id -u"])).trim() == "0"
}

fn user_id(name: &str) -> u32 {
    succeeded(Command::new("sh").args(["-c", &format!("id -u {name}")])).trim().parse().expect("a number")
}

#[test]
fn postgresql_is_relayed() {
    let server = Postgres::start();
    let (gate, at) = gate(server.address, "max_connections = 8");
    let psql = |sql: &str| succeeded(server.client("psql", at).args(["-At", "-c", sql]));
    assert_eq!(psql("select sum(n) from generate_series(1, 100000) n"), "5000050000\n");
    assert_eq!(psql("select length(repeat('x', 20000000))"), "20000000\n");
    assert_eq!(psql("select repeat('x', 5000000)").len(), 5_000_001);
    succeeded(server.client("pgbench", at).args(["-i", "-q", "postgres"]));
    // Sixteen clients at eight connections: pgbench needs all of its clients at once, so it gets eight.
    let report =
        succeeded(server.client("pgbench", at).args(["-c", "7", "-j", "2", "-t", "50", "-n", "postgres"]));
    assert!(report.contains("number of transactions actually processed: 350/350"), "{report}");
    let total = psql("select count(*) from pgbench_history");
    assert_eq!(total, "350\n");
    assert!(figures(&gate).0 > 5_000_000);
}
