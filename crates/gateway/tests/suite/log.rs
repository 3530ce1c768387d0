//! The log: formats, levels, and a closed standard error.

use std::io::{Read as _, Write};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use tidegate_gateway::base::log::{LogError, Quiet, init, layer};
use tidegate_settings::{Log, LogFormat};
use tracing_subscriber::layer::SubscriberExt as _;

#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn logged(format: LogFormat, events: impl FnOnce()) -> String {
    let memory = Memory::default();
    let writer = memory.clone();
    let subscriber = tracing_subscriber::registry().with(layer(format, false, move || writer.clone()));
    tracing::subscriber::with_default(subscriber, events);
    let bytes = memory.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn text_has_no_colours_and_json_is_json() {
    let event = || tracing::info!(replica = "10.0.0.5:8000", bad = "\u{1b}[2J\n", "replica is back");
    let text = logged(LogFormat::Text, event);
    assert!(text.contains("INFO replica is back replica=\"10.0.0.5:8000\""), "{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
    assert_eq!(text.matches('\n').count(), 1, "{text}");
    let json: serde_json::Value = serde_json::from_str(&logged(LogFormat::Json, event)).unwrap();
    assert_eq!((json["level"].as_str(), json["message"].as_str()), (Some("INFO"), Some("replica is back")));
    assert_eq!(json["replica"], "10.0.0.5:8000");
}

#[test]
fn a_failing_writer_does_not_fail_the_log() {
    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
    }
    let mut quiet = Quiet(Closed);
    assert_eq!(quiet.write(b"line").unwrap(), 4);
    quiet.flush().unwrap();
}

/// The process that the next test starts; its standard error is closed.
#[test]
fn child_of_the_test_below() {
    if std::env::var_os("TIDEGATE_TEST_CHILD").is_none() {
        return;
    }
    let log = Log { level: "error".into(), ..Log::default() };
    assert!(matches!(init(&log, Some("x=y=z")), Err(LogError::Filter { .. })));
    let handle = init(&log, Some("warn")).unwrap();
    assert!(matches!(init(&log, None), Err(LogError::AlreadySet)));
    assert!(tracing::enabled!(tracing::Level::WARN) && !tracing::enabled!(tracing::Level::INFO));
    handle.set_level("info").unwrap();
    assert!(matches!(handle.set_level("x=y=z"), Err(LogError::Filter { .. })));
    assert!(tracing::enabled!(tracing::Level::INFO));
    // Ends when the parent has closed the reading end of standard error.
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    for i in 0..1_000 {
        tracing::info!(i, "nobody reads this");
    }
    println!("still alive");
}

#[test]
fn a_closed_standard_error_does_not_stop_the_process() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "log::child_of_the_test_below", "--nocapture"])
        .env("TIDEGATE_TEST_CHILD", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stderr.take());
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("still alive"), "{text}");
}
