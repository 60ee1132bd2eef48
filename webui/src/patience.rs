//! How long the other end of a connection is waited for: to send the whole of a request, to take an answer.
//!
//! The header of a request has its own deadline, which hyper keeps. A stream of events may last as long as somebody takes
//! what comes.

use std::error::Error;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A stream that fails when its other end takes nothing for a while.
#[derive(Debug)]
pub(crate) struct Patient<S> {
    stream: S,
    /// Runs since the other end took the last byte.
    stalled: Option<Pin<Box<Sleep>>>,
}

/// The body of a request, which has to be here as a whole before long.
#[derive(Debug)]
pub(crate) struct Hurried {
    body: Incoming,
    deadline: Pin<Box<Sleep>>,
}

impl<S> Patient<S> {
    pub(crate) const fn new(stream: S) -> Self {
        Self {
            stream,
            stalled: None,
        }
    }

    fn waited<T>(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.stalled = None;
            return polled;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(TAKEN_WITHIN)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl Hurried {
    pub(crate) fn new(body: Incoming) -> Self {
        Self {
            body,
            deadline: Box::pin(sleep(BODY_WITHIN)),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.waited(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.waited(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        self.waited(cx, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.waited(cx, polled)
    }
}

impl Body for Hurried {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        ready!(self.deadline.as_mut().poll(cx));
        Poll::Ready(Some(Err("the request took too long".into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// How long the other end may take nothing of an answer.
const TAKEN_WITHIN: Duration = Duration::from_secs(30);
/// How long the body of a request may take.
const BODY_WITHIN: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_takes_ends_the_connection() {
        let (ours, _theirs) = duplex(16);
        let began = Instant::now();
        let error = Patient::new(ours).write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed().as_secs(), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_takes_a_little_now_and_then_is_waited_for() {
        let (ours, mut theirs) = duplex(16);
        let reader = async {
            let mut taken = [0; 16];
            for _ in 0..4 {
                sleep(TAKEN_WITHIN / 2).await;
                theirs.read_exact(&mut taken).await.unwrap();
            }
        };
        let mut stream = Patient::new(ours);
        let (written, ()) = tokio::join!(stream.write_all(&[0; 64]), reader);
        written.unwrap();
    }
}
