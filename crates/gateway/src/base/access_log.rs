//! The access log: one line per request, written by a thread of its own.
//!
//! Workers format a line and put it into a bounded queue. If the disk is too slow, lines are dropped and
//! counted: a request never waits for its log line. The thread writes in blocks while lines keep coming, and
//! at once when they stop. Rejected: an unbounded queue (memory would grow exactly when the machine is
//! overloaded) and writing from the workers (one slow disk would stop every visitor of that core).

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::time::Duration;

use http::Version;
use jiff::fmt::strtime;
use parking_lot::Mutex;
use tidegate_core::units::Timestamp;

use tidegate_settings::AccessLog;

/// Lines that may wait for the writer: about 2 MiB, a fifth of a second at 40,000 requests per second, which
/// covers the pauses of a healthy disk.
pub const QUEUE_LINES: usize = 8192;

const BLOCK_BYTES: usize = 64 << 10;

/// How long the end of the process waits for the last lines if their reader has stopped reading.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub struct Entry<'a> {
    pub time: Timestamp,
    pub client: IpAddr,
    pub method: &'a str,
    /// Request target, without the ticket (the caller takes `tg` out).
    pub target: &'a str,
    pub version: Version,
    pub status: u16,
    pub bytes: u64,
    pub referer: Option<&'a [u8]>,
    pub user_agent: Option<&'a [u8]>,
    pub request_id: &'a str,
    pub class: &'a str,
    pub verdict: &'a str,
    /// Time waited in the room and the queue.
    pub wait: Duration,
    /// Time from the request to the last byte of the response.
    pub response_time: Duration,
    pub replica: Option<&'a str>,
}

impl Entry<'_> {
    pub fn combined(&self, out: &mut Vec<u8>) {
        let time = utc(self.time, "%d/%b/%Y:%H:%M:%S +0000");
        _ = write!(out, "{} - - [{time}] \"", self.client);
        escape(self.method.as_bytes(), out);
        out.push(b' ');
        escape(self.target.as_bytes(), out);
        _ = write!(out, " {:?}\" {} {} \"", self.version, self.status, self.bytes);
        escape(self.referer.unwrap_or(b"-"), out);
        out.extend_from_slice(b"\" \"");
        escape(self.user_agent.unwrap_or(b"-"), out);
        out.extend_from_slice(b"\"\n");
    }

    /// Appends the line as one JSON object, with the line's end. Bytes that are not UTF-8 become U+FFFD.
    pub fn json(&self, out: &mut Vec<u8>) {
        let time = utc(self.time, "%Y-%m-%dT%H:%M:%S%.3fZ");
        _ = write!(out, "{{\"time\":\"{time}\",\"client\":\"{}\"", self.client);
        json_text("method", self.method.as_bytes(), out);
        json_text("target", self.target.as_bytes(), out);
        _ = write!(
            out,
            ",\"version\":\"{:?}\",\"status\":{},\"bytes\":{}",
            self.version, self.status, self.bytes
        );
        self.referer.inspect(|text| json_text("referer", text, out));
        self.user_agent.inspect(|text| json_text("user_agent", text, out));
        json_text("request_id", self.request_id.as_bytes(), out);
        json_text("class", self.class.as_bytes(), out);
        json_text("verdict", self.verdict.as_bytes(), out);
        let (wait, response) =
            (self.wait.as_micros() as f64 / 1e3, self.response_time.as_micros() as f64 / 1e3);
        _ = write!(out, ",\"wait_ms\":{wait},\"response_ms\":{response}");
        self.replica.inspect(|text| json_text("replica", text.as_bytes(), out));
        out.extend_from_slice(b"}\n");
    }
}

/// Escapes quotes, backslashes, control bytes and everything beyond ASCII as Apache does, so that no visitor
/// can forge a line or a field, or send commands to the terminal of a reader.
fn escape(text: &[u8], out: &mut Vec<u8>) {
    for &byte in text {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b' '..=b'~' => out.push(byte),
            _ => _ = write!(out, "\\x{byte:02x}"),
        }
    }
}

fn json_text(name: &str, text: &[u8], out: &mut Vec<u8>) {
    _ = write!(out, ",\"{name}\":");
    // Writing to memory and serialising a string cannot fail.
    _ = serde_json::to_writer(out, &String::from_utf8_lossy(text));
}

