//! Time limits, in virtual time.

use std::time::Duration;

use tidegate_gateway::http::http1::Http1Event;
use tidegate_http::{BadBody, Refusal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use super::harness::{LIMITS, converse, run, settle, start, statuses};

/// Sends the pieces at their times (seconds), then waits for the close. Returns when that was, and what came.
async fn timeline(pieces: &[(u64, &str)]) -> (Duration, String, Vec<Http1Event>) {
    let (server, mut visitor) = start(LIMITS, 1 << 16);
    let begin = Instant::now();
    let (mut reader, mut writer) = tokio::io::split(&mut visitor);
    let send = async {
        for (at, piece) in pieces {
            tokio::time::sleep_until(begin + Duration::from_secs(*at)).await;
            if writer.write_all(piece.as_bytes()).await.is_err() {
                break;
            }
        }
    };
    let receive = async {
        let mut raw = String::new();
        let _ = reader.read_to_string(&mut raw).await;
        (begin.elapsed(), raw)
    };
    let ((), (closed, raw)) = tokio::join!(send, receive);
    drop(visitor);
    let _ = server.task.await.unwrap();
    let events = std::mem::take(&mut *server.world.events.lock().unwrap());
    (closed, raw, events)
}

#[test]
fn a_silent_connection_is_closed_without_a_response() {
    let (closed, raw, events) = run(timeline(&[]));
    assert_eq!((closed.as_secs(), raw.as_str(), &events[..]), (10, "", &[Http1Event::Idle][..]));
}

#[test]
fn trickled_bytes_do_not_extend_the_header_timeout() {
    let trickle: Vec<(u64, &str)> =
        (1..60).map(|s| (s, if s == 1 { "GET / HTTP/1.1\r\nX: " } else { "x" })).collect();
    let (closed, raw, events) = run(timeline(&trickle));
    // Ten seconds from the first byte, which came at second 1; the visitor continues to send, so the
    // connection lingers.
    assert_eq!(statuses(&raw), [408]);
    assert_eq!(events, [Http1Event::Refused(Refusal::TooSlow)]);
    assert_eq!(closed.as_secs(), 11);
}

#[test]
fn every_request_has_its_own_header_time() {
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let (half, rest) = get.split_at(10);
    let (closed, raw, _) = run(timeline(&[(0, get), (50, half), (59, rest), (100, half), (109, rest)]));
    assert_eq!(statuses(&raw), [200, 200, 200]);
    assert_eq!(closed.as_secs(), 109 + 75);
}

#[test]
fn an_idle_connection_is_closed_after_the_idle_timeout() {
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let (closed, raw, events) = run(timeline(&[(5, get), (60, get)]));
    assert_eq!(statuses(&raw), [200, 200]);
    assert_eq!(closed.as_secs(), 60 + 75);
    assert_eq!(events.last(), Some(&Http1Event::Idle));
}

#[test]
fn silence_in_a_body_is_408() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n";
    let (closed, raw, events) = run(timeline(&[(0, head), (50, "ab"), (100, "c")]));
    assert_eq!(statuses(&raw), [408]);
    assert!(events.contains(&Http1Event::BadBody(BadBody::TooSlow)), "{events:?}");
    assert!((160..=162).contains(&closed.as_secs()), "{closed:?}");
}

#[test]
fn a_visitor_who_does_not_read_is_closed() {
    run(async {
        let (server, mut visitor) = start(LIMITS, 64);
        visitor.write_all(b"GET /1234567890 HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let begin = Instant::now();
        assert!(server.task.await.unwrap().is_err());
        assert_eq!(begin.elapsed().as_secs(), 60);
        assert_eq!(server.world.events.lock().unwrap().last(), Some(&Http1Event::NotReading));
    });
}

#[test]
fn a_pending_response_has_no_time_limit_here() {
    run(async {
        let (server, mut visitor) = start(LIMITS, 1 << 16);
        visitor.write_all(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        settle().await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        server.world.go.notify_one();
        let mut raw = String::new();
        visitor.read_to_string(&mut raw).await.unwrap();
        assert_eq!(statuses(&raw), [200]);
    });
}

#[test]
fn a_refused_visitor_who_continues_to_send_gets_the_response() {
    let junk = vec![b'x'; 300 << 10];
    let got = run(converse(&[b"GET / HTTP/1.1\nHost: a\r\n\r\n", &junk]));
    assert_eq!(got.statuses, [400]);
}
