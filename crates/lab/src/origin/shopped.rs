//! The shop as a service behind the origin's doors.

use http::{Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;

use super::body::Body;
use super::service::{Answering, Service, answer};
use super::shop::{self, Ended};
use super::{Stats, Visit};
use crate::model::StageStats;

/// Longest body of a request: a bid's form is some dozen bytes.
const MAX_BODY: usize = 64 * 1024;

pub struct Shopped(shop::Service);

impl Shopped {
    pub fn new(shop: shop::Service) -> Self {
        Self(shop)
    }
}

impl Service for Shopped {
    fn call(&self, visit: Visit, request: Request<Incoming>) -> Answering<'_> {
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let Ok(body) = Limited::new(body, MAX_BODY).collect().await else {
                visit.refused();
                let what = format!("a body of at most {MAX_BODY} bytes was expected\n");
                return answer(StatusCode::PAYLOAD_TOO_LARGE, "text/plain; charset=utf-8", what);
            };
            // The visit goes with the work: a query whose visitor has left is still there.
            let ended = move |how| match how {
                Ended::Served => visit.served(),
                Ended::Refused => visit.refused(),
                Ended::Wasted | Ended::Abandoned => drop(visit),
            };
            let request = Request::from_parts(head, body.to_bytes());
            self.0.answer_then(request, ended).await.map(Body::whole)
        })
    }

    fn stats(&self) -> Option<Stats> {
        Some(self.0.stats())
    }

    fn stages(&self) -> Vec<StageStats> {
        self.0.stages().into()
    }
}
