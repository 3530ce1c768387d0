//! A client of the admin API: hyper, with a connection for each request.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tidegate_gateway::upstream::client::connect;
use tidegate_gateway::upstream::tls::ClientTls;

use super::Failure;

/// Longest wait for a connection and the head of an answer. A healthy gate answers in milliseconds.
const PATIENCE: Duration = Duration::from_secs(30);
/// Largest document; a page of the audit is some 200 kB.
const MAX_BODY_BYTES: usize = 16 << 20;

pub struct Client {
    url: String,
    authority: String,
    uri: Uri,
    /// With `https://`.
    tls: Option<ClientTls>,
    authorization: Option<HeaderValue>,
}

impl Client {
    /// `ca`: a file with authorities that are believed beside those of the system, with `https://`.
    pub fn new(url: &str, token: Option<String>, ca: Option<&Path>) -> Result<Self, Failure> {
        let wrong = |why: &str| Failure::Usage(format!("--url {url}: {why}"));
        let uri: Uri = url.parse().map_err(|_| wrong("expected a URL like http://127.0.0.1:9090"))?;
        let tls = match uri.scheme_str() {
            Some("http") => None,
            Some("https") => {
                Some(ClientTls::believing(ca, "--ca").map_err(|e| Failure::Usage(e.to_string()))?)
            }
            _ => return Err(wrong(&format!("expected a URL with http:// or https://; write http://{url}"))),
        };
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(wrong("expected no path after HOST:PORT"));
        }
        let authority = uri.authority().ok_or_else(|| wrong("expected HOST:PORT"))?;
        let authorization = match token {
            Some(token) => {
                let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
                    .map_err(|_| Failure::Usage("--token: expected visible characters".into()))?;
                value.set_sensitive(true);
                Some(value)
            }
            None => None,
        };
        let authority = authority.as_str().to_owned();
        Ok(Self { url: url.trim_end_matches('/').into(), authority, uri, tls, authorization })
    }

    pub async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, Failure> {
        let answer = self.open(method, path, body).await?;
        let bytes = Limited::new(answer.into_body(), MAX_BODY_BYTES).collect();
        let bytes =
            tokio::time::timeout(PATIENCE, bytes).await.map_err(|_| self.lost("the answer does not end"))?;
        let bytes = bytes.map_err(|e| self.lost(&e.to_string()))?.to_bytes();
        serde_json::from_slice(&bytes).map_err(|e| self.lost(&format!("that is not a gate's answer ({e})")))
    }

    /// Sends a request and returns the answer before its body, which may be endless.
    pub async fn open(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Response<Incoming>, Failure> {
        let answer = tokio::time::timeout(PATIENCE, self.send(method, path, body))
            .await
            .map_err(|_| self.lost("no answer"))?
            .map_err(|e| self.lost(&e.to_string()))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let bytes = Limited::new(answer.into_body(), MAX_BODY_BYTES).collect().await;
        let bytes = bytes.map(|collected| collected.to_bytes()).unwrap_or_default();
        let problem: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let Some(detail) = problem["detail"].as_str() else {
            return Err(self.lost(&format!("that is not a gate's answer ({status})")));
        };
        let hint = match status.as_u16() {
            401 => " (--token, or TIDEGATE_TOKEN)",
            _ => "",
        };
        Err(Failure::Refused(format!("{detail}{hint}")))
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Response<Incoming>, Box<dyn std::error::Error + Send + Sync>> {
        let stream = connect(&self.uri, self.tls.as_ref()).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let body = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
        let mut request = Request::builder().method(method).uri(path).header(HOST, &self.authority);
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(value) = &self.authorization {
            request = request.header(AUTHORIZATION, value.clone());
        }
        Ok(sender.send_request(request.body(Full::new(body))?).await?)
    }

    /// The failure that there is no gate at the URL, or none that can be understood.
    pub fn lost(&self, why: &str) -> Failure {
        Failure::Unreachable(format!("no gate at {}: {why} (--url, or TIDEGATE_URL)", self.url))
    }
}

/// A name as a segment of a URL's path.
pub fn segment(name: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~*".contains(&b);
    name.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_accepted_or_refused_with_a_reason() {
        for good in [
            "http://127.0.0.1:9090",
            "http://localhost:9090/",
            "http://[::1]:9090",
            "http://gate",
            "https://gate",
        ] {
            assert!(Client::new(good, None, None).is_ok(), "{good}");
        }
        for (bad, said) in
            [("127.0.0.1:9090", "write http://"), ("http://gate/v1", "no path"), ("", "expected a URL")]
        {
            match Client::new(bad, None, None) {
                Err(Failure::Usage(why)) => assert!(why.contains(said), "{bad}: {why}"),
                other => panic!("{bad}: {}", other.is_ok()),
            }
        }
        match Client::new("https://gate", None, Some(Path::new("/nowhere.pem"))) {
            Err(Failure::Usage(why)) => assert!(why.starts_with("--ca: "), "{why}"),
            other => panic!("{}", other.is_ok()),
        }
        assert_eq!(segment("class.a b/c"), "class.a%20b%2Fc");
    }
}
