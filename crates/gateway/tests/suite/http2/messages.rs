//! Bodies, trailers, interim responses: what a request and its answer carry.

use std::io::{Read, Write};
use std::net::TcpStream;

use bytes::Bytes;
use h2::Reason;
use http::{HeaderMap, HeaderValue, Method};
use tidegate_core::measure::Event;

use super::harness::{Client, PLAIN, get, read, request, reset_of, run, until};
use crate::whole::harness::{Gate, Origin, Scripted, read_head, reply};

/// Reads a chunked body to its end; its content, and the lines after it.
fn chunked(stream: &mut TcpStream) -> (usize, String) {
    let (mut content, mut trailers) = (0, String::new());
    loop {
        let size = usize::from_str_radix(line(stream).trim(), 16).unwrap();
        if size == 0 {
            break;
        }
        stream.read_exact(&mut vec![0; size + 2]).unwrap();
        content += size;
    }
    loop {
        match line(stream) {
            end if end == "\r\n" => return (content, trailers),
            field => trailers.push_str(&field),
        }
    }
}

fn line(stream: &mut TcpStream) -> String {
    let (mut all, mut byte) = (Vec::new(), [0]);
    while !all.ends_with(b"\n") {
        stream.read_exact(&mut byte).unwrap();
        all.push(byte[0]);
    }
    String::from_utf8(all).unwrap()
}

/// Says how much of a body came, and how.
fn counting() -> Scripted {
    Scripted::start(|head, _, stream| {
        let head = head.to_ascii_lowercase();
        let (content, trailers) = match head.split_once("content-length: ") {
            Some((_, rest)) => {
                let length: usize = rest.split("\r\n").next().unwrap().parse().unwrap();
                stream.read_exact(&mut vec![0; length]).unwrap();
                (length, String::from("by length"))
            }
            None if head.contains("transfer-encoding: chunked") => chunked(stream),
            None => (0, String::from("none")),
        };
        reply(stream, "200 OK", "", &format!("{content} {}", trailers.trim()));
    })
}

/// Sends a body within the windows, then these trailers.
async fn upload(send: &mut h2::SendStream<Bytes>, mut body: Bytes, trailers: Option<HeaderMap>) {
    while !body.is_empty() {
        send.reserve_capacity(body.len());
        let room = std::future::poll_fn(|cx| send.poll_capacity(cx)).await.unwrap().unwrap();
        let part = body.split_to(room.min(body.len()));
        send.send_data(part, body.is_empty() && trailers.is_none()).unwrap();
    }
    if let Some(trailers) = trailers {
        send.send_trailers(trailers).unwrap();
    }
}

#[test]
fn bodies_go_to_the_origin_with_and_without_a_length() {
    let origin = counting();
    let gate = Gate::before(origin.address, PLAIN, |_| Vec::new());
    run(async {
        let mut client = Client::connect(gate.http).await;
        // More than both windows.
        let body = Bytes::from(vec![7; 3 << 20]);
        for length in [None, Some(body.len())] {
            let mut asked = request(Method::POST, "/");
            if let Some(length) = length {
                asked.headers_mut().insert("content-length", length.into());
            }
            let (response, mut send) = client.begin(asked, false).await;
            let answer = async { read(response.await.unwrap()).await.unwrap() };
            let (answer, ()) = tokio::join!(answer, upload(&mut send, body.clone(), None));
            let how = if length.is_some() { " by length" } else { "" };
            assert_eq!(answer.text().trim(), format!("{}{how}", body.len()));
        }
        let response = client.start(request(Method::POST, "/")).await;
        assert_eq!(read(response.await.unwrap()).await.unwrap().text(), "0 by length");
        // Trailers, without those that a proxy must not pass on.
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", HeaderValue::from_static("abc"));
        trailers.insert("content-length", HeaderValue::from_static("5"));
        let (response, mut send) = client.begin(request(Method::POST, "/"), false).await;
        upload(&mut send, Bytes::from_static(b"12345"), Some(trailers)).await;
        let answer = read(response.await.unwrap()).await.unwrap();
        assert_eq!(answer.text().to_ascii_lowercase(), "5 x-sum: abc");
    });
}

