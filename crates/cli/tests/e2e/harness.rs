//! Processes under test: free ports, temporary directories, the gate, the model origin, and waiting for
//! conditions.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::http::{Answer, Client};

/// Longest wait for anything. Only a hang takes this long, even in a debug build on two busy cores.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// Tests drive real processes in real time, so they read the real clock, here only.
#[allow(clippy::disallowed_methods)]
pub fn now() -> Instant {
    Instant::now()
}

/// The pause between two looks at a condition.
pub fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}

/// Looks until `look` finds something; panics with `what` after [`DEADLINE`].
#[track_caller]
pub fn wait_for<T>(what: impl Display, mut look: impl FnMut() -> Option<T>) -> T {
    let start = now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < DEADLINE, "waited in vain for: {what}");
        pause();
    }
}

/// An address of the loopback interface that nobody listens on.
///
/// Below the ephemeral range, where no outgoing connection can take it between this call and its use.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(61) % 12_000;
    loop {
        let offset = (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 12_000;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 20_000 + offset as u16));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

/// A directory that is removed when its owner is dropped.
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("tidegate-e2e-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("temporary directory");
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A configuration file: dotted keys, then `[[class]]` tables.
#[derive(Clone)]
pub struct Config {
    keys: BTreeMap<String, String>,
    classes: String,
}

impl Config {
    /// A gate on free ports in front of `replicas`; nobody waits.
    pub fn new(replicas: &[SocketAddr]) -> Self {
        let names: Vec<String> = replicas.iter().map(|a| format!("\"{a}\"")).collect();
        let config = Self { keys: BTreeMap::new(), classes: String::new() };
        config
            .text("listen.http", free_address())
            .text("listen.admin", free_address())
            .set("listen.workers", 2)
            .set("capacity.rate", "1e6")
            .set("origin.replicas", format!("[{}]", names.join(", ")))
            .text("log.level", "info")
            // Tests of sessions say so.
            .text("room.unit", "request")
    }

    /// Like [`Config::new`], but every request waits for its turn at `rate` a second.
    pub fn waiting(replicas: &[SocketAddr], rate: f64) -> Self {
        Self::new(replicas)
            .set("capacity.rate", format!("{rate:?}"))
            .set("room.classes", "[\"all\"]")
            .class("name = \"all\"\nmatch = { path = \"/**\" }")
    }

    /// Sets a key to a TOML value.
    pub fn set(mut self, key: &str, value: impl Display) -> Self {
        self.keys.insert(key.into(), value.to_string());
        self
    }

    /// Sets a key to a string.
    pub fn text(self, key: &str, value: impl Display) -> Self {
        self.set(key, format!("\"{value}\""))
    }

    /// Leaves a key at its default.
    pub fn without(mut self, key: &str) -> Self {
        assert!(self.keys.remove(key).is_some(), "{key} is not set");
        self
    }

    /// Adds a `[[class]]` with these lines.
    pub fn class(mut self, lines: &str) -> Self {
        self.classes.push_str(&format!("\n[[class]]\n{lines}\n"));
        self
    }

    /// Adds tables as they are written in a file.
    pub fn section(mut self, lines: &str) -> Self {
        self.classes.push_str(lines);
        self
    }

    /// Adds a `[[detector]]` with these lines.
    pub fn detector(mut self, lines: &str) -> Self {
        self.classes.push_str(&format!("\n[[detector]]\n{lines}\n"));
        self
    }

    /// Adds a `[[syn_rule]]` with these lines.
    pub fn syn_rule(mut self, lines: &str) -> Self {
        self.classes.push_str(&format!("\n[[syn_rule]]\n{lines}\n"));
        self
    }

    /// Replaces a text in the tables.
    pub fn replace(mut self, from: &str, to: &str) -> Self {
        assert!(self.classes.contains(from), "{from} in:\n{}", self.classes);
        self.classes = self.classes.replace(from, to);
        self
    }

    pub fn address(&self, key: &str) -> SocketAddr {
        self.keys[key].trim_matches('"').parse().expect("address")
    }

    fn render(&self) -> String {
        let keys: String = self.keys.iter().map(|(k, v)| format!("{k} = {v}\n")).collect();
        keys + self.classes.as_str()
    }
}

/// A running `tidegate run`, killed when dropped.
pub struct Gate {
    child: Child,
    dir: TempDir,
    config: Config,
}

impl Gate {
    /// Starts and waits until it is ready.
    pub fn start(config: Config) -> Self {
        Self::start_with(config, |_| {})
    }

    /// As [`Gate::start`], with more of the command.
    pub fn start_with(config: Config, prepare: impl FnOnce(&mut Command)) -> Self {
        let dir = TempDir::new();
        let config = config.text("room.state_dir", dir.path().join("state").display());
        let child = spawn(&dir, &config, prepare);
        let mut gate = Self { child, dir, config };
        gate.wait_ready();
        gate
    }

    fn wait_ready(&mut self) {
        wait_for("the gate to be ready", || {
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("the gate ended with {status}:\n{}", self.log());
            }
            if self.config.keys.get("listen.admin_https").is_some_and(|is_on| is_on == "true") {
                return self.log().contains(" ready ").then_some(());
            }
            let answer = self.try_admin("GET", "/readyz", "").ok()?;
            (answer.status() == 200).then_some(())
        });
    }

    /// The address for visitors.
    pub fn http(&self) -> SocketAddr {
        self.config.address("listen.http")
    }

    /// The address for operators.
    pub fn admin_address(&self) -> SocketAddr {
        self.config.address("listen.admin")
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("gate.log")).unwrap_or_default()
    }

    /// A file of the state directory.
    #[track_caller]
    pub fn state_file(&self, name: &str) -> String {
        fs::read_to_string(self.dir.path().join("state").join(name)).expect("a file of the state directory")
    }

    /// Whether a file of the state directory has this text.
    pub fn has_saved(&self, name: &str, text: &str) -> bool {
        let file = self.dir.path().join("state").join(name);
        fs::read_to_string(file).is_ok_and(|saved| saved.contains(text))
    }

    /// One request to the admin API, with the configured token.
    #[track_caller]
    pub fn admin(&self, method: &str, path: &str, body: &str) -> Answer {
        self.try_admin(method, path, body)
            .unwrap_or_else(|e| panic!("admin {method} {path}: {e}\n{}", self.log()))
    }

    pub fn try_admin(&self, method: &str, path: &str, body: &str) -> std::io::Result<Answer> {
        let token = self.config.keys.get("listen.admin_token");
        let authorization =
            token.map(|t| format!("Authorization: Bearer {}\r\n", t.trim_matches('"'))).unwrap_or_default();
        let mut client = Client::connect(self.admin_address())?;
        client.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{authorization}Content-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        ))?;
        client.answer(method)
    }

    /// Sets the capacity while the gate runs.
    #[track_caller]
    pub fn set_rate(&self, rate: f64) {
        let answer = self.admin("PUT", "/v1/capacity", &format!("{{\"rate\": {rate}}}"));
        assert!(answer.status() < 300, "PUT /v1/capacity: {answer:?}");
    }

    /// Replaces the configuration file; the gate reads it at the next reload.
    pub fn write_config(&mut self, change: impl FnOnce(Config) -> Config) {
        self.config = change(self.config.clone());
        write(&self.dir, &self.config);
    }

    /// Replaces the configuration file by exactly these bytes.
    pub fn write_raw_config(&self, text: &str) {
        fs::write(self.dir.path().join("gate.toml"), text).expect("write configuration");
    }

    /// Sends a signal by name.
    pub fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// `kill -9`, then the same gate again on the same addresses.
    pub fn crash_and_restart(&mut self) {
        self.kill();
        self.restart();
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("wait");
    }

    /// The same gate again, on the same addresses.
    pub fn restart(&mut self) {
        self.child = spawn(&self.dir, &self.config, |_| {});
        self.wait_ready();
    }

    /// Waits until the process has ended.
    pub fn wait_exit(&mut self) -> ExitStatus {
        wait_for("the gate to end", || self.child.try_wait().expect("wait"))
    }

    /// Resident memory in bytes.
    pub fn rss(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("/proc status");
        let line = status.lines().find(|l| l.starts_with("VmRSS:")).expect("VmRSS");
        line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).expect("kB") * 1024
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!(
                "--- configuration\n{}\n--- log of the gate\n{}",
                self.config.render(),
                tail(&self.log())
            );
        }
    }
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

