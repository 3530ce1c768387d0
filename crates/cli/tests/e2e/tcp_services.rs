//! The gate in front of real TCP servers of Debian: Redis and PostgreSQL.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use super::harness::{Config, Gate, Running, TempDir, free_address, tidegate, wait_for};

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

/// Counts the bytes that a program takes in and hands out itself, and those that it lets the kernel move, and
/// writes both into a file at its end.
const COUNTING: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static _Atomic unsigned long copied, spliced;
#define COUNT(counter, call) do { ssize_t moved = (call); if (moved > 0) counter += moved; return moved; } while (0)

ssize_t read(int fd, void *to, size_t n) { COUNT(copied, syscall(SYS_read, fd, to, n)); }
ssize_t write(int fd, const void *from, size_t n) { COUNT(copied, syscall(SYS_write, fd, from, n)); }
ssize_t readv(int fd, const struct iovec *to, int n) { COUNT(copied, syscall(SYS_readv, fd, to, n)); }
ssize_t writev(int fd, const struct iovec *from, int n) { COUNT(copied, syscall(SYS_writev, fd, from, n)); }
ssize_t recv(int fd, void *to, size_t n, int flags) { COUNT(copied, syscall(SYS_recvfrom, fd, to, n, flags, 0, 0)); }
ssize_t send(int fd, const void *from, size_t n, int flags) { COUNT(copied, syscall(SYS_sendto, fd, from, n, flags, 0, 0)); }
ssize_t splice(int from, off64_t *a, int to, off64_t *b, size_t n, unsigned flags) {
  COUNT(spliced, syscall(SYS_splice, from, a, to, b, n, flags));
}

__attribute__((destructor)) static void tell(void) {
  FILE *file = fopen(getenv("COUNTS"), "w");
  if (file) { fprintf(file, "%lu %lu", copied, spliced); fclose(file); }
}
"#;

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

type Client = BufReader<TcpStream>;

/// Sends a command to Redis, as an array of strings: its own lines hold 64 KiB only.
fn send(client: &mut Client, command: &[&str]) {
    let mut bytes = format!("*{}\r\n", command.len());
    for word in command {
        bytes += &format!("${}\r\n{word}\r\n", word.len());
    }
    client.get_mut().write_all(bytes.as_bytes()).expect("sent");
}

/// An answer of Redis; the parts of an array with blanks between them.
fn answer(client: &mut Client) -> String {
    let mut line = String::new();
    client.read_line(&mut line).expect("an answer");
    let (kind, rest) = line.trim_end().split_at(1);
    match (kind, rest.parse::<usize>()) {
        ("$", Ok(length)) => {
            let mut bytes = vec![0; length + 2];
            client.read_exact(&mut bytes).expect("a string");
            bytes.truncate(length);
            String::from_utf8(bytes).expect("text")
        }
        ("*", Ok(parts)) => (0..parts).map(|_| answer(client)).collect::<Vec<_>>().join(" "),
        _ => line.trim_end().to_owned(),
    }
}

fn ask(client: &mut Client, command: &[&str]) -> String {
    send(client, command);
    answer(client)
}

#[test]
fn redis_is_relayed() {
    let (_server, address) = redis();
    let (gate, at) = gate(address, "");
    let client = || BufReader::new(TcpStream::connect(at).expect("accepted"));
    let (mut one, mut two) = (client(), client());
    assert_eq!(ask(&mut one, &["SET", "tide", "high"]), "+OK");
    assert_eq!(ask(&mut two, &["GET", "tide"]), "high");
    // A subscriber says nothing for as long as it likes.
    assert_eq!(ask(&mut one, &["SUBSCRIBE", "sea"]), "subscribe sea :1");
    for n in 0..100 {
        let word = format!("wave-{n}");
        assert_eq!(ask(&mut two, &["PUBLISH", "sea", &word]), ":1");
        assert_eq!(answer(&mut one), format!("message sea {word}"));
    }
    // Values larger than any buffer on the way.
    let large: String = (0..2_000_000)
        .map(|n: u32| char::from(b'a' + (n.wrapping_mul(2_654_435_761) >> 27) as u8 % 26))
        .collect();
    assert_eq!(ask(&mut two, &["SET", "large", &large]), "+OK");
    assert!(ask(&mut two, &["GET", "large"]) == large);
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

/// What is relayed does not pass through the process: it calls splice(2) and copies nothing.
#[test]
fn relayed_bytes_are_not_read_by_the_gate() {
    let (_server, address) = redis();
    let dir = TempDir::new();
    let [source, library, counts, file] =
        ["counting.c", "counting.so", "counts", "gate.toml"].map(|name| dir.path().join(name));
    fs::write(&source, COUNTING).expect("written");
    succeeded(Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source));
    let [http, admin, at] = [(); 3].map(|()| free_address());
    let text = format!(
        "listen = {{ http = \"{http}\", admin = \"{admin}\", workers = 1 }}\nlog.level = \"off\"\n\
         room.state_dir = \"{}\"\n[[tcp]]\nname = \"it\"\nlisten = \"{at}\"\nto = \"{address}\"\n",
        dir.path().join("state").display()
    );
    fs::write(&file, text).expect("written");
    let mut gate = Running::start(
        tidegate()
            .args(["run", "--quiet", "--config"])
            .arg(&file)
            .env("LD_PRELOAD", &library)
            .env("COUNTS", &counts),
    );
    let mut client = BufReader::new(wait_for("the gate", || TcpStream::connect(at).ok()));
    let large = "x".repeat(16 << 20);
    for _ in 0..4 {
        assert_eq!(ask(&mut client, &["SET", "large", &large]), "+OK");
    }
    drop(client);
    gate.signal("TERM");
    assert!(gate.wait_exit().success());
    let counts = fs::read_to_string(&counts).expect("written at the end");
    let counts: Vec<u64> = counts.split(' ').map(|n| n.parse().expect("a number")).collect();
    // Into a pipe, and out of it.
    assert!(counts[1] >= 2 * (64 << 20), "{counts:?}");
    assert!(counts[0] < 1 << 20, "{counts:?}");
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
                let info = ask(&mut client, &["INFO", "clients"]);
                assert_eq!(ask(&mut client, &["SET", &format!("of-{n}"), "here"]), "+OK");
                let count = info.lines().find_map(|line| line.strip_prefix("connected_clients:"));
                count.unwrap_or_else(|| panic!("{info}")).parse::<u64>().expect("a number")
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