/// The time in UTC. Times after the year 9999 become the last one that the calendar has.
fn utc(time: Timestamp, format: &'static str) -> strtime::Display<'static> {
    let us = i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_microsecond(us).unwrap_or(jiff::Timestamp::MAX).strftime(format)
}

pub trait Sink: Write + Send + 'static {
    /// Begins a new file under the old name, after log rotation has moved the old one away.
    ///
    /// # Errors
    /// The file cannot be opened; the old one stays in use.
    fn reopen(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for io::Stdout {}

struct LogFile {
    path: PathBuf,
    file: File,
}

impl LogFile {
    fn open(path: &Path) -> io::Result<File> {
        OpenOptions::new().create(true).append(true).open(path)
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Sink for LogFile {
    fn reopen(&mut self) -> io::Result<()> {
        self.file = Self::open(&self.path)?;
        Ok(())
    }
}

enum Message {
    Line(Vec<u8>),
    Wake,
}

#[derive(Default)]
struct Shared {
    reopen: AtomicBool,
    dropped: AtomicU64,
    failed: AtomicU64,
}

/// The workers' end of the access log; shared by reference. Dropping it writes what is queued.
pub struct AccessWriter {
    json: bool,
    queue: Option<SyncSender<Message>>,
    shared: Arc<Shared>,
    /// Closed when the thread has written everything.
    done: Mutex<Receiver<()>>,
}

impl AccessWriter {
    /// The access log as configured; `None` if it is off.
    pub fn open(form: AccessLog, file: Option<&Path>) -> io::Result<Option<Self>> {
        match (form, file) {
            (AccessLog::Off, _) => Ok(None),
            (_, None) => Self::start(form, io::stdout(), QUEUE_LINES).map(Some),
            (_, Some(path)) => {
                let file = LogFile { path: path.to_owned(), file: LogFile::open(path)? };
                Self::start(form, file, QUEUE_LINES).map(Some)
            }
        }
    }

    /// An access log that writes to `sink`; `lines` may wait in the queue.
    pub fn start(form: AccessLog, sink: impl Sink, lines: usize) -> io::Result<Self> {
        let (queue, messages) = sync_channel(lines.max(1));
        let (finished, done) = sync_channel::<()>(1);
        let shared = Arc::<Shared>::default();
        let writer = Writer { messages, sink, shared: shared.clone(), block: Vec::new(), lines: 0 };
        std::thread::Builder::new().name("access-log".into()).spawn(move || {
            writer.run();
            drop(finished);
        })?;
        let json = form == AccessLog::Json;
        Ok(Self { json, queue: Some(queue), shared, done: Mutex::new(done) })
    }

    /// Hands a line to the writer, or drops and counts it. Never blocks.
    pub fn log(&self, entry: &Entry<'_>) {
        let mut line = Vec::with_capacity(320);
        if self.json {
            entry.json(&mut line)
        } else {
            entry.combined(&mut line)
        }
        let Some(queue) = &self.queue else { return };
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) =
            queue.try_send(Message::Line(line))
        {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// After log rotation: lines from now on go to a new file of the configured name.
    pub fn reopen(&self) {
        self.shared.reopen.store(true, Ordering::Release);
        // A full queue needs no wake-up: the writer checks the flag before every line.
        _ = self.queue.as_ref().map(|queue| queue.try_send(Message::Wake));
    }

    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Lines lost because they could not be written.
    pub fn failed(&self) -> u64 {
        self.shared.failed.load(Ordering::Relaxed)
    }
}

impl Drop for AccessWriter {
    fn drop(&mut self) {
        self.queue = None;
        let done = self.done.get_mut();
        if let Err(RecvTimeoutError::Timeout) = done.recv_timeout(CLOSE_TIMEOUT) {
            tracing::warn!("the access log's reader has stopped reading: its last lines are lost");
        }
    }
}

struct Writer<S> {
    messages: Receiver<Message>,
    sink: S,
    shared: Arc<Shared>,
    block: Vec<u8>,
    lines: u64,
}

impl<S: Sink> Writer<S> {
    fn run(mut self) {
        while let Some(message) = self.next() {
            if self.shared.reopen.swap(false, Ordering::AcqRel) {
                self.write();
                if let Err(error) = self.sink.reopen() {
                    tracing::warn!(%error, "the access log could not be reopened; the old file stays in use");
                }
            }
            if let Message::Line(line) = message {
                self.block.extend_from_slice(&line);
                self.lines += 1;
            }
            if self.block.len() >= BLOCK_BYTES {
                self.write();
            }
        }
        self.write();
    }

    /// The next message; the block is written before waiting for one. `None` at the end.
    fn next(&mut self) -> Option<Message> {
        match self.messages.try_recv() {
            Ok(message) => Some(message),
            Err(TryRecvError::Disconnected) => None,
            Err(TryRecvError::Empty) => {
                self.write();
                self.messages.recv().ok()
            }
        }
    }

    fn write(&mut self) {
        if self.lines == 0 {
            return;
        }
        if self.sink.write_all(&self.block).and_then(|()| self.sink.flush()).is_err() {
            self.shared.failed.fetch_add(self.lines, Ordering::Relaxed);
        }
        self.block.clear();
        self.lines = 0;
    }
}

#[cfg(test)]
mod tests;
