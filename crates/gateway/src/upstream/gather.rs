//! The beginning of a visitor's request body, read before the request takes an in-flight slot.
//!
//! A slot is the origin's time. If a request took one before its body is here, visitors who send slowly, on a
//! bad line or on purpose, would hold the slots of all others. Small bodies are here whole afterwards, which
//! also lets a lost attempt be repeated. Of larger ones the rest streams, and must keep up with
//! `limits.min_body_rate`.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::upstream::body::{BoxError, RequestBody};

/// Bytes that are read ahead: what HAProxy's `http-buffer-request` waits for, and more than a form usually
/// has.
const AHEAD: usize = 16 << 10;

/// Reads ahead until the body has ended or [`AHEAD`] bytes are here. What has been read comes first in the
/// body that is returned.
///
/// # Errors
/// The visitor's side of the body failed.
pub async fn gather(mut body: RequestBody) -> Result<RequestBody, BoxError> {
    let (mut read, mut bytes) = (VecDeque::new(), 0);
    while bytes < AHEAD && !body.is_end_stream() {
        let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await.transpose()? else { break };
        bytes += frame.data_ref().map_or(0, Bytes::len);
        read.push_back(frame);
        if read.back().is_some_and(Frame::is_trailers) {
            break;
        }
    }
    let is_whole = body.is_end_stream() || bytes < AHEAD;
    Ok(match (read.len(), is_whole) {
        (0, _) => body,
        (_, true) if read.iter().all(Frame::is_data) => RequestBody::full(joined(read, bytes)),
        _ => RequestBody::boxed(Gathered { read, rest: body }),
    })
}

/// One piece of several; a single one is not copied.
fn joined(mut read: VecDeque<Frame<Bytes>>, bytes: usize) -> Bytes {
    let mut pieces = read.drain(..).filter_map(|frame| frame.into_data().ok());
    let Some(first) = pieces.next() else { return Bytes::new() };
    let mut rest = pieces.peekable();
    if rest.peek().is_none() {
        return first;
    }
    let mut all = Vec::with_capacity(bytes);
    all.extend_from_slice(&first);
    rest.for_each(|piece| all.extend_from_slice(&piece));
    all.into()
}

/// A body whose beginning has been read.
struct Gathered {
    read: VecDeque<Frame<Bytes>>,
    rest: RequestBody,
}

impl Body for Gathered {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.read.pop_front() {
            Some(frame) => Poll::Ready(Some(Ok(frame))),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.read.is_empty() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let read: u64 = self.read.iter().filter_map(Frame::data_ref).map(|data| data.len() as u64).sum();
        let rest = self.rest.size_hint();
        let mut hint = SizeHint::new();
        // With trailers behind it the content has no length beforehand: they need the chunked coding.
        if let Some(upper) = rest.upper().filter(|_| !self.read.iter().any(Frame::is_trailers)) {
            hint.set_upper(read + upper);
        }
        hint.set_lower(read + rest.lower());
        hint
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};
    use http_body_util::BodyExt;

    use super::*;

    /// A body of these pieces. If it stalls, nothing comes after them.
    struct Pieces {
        left: VecDeque<Frame<Bytes>>,
        stalls: bool,
    }

    impl Body for Pieces {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            match self.left.pop_front() {
                None if self.stalls => Poll::Pending,
                next => Poll::Ready(next.map(Ok)),
            }
        }
    }

    fn body(sizes: &[usize], more: Option<Frame<Bytes>>, stalls: bool) -> RequestBody {
        let data = sizes.iter().map(|size| Frame::data(Bytes::from(vec![*size as u8; *size])));
        RequestBody::boxed(Pieces { left: data.chain(more).collect(), stalls })
    }

    async fn contents(body: RequestBody) -> (Vec<u8>, Option<HeaderMap>) {
        let collected = body.collect().await.unwrap();
        let trailers = collected.trailers().cloned();
        (collected.to_bytes().to_vec(), trailers)
    }

    #[tokio::test]
    async fn a_small_body_is_here_whole_and_can_be_sent_again() {
        for sizes in [&[5][..], &[1, 2, 3], &[AHEAD - 1]] {
            let gathered = gather(body(sizes, None, false)).await.unwrap();
            assert_eq!(format!("{gathered:?}"), "Full", "{sizes:?}");
            let expected: Vec<u8> = sizes.iter().flat_map(|size| vec![*size as u8; *size]).collect();
            assert_eq!(contents(gathered).await, (expected, None));
        }
        assert!(gather(RequestBody::empty()).await.unwrap().is_end_stream());
    }

    #[tokio::test]
    async fn of_a_large_body_no_more_is_read_than_it_takes() {
        // It stalls after the second piece: reading a third would never end.
        let gathered = gather(body(&[AHEAD - 1, 10], None, true)).await.unwrap();
        assert!(!gathered.is_end_stream());
        assert_eq!(gathered.size_hint().lower(), AHEAD as u64 + 9);
        let sizes = [AHEAD, 7, 9];
        let (all, _) = contents(gather(body(&sizes, None, false)).await.unwrap()).await;
        assert_eq!(all.len(), sizes.iter().sum::<usize>());
        assert!(all.ends_with(&[9; 9]), "in order");
    }

    #[tokio::test]
    async fn trailers_stay_behind_the_content() {
        let name = HeaderName::from_static("grpc-status");
        let fields = HeaderMap::from_iter([(name, HeaderValue::from_static("0"))]);
        let gathered = gather(body(&[3], Some(Frame::trailers(fields.clone())), false)).await.unwrap();
        assert_eq!(gathered.size_hint().exact(), None, "they need the chunked coding");
        assert_eq!(contents(gathered).await, (vec![3; 3], Some(fields)));
    }

    #[tokio::test]
    async fn a_broken_body_is_an_error() {
        struct Broken;
        impl Body for Broken {
            type Data = Bytes;
            type Error = BoxError;
            fn poll_frame(
                self: Pin<&mut Self>,
                _: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
                Poll::Ready(Some(Err("broken".into())))
            }
        }
        assert_eq!(gather(RequestBody::boxed(Broken)).await.unwrap_err().to_string(), "broken");
    }
}
