//! What a visitor gets when the origin or a connection fails.

use super::upstream_support;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use http::Method;
use http_body_util::BodyExt;
use tidegate_gateway::http::http1::is_bad_body;
use tidegate_gateway::upstream::balance::Replicas;
use tidegate_gateway::upstream::body::RequestBody;
use tidegate_gateway::upstream::dispatch::{BodyError, DispatchError, Dispatcher, SendContext};
use tidegate_http::BadBody;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use upstream_support::*;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn connections_are_reused() {
    worker(async {
        let origin = Origin::answering(OK).await;
        let d = dispatcher(&[origin.address]);
        for _ in 0..50 {
            assert_eq!(fetch(&d, get()).await.unwrap(), (200, "ok".into()));
            assert_eq!(fetch(&d, post("a=1")).await.unwrap().0, 200);
        }
        assert_eq!(origin.accepted.get(), 1);
        assert_eq!(d.stats().reused.load(Relaxed), 99);
        assert_eq!(d.idle_connections(), 1);
    });
}

#[test]
fn closing_after_each_response_causes_no_error() {
    worker(async {
        // The response says keep-alive, but the origin closes: the FIN races with the next request.
        let origin = Origin::answering_once(OK).await;
        let d = dispatcher(&[origin.address]);
        for i in 0..300 {
            let req = if i % 2 == 0 { get() } else { request(Method::PUT, RequestBody::full("v")) };
            assert_eq!(fetch(&d, req).await.unwrap(), (200, "ok".into()));
        }
        assert_eq!(d.stats().retries.load(Relaxed), 0, "a stale connection is not a retry");
        assert_eq!(d.stats().reset.load(Relaxed), 0);
    });
}

/// The first connection answers once, then swallows the next head and closes or resets.
async fn dies_on_reuse(with_reset: bool) -> Origin {
    Origin::start(move |n, mut stream| async move {
        while read_head(&mut stream).await.is_some() {
            stream.write_all(OK).await.unwrap();
            if n == 0 {
                read_head(&mut stream).await;
                if with_reset {
                    reset(stream);
                }
                return;
            }
        }
    })
    .await
}

#[test]
fn an_idempotent_request_on_a_stale_connection_is_repeated() {
    for with_reset in [false, true] {
        worker(async move {
            let origin = dies_on_reuse(with_reset).await;
            let d = dispatcher(&[origin.address]);
            fetch(&d, get()).await.unwrap();
            assert_eq!(fetch(&d, get()).await.unwrap(), (200, "ok".into()));
            assert_eq!(d.stats().stale_connection.load(Relaxed), 1);
            assert_eq!(d.stats().retries.load(Relaxed), 0);
            assert_eq!(d.stats().reset.load(Relaxed), 0);

            let origin = dies_on_reuse(with_reset).await;
            let d = dispatcher(&[origin.address]);
            fetch(&d, get()).await.unwrap();
            let lost = send(&d, post("x")).await.unwrap_err();
            assert!(matches!(lost, DispatchError::Reset(_)), "{lost:?}");
            assert_eq!(origin.accepted.get(), 1, "a POST that may have been seen is not sent twice");
        });
    }
}

#[test]
fn post_does_not_use_a_connection_that_idled() {
    worker(async {
        let origin = Origin::answering(OK).await;
        let d = dispatcher(&[origin.address]);
        fetch(&d, get()).await.unwrap();
        // Each round the connection is 1.5 s older, once a tick has seen the new time.
        while origin.accepted.get() < 2 {
            tokio::time::pause();
            tokio::time::advance(ms(1500)).await;
            tokio::time::resume();
            tokio::time::sleep(ms(1)).await;
            fetch(&d, post("x")).await.unwrap();
        }
        fetch(&d, get()).await.unwrap();
        assert_eq!(origin.accepted.get(), 2);
    });
}

#[test]
fn idle_connections_are_closed_after_their_time() {
    worker(async {
        let origin = Origin::answering(OK).await;
        let d = with(tidegate_settings::Origin { idle_timeout: ms(50), ..settings_for(&[origin.address]) });
        fetch(&d, get()).await.unwrap();
        until(|| d.idle_connections() == 0).await;
        fetch(&d, get()).await.unwrap();
        assert_eq!(origin.accepted.get(), 2);
    });
}

#[test]
fn a_reset_within_the_body_reaches_the_visitor_and_frees_the_slot() {
    worker(async {
        let origin = Origin::answering_once(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").await;
        let settings = settings_for(&[origin.address]);
        let replicas = Replicas::new(&settings);
        let d = Dispatcher::new(replicas.clone(), &settings);
        let response = send(&d, get()).await.unwrap();
        assert_eq!(replicas.list()[0].in_flight(), 1);
        let mut body = response.into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "half");
        let end = body.frame().await.unwrap().unwrap_err();
        assert!(matches!(end, BodyError::Origin(_)), "{end:?}");
        assert_eq!(replicas.list()[0].in_flight(), 0);
        assert_eq!(d.stats().body_reset.load(Relaxed), 1);
    });
}

