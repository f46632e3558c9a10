//! A posted receive: wait for its message, poll, await or cancel it.

use alloc::sync::Arc;
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;

use pronto_core::WaitPolicy;
use pronto_core::session::{Session, WaitOutcome};
use pronto_wire::CallId;

use super::error::{ReceiveError, received};
use super::{poll_once, wait_as};
use crate::host::Host;
use crate::peer::nanos;

/// A posted receive. Dropping it cancels the receive; the buffer may be written to until the node has processed the cancellation.
#[must_use = "dropping it cancels the receive"]
pub struct Receive<H: Host> {
    pub(super) session: Arc<Session<H::Qp>>,
    pub(super) host: Arc<H>,
    pub(super) slot: Option<CallId>,
    pub(super) policy: WaitPolicy,
}

impl<H: Host> Receive<H> {
    /// Waits for the message, at most `timeout`. Returns its length, bytes.
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`] leaves the receive posted, so that this can be called again.
    pub fn wait(&mut self, timeout: Duration) -> Result<u64, ReceiveError> {
        let slot = self.slot.ok_or(ReceiveError::Taken)?;
        if self.session.has_ended(slot) {
            self.slot = None;
            return received::<H>(self.session.take(slot, &*self.host));
        }
        let (session, host) = (&self.session, &self.host);
        match wait_as(host, session, slot, nanos(timeout), self.policy)? {
            WaitOutcome::TimedOut => Err(ReceiveError::TimedOut),
            WaitOutcome::Ended(end) => {
                self.slot = None;
                received::<H>(end)
            }
        }
    }

    /// Polls once, without waiting. Returns `None` while there is no end, and also after the end was returned.
    pub fn poll(&mut self) -> Option<Result<u64, ReceiveError>> {
        let slot = self.slot?;
        poll_once(&self.host, &self.session, slot);
        self.session.has_ended(slot).then(|| {
            self.slot = None;
            received::<H>(self.session.take(slot, &*self.host))
        })
    }

    /// Cancels the receive. Wait for its end before using the buffer for something else: the message may already be received, or its
    /// transfer may be in progress.
    pub fn cancel(&mut self) {
        if let Some(slot) = self.slot {
            self.session.cancel_receive(slot, &*self.host);
        }
    }
}

impl<H: Host> Future for Receive<H> {
    type Output = Result<u64, ReceiveError>;

    /// Polls the receive, without receiving messages itself. The node makes progress. The thread that ends the receive wakes the waker.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(slot) = self.slot else { return Poll::Ready(Err(ReceiveError::Taken)) };
        if !self.session.has_ended(slot) {
            self.session.register(slot, context.waker());
            self.session.listen(&mut self.host.waiting_sink(&self.session), &*self.host);
            if !self.session.has_ended(slot) {
                return Poll::Pending;
            }
        }
        self.slot = None;
        Poll::Ready(received::<H>(self.session.take(slot, &*self.host)))
    }
}

impl<H: Host> Unpin for Receive<H> {}

impl<H: Host> Drop for Receive<H> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.session.cancel_receive(slot, &*self.host);
            self.session.abandon_send(slot, &*self.host);
        }
    }
}

impl<H: Host> fmt::Debug for Receive<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receive").field("slot", &self.slot).finish_non_exhaustive()
    }
}
