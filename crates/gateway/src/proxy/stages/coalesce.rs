//! A request that takes part in URL multicast; and the task that asks for all.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use http::header::{AGE, COOKIE};
use http::{HeaderName, Response, request};
use http_body::Body as _;
use tidegate_core::measure::Event;

use crate::proxy::context::{DECISION, RequestContext};
use crate::proxy::response_body::ResponseBody;
use crate::proxy::stages::forward::{Answer, EndsSession, Refused, TicketGuard, add_cookies};
use crate::shared::coalesce::flight::{Author, End, Flight, Head, Match, Reader};
use crate::shared::coalesce::rules::{self, NOT_FOR_ALL};
use crate::shared::coalesce::{Joined, Key, RequesterStanding, Seeking, SharedCookies, has_cookies, key};
use crate::upstream::body::RequestBody;
use tidegate_settings::Role;

/// How often a request looks for an answer that suits it: once for the one it waited for, once more when it
/// learned from that what `Vary` names.
const ROUNDS: usize = 3;

/// Fields that the gate gives every answer of its own.
const PER_ANSWER: [HeaderName; 3] =
    [HeaderName::from_static("x-request-id"), HeaderName::from_static("server-timing"), DECISION];

impl RequestContext {
    /// The answer that this request shares with others; `None`: it must ask for itself.
    pub(crate) async fn share(
        &mut self,
        parts: &request::Parts,
        period: Duration,
        cookies: SharedCookies,
    ) -> Option<Answer> {
        let shared = self.worker.shared.clone();
        let multicast = &shared.coalescer;
        // Tokengen forwards nothing.
        let forwards = !matches!(self.config.settings.role, Role::TokenGen { .. });
        // As with `Authorization`: the origin may answer each of these visitors differently.
        let is_known = self.conn.info.client_certificate.is_some();
        let found = match forwards && !is_known && rules::may_share(parts) {
            true => self.seek(parts, period, cookies).await,
            false => None,
        };
        let Some((reader, head)) = found else {
            multicast.alone.fetch_add(1, Relaxed);
            return None;
        };
        multicast.shared.fetch_add(1, Relaxed);
        Some(self.shared_answer(reader, &head, parts.uri.path()))
    }

    async fn seek(
        &self,
        parts: &request::Parts,
        period: Duration,
        cookies: SharedCookies,
    ) -> Option<(Reader, Arc<Head>)> {
        let multicast = &self.worker.shared.coalescer;
        let mut sent = for_all(parts, &cookies);
        self.prepare(&mut sent, false);
        let throttle = self.shaped.as_ref().map(|throttle| throttle.id);
        let mut key = key(parts, &sent.headers, cookies);
        key.throttle = throttle;
        let seeking = Seeking {
            headers: &sent.headers,
            has_cookies: has_cookies(&sent.headers),
            standing: RequesterStanding { class: self.class, lane: self.shared_lane() },
        };
        for _ in 0..ROUNDS {
            match multicast.join(&key, &seeking, period, self.worker.now()) {
                Joined::Alone => return None,
                Joined::Lead(reader) => {
                    multicast.upstream.fetch_add(1, Relaxed);
                    let pump = Fetcher { flight: reader.flight.clone(), key: key.clone() };
                    tokio::task::spawn_local(pump.run(self.for_all(), for_all(parts, &key.cookies)));
                    // Its own answer, also if others may share it; but if its cookies were not sent, or
                    // fields are missing that were for it, only one for all.
                    let suits =
                        |head: &Arc<Head>| key.cookies == SharedCookies::AsAllowed || head.is_shared();
                    return reader.landed().await.filter(suits).map(|head| (reader, head));
                }
                Joined::Follow(reader) => {
                    let Some(head) = reader.landed().await else { continue };
                    match reader.flight.suits(&seeking) {
                        Match::Suits => return Some((reader, head)),
                        Match::NotForIt => return None,
                        Match::Other => {}
                    }
                }
            }
        }
        None
    }