#[test]
fn a_body_that_does_not_fit_its_length_is_not_one() {
    let origin = counting();
    let gate = Gate::before(origin.address, PLAIN, |_| Vec::new());
    run(async {
        for sent in ["1234", "123456"] {
            let mut client = Client::connect(gate.http).await;
            let mut asked = request(Method::POST, "/");
            asked.headers_mut().insert("content-length", 5.into());
            let (response, mut send) = client.begin(asked, false).await;
            send.send_data(Bytes::from_static(sent.as_bytes()), true).unwrap();
            assert_eq!(reset_of(response).await, Some(Reason::PROTOCOL_ERROR), "{sent}");
        }
    });
}

#[test]
fn a_body_is_bounded_in_size_and_silence() {
    let origin = counting();
    let toml = format!("{PLAIN}[limits]\nmax_body_bytes = 1000\nbody_timeout = \"50ms\"\n");
    let gate = Gate::before(origin.address, &toml, |_| Vec::new());
    run(async {
        let mut client = Client::connect(gate.http).await;
        let (response, mut send) = client.begin(request(Method::POST, "/"), false).await;
        send.send_data(Bytes::from(vec![0; 1001]), false).unwrap();
        assert_eq!(response.await.unwrap().status(), 413);
        let (response, mut send) = client.begin(request(Method::POST, "/"), false).await;
        send.send_data(Bytes::from_static(b"1"), false).unwrap();
        assert_eq!(response.await.unwrap().status(), 408);
    });
    assert_eq!((gate.count(Event::BodyTooLarge), gate.count(Event::BodyTimeout)), (1, 1));
}

#[test]
fn answers_come_whole_with_their_trailers() {
    let origin = Scripted::start(|head, _, stream| {
        if head.starts_with("GET /trailers") {
            let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n";
            let body = b"5\r\nhello\r\n0\r\nx-sum: abc\r\nset-cookie: a=b\r\n\r\n";
            stream.write_all(&[&head[..], body].concat()).unwrap();
        } else if head.starts_with("GET /large") {
            reply(stream, "200 OK", "", &"x".repeat(3 << 20));
        } else {
            reply(stream, "204 No Content", "Keep-Alive: timeout=5\r\n", "");
        }
    });
    let gate = Gate::before(origin.address, PLAIN, |_| Vec::new());
    run(async {
        let mut client = Client::connect(gate.http).await;
        let answer = client.get("/trailers").await;
        assert_eq!(answer.text(), "hello");
        let trailers = answer.trailers.unwrap();
        assert!(trailers["x-sum"] == "abc" && !trailers.contains_key("set-cookie"), "{trailers:?}");
        let mut others = client.send.clone();
        let large = client.get("/large").await;
        assert_eq!(large.body.len(), 3 << 20);
        assert_eq!(large.headers["content-length"], (3 << 20).to_string());
        let empty = client.get("/").await;
        assert!(empty.status == 204 && !empty.headers.contains_key("content-length"), "{empty:?}");
        let (head, _) = others.send_request(request(Method::HEAD, "/large"), true).unwrap();
        let head = read(head.await.unwrap()).await.unwrap();
        assert!(head.status == 204 || head.body.is_empty());
    });
}

#[test]
fn the_answer_to_head_has_the_length_and_no_body() {
    let origin = Scripted::start(|head, _, stream| {
        let body = if head.starts_with("HEAD") { "" } else { "hello" };
        stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{body}").as_bytes()).unwrap();
    });
    let gate = Gate::before(origin.address, PLAIN, |_| Vec::new());
    run(async {
        let mut client = Client::connect(gate.http).await;
        let response = client.start(request(Method::HEAD, "/")).await;
        let head = read(response.await.unwrap()).await.unwrap();
        assert!(head.body.is_empty() && head.headers["content-length"] == "5", "{head:?}");
        assert_eq!(client.get("/").await.text(), "hello");
    });
}

