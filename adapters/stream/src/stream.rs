//! One end of a stream, which a program reads and writes.

use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;
use std::io;
use std::sync::Arc;

use pronto::{Bytes, CallError, Message, NodeId, Peer};

use crate::endpoint::Core;
use crate::error::StreamError;
use crate::frames::{Credit, Data, Finish, Reset, StreamId};
use crate::poster::Due;
use crate::state::Shared;
use crate::table::Key;

/// Limit of the wait of a write for room. A peer that is down ends the stream before; one that is up and slow may take any time.
const NEVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A message that waits for room to send.
type Sending = Pin<Box<dyn Future<Output = Result<(), CallError>> + Send>>;

/// A byte stream to a peer. It may be split, for example by `tokio::io::split`, and its halves polled by different tasks.
///
/// Bytes arrive in order, or the stream ends with an error. Shutting it down ends the bytes of this direction only. Dropping it resets both
/// directions, unless both sides have sent their last byte. Bytes that the peer has not received by then may be lost, and those that it has
/// received stay readable.
pub struct PeerStream {
    core: Arc<Core>,
    shared: Arc<Shared>,
    peer: Peer,
    id: StreamId,
    /// Number of bytes sent.
    sent: u64,
    sending: Option<Sending>,
    writing: Writing,
    at_drop: AtDrop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writing {
    Open,
    Finished,
}

/// Whether the peer has a side of the stream that it must be told about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AtDrop {
    Resets,
    Forgets,
}

impl PeerStream {
    pub(crate) const fn new(core: Arc<Core>, shared: Arc<Shared>, peer: Peer, id: StreamId) -> Self {
        Self {
            core,
            shared,
            peer,
            id,
            sent: 0,
            sending: None,
            writing: Writing::Open,
            at_drop: AtDrop::Resets,
        }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Notes that the peer has no side of this stream, so that it gets no reset.
    pub(crate) const fn forget(&mut self) {
        self.at_drop = AtDrop::Forgets;
    }

    /// Returns the node at the other end.
    pub fn node(&self) -> NodeId {
        self.peer.node()
    }

    /// Reads up to `wanted` bytes, which `out` gets in at most two pieces. Returns their number, which is 0 at the end of the stream and if
    /// `wanted` is 0.
    ///
    /// # Errors
    /// A [`StreamError`], if the stream ended without the last byte.
    pub fn poll_read_with(
        &mut self,
        context: &Context<'_>,
        wanted: usize,
        out: impl FnMut(&[u8]),
    ) -> Poll<io::Result<usize>> {
        let read = ready!(self.shared.poll_read(context, wanted, out))?;
        if let Some(until) = read.credit {
            self.core.poster.post(&self.peer, Due::Credit(Credit { stream: self.id, until }));
        }
        Poll::Ready(Ok(read.bytes))
    }

    /// Sends the first bytes of `bytes`, as many as the window and a message allow. Returns their number. Waits while the window is empty.
    ///
    /// # Errors
    /// A [`StreamError`], or `BrokenPipe` after [`PeerStream::poll_finish`].
    pub fn poll_send(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.writing == Writing::Finished {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        ready!(self.poll_sent(context))?;
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let room = ready!(self.shared.poll_room(context, self.sent))?;
        let most = usize::try_from(room.min(self.core.limits.piece.into())).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(most)];
        self.send(Data { stream: self.id, offset: self.sent, bytes: Bytes::from(bytes) })?;
        self.sent += bytes.len() as u64;
        Poll::Ready(Ok(bytes.len()))
    }

    /// Waits until everything that was written has left. It does not wait until the peer has read it.
    ///
    /// # Errors
    /// A [`StreamError`], if the stream has ended before.
    pub fn poll_sent(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(sending) = &mut self.sending else { return Poll::Ready(Ok(())) };
        if let Poll::Ready(error) = self.shared.poll_end(context) {
            self.sending = None;
            return Poll::Ready(Err(error.into()));
        }
        let outcome = ready!(sending.as_mut().poll(context));
        self.sending = None;
        Poll::Ready(outcome.map_err(|error| self.ended(error)))
    }

    /// Ends the bytes of this direction, after those that were written. Further calls only wait.
    ///
    /// # Errors
    /// A [`StreamError`], if the stream has ended before.
    pub fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_sent(context))?;
        if self.writing == Writing::Open {
            if let Some(broken) = self.shared.broken() {
                return Poll::Ready(Err(broken.into()));
            }
            self.send(Finish { stream: self.id, offset: self.sent })?;
            self.writing = Writing::Finished;
        }
        self.poll_sent(context)
    }

    /// Sends a message, or keeps it until there is room.
    fn send<M: Message + Sync>(&mut self, message: M) -> io::Result<()> {
        match self.peer.notify(&message) {
            Ok(()) => Ok(()),
            Err(error) if error.is_retryable() && self.peer.is_up() => {
                let peer = self.peer.clone();
                self.sending = Some(Box::pin(async move { peer.notify_async_within(&message, NEVER).await }));
                Ok(())
            }
            Err(error) => Err(self.ended(error)),
        }
    }

    /// Ends the stream, because a message could not be sent. Returns the first reason why it ended.
    fn ended(&self, error: CallError) -> io::Error {
        let error = StreamError::Send(error);
        self.shared.handle_end(error.clone());
        self.shared.broken().unwrap_or(error).into()
    }
}

impl Drop for PeerStream {
    fn drop(&mut self) {
        self.core.table.remove(Key::of_ours(self.peer.node(), self.id));
        let is_complete =
            self.writing == Writing::Finished && self.sending.is_none() && self.shared.is_finished();
        let is_over_there = matches!(
            self.shared.broken(),
            Some(StreamError::Reset | StreamError::PeerDown(_) | StreamError::NodeEnded)
        );
        if self.at_drop == AtDrop::Resets && !is_complete && !is_over_there {
            self.core.poster.post(&self.peer, Due::Reset(Reset { stream: self.id }));
        }
    }
}

impl fmt::Debug for PeerStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerStream")
            .field("peer", &self.peer.node())
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