    fn shared_answer(&mut self, reader: Reader, head: &Head, path: &str) -> Answer {
        let age = self.worker.now().since(reader.flight.sent).as_secs();
        let mut headers = head.headers.clone();
        if head.ends_session {
            let mut cookies = Vec::new();
            self.end_session(&mut cookies);
            add_cookies(&mut headers, cookies);
        }
        let stay = self.session.as_mut().and_then(|session| session.take_stay());
        let body = ResponseBody::Shared(reader.into_body(), stay);
        // What is asked for all is not shaped, and read as fast as one of them gets it.
        let body = match self.shaping() {
            Some(shaping) => body.shaped(shaping),
            None => body,
        };
        let mut response = Response::new(body);
        *response.status_mut() = head.status;
        *response.headers_mut() = headers;
        // RFC 9111 5.1: what was not asked of the origin for this request tells its age.
        if age > 0 {
            response.headers_mut().insert(AGE, age.into());
        }
        self.tell_shadow(response.headers_mut());
        if let Some(event) = head.refused {
            self.explain(response.headers_mut(), event, path);
        }
        self.log_now(head.status.as_u16(), rules::length(&head.headers).unwrap_or_default(), "multicast");
        response
    }
}

/// The request as it is sent for all: without what only its own visitor has a use for.
fn for_all(parts: &request::Parts, cookies: &SharedCookies) -> request::Parts {
    let (mut all, ()) = http::Request::new(()).into_parts();
    all.method = parts.method.clone();
    all.uri = parts.uri.clone();
    all.version = parts.version;
    all.headers = parts.headers.clone();
    for name in &NOT_FOR_ALL {
        all.headers.remove(name);
    }
    if *cookies != SharedCookies::AsAllowed {
        all.headers.remove(COOKIE);
    }
    all
}

/// Carries one upstream request for all who want its answer.
struct Fetcher {
    flight: Arc<Flight>,
    key: Key,
}

impl Drop for Fetcher {
    /// However it ends, so that no request waits for an answer that will not come.
    fn drop(&mut self) {
        self.flight.end(End::Broken);
    }
}

impl Fetcher {
    async fn run(self, context: RequestContext, parts: request::Parts) {
        let shared = context.worker.shared.clone();
        context.worker.shared.admission.charge(context.config.class(context.class).cost);
        let guard = TicketGuard::new(&context.worker, None, None);
        let response = context.forward(parts, RequestBody::empty(), Event::Entered, Vec::new(), guard).await;
        let (mut head, mut body) = response.into_parts();
        for name in &PER_ANSWER {
            head.headers.remove(name);
        }
        if let SharedCookies::Ignored { strip } = &self.key.cookies {
            for name in strip.iter() {
                head.headers.remove(name);
            }
        }
        let author = match (head.extensions.get(), &body) {
            (Some(Refused(event)), _) => Author::Refusal(*event),
            (None, ResponseBody::Own(_)) => Author::Failure,
            _ if head.extensions.get::<EndsSession>().is_some() => Author::OriginEndingSessions,
            _ => Author::Origin,
        };
        let sharing = self.flight.land(head.status, head.headers, author, body.is_end_stream());
        let until = self.flight.sent + rules::kept(head.status.as_u16(), self.flight.period);
        shared.coalescer.keep_apart(&self.key, sharing, until);
        drop(shared);
        loop {
            let next = poll_fn(|cx| match self.flight.poll_unwanted(cx) {
                Poll::Ready(()) => Poll::Ready(None),
                Poll::Pending => Pin::new(&mut body).poll_frame(cx).map(Some),
            });
            let frame = match next.await {
                // An answer may have no end, and its origin nothing to say for long.
                None | Some(Some(Err(_))) => return,
                Some(None) => break,
                Some(Some(Ok(frame))) => frame,
            };
            // Trailers are dropped: few clients see them.
            if let Ok(chunk) = frame.into_data()
                && !chunk.is_empty()
                && !self.flight.push(chunk).await
            {
                return;
            }
        }
        self.flight.end(End::Complete);
    }
}
