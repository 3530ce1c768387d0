//! The admin port: figures of a running origin, and changes of its capacity.
//!
//! | request | answer |
//! |---|---|
//! | `GET /metrics` | every stage in node_exporter's format |
//! | `GET /metrics/STAGE` | that stage, as a host's own node_exporter would show it |
//! | `GET /series` | requests and how they ended, second by second |
//! | `GET /stats` | totals, replicas, stages |
//! | `PUT /change` | `{"replicas": 2, "workers": 5, "speed": 0.5, "errors": 0.1}`, each optional |

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;

use super::control::Control;
use super::figures;
use super::service::{Answer, answer};
use crate::scenario::Change;

/// A change is four numbers.
const MAX_BODY: usize = 4096;
const JSON: &str = "application/json";
/// As node_exporter sends it.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Takes the admin address; to be called within a runtime. Not async: the caller may be inside a runtime.
pub(super) fn bind(addr: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = std::net::TcpListener::bind(addr)?;
    listener.set_nonblocking(true)?;
    let addr = listener.local_addr()?;
    Ok((TcpListener::from_std(listener)?, addr))
}

/// Answers for as long as it is polled.
pub(super) async fn serve(listener: TcpListener, control: Arc<Control>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // As at the doors: a shortage must not become a busy loop.
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        };
        let control = Arc::clone(&control);
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let control = Arc::clone(&control);
                async move { Ok::<_, Infallible>(respond(&control, request).await) }
            });
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn respond(control: &Control, request: Request<Incoming>) -> Answer {
    let path = request.uri().path().to_owned();
    let get = request.method() == Method::GET || request.method() == Method::HEAD;
    match path.as_str() {
        "/change" if request.method() == Method::PUT => change(control, request.into_body()).await,
        "/change" => mistake(StatusCode::METHOD_NOT_ALLOWED, "expected PUT"),
        _ if !get => mistake(StatusCode::METHOD_NOT_ALLOWED, "expected GET"),
        "/metrics" => answer(StatusCode::OK, METRICS, figures::all(control)),
        "/series" => match serde_json::to_string(&control.meter.series()) {
            Ok(series) => answer(StatusCode::OK, JSON, series),
            Err(error) => mistake(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        },
        "/stats" => answer(StatusCode::OK, JSON, figures::stats(control).to_string()),
        _ => match path.strip_prefix("/metrics/") {
            Some(stage) => figures::host(control, stage).map_or_else(
                || {
                    let names = figures::stage_names(control).join(", ");
                    mistake(StatusCode::NOT_FOUND, &format!("stage: expected one of {names}; got {stage:?}"))
                },
                |text| answer(StatusCode::OK, METRICS, text),
            ),
            None => mistake(
                StatusCode::NOT_FOUND,
                "expected /metrics, /metrics/STAGE, /series, /stats or PUT /change",
            ),
        },
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    replicas: Option<u32>,
    workers: Option<u32>,
    speed: Option<f64>,
    errors: Option<f64>,
}

async fn change(control: &Control, body: Incoming) -> Answer {
    let bad = |what: &str| mistake(StatusCode::BAD_REQUEST, what);
    let body = match Limited::new(body, MAX_BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return bad(&format!("a body of at most {MAX_BODY} bytes was expected: {error}")),
    };
    let Wanted { replicas, workers, speed, errors } = match serde_json::from_slice(&body) {
        Ok(wanted) => wanted,
        Err(error) => {
            return bad(&format!(
                "expected an object such as {{\"replicas\": 2, \"workers\": 5, \"speed\": 0.5, \"errors\": 0.1}}, each \
                 optional; {error}"
            ));
        }
    };
    let wanted = Change { at: Duration::ZERO, replicas, workers, speed, errors };
    match control.change(&wanted) {
        Ok(()) => answer(StatusCode::OK, JSON, figures::stats(control).to_string()),
        Err(error) => bad(&error.to_string()),
    }
}

fn mistake(status: StatusCode, what: &str) -> Answer {
    answer(status, JSON, json!({"error": what}).to_string())
}
