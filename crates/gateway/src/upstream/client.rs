//! One HTTP/1.1 request on a connection of its own: health checks, external authorisers, figure sources and
//! the two-process link. Visitors' requests go through [`super::dispatch`] instead.
//!
//! The connection is driven within the call and closed at its end, however the call ends.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HOST, USER_AGENT};
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};

use crate::http::proxy_header;
use crate::upstream::balance::Replica;
use crate::upstream::body::BoxError;
use crate::upstream::tls::ClientTls;

pub(crate) struct Call<'a> {
    /// With an absolute URI (`http[s]://host[:port]/path`). `Host`, `Connection` and, unless it is set,
    /// `User-Agent` are filled in.
    pub(crate) request: Request<Bytes>,
    /// Connect to the addresses of this replica, by TLS if it speaks that; without it, the URI's host is
    /// looked up.
    pub(crate) replica: Option<&'a Arc<Replica>>,
    /// How connections to `https://` URIs begin.
    pub(crate) tls: Option<&'a ClientTls>,
    /// For everything: look-up, connection, response.
    pub(crate) timeout: Duration,
    /// Largest body of a response; `None`: the body does not matter and is not read.
    pub(crate) max_body: Option<usize>,
}

impl Call<'_> {
    pub(crate) async fn send(self) -> Result<Response<Bytes>, BoxError> {
        let timeout = self.timeout;
        let in_time = tokio::time::timeout(timeout, self.exchange()).await;
        in_time.unwrap_or_else(|_| Err(format!("no answer within {timeout:?}").into()))
    }

    async fn exchange(self) -> Result<Response<Bytes>, BoxError> {
        let mut request = self.request.map(Full::new);
        let uri = std::mem::take(request.uri_mut());
        let authority = uri.authority().ok_or("the URL has no host")?.as_str();
        *request.uri_mut() = uri.path_and_query().map_or("/", |path| path.as_str()).parse()?;
        let headers = request.headers_mut();
        headers.insert(HOST, authority.parse()?);
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        let agent = HeaderValue::from_static(concat!("tidegate/", env!("CARGO_PKG_VERSION")));
        headers.entry(USER_AGENT).or_insert(agent);
        let stream = open(&uri, self.replica, self.tls).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let response = async {
            let (head, body) = sender.send_request(request).await?.into_parts();
            let Some(max) = self.max_body else { return Ok(Response::from_parts(head, Bytes::new())) };
            let body = Limited::new(body, max).collect().await;
            let body = body.map_err(|e| format!("the answer is cut off or larger than {max} bytes: {e}"))?;
            Ok(Response::from_parts(head, body.to_bytes()))
        };
        let (mut response, mut connection) = (pin!(response), pin!(connection));
        tokio::select! {
            biased;
            response = &mut response => response,
            // It may end before the response has been taken from it.
            _ = &mut connection => response.await,
        }
    }
}

/// A path of the server of `base`.
pub(crate) fn at_path(base: &str, path: &'static str) -> Result<Uri, BoxError> {
    let mut parts = base.parse::<Uri>()?.into_parts();
    parts.path_and_query = Some(PathAndQuery::from_static(path));
    Ok(Uri::from_parts(parts)?)
}

pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A connection on which HTTP may begin.
async fn open(
    uri: &Uri,
    replica: Option<&Arc<Replica>>,
    tls: Option<&ClientTls>,
) -> Result<Box<dyn Stream>, BoxError> {
    if let Some(replica) = replica {
        let target = replica.target();
        if let Some(path) = target.unix() {
            let mut stream = UnixStream::connect(path).await?;
            if let Some(version) = replica.header() {
                stream.write_all(&proxy_header::write(version, None)).await?;
            }
            return Ok(Box::new(stream));
        }
        let mut stream = TcpStream::connect(target.addresses().await?.as_slice()).await?;
        if let Some(version) = replica.header() {
            stream.write_all(&proxy_header::write(version, None)).await?;
        }
        return Ok(match replica.tls()? {
            Some(tls) => Box::new(tls.connect(target.host(), stream).await?),
            None => Box::new(stream),
        });
    }
    connect(uri, tls).await
}

/// A connection to the host of an `http[s]://` URI; `tls`: how it begins if that is `https`.
///
/// # Errors
/// Nobody answers there, or it is not who the URI says.
pub async fn connect(uri: &Uri, tls: Option<&ClientTls>) -> Result<Box<dyn Stream>, BoxError> {
    let host = uri.host().ok_or("the URL has no host")?;
    let is_https = uri.scheme() == Some(&Scheme::HTTPS);
    let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
    let stream = TcpStream::connect(format!("{host}:{port}")).await?;
    if !is_https {
        return Ok(Box::new(stream));
    }
    let tls = tls.ok_or("TLS is not set up for this URL")?;
    Ok(Box::new(tls.connect(host, stream).await?))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Answers one request with `answer`, then keeps the connection open or closes it; tells the request.
    async fn server(answer: &'static str, closes: bool) -> (SocketAddr, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut seen = Vec::new();
            while !seen.ends_with(b"\r\n\r\n") {
                seen.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
            if !closes {
                _ = stream.read_u8().await;
            }
            String::from_utf8(seen).unwrap()
        });
        (address, task)
    }

    fn call(address: SocketAddr, path: &str, max_body: Option<usize>) -> Call<'static> {
        let request = Request::get(format!("http://{address}{path}")).body(Bytes::new()).unwrap();
        Call { request, replica: None, tls: None, timeout: Duration::from_secs(30), max_body }
    }

    #[tokio::test]
    async fn it_asks_in_origin_form_and_takes_bodies_with_and_without_a_length() {
        for answer in ["HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.0 200 OK\r\n\r\nok"] {
            let (address, seen) = server(answer, true).await;
            let response = call(address, "/a?b=c", Some(2)).send().await.unwrap();
            assert_eq!((response.status().as_u16(), &response.body()[..]), (200, &b"ok"[..]));
            let seen = seen.await.unwrap().to_ascii_lowercase();
            assert!(seen.starts_with("get /a?b=c http/1.1\r\n"), "{seen}");
            for line in [&*format!("host: {address}\r\n"), "connection: close\r\n", "user-agent: tidegate/"] {
                assert!(seen.contains(line), "{line}: {seen}");
            }
        }
    }

    #[tokio::test]
    async fn a_body_that_does_not_matter_is_not_waited_for() {
        let (address, _seen) = server("HTTP/1.1 204 No Content\r\n\r\n", false).await;
        assert_eq!(call(address, "", None).send().await.unwrap().status(), 204);
        let (address, _seen) = server("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", false).await;
        assert_eq!(call(address, "", None).send().await.unwrap().status(), 200);
    }

    #[tokio::test]
    async fn a_large_body_and_a_broken_one_are_errors() {
        for answer in [
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na",
        ] {
            let (address, _seen) = server(answer, true).await;
            let error = call(address, "/", Some(2)).send().await.unwrap_err().to_string();
            assert!(error.contains("cut off or larger than 2 bytes"), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_ends_with_the_time() {
        let (address, _seen) = server("", false).await;
        let error = call(address, "/", Some(2)).send().await.unwrap_err().to_string();
        assert_eq!(error, "no answer within 30s");
    }
}
