//! Lines of the access log, and a reader that does not read.

use std::sync::mpsc::{Sender, channel};

use proptest::prelude::*;

use super::*;

fn entry<'a>() -> Entry<'a> {
    Entry {
        time: Timestamp::from_millis(951_782_399_042),
        client: IpAddr::from([192, 0, 2, 7]),
        method: "GET",
        target: "/search?q=1",
        version: Version::HTTP_11,
        status: 200,
        bytes: 512,
        referer: None,
        user_agent: Some(b"curl/8"),
        request_id: "r1",
        class: "search",
        verdict: "admitted",
        wait: Duration::from_millis(1500),
        response_time: Duration::from_micros(12_345),
        replica: Some("10.0.0.5:8000"),
    }
}

fn line(write: impl Fn(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn combined_and_json_lines() {
    assert_eq!(
        line(|out| entry().combined(out)),
        "192.0.2.7 - - [28/Feb/2000:23:59:59 +0000] \"GET /search?q=1 HTTP/1.1\" 200 512 \"-\" \"curl/8\"\n"
    );
    assert_eq!(
        line(|out| entry().json(out)),
        "{\"time\":\"2000-02-28T23:59:59.042Z\",\"client\":\"192.0.2.7\",\"method\":\"GET\",\"target\":\"/search?q=1\",\
         \"version\":\"HTTP/1.1\",\"status\":200,\"bytes\":512,\"user_agent\":\"curl/8\",\"request_id\":\"r1\",\
         \"class\":\"search\",\"verdict\":\"admitted\",\"wait_ms\":1500,\"response_ms\":12.345,\
         \"replica\":\"10.0.0.5:8000\"}\n"
    );
}

#[test]
fn forged_lines_stay_in_their_field() {
    let evil: &[u8] = b"x\" 200 0\r\n6.6.6.6 - - \\ \x1b[2J \xff";
    let entry = Entry { user_agent: Some(evil), referer: Some(b"\""), ..entry() };
    let combined = line(|out| entry.combined(out));
    assert!(
        combined.ends_with(" \"\\\"\" \"x\\\" 200 0\\x0d\\x0a6.6.6.6 - - \\\\ \\x1b[2J \\xff\"\n"),
        "{combined}"
    );
    assert_eq!(combined.matches('\n').count(), 1);
}

#[test]
fn a_time_beyond_the_calendar_is_written_as_its_last_one() {
    let entry = Entry { time: Timestamp::from_micros(u64::MAX), ..entry() };
    assert!(line(|out| entry.json(out)).starts_with("{\"time\":\"9999-12-30T"));
    assert!(line(|out| entry.combined(out)).contains("[30/Dec/9999:"));
}

/// Waits for the test's permission before each block, then hands it to the test.
struct Gated {
    permits: Receiver<()>,
    blocks: Sender<Vec<u8>>,
}

impl Write for Gated {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.permits.recv().is_err() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        _ = self.blocks.send(bytes.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for Gated {}

fn gated(lines: usize) -> (AccessWriter, Sender<()>, Receiver<Vec<u8>>) {
    let ((permit, permits), (blocks, written)) = (channel(), channel());
    let log = AccessWriter::start(AccessLog::Combined, Gated { permits, blocks }, lines).unwrap();
    (log, permit, written)
}

#[test]
fn a_stuck_writer_costs_lines_not_time() {
    let (log, permit, written) = gated(8);
    for _ in 0..10_000 {
        log.log(&entry());
    }
    // The queue holds 8, and the writer has taken at most one block before it got stuck.
    let dropped = log.dropped();
    assert!((10_000 - 8 - 1_000..10_000).contains(&dropped), "{dropped}");
    for _ in 0..10_000 {
        permit.send(()).unwrap();
    }
    drop(log);
    let lines: usize = written.iter().map(|block| block.iter().filter(|b| **b == b'\n').count()).sum();
    assert_eq!(lines as u64 + dropped, 10_000);
}

#[test]
fn lines_that_cannot_be_written_are_counted() {
    let (log, permit, written) = gated(8);
    drop(permit);
    log.log(&entry());
    while log.failed() == 0 {
        std::thread::yield_now();
    }
    assert_eq!((log.failed(), log.dropped()), (1, 0));
    drop(log);
    assert!(written.recv().is_err());
}

#[test]
fn rotation_loses_nothing() {
    let dir = std::env::temp_dir().join(format!("tidegate-access-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (path, old) = (dir.join("access.log"), dir.join("access.log.1"));
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    let log = AccessWriter::open(AccessLog::Json, Some(&path)).unwrap().unwrap();
    log.log(&Entry { target: "/before", ..entry() });
    while !read(&path).contains("/before") {
        std::thread::yield_now();
    }
    std::fs::rename(&path, &old).unwrap();
    log.reopen();
    log.log(&Entry { target: "/after", ..entry() });
    drop(log);
    assert!(read(&old).contains("/before") && !read(&old).contains("/after"));
    assert!(read(&path).contains("/after") && !read(&path).contains("/before"));
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn off_is_none_and_a_wrong_path_an_error() {
    assert!(AccessWriter::open(AccessLog::Off, None).unwrap().is_none());
    assert!(AccessWriter::open(AccessLog::Json, Some(Path::new("/nonexistent/dir/a.log"))).is_err());
}

proptest! {
    #[test]
    fn any_request_is_one_clean_line(
        target in any::<String>(), class in any::<String>(),
        agent in prop::collection::vec(any::<u8>(), 0..60), us in any::<u64>(),
    ) {
        let entry = Entry {
            time: Timestamp::from_micros(us),
            target: &target,
            class: &class,
            user_agent: Some(&agent),
            ..entry()
        };
        let combined = line(|out| entry.combined(out));
        let body = combined.strip_suffix('\n').unwrap();
        prop_assert!(body.bytes().all(|b| (b' '..=b'~').contains(&b)));
        let bare = body.replace("\\\\", "").replace("\\\"", "");
        prop_assert_eq!(bare.matches('"').count(), 6);
        let json = line(|out| entry.json(out));
        prop_assert_eq!(json.matches('\n').count(), 1);
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(value["target"].as_str(), Some(target.as_str()));
        prop_assert_eq!(value["user_agent"].as_str(), Some(&*String::from_utf8_lossy(&agent)));
    }
}
