//! Visitors who came without TLS and should come with it (`listen.redirect_https`).

use tidegate_http::RequestHead;

use crate::http::target;
use crate::proxy::context::RequestContext;
use crate::proxy::respond;
use crate::proxy::stages::forward::Answer;

/// Where authorities look for the answers to their challenges (RFC 8555, 8.3), without TLS.
pub(crate) const ACME_PATH: &str = "/.well-known/acme-challenge/";

impl RequestContext {
    /// The answer to an authority that looks whether the gate has a host name, and to visitors who should
    /// come with TLS.
    pub(crate) fn answer_about_tls(&mut self, head: &RequestHead) -> Option<Answer> {
        if let Some(answer) = self.challenge_answer(head.path()) {
            return Some(self.own(respond::challenge(answer), "challenge"));
        }
        let url = self.url_under_tls(head)?;
        Some(self.own(respond::redirect_to_https(&url), "redirected"))
    }

    fn challenge_answer(&self, path: &str) -> Option<String> {
        let tls = self.config.tls.as_ref()?;
        tls.certificates().acme().answer(path.strip_prefix(ACME_PATH)?)
    }

    /// The URL under TLS of what was asked for without it, if such visitors are sent there.
    fn url_under_tls(&self, head: &RequestHead) -> Option<String> {
        let listen = &self.config.settings.listen;
        let https = listen.https.filter(|_| listen.redirect_https)?;
        if target::scheme(&head.fields, self.trusted, self.conn.info.scheme) == "https"
            || head.path().starts_with(ACME_PATH)
        {
            return None;
        }
        let host = target::host(head);
        // Without the port, but with all of `[fd00::5]`.
        let name = match host.rsplit_once(':') {
            Some((name, port)) if !port.contains(']') => name,
            _ => host,
        };
        let target = head.path_and_query();
        match https.port() {
            _ if name.is_empty() => None,
            443 => Some(format!("https://{name}{target}")),
            port => Some(format!("https://{name}:{port}{target}")),
        }
    }
}
