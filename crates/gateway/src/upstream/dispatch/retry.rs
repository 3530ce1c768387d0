//! What follows an attempt that brought no answer: whether it speaks against the replica, and whether another may be made.

use std::io;

use super::DispatchError;

/// How an attempt ended without an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Miss {
    /// The connection was refused: nothing listens there. Nothing was sent, and no time lost.
    Refused,
    /// No connection: nothing was sent.
    NoConnection,
    /// The connection was lost before the first byte.
    Lost,
    /// No first byte in time.
    Silent,
    /// An answer that may not be passed on.
    Bad,
    /// The visitor's body failed.
    Body,
}

impl Miss {
    /// Whether it counts towards the replica's ejection.
    pub fn speaks_against_replica(self) -> bool {
        matches!(self, Self::Refused | Self::NoConnection | Self::Lost | Self::Silent)
    }

    /// Whether another attempt may be made, budget permitting. `is_repeatable`: sending the request twice does no harm.
    ///
    /// A silent origin may still be working on it: a second copy adds load to overload.
    pub fn may_be_repeated(self, is_repeatable: bool, was_repeated: bool) -> bool {
        is_repeatable && !was_repeated && !matches!(self, Self::Silent | Self::Bad)
    }
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
            Self::BadResponse(_) => Miss::Bad,
            Self::RequestBody(_) => Miss::Body,
        })
    }
}
