//! Requests of many visitors over few connections: a pool of keep-alive connections to one target.
//!
//! A waiting visitor holds no connection, and whoever asks next may use any idle one: the cookies tell visitors
//! apart, not the connections. A request that is dropped before its answer is complete closes its connection,
//! which is how the target learns that a visitor has left. hyper's connections are used bare; hyper-util's
//! pooled client was rejected: it costs more per request, and the bench shares its cores with what it measures.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::answer_old::STATUS_FIELD;
use crate::visitor_old::{Ask, Failure};

/// Idle connections kept; more are closed. Enough for a thousand requests a second at 250 ms each, and far below
/// the usual limit of 1,024 open files.
const MAX_IDLE: usize = 256;
/// Bytes kept of the answers whose body is read: a waiting page has under 14 KiB, a status document under 200.
const MAX_KEPT: usize = 16 << 10;

/// Sends requests to one target; cheap to share.
pub struct Client {
    target: SocketAddr,
    host: HeaderValue,
    idle: Mutex<Vec<SendRequest<Empty<Bytes>>>>,
}

/// A complete answer.
#[derive(Debug)]
pub struct Reply {
    /// Its status.
    pub status: StatusCode,
    /// Its fields.
    pub headers: HeaderMap,
    /// The body of a status document or a waiting page, cut at 16 KiB; empty for other pages.
    pub body: Bytes,
}

impl Client {
    /// No connection is made yet.
    pub fn new(target: SocketAddr) -> Arc<Self> {
        let host = HeaderValue::try_from(target.to_string()).expect("a socket address is plain ASCII");
        Arc::new(Self { target, host, idle: Mutex::default() })
    }

    /// Sends one request and reads its answer to the end. Dropping the future closes the connection.
    ///
    /// # Errors
    /// Why no complete answer came.
    pub async fn get(&self, ask: Ask, path: &str, cookies: Option<&str>) -> Result<Reply, Failure> {
        let mut request = self.request(ask, path, cookies)?;
        loop {
            let (mut connection, reused) = match self.take_idle() {
                Some(connection) => (connection, true),
                None => (self.connect().await?, false),
            };
            // The task that drives a connection may not have noticed yet that the last answer is complete.
            if connection.ready().await.is_err() {
                match reused {
                    true => continue,
                    false => return Err(Failure::Broken),
                }
            }
            match connection.try_send_request(request).await {
                Ok(response) => {
                    let reply = read(ask, response).await?;
                    self.give_back(connection);
                    return Ok(reply);
                }
                // An idle connection was closed under our hands; the request has not been sent. Each turn of the
                // loop uses up one idle connection, so it ends.
                Err(mut error) => match error.take_message() {
                    Some(unsent) if reused => request = unsent,
                    _ => return Err(Failure::Broken),
                },
            }
        }
    }

    fn request(&self, ask: Ask, path: &str, cookies: Option<&str>) -> Result<Request<Empty<Bytes>>, Failure> {
        // A path that came from an answer may be no valid one; that is the answer's fault.
        let uri: Uri = path.parse().map_err(|_| Failure::Refused)?;
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = uri;
        let fields = request.headers_mut();
        fields.insert(header::HOST, self.host.clone());
        fields.insert(header::USER_AGENT, HeaderValue::from_static("Mozilla/5.0 (tidegate lab)"));
        fields.insert(header::ACCEPT_LANGUAGE, HeaderValue::from_static("en"));
        let (accept, mode, dest) = match ask {
            Ask::Page => ("text/html,application/xhtml+xml;q=0.9,*/*;q=0.8", "navigate", "document"),
            Ask::News => ("*/*", "same-origin", "empty"),
        };
        fields.insert(header::ACCEPT, HeaderValue::from_static(accept));
        fields.insert("sec-fetch-mode", HeaderValue::from_static(mode));
        fields.insert("sec-fetch-dest", HeaderValue::from_static(dest));
        fields.insert("sec-fetch-site", HeaderValue::from_static("same-origin"));
        if let Some(cookies) = cookies {
            fields.insert(header::COOKIE, HeaderValue::try_from(cookies).map_err(|_| Failure::Refused)?);
        }
        Ok(request)
    }

    async fn connect(&self) -> Result<SendRequest<Empty<Bytes>>, Failure> {
        let stream = TcpStream::connect(self.target).await.map_err(|error| connect_failure(&error))?;
        // Without it a small request may wait for the acknowledgement of the last.
        let _ = stream.set_nodelay(true);
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|_| Failure::Broken)?;
        // Its errors reach the visitor through the request.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }

    fn take_idle(&self) -> Option<SendRequest<Empty<Bytes>>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::from_fn(|| idle.pop()).find(|connection| !connection.is_closed())
    }

    fn give_back(&self, connection: SendRequest<Empty<Bytes>>) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE && !connection.is_closed() {
            idle.push(connection);
        }
    }
}

async fn read(ask: Ask, response: http::Response<Incoming>) -> Result<Reply, Failure> {
    let (head, mut body) = response.into_parts();
    let keep = ask == Ask::News || head.headers.contains_key(STATUS_FIELD);
    let mut kept = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Failure::Broken)?;
        if let (true, Some(data)) = (keep, frame.data_ref()) {
            kept.extend_from_slice(&data[..data.len().min(MAX_KEPT - kept.len())]);
        }
    }
    Ok(Reply { status: head.status, headers: head.headers, body: kept.into() })
}

/// Tells a target that does not listen from a bench that has no more sockets.
fn connect_failure(error: &std::io::Error) -> Failure {
    use std::io::ErrorKind::AddrNotAvailable;
    const EMFILE: i32 = 24;
    const ENFILE: i32 = 23;
    match (error.kind(), error.raw_os_error()) {
        (AddrNotAvailable, _) | (_, Some(EMFILE | ENFILE)) => Failure::Bench,
        _ => Failure::Connect,
    }
}
