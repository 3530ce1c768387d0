//! The shop as a service behind the origin's doors.
//!
//! The door counts a visitor who leaves as gone at once; the shop's own figures tell what it goes on doing for nobody.

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full as Whole, Limited};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::service::{Answer, Answering, Service, answer};
use super::shop::{self, ServiceStats};
use super::{Stats, Visit};
use crate::model::StageStats;

/// Longest body of a request: a bid's form is some dozen bytes.
const MAX_BODY: usize = 64 * 1024;

/// One replica of the shop.
pub struct Shopped {
    shop: shop::Service,
    start: Instant,
}

impl Shopped {
    /// Behind a door from now on.
    pub fn new(shop: shop::Service) -> Self {
        Self { shop, start: Instant::now() }
    }

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let (head, body) = request.into_parts();
        let Ok(body) = Limited::new(body, MAX_BODY).collect().await else {
            let what = format!("a body of at most {MAX_BODY} bytes was expected\n");
            return answer(StatusCode::PAYLOAD_TOO_LARGE, "text/plain; charset=utf-8", what);
        };
        self.shop.answer(Request::from_parts(head, body.to_bytes())).await.map(Whole::<Bytes>::new)
    }
}

impl Service for Shopped {
    fn call(&self, visit: Visit, request: Request<Incoming>) -> Answering<'_> {
        Box::pin(async move {
            let answer = self.answer(request).await;
            if answer.status() == StatusCode::SERVICE_UNAVAILABLE {
                visit.refused();
            } else {
                visit.served();
            }
            answer
        })
    }

    fn stats(&self) -> Option<Stats> {
        let ServiceStats { served, refused, wasted, abandoned, stages: [app, _], .. } = self.shop.stats();
        let present = app.in_service + app.queued;
        Some(Stats {
            submitted: served + refused + wasted + abandoned + present as u64,
            served,
            refused,
            wasted,
            abandoned,
            lost: 0,
            in_service: app.in_service,
            queued: app.queued,
            peak: app.peak,
        })
    }

    fn stages(&self) -> Vec<StageStats> {
        let all_us = self.start.elapsed().as_micros() as u64;
        let stage = |stage: shop::StageStats| {
            // Its threads are alike: what they did together is spread evenly.
            let busy_us = (stage.busy_s * 1e6 / stage.servers as f64) as u64;
            StageStats {
                name: stage.name.into(),
                servers: stage.servers as u32,
                busy: stage.in_service as u32,
                queued: stage.queued as u32,
                busy_us: vec![busy_us; stage.servers],
                idle_us: vec![all_us.saturating_sub(busy_us); stage.servers],
            }
        };
        self.shop.stats().stages.into_iter().map(stage).collect()
    }
}
