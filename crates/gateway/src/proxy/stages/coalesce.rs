//! A request that takes part in URL multicast; and the task that asks for all.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use http_body::Body as _;
use tidegate_core::measure::Event;
use tidegate_http::{Name, RequestHead, ResponseHead, name};

use crate::proxy::context::{DECISION, RequestContext};
use crate::proxy::cookies::SetCookies;
use crate::proxy::response_body::ResponseBody;
use crate::proxy::stages::forward::{Answer, ForAll, TicketGuard, add_cookies};
use crate::shared::coalesce::flight::{Author, End, Flight, Head, Match, Reader};
use crate::shared::coalesce::rules;
use crate::shared::coalesce::{Joined, Key, RequesterStanding, Seeking, SharedCookies, has_cookies, key};
use crate::upstream::body::RequestBody;
use tidegate_settings::Role;

/// How often a request looks for an answer that suits it: once for the one it waited for, once more when it
/// learned from that what `Vary` names.
const ROUNDS: usize = 3;

/// Fields that the gate gives every answer of its own.
const PER_ANSWER: [Name<'static>; 3] = [name::X_REQUEST_ID, name::SERVER_TIMING, DECISION];

impl RequestContext {
    /// The answer that this request shares with others; `None`: it must ask for itself.
    pub(crate) async fn share(
        &mut self,
        head: &RequestHead,
        period: Duration,
        cookies: SharedCookies,
    ) -> Option<Answer> {
        let shared = self.worker.shared.clone();
        let multicast = &shared.coalescer;
        // Tokengen forwards nothing.
        let forwards = !matches!(self.config.settings.role, Role::TokenGen { .. });
        // As with `Authorization`: the origin may answer each of these visitors differently.
        let is_known = self.conn.info.client_certificate.is_some();
        let found = match forwards && !is_known && rules::may_share(head) {
            true => self.seek(head, period, cookies).await,
            false => None,
        };
        let Some((reader, answer)) = found else {
            multicast.alone.fetch_add(1, Relaxed);
            return None;
        };
        multicast.shared.fetch_add(1, Relaxed);
        Some(self.shared_answer(reader, &answer, head.path()))
    }

    async fn seek(
        &self,
        head: &RequestHead,
        period: Duration,
        cookies: SharedCookies,
    ) -> Option<(Reader, Arc<Head>)> {
        let multicast = &self.worker.shared.coalescer;
        let mut sent = for_all(head, &cookies);
        self.prepare(&mut sent, false);
        let throttle = self.shaped.as_ref().map(|throttle| throttle.id);
        let mut key = key(head, &sent.fields, cookies);
        key.throttle = throttle;
        let seeking = Seeking {
            headers: &sent.fields,
            has_cookies: has_cookies(&sent.fields),
            standing: RequesterStanding { class: self.class, lane: self.shared_lane() },
        };
        for _ in 0..ROUNDS {
            match multicast.join(&key, &seeking, period, self.worker.now()) {
                Joined::Alone => return None,
                Joined::Lead(reader) => {
                    multicast.upstream.fetch_add(1, Relaxed);
                    let pump = Fetcher { flight: reader.flight.clone(), key: key.clone() };
                    tokio::task::spawn_local(pump.run(self.for_all(), for_all(head, &key.cookies)));
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
        let mut answer = ResponseHead::new(head.status);
        answer.fields = head.headers.clone();
        let fields = &mut answer.fields;
        if head.ends_session {
            let mut cookies = SetCookies::default();
            self.end_session(&mut cookies);
            add_cookies(fields, &cookies);
        }
        let stay = self.session.as_mut().and_then(|session| session.take_stay());
        let body = ResponseBody::Shared(reader.into_body(), stay);
        // What is asked for all is not shaped, and read as fast as one of them gets it.
        let body = match self.shaping() {
            Some(shaping) => body.shaped(shaping),
            None => body,
        };
        // RFC 9111 5.1: what was not asked of the origin for this request tells its age.
        if age > 0 {
            fields.set(name::AGE, itoa::Buffer::new().format(age).as_bytes());
        }
        self.tell_shadow(fields);
        if let Some(event) = head.refused {
            self.explain(fields, event, path);
        }
        self.log_now(head.status.as_u16(), rules::length(&head.headers).unwrap_or_default(), "multicast");
        Answer { head: answer, body, for_all: None }
    }
}

/// The request as it is sent for all: without what only its own visitor has a use for.
fn for_all(head: &RequestHead, cookies: &SharedCookies) -> RequestHead {
    let mut all = head.clone();
    all.fields.retain(|name, _, _| !rules::is_not_for_all(name));
    if *cookies != SharedCookies::AsAllowed {
        all.fields.remove(name::COOKIE);
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
    async fn run(self, context: RequestContext, head: RequestHead) {
        let shared = context.worker.shared.clone();
        shared.admission.charge(shared.admission.costs().charged(context.class));
        let guard = TicketGuard::new(&context.worker, None, None);
        let (by, cookies) = (Event::Entered, SetCookies::default());
        let answer = context.forward(head, RequestBody::empty(), by, cookies, guard).await;
        let Answer { mut head, mut body, for_all } = answer;
        let (status, mut fields) = (head.status(), std::mem::take(&mut head.fields));
        for name in PER_ANSWER {
            fields.remove(name);
        }
        if let SharedCookies::Ignored { strip } = &self.key.cookies {
            for name in strip.iter() {
                fields.remove(Name::of(name));
            }
        }
        let author = match (for_all, &body) {
            (Some(ForAll::Refused(event)), _) => Author::Refusal(event),
            (Some(ForAll::EndsSessions), _) => Author::OriginEndingSessions,
            (None, ResponseBody::Own(_)) => Author::Failure,
            (None, _) => Author::Origin,
        };
        let sharing = self.flight.land(status, fields, author, body.is_end_stream());
        let until = self.flight.sent + rules::kept(status.as_u16(), self.flight.period);
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