#[test]
fn a_silent_origin_has_errors_of_its_own() {
    worker(async {
        let mute = Origin::start(|_, stream| async move {
            std::future::pending::<()>().await;
            drop(stream);
        })
        .await;
        let d =
            with(tidegate_settings::Origin { first_byte_timeout: ms(30), ..settings_for(&[mute.address]) });
        let e = send(&d, get()).await.unwrap_err();
        assert!(matches!(e, DispatchError::FirstByteTimeout), "{e:?}");
        assert_eq!(mute.accepted.get(), 1, "not sent twice");
        // An origin that does not read the body is silent, too.
        let big = request(Method::POST, RequestBody::full(vec![0u8; 64 << 20]));
        assert!(matches!(send(&d, big).await.unwrap_err(), DispatchError::FirstByteTimeout));

        let stalls = Origin::start(|_, mut stream| async move {
            read_head(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").await.unwrap();
            std::future::pending::<()>().await;
        })
        .await;
        let d = with(tidegate_settings::Origin { read_timeout: ms(30), ..settings_for(&[stalls.address]) });
        let e = send(&d, get()).await.unwrap().into_body().collect().await.unwrap_err();
        assert!(matches!(e, BodyError::Timeout), "{e:?}");
        assert_eq!(d.stats().body_timeout.load(Relaxed), 1);
    });
}

#[test]
fn a_slow_visitor_is_not_a_silent_origin() {
    worker(async {
        let origin = Origin::start(|_, mut stream| async move {
            read_head(&mut stream).await;
            read_n(&mut stream, b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n".len()).await;
            stream.write_all(OK).await.unwrap();
        })
        .await;
        let d =
            with(tidegate_settings::Origin { first_byte_timeout: ms(20), ..settings_for(&[origin.address]) });
        let (feed, body, _) = fed();
        let visitor = async {
            feed.send(data("a")).await.unwrap();
            tokio::time::pause();
            for _ in 0..20 {
                tokio::time::advance(ms(20)).await;
                tokio::task::yield_now().await;
            }
            tokio::time::resume();
            feed.send(data("b")).await.unwrap();
            drop(feed);
        };
        let (answer, ()) = tokio::join!(fetch(&d, request(Method::POST, body)), visitor);
        assert_eq!(answer.unwrap(), (200, "ok".into()));
    });
}

#[test]
fn connecting_has_a_limit() {
    worker(async {
        // A full accept queue drops SYNs.
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
        socket.listen(0).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        let mut fill = Vec::new();
        while let Ok(Ok(s)) = tokio::time::timeout(ms(50), tokio::net::TcpStream::connect(address)).await {
            fill.push(s);
        }
        let d = with(tidegate_settings::Origin { connect_timeout: ms(30), ..settings_for(&[address]) });
        let e = send(&d, get()).await.unwrap_err();
        assert!(matches!(e, DispatchError::ConnectTimeout), "{e:?}");
    });
}

#[test]
fn failures_of_the_visitor_have_an_error_of_their_own() {
    worker(async {
        let origin = Origin::start(|_, mut stream| async move {
            drop(stream.read_to_end(&mut Vec::new()).await);
        })
        .await;
        let d = dispatcher(&[origin.address]);
        let (feed, body, _) = fed();
        let broken = async {
            feed.send(data("abc")).await.unwrap();
            feed.send(Err("the visitor hung up".into())).await.unwrap();
        };
        let (e, ()) = tokio::join!(send(&d, request(Method::PUT, body)), broken);
        let Err(DispatchError::RequestBody(cause)) = e else { panic!("{e:?}") };
        assert_eq!(cause.to_string(), "the visitor hung up");

        let (feed, body, _) = fed();
        let long = async {
            feed.send(data("abc")).await.unwrap();
            feed.send(Err(BadBody::TooLarge.into())).await.unwrap();
        };
        let (e, ()) = tokio::join!(send(&d, request(Method::POST, body)), long);
        let Err(DispatchError::RequestBody(cause)) = e else { panic!("{e:?}") };
        assert_eq!(is_bad_body(&*cause), Some(BadBody::TooLarge));
        let stats = d.stats();
        assert_eq!((stats.request_body.load(Relaxed), stats.reset.load(Relaxed)), (2, 0));
    });
}

#[test]
fn the_request_to_the_origin_ends_when_the_visitor_leaves() {
    worker(async {
        let closed = Rc::new(Cell::new(0));
        let count = closed.clone();
        let origin = Origin::start(move |n, mut stream| {
            let count = count.clone();
            async move {
                read_head(&mut stream).await;
                if n == 1 {
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf").await.unwrap();
                }
                drop(stream.read_to_end(&mut Vec::new()).await);
                count.set(count.get() + 1);
            }
        })
        .await;
        let settings = settings_for(&[origin.address]);
        let replicas = Replicas::new(&settings);
        let d = Dispatcher::new(replicas.clone(), &settings);
        // Before the response, and within it.
        let waiting = tokio::time::timeout(ms(50), send_with(&d, get(), SendContext::default())).await;
        assert!(waiting.is_err());
        until(|| closed.get() == 1).await;
        drop(send(&d, get()).await.unwrap());
        until(|| closed.get() == 2).await;
        assert_eq!(replicas.list()[0].in_flight(), 0);
        assert_eq!(d.idle_connections(), 0);
    });
}
