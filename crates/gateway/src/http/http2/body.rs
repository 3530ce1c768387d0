//! The body of a request that came by HTTP/2: bounded in size and silence, as those of HTTP/1.1
//! are. `h2` has checked it against `Content-Length`.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use http_body::{Body, Frame, SizeHint};
use tidegate_http::BadBody;
use tokio::time::{Instant, Sleep, sleep_until};

use super::link::StreamLink;
use crate::http::body_rate::time_left;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Fields of a trailer section, as for HTTP/1.1.
const MAX_TRAILERS: usize = 64;

#[derive(Clone)]
pub struct BodyLimits {
    /// Bytes; 0: no limit.
    pub max: u64,
    /// Longest silence.
    pub timeout: Duration,
    /// Bytes per second that must come, on average and after some grace; 0: any rate.
    pub min_rate: u64,
    /// Called when a body is cut off.
    pub on_bad: Rc<dyn Fn(BadBody)>,
}

/// Data is taken out of the visitor's window when it comes, and given back when it is read here: a visitor
/// sends as fast as the origin takes.
pub struct StreamBody {
    stream: RecvStream,
    limits: BodyLimits,
    came: u64,
    length: Option<u64>,
    /// The stream, if the request waits for `100 Continue`: sent when the body is first asked for.
    asks: Option<StreamLink>,
    silence: Option<Silence>,
    /// How long the visitor has been waited for before the present silence.
    waited: Duration,
    is_over: bool,
}

/// Since when nothing has come, and when that has lasted too long.
struct Silence {
    since: Instant,
    end: Pin<Box<Sleep>>,
}

impl StreamBody {
    pub fn new(stream: RecvStream, length: Option<u64>, limits: BodyLimits, link: &StreamLink) -> Self {
        let asks = link.expect_continue().then(|| link.clone());
        Self { stream, limits, came: 0, length, asks, silence: None, waited: Duration::ZERO, is_over: false }
    }

    fn break_off(&mut self, bad: BadBody) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.is_over = true;
        (self.limits.on_bad)(bad);
        Poll::Ready(Some(Err(bad.into())))
    }

    /// Nothing came. Ready when that has lasted too long: for `timeout`, or for longer than the lowest rate
    /// leaves after what has come.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let silence = self.silence.get_or_insert_with(|| {
            let since = Instant::now();
            let left = time_left(self.came, self.waited, self.limits.min_rate);
            Silence { since, end: Box::pin(sleep_until(since + left.min(self.limits.timeout))) }
        });
        silence.end.as_mut().poll(cx)
    }

    /// Something came.
    fn heard(&mut self) {
        if let Some(silence) = self.silence.take() {
            self.waited += silence.since.elapsed();
        }
    }
}

impl fmt::Debug for StreamBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamBody").field("came", &self.came).finish_non_exhaustive()
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if this.is_over {
            return Poll::Ready(None);
        }
        if let Some(link) = this.asks.take() {
            link.say_continue();
        }
        loop {
            match this.stream.poll_data(cx) {
                Poll::Ready(Some(Ok(data))) => {
                    this.heard();
                    this.came += data.len() as u64;
                    if this.limits.max > 0 && this.came > this.limits.max {
                        return this.break_off(BadBody::TooLarge);
                    }
                    // Only an ended stream refuses it.
                    let _ = this.stream.flow_control().release_capacity(data.len());
                    if !data.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(data))));
                    }
                }
                Poll::Ready(Some(Err(error))) => {
                    this.is_over = true;
                    return Poll::Ready(Some(Err(error.into())));
                }
                Poll::Ready(None) => break,
                Poll::Pending => {
                    ready!(this.poll_silence(cx));
                    return this.break_off(BadBody::TooSlow);
                }
            }
        }
        match this.stream.poll_trailers(cx) {
            Poll::Ready(Ok(trailers)) => {
                this.is_over = true;
                match trailers {
                    Some(trailers) if trailers.len() > MAX_TRAILERS => this.break_off(BadBody::Trailer),
                    trailers => Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers)))),
                }
            }
            Poll::Ready(Err(error)) => {
                this.is_over = true;
                Poll::Ready(Some(Err(error.into())))
            }
            Poll::Pending => {
                ready!(this.poll_silence(cx));
                this.break_off(BadBody::TooSlow)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_over || self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_end_stream() {
            return SizeHint::with_exact(0);
        }
        self.length.map_or_else(SizeHint::default, |all| SizeHint::with_exact(all.saturating_sub(self.came)))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// How a body ends whose visitor sends a byte a second: its bytes, and why it was cut off.
    async fn trickle(min_rate: u64) -> (u64, Option<BadBody>) {
        let (near, far) = tokio::io::duplex(1 << 16);
        let visitor = async move {
            let (mut send, connection) = h2::client::handshake(near).await.unwrap();
            tokio::task::spawn_local(connection);
            let request = http::Request::post("http://shop.example/").body(()).unwrap();
            let (_answer, mut body) = send.send_request(request, false).unwrap();
            for left in (0..60).rev() {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if body.send_data(Bytes::from_static(b"x"), left == 0).is_err() {
                    return;
                }
            }
            // Who leaves before the answer cancels the request.
            std::future::pending().await
        };
        tokio::task::spawn_local(visitor);
        let mut connection = h2::server::handshake(far).await.unwrap();
        let (request, respond) = connection.accept().await.unwrap().unwrap();
        tokio::task::spawn_local(async move { while connection.accept().await.is_some() {} });
        let told = Rc::new(Cell::new(None));
        let on_bad = {
            let told = told.clone();
            Rc::new(move |bad| told.set(Some(bad)))
        };
        let limits = BodyLimits { max: 0, timeout: Duration::from_secs(30), min_rate, on_bad };
        let link = StreamLink::new(respond, false);
        let mut body = StreamBody::new(request.into_body(), None, limits, &link);
        while let Some(Ok(_)) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {}
        (body.came, told.get())
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_comes_byte_by_byte_is_cut_off_unless_any_rate_is_allowed() {
        let local = tokio::task::LocalSet::new();
        let (came, bad) = local.run_until(trickle(500)).await;
        assert_eq!(bad, Some(BadBody::TooSlow));
        assert!((9..=10).contains(&came), "{came} bytes in ten seconds");
        assert_eq!(local.run_until(trickle(0)).await, (60, None));
    }
}
