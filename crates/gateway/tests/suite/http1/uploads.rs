//! Bodies of requests: slow ones, ones that nobody reads, ones that are read in another task.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt, Full};
use tidegate_gateway::http::http1::{Http1, Http1Body, Http1Event, Http1Limits};
use tidegate_http::{BadBody, RequestHead, ResponseHead};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::Instant;

use super::harness::{LIMITS, Pipe, run, settle, start, statuses};

const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n";
const RATED: Http1Limits = Http1Limits { min_body_rate: 500, ..LIMITS };

/// Sends `piece` every second, until all is sent or the connection closes; when that was, and the events.
async fn trickle(limits: Http1Limits, piece: usize) -> (u64, Vec<u16>, Vec<Http1Event>) {
    let (server, mut visitor) = start(limits, 1 << 20);
    let begin = Instant::now();
    visitor.write_all(POST.as_bytes()).await.unwrap();
    let mut left = 100_000;
    while left > 0 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let piece = vec![b'x'; piece.min(left)];
        left -= piece.len();
        if visitor.write_all(&piece).await.is_err() {
            break;
        }
        settle().await;
        if server.world.seen.lock().unwrap().len() == 1 {
            break;
        }
    }
    let took = begin.elapsed().as_secs();
    visitor.shutdown().await.unwrap();
    let mut raw = String::new();
    let _ = visitor.read_to_string(&mut raw).await;
    let events = server.world.events.lock().unwrap().clone();
    (took, statuses(&raw), events)
}

#[test]
fn a_body_slower_than_the_lowest_rate_is_cut_off() {
    let slow = [Http1Event::Request, Http1Event::BadBody(BadBody::TooSlow)];
    // Ten seconds of grace, and one more for every 500 bytes.
    let (took, statuses, events) = run(trickle(RATED, 10));
    assert!((10..=12).contains(&took), "{took}");
    assert_eq!((&statuses[..], &events[..]), (&[408][..], &slow[..]));
    let (took, statuses, _) = run(trickle(RATED, 250));
    assert!((19..=22).contains(&took), "{took}");
    assert_eq!(statuses, [408]);
    let (_, statuses, _) = run(trickle(RATED, 600));
    assert_eq!(statuses, [200]);
    let (_, statuses, _) = run(trickle(LIMITS, 100));
    assert_eq!(statuses, [200], "no rate");
}

/// A connection with a service that does with the body as it is told.
fn serve<F, Fut>(service: F) -> DuplexStream
where
    F: Fn(Http1Body) -> Fut + 'static,
    Fut: Future<Output = String> + 'static,
{
    let (near, far) = tokio::io::duplex(1 << 20);
    let (connection, _link) = Http1::new(Pipe(near), RATED, |_| {});
    let service = Rc::new(service);
    let answer = move |_: RequestHead, body| {
        let service = service.clone();
        async move { (ResponseHead::new(StatusCode::OK), Full::new(Bytes::from(service(body).await))) }
    };
    tokio::task::spawn_local(async move { connection.serve(answer).await.map(drop) });
    far
}

#[test]
fn a_service_that_reads_slowly_is_not_held_against_the_visitor() {
    run(async {
        let mut visitor = serve(async |mut body| {
            let mut length = 0;
            while let Some(frame) = body.frame().await {
                length += frame.unwrap().into_data().unwrap().len();
                tokio::time::sleep(Duration::from_secs(60)).await;
            }
            length.to_string()
        });
        visitor.write_all(POST.as_bytes()).await.unwrap();
        visitor.write_all(&vec![b'x'; 100_000]).await.unwrap();
        let mut into = [0; 4096];
        let n = visitor.read(&mut into).await.unwrap();
        let answer = String::from_utf8_lossy(&into[..n]).into_owned();
        assert!(answer.ends_with("\r\n\r\n100000"), "{answer}");
    });
}

#[test]
fn a_body_may_be_read_in_another_task() {
    run(async {
        let mut visitor = serve(async |body| {
            let read = tokio::task::spawn_local(async { body.collect().await.unwrap().to_bytes().len() });
            read.await.unwrap().to_string()
        });
        visitor.write_all(POST.as_bytes()).await.unwrap();
        for _ in 0..10 {
            settle().await;
            visitor.write_all(&vec![b'x'; 10_000]).await.unwrap();
        }
        visitor.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        visitor.shutdown().await.unwrap();
        let mut raw = String::new();
        visitor.read_to_string(&mut raw).await.unwrap();
        assert_eq!(statuses(&raw), [200, 200]);
        assert!(raw.contains("\r\n\r\n100000HTTP/1.1 200"), "{raw}");
    });
}

#[test]
fn a_body_that_outlives_its_request_reads_nothing_of_the_next() {
    run(async {
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let mut visitor = serve(move |body| {
            let tell = tell.clone();
            tokio::task::spawn_local(async move {
                let read = body.collect().await.map(|read| read.to_bytes().len());
                tell.send(read.map_err(|e| e.to_string())).unwrap();
            });
            async { "early".to_owned() }
        });
        let half = format!("{POST}{}", "x".repeat(50_000));
        visitor.write_all(half.as_bytes()).await.unwrap();
        let left = told.recv().await.unwrap();
        assert_eq!(left, Err("the visitor has left within the body".into()));
        let mut raw = String::new();
        visitor.write_all(&vec![b'x'; 50_000]).await.unwrap();
        visitor.shutdown().await.unwrap();
        visitor.read_to_string(&mut raw).await.unwrap();
        assert_eq!(statuses(&raw), [200], "the connection ended with it");
    });
}

#[test]
fn an_unread_body_that_is_there_keeps_the_connection_and_another_closes_it() {
    for (body, reusable) in [("hello", true), ("hel", false)] {
        for cut in [false, true] {
            run(async {
                let mut visitor = serve(|body| {
                    drop(body);
                    async {
                        // The rest of the body has time to arrive.
                        settle().await;
                        "refused".to_owned()
                    }
                });
                let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";
                if cut {
                    visitor.write_all(head.as_bytes()).await.unwrap();
                    tokio::task::yield_now().await;
                    visitor.write_all(body.as_bytes()).await.unwrap();
                } else {
                    visitor.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
                }
                let mut into = [0; 4096];
                let n = visitor.read(&mut into).await.unwrap();
                let answer = String::from_utf8_lossy(&into[..n]).into_owned();
                assert_eq!(answer.contains("connection: close"), !reusable, "{body} {cut}: {answer}");
            });
        }
    }
}

#[test]
fn nobody_is_asked_for_a_body_that_has_come() {
    run(async {
        let (_server, mut visitor) = start(LIMITS, 1 << 16);
        let post = "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi";
        visitor.write_all(post.as_bytes()).await.unwrap();
        visitor.shutdown().await.unwrap();
        let mut raw = String::new();
        visitor.read_to_string(&mut raw).await.unwrap();
        assert_eq!(statuses(&raw), [200]);
    });
}
