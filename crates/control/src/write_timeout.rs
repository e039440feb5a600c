//! Closes connections whose other side does not read, so that no response waits for ever.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A stream whose writes fail after this time without progress.
pub(crate) struct WriteTimeout<S, F> {
    stream: S,
    patience: Duration,
    /// What is done about one that is given up.
    given_up: F,
    /// Since the other side has stopped to read.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S: Unpin, F: Fn() + Unpin> WriteTimeout<S, F> {
    pub(crate) const fn new(stream: S, patience: Duration, given_up: F) -> Self {
        Self { stream, patience, given_up, waiting: None }
    }

    fn bound<T>(
        &mut self,
        context: &mut Context<'_>,
        work: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let done = work(Pin::new(&mut self.stream), context);
        if done.is_ready() {
            self.waiting = None;
            return done;
        }
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(self.patience)));
        if waiting.as_mut().poll(context).is_ready() {
            (self.given_up)();
            return Poll::Ready(Err(ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin, F: Unpin> AsyncRead for WriteTimeout<S, F> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin, F: Fn() + Unpin> AsyncWrite for WriteTimeout<S, F> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.bound(context, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.bound(context, |stream, context| stream.poll_write_vectored(context, parts))
    }

    /// As the stream itself: answers are written from where they lie, and not copied before.
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.bound(context, |stream, context| stream.poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.bound(context, |stream, context| stream.poll_shutdown(context))
    }
}
