//! The service behind an origin's listeners: the model, in either mode, or something real.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;

use super::body::Body;
use super::{Stats, Visit};
use crate::model::StageStats;
use crate::scenario::Change;

pub type Answer = Response<Body>;
/// An answer in the making; dropped when its visitor closes the connection.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

/// A service that answers requests. Listener, connections, series and admin port belong to the origin.
pub trait Service: Send + Sync + 'static {
    /// Answers a request. The visit is kept for as long as the request is worked on, also where that goes on
    /// after this future has been dropped, and learns how it ended.
    fn call(&self, visit: Visit, request: Request<Incoming>) -> Answering<'_>;

    fn stats(&self) -> Option<Stats> {
        None
    }

    fn stages(&self) -> Vec<StageStats> {
        Vec::new()
    }

    /// Changes the number of workers, the speed of every server or the share of errors; values have been
    /// checked. Replicas are not its concern.
    fn change(&self, _change: &Change) -> Result<(), String> {
        Err("workers, speed and errors of this service cannot be changed".into())
    }

    /// Ends what goes on in the background; blocks until it has ended.
    fn stop(&self) {}
}

pub fn answer(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Body::whole(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
