//! A replica of the model behind HTTP: which path entry a request belongs to, the pool that takes it, and a
//! page.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, StatusCode};
use hyper::body::Incoming;

use super::body::Body;
use super::reply::{Reply, Taken};
use super::service::{Answer, Answering, Service, answer};
use super::sleep::SleepPool;
use super::spin::SpinPool;
use super::{Full, Stats, Visit};
use crate::model::{Paths, StageStats};
use crate::scenario::{Change, PathSpec};

/// The page. About as long as the smallest of real pages.
const PAGE: &[u8] = b"<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Model origin</title>\
<body style=\"font:1.1rem system-ui;max-width:36rem;margin:4rem auto;padding:0 1rem\">\
<h1>You are in</h1><p>This page was served by the model origin. It took one of its workers to make.</p>\
<p><a href=\"/\">Come again</a></p></body></html>";

const HTML: &str = "text/html; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

pub(super) enum Pool {
    Sleep(Arc<SleepPool>),
    Spin(Arc<SpinPool>),
}

impl Pool {
    fn submit(&self, path: usize, visit: Visit) -> Result<Taken, Full> {
        match self {
            Self::Sleep(pool) => pool.submit(path, visit),
            Self::Spin(pool) => pool.submit(path, visit),
        }
    }
}

pub(super) struct Modelled {
    pool: Pool,
    paths: Paths,
    /// Body and status of an error, by path entry.
    answers: Vec<(Bytes, StatusCode)>,
}

impl Modelled {
    pub fn new(pool: Pool, paths: Paths, specs: &[PathSpec]) -> Self {
        let status = |path: &PathSpec| {
            StatusCode::from_u16(path.errors.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
        };
        let answers = specs.iter().map(|path| (page(path.body_bytes), status(path))).collect();
        Self { pool, paths, answers }
    }
}

impl Service for Modelled {
    fn call(&self, visit: Visit, request: Request<Incoming>) -> Answering<'_> {
        let path = self.paths.index(request.uri().path());
        // Submitted here and not in the future: the request is present from the moment its head is read.
        let taken = self.pool.submit(path, visit);
        let (body, failed) = self.answers[path].clone();
        Box::pin(async move {
            let Ok(mut taken) = taken else { return overloaded() };
            match (&mut taken.reply).await {
                Ok(Reply::Whole) => answer(StatusCode::OK, HTML, body),
                Ok(Reply::Until(ends)) => {
                    let slow = Body::slow(body, ends, taken.leaving.take());
                    answer(StatusCode::OK, HTML, Bytes::new()).map(|_| slow)
                }
                Ok(Reply::Error) => answer(failed, TEXT, "an error\n"),
                Err(_) => overloaded(),
            }
        })
    }

    fn stats(&self) -> Option<Stats> {
        Some(match &self.pool {
            Pool::Sleep(pool) => pool.stats(),
            Pool::Spin(pool) => pool.stats(),
        })
    }

    fn stages(&self) -> Vec<StageStats> {
        match &self.pool {
            Pool::Sleep(pool) => pool.stages(),
            Pool::Spin(pool) => pool.stages(),
        }
    }

    fn change(&self, change: &Change) -> Result<(), String> {
        match &self.pool {
            Pool::Sleep(pool) => pool.change(change),
            Pool::Spin(_) if change.errors.is_some() => return Err("errors need mode \"sleep\"".into()),
            Pool::Spin(pool) => pool.change(change.workers, change.speed).map_err(|e| e.to_string())?,
        }
        Ok(())
    }

    fn stop(&self) {
        if let Pool::Spin(pool) = &self.pool {
            pool.stop();
        }
    }
}

fn overloaded() -> Answer {
    answer(StatusCode::SERVICE_UNAVAILABLE, TEXT, "overloaded\n")
}

/// The page, filled up with spaces to `bytes`, which HTML ignores after its end; never cut.
fn page(bytes: usize) -> Bytes {
    let mut page = PAGE.to_vec();
    page.resize(bytes.max(PAGE.len()), b' ');
    page.into()
}
