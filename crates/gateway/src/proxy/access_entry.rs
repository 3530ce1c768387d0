//! What the access log will say of a request, kept while it is served. Only made if there is an access log.

use std::sync::Arc;
use std::time::Duration;

use http::header::{REFERER, USER_AGENT};
use http::{HeaderValue, Method, Uri, Version, request};

use crate::base::access_log::{AccessWriter, Entry};
use crate::proxy::serve::RequestContext;
use crate::upstream::balance::Replica;

/// The parts of a head that the log needs after the head has gone to the origin.
pub struct AccessEntry {
    method: Method,
    target: Uri,
    version: Version,
    referer: Option<HeaderValue>,
    user_agent: Option<HeaderValue>,
    /// Status of the answer.
    pub status: u16,
    /// What the gate decided.
    pub verdict: &'static str,
    /// Time in the queue.
    pub queued: Duration,
    /// Who answered.
    pub replica: Option<Arc<Replica>>,
}

impl AccessEntry {
    /// Of a head whose ticket has been taken out.
    pub fn of(parts: &request::Parts) -> Self {
        Self {
            method: parts.method.clone(),
            target: parts.uri.clone(),
            version: parts.version,
            referer: parts.headers.get(REFERER).cloned(),
            user_agent: parts.headers.get(USER_AGENT).cloned(),
            status: 0,
            verdict: "",
            queued: Duration::ZERO,
            replica: None,
        }
    }

    /// Writes the line.
    pub(crate) fn write(
        &self,
        access: &AccessWriter,
        x: &RequestContext,
        bytes: u64,
        response_time: Duration,
    ) {
        access.log(&Entry {
            time: x.started,
            client: x.client,
            method: self.method.as_str(),
            target: self.target.path_and_query().map_or("*", |t| t.as_str()),
            version: self.version,
            status: self.status,
            bytes,
            referer: self.referer.as_ref().map(HeaderValue::as_bytes),
            user_agent: self.user_agent.as_ref().map(HeaderValue::as_bytes),
            request_id: &x.id,
            class: &x.config.class(x.class).name,
            verdict: self.verdict,
            wait: self.queued,
            response_time,
            replica: self.replica.as_ref().map(|r| r.authority()),
        });
    }
}
