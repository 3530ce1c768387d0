//! What may go wrong between the gate and the origin.

use std::io;
use std::sync::atomic::AtomicU64;

use tidegate_http::BadBody;

use crate::upstream::balance::Miss;
use crate::upstream::body::BoxError;
use crate::upstream::stats::Stats;
use crate::upstream::target::OpenError;

/// Why an origin's connection is of no more use.
#[derive(Debug, thiserror::Error)]
pub enum OriginError {
    #[error("it was closed by the origin")]
    Closed,
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The stream or its connection broke.
    #[error(transparent)]
    Http2(#[from] h2::Error),
    /// The chunked coding of the response is wrong.
    #[error(transparent)]
    Content(#[from] BadBody),
    /// The rest of the request is missing, so that its connection had to be closed.
    #[error("the visitor's request ended early")]
    Request,
}

#[derive(Debug, thiserror::Error)]
pub enum DispatchError {
    /// Every replica is down by the active checks, or none is configured.
    #[error("no replica is up")]
    NoReplica,
    /// The replica refused the connection, is unreachable, or its name has no address.
    #[error("cannot connect: {0}")]
    ConnectFailed(#[source] io::Error),
    /// No connection within `origin.connect_timeout`.
    #[error("no connection within the time limit")]
    ConnectTimeout,
    /// No response within `origin.first_byte_timeout` after the end of the request.
    #[error("no response within the time limit")]
    FirstByteTimeout,
    #[error("the connection was lost before the response: {0}")]
    Reset(#[source] OriginError),
    /// The origin sent something that may not be passed on.
    #[error("invalid response: {0}")]
    BadResponse(#[source] BoxError),
    /// The visitor asks for WebSocket; the HTTP/2 origin has not announced that it takes extended CONNECT.
    #[error("the origin does not speak WebSocket by HTTP/2 (RFC 8441)")]
    NoWebSocket,
    /// The visitor's side of the request body failed; the verdict of the visitor's connection is the error,
    /// or one of its sources.
    #[error("the request body failed: {0}")]
    RequestBody(#[source] BoxError),
}

impl DispatchError {
    /// How the attempt ended; `None`: there was no replica to make one at.
    pub(crate) fn miss(&self) -> Option<Miss> {
        Some(match self {
            Self::NoReplica => return None,
            Self::ConnectFailed(e) if e.kind() == io::ErrorKind::ConnectionRefused => Miss::Refused,
            Self::ConnectFailed(_) | Self::ConnectTimeout => Miss::NoConnection,
            Self::Reset(_) => Miss::Lost,
            Self::FirstByteTimeout => Miss::Silent,
            Self::BadResponse(_) | Self::NoWebSocket => Miss::Bad,
            Self::RequestBody(_) => Miss::Body,
        })
    }

    pub(super) fn counter<'s>(&self, stats: &'s Stats) -> &'s AtomicU64 {
        match self {
            Self::NoReplica => &stats.no_replica,
            Self::ConnectFailed(_) => &stats.connect_failed,
            Self::ConnectTimeout => &stats.connect_timeout,
            Self::FirstByteTimeout => &stats.first_byte_timeout,
            Self::Reset(_) => &stats.reset,
            Self::BadResponse(_) | Self::NoWebSocket => &stats.bad_response,
            Self::RequestBody(_) => &stats.request_body,
        }
    }
}

impl From<OpenError> for DispatchError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Timeout => Self::ConnectTimeout,
            OpenError::Failed(error) => Self::ConnectFailed(error),
        }
    }
}

/// What breaks off the body of an answer.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// `origin.read_timeout` passed without a byte.
    #[error("the origin fell silent within its response")]
    Timeout,
    /// `limits.request_timeout` passed before its end.
    #[error("the request took longer than it may")]
    Overdue,
    /// The visitor was too slow for a shared response.
    #[error("the visitor fell too far behind a shared answer")]
    Behind,
    #[error("the shared answer was broken off")]
    Shared,
    /// The connection was lost, or the chunked coding is wrong.
    #[error("the origin broke off its response: {0}")]
    Origin(#[source] OriginError),
}
