//! Requests of many visitors over few connections: a pool of keep-alive connections to one host.
//!
//! A waiting visitor holds no connection, and the next request of any visitor may use any idle one: the
//! cookies tell visitors apart, not the connections. A request that is dropped before its answer is complete
//! closes its connection, which is how the target learns that a visitor has left. hyper's connections are
//! used bare; hyper-util's pooled client was rejected: it costs more per request, and the bench shares its
//! cores with what it measures.
//!
//! Nothing is sent anywhere but to the host that the user named: see [`Place`].

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;

use crate::answer::wants_body;
use crate::visitor::{Failure, RequestKind};

mod place;
#[cfg(test)]
mod tests;

pub use place::{Place, TargetError};

/// Idle connections kept; more are closed. Every connection closed by its client keeps its local port for a
/// minute, and there are 28,000: with few kept, one slow moment of the target would have a busy bench close
/// and open them all until its ports run out.
const MAX_IDLE: usize = 8192;
/// Bytes kept of the answers whose body is read: a waiting page has under 14 KiB, a status document under
/// 200.
const MAX_KEPT: usize = 16 << 10;

type Sender = SendRequest<Full<Bytes>>;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Connections {
    /// Kept open and shared, as browsers and the proxies in front of them do.
    #[default]
    Keep,
    /// A new one for every request: the target pays for accepting, too.
    Fresh,
}

pub struct Client {
    place: Place,
    connections: Connections,
    browser: HeaderMap,
    status: HeaderMap,
    program: HeaderMap,
    /// By port: a redirect may lead to another one.
    idle: Mutex<Vec<(u16, Vec<Sender>)>>,
}

#[derive(Clone, Debug)]
pub struct Order {
    /// What the request asks for. The status document is requested as the page's script does, and its body is
    /// read.
    pub ask: RequestKind,
    pub program: bool,
    pub method: Method,
    pub uri: Uri,
    pub port: Option<u16>,
    pub cookies: Option<String>,
    /// Body, sent as `application/x-www-form-urlencoded`.
    pub form: Option<Bytes>,
}

impl Order {
    /// `GET` of a path and query, without cookies, as a browser.
    pub fn get(ask: RequestKind, uri: Uri) -> Self {
        Self { ask, program: false, method: Method::GET, uri, port: None, cookies: None, form: None }
    }
}

#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// The body, cut at 16 KiB, if [`wants_body`] says so; else empty.
    pub body: Bytes,
}

impl Client {
    pub fn new(place: Place, connections: Connections) -> Arc<Self> {
        Arc::new(Self {
            place,
            connections,
            browser: fields(&BROWSER),
            status: fields(&SCRIPT),
            program: fields(&PROGRAM),
            idle: Mutex::default(),
        })
    }

    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Sends one request and reads its answer to the end. Dropping the future closes the connection.
    pub async fn send(&self, order: Order) -> Result<Reply, Failure> {
        let ask = order.ask;
        let port = order.port.unwrap_or(self.place.port());
        let mut request = self.request(order)?;
        loop {
            let (mut connection, reused) = match self.take_idle(port) {
                Some(connection) => (connection, true),
                None => (self.connect(port).await?, false),
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
                    self.give_back(port, connection);
                    return Ok(reply);
                }
                // An idle connection was closed under our hands; the request has not been sent. Each turn of
                // the loop uses up one idle connection, so it ends.
                Err(mut error) => match error.take_message() {
                    Some(unsent) if reused => request = unsent,
                    _ => return Err(Failure::Broken),
                },
            }
        }
    }

    fn request(&self, order: Order) -> Result<Request<Full<Bytes>>, Failure> {
        let mut request = Request::new(Full::new(order.form.clone().unwrap_or_default()));
        *request.method_mut() = order.method;
        *request.uri_mut() = order.uri;
        let fields = request.headers_mut();
        *fields = match (order.program, order.ask) {
            (true, _) => self.program.clone(),
            (false, RequestKind::Status) => self.status.clone(),
            (false, _) => self.browser.clone(),
        };
        if order.cookies.is_none() && fields.get("sec-fetch-mode").is_some_and(|mode| mode == "navigate") {
            // Its first page: the visitor comes from nowhere on this site.
            fields.insert("sec-fetch-site", HeaderValue::from_static("none"));
        }
        fields.insert(header::HOST, self.place.host_field(order.port));
        if order.form.is_some() {
            let form = HeaderValue::from_static("application/x-www-form-urlencoded");
            fields.insert(header::CONTENT_TYPE, form);
        }
        if self.connections == Connections::Fresh {
            fields.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(cookies) = order.cookies {
            // Cookies come from answers: one that cannot be sent is the answer's fault.
            fields.insert(header::COOKIE, HeaderValue::try_from(cookies).map_err(|_| Failure::Refused)?);
        }
        Ok(request)
    }

    async fn connect(&self, port: u16) -> Result<Sender, Failure> {
        let address = self.place.address(port);
        let stream = TcpStream::connect(address).await.map_err(|error| connect_failure(&error))?;
        // Without it a small request may wait for the acknowledgement of the last.
        let _ = stream.set_nodelay(true);
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|_| Failure::Broken)?;
        // Its errors reach the visitor through the request.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }

    fn take_idle(&self, port: u16) -> Option<Sender> {
        let mut idle = self.idle.lock();
        let (_, pool) = idle.iter_mut().find(|(of, _)| *of == port)?;
        std::iter::from_fn(|| pool.pop()).find(|connection| !connection.is_closed())
    }

    fn give_back(&self, port: u16, connection: Sender) {
        if self.connections == Connections::Fresh || connection.is_closed() {
            return;
        }
        let mut idle = self.idle.lock();
        match idle.iter_mut().find(|(of, _)| *of == port) {
            Some((_, pool)) if pool.len() < MAX_IDLE => pool.push(connection),
            Some(_) => {}
            None => idle.push((port, vec![connection])),
        }
    }
}

const BROWSER: [(&str, &str); 6] = [
    ("user-agent", "Mozilla/5.0 (tidegate lab)"),
    ("accept", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"),
    ("accept-language", "en"),
    ("sec-fetch-mode", "navigate"),
    ("sec-fetch-dest", "document"),
    ("sec-fetch-site", "same-origin"),
];
/// What it sends for the script of a waiting page.
const SCRIPT: [(&str, &str); 6] = [
    ("user-agent", "Mozilla/5.0 (tidegate lab)"),
    ("accept", "*/*"),
    ("accept-language", "en"),
    ("sec-fetch-mode", "same-origin"),
    ("sec-fetch-dest", "empty"),
    ("sec-fetch-site", "same-origin"),
];
const PROGRAM: [(&str, &str); 2] =
    [("user-agent", "tidegate-lab"), ("accept", "application/json, application/problem+json")];

fn fields(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let pair = |(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
    pairs.iter().copied().map(pair).collect()
}

async fn read(ask: RequestKind, response: http::Response<Incoming>) -> Result<Reply, Failure> {
    let (head, mut body) = response.into_parts();
    let keep = wants_body(ask, &head.headers);
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
    use rustix::io::Errno;
    let ours = [Errno::MFILE, Errno::NFILE, Errno::ADDRNOTAVAIL, Errno::NOBUFS, Errno::NOMEM];
    match Errno::from_io_error(error) {
        Some(errno) if ours.contains(&errno) => Failure::Bench,
        _ => Failure::Connect,
    }
}