fn write(dir: &TempDir, config: &Config) {
    fs::write(dir.path().join("gate.toml"), config.render()).expect("write configuration");
}

fn spawn(dir: &TempDir, config: &Config, prepare: impl FnOnce(&mut Command)) -> Child {
    write(dir, config);
    let log =
        fs::OpenOptions::new().create(true).append(true).open(dir.path().join("gate.log")).expect("log file");
    let mut command = tidegate();
    command
        .arg("run")
        .arg("--config")
        .arg(dir.path().join("gate.toml"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("log file"))
        .stderr(log);
    prepare(&mut command);
    command.spawn().expect("start the gate")
}

/// Sends a signal by name.
pub fn signal(pid: u32, name: &str) {
    let command = format!("kill -{name} {pid}");
    assert!(Command::new("sh").arg("-c").arg(command).status().expect("sh").success());
}

/// A process that is killed when it is dropped.
pub struct Running(pub Child);

impl Running {
    pub fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).spawn().expect("start"))
    }

    pub fn signal(&self, name: &str) {
        signal(self.0.id(), name);
    }

    /// Waits until the process has ended.
    pub fn wait_exit(&mut self) -> ExitStatus {
        wait_for("the process to end", || self.0.try_wait().expect("wait"))
    }

    /// The first line of standard output, which must be piped.
    pub fn first_line(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.0.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        line
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running `tidegate origin` on free ports.
pub struct ModelOrigin {
    pub process: Running,
    pub addrs: Vec<SocketAddr>,
    pub admin: SocketAddr,
}

impl ModelOrigin {
    pub fn start(arguments: &[&str]) -> Self {
        Self::from(tidegate().arg("origin").args(arguments))
    }

    /// From a command that lacks only the options about addresses.
    pub fn from(command: &mut Command) -> Self {
        command.args(["--json", "--listen", "127.0.0.1:0"]).stdout(Stdio::piped());
        let mut process = Running::start(command);
        let line = process.first_line();
        let said: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}"));
        let address = |value: &Value| value.as_str().and_then(|a| a.parse().ok()).expect("an address");
        let addrs = said["addrs"].as_array().expect("addresses").iter().map(address).collect();
        Self { process, addrs, admin: address(&said["admin"]) }
    }
}

/// The binary under test.
pub fn tidegate() -> Command {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
}