#[test]
fn interim_responses_reach_the_visitor_and_the_body_waits_for_100() {
    let origin = Scripted::start(|head, _, stream| {
        if head.starts_with("GET") {
            stream.write_all(b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n").unwrap();
        } else {
            assert!(head.to_ascii_lowercase().contains("expect: 100-continue"), "{head}");
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
            chunked(stream);
        }
        reply(stream, "200 OK", "", "done");
    });
    let gate = Gate::before(origin.address, PLAIN, |_| Vec::new());
    run(async {
        let mut client = Client::connect(gate.http).await;
        let mut response = client.start(get("/")).await;
        let interim = std::future::poll_fn(|cx| response.poll_informational(cx)).await.unwrap().unwrap();
        assert!(interim.status() == 103 && interim.headers()["link"] == "</a.css>", "{interim:?}");
        assert_eq!(read(response.await.unwrap()).await.unwrap().text(), "done");
        let mut asked = request(Method::POST, "/");
        asked.headers_mut().insert("expect", HeaderValue::from_static("100-continue"));
        let (mut response, mut send) = client.begin(asked, false).await;
        let interim = std::future::poll_fn(|cx| response.poll_informational(cx)).await.unwrap().unwrap();
        assert_eq!(interim.status(), 100);
        send.send_data(Bytes::from_static(b"body"), true).unwrap();
        assert_eq!(read(response.await.unwrap()).await.unwrap().text(), "done");
    });
}

#[test]
fn requests_of_a_connection_do_not_wait_for_each_other() {
    let origin = Origin::start();
    let gate = Gate::start(&origin, PLAIN);
    run(async {
        let mut client = Client::connect(gate.http).await;
        let held = client.start(get("/hold")).await;
        let others: Vec<_> = futures(&mut client, 50).await;
        for other in others {
            assert_eq!(read(other.await.unwrap()).await.unwrap().text(), "served");
        }
        origin.release();
        assert_eq!(read(held.await.unwrap()).await.unwrap().text(), "served");
    });
    assert_eq!(gate.count(Event::Requests), 51);
}

async fn futures(client: &mut Client, n: usize) -> Vec<h2::client::ResponseFuture> {
    let mut all = Vec::new();
    for _ in 0..n {
        all.push(client.start(get("/")).await);
    }
    all
}

#[test]
fn a_request_that_is_taken_back_frees_its_place_in_the_queue() {
    let origin = Origin::start();
    let toml = "[origin]\nreplicas = [\"ORIGIN\"]\nmax_in_flight = 1\n[queue]\nmax_length = 1\n";
    let gate = Gate::start(&origin, toml);
    run(async {
        let mut client = Client::connect(gate.http).await;
        let held = client.start(get("/hold")).await;
        origin.holds();
        let (queued, mut send) = client.begin(get("/"), true).await;
        // Once a third is refused, the second waits.
        let full = client.start(get("/")).await.await.unwrap();
        assert_eq!(full.status(), 503);
        assert_eq!(gate.count(Event::QueueFull), 1);
        send.send_reset(Reason::CANCEL);
        drop(queued);
        // The place is free as soon as the gate has heard of it.
        let mut next = loop {
            let before = gate.count(Event::QueueFull);
            let mut next = client.start(get("/")).await;
            let refused = until(|| gate.count(Event::QueueFull) > before);
            tokio::select! {
                response = &mut next => assert_eq!(response.unwrap().status(), 503),
                () = refused => {}
                () = tokio::time::sleep(std::time::Duration::from_millis(300)) => break next,
            }
        };
        origin.release();
        assert_eq!(read(held.await.unwrap()).await.unwrap().text(), "served");
        assert_eq!((&mut next).await.unwrap().status(), 200);
    });
}

#[test]
fn a_request_that_is_taken_back_is_taken_back_from_the_origin() {
    let (told, heard) = std::sync::mpsc::channel();
    let told = std::sync::Mutex::new(told);
    let origin = Scripted::start(move |_, _, stream| {
        // The gate closes the connection: nothing else ends this request.
        let mut end = [0];
        told.lock().unwrap().send(stream.read(&mut end).unwrap_or(0)).unwrap();
    });
    let settings = format!("{PLAIN}abort_on_close = true\n");
    let gate = Gate::before(origin.address, &settings, |_| Vec::new());
    run(async {
        let mut client = Client::connect(gate.http).await;
        let (response, mut send) = client.begin(get("/"), true).await;
        until(|| origin.came() == 1).await;
        send.send_reset(Reason::CANCEL);
        drop(response);
        until(|| gate.count(Event::ClientGone) == 1).await;
    });
    assert_eq!(heard.recv_timeout(crate::whole::harness::PATIENCE), Ok(0));
    drop(gate);
    let _ = read_head;
}
