//! An open call: wait for its response, poll, await or cancel it.

use alloc::sync::Arc;
use core::fmt;
use core::marker::PhantomData;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;

use pronto_core::executor::{WaitRequest, expecting};
use pronto_core::fabric::{self, Arrived, InlineMessage, Withdrawn};
use pronto_core::note::{Ending, Note, What};
use pronto_core::session::{End, Executed, FastOutcome, ReplySlots, WaitOutcome};
use pronto_core::{Nanos, WaitPolicy};
use pronto_wire::{CallId, NodeId};

use crate::arrived::{Fresh, Target, read_arrived};
use crate::codec::Reader;
use crate::error::{CallError, CallRejection};
use crate::host::{Host, MayWait};
use crate::message::Request;
use crate::peer::{Ends, LeaseOf};

/// A call without a response yet. Dropping it cancels the call.
#[must_use = "dropping it cancels the call"]
pub struct Pending<M: Request, H: Host> {
    ends: Arc<Ends<H>>,
    /// `None` after the end was taken.
    call: Option<CallId>,
    timeout: Nanos,
    asked: WaitRequest,
    request: PhantomData<fn() -> M>,
}

impl<M: Request, H: Host> Pending<M, H> {
    pub(crate) fn new(ends: Arc<Ends<H>>, call: CallId, timeout: Nanos, policy: WaitPolicy) -> Self {
        Self { ends, call: Some(call), timeout, asked: policy.into(), request: PhantomData }
    }

    /// Polls once, without waiting. Returns `None` while the call is open, and also after its end was returned.
    pub fn poll(&mut self) -> Option<Result<M::Reply, CallError>> {
        let call = self.call?;
        if !self.ends.session.has_ended(call) {
            self.ends.session.ring_if_held(&*self.ends.host);
            let mut sink = self.ends.host.waiting_sink(&self.ends.session);
            self.ends.session.turn(1, || self.ends.session.has_ended(call), &mut sink, &*self.ends.host);
        }
        self.ends.session.has_ended(call).then(|| self.finish(call))
    }

    /// Sets a hint that the call ends about `after` the begin of the wait: see [`Peer::expecting`](crate::Peer::expecting).
    pub fn expecting(mut self, after: Duration) -> Self {
        self.asked = expecting(self.asked, after);
        self
    }

    /// Waits for the reply, at most the timeout with which the call was started.
    pub fn wait(mut self) -> Result<M::Reply, CallError> {
        let Some(call) = self.call else { return Err(CallError::Cancelled { executed: Executed::Maybe }) };
        let wait = |preference| {
            let mut sink = self.ends.host.waiting_sink(&self.ends.session);
            let asked = self.asked.by(preference);
            self.ends.session.wait(call, self.timeout, asked, &mut sink, &*self.ends.host)
        };
        let waited = match self.ends.host.may_wait() {
            MayWait::Freely => {
                // The first polls for the reply, which skip the rest of a wait. This code is repeated in `Peer::call_once`, as a shared
                // function would copy its result.
                let mut sink = self.ends.host.waiting_sink(&self.ends.session);
                let (mut inline, mut short, mut end) = (InlineMessage::default(), None, None);
                let slots = ReplySlots {
                    inline: &mut inline,
                    short: |bytes: &[u8]| {
                        short = Some(decode_reply(bytes, &mut Fresh::<M::Reply>::default()))
                    },
                    end: &mut end,
                };
                match self.ends.session.wait_fast(call, self.asked, slots, &mut sink, &*self.ends.host) {
                    Some(FastOutcome::Inline) => {
                        self.call = None;
                        return decode_reply(inline.payload.as_slice(), &mut Fresh::default());
                    }
                    Some(FastOutcome::Short) => {
                        self.call = None;
                        return short.expect("the short reply was decoded");
                    }
                    Some(FastOutcome::Ended(_)) => WaitOutcome::Ended(end.expect("the end was stored")),
                    Some(FastOutcome::Open(_)) | None => wait(self.asked.preference),
                }
            }
            MayWait::InPool => {
                let wait = || wait(self.asked.preference.nested());
                self.ends.host.while_waiting(wait).ok_or(CallRejection::NoWorker)?
            }
            MayWait::Never => return Err(CallRejection::InlineHandler.into()),
            MayWait::Forked => return Err(CallRejection::Forked.into()),
        };
        note_end(&*self.ends.host, self.ends.session.peer(), call, &waited);
        match waited {
            WaitOutcome::Ended(end) => {
                self.call = None;
                decode_end(&self.ends, end, &mut Fresh::default())
            }
            WaitOutcome::TimedOut => Err(CallError::Deadline { executed: Executed::Maybe }),
        }
    }

    /// Waits for the reply until `deadline` on the host's clock.
    pub(crate) fn wait_until(mut self, deadline: Nanos) -> Result<M::Reply, CallError> {
        self.timeout = deadline.since(self.ends.host.now());
        self.wait()
    }

    /// Cancels the call and notifies the callee, which may execute it nevertheless.
    pub fn cancel(self) -> CallError {
        CallError::Cancelled { executed: Executed::Maybe }
    }

    fn finish(&mut self, call: CallId) -> Result<M::Reply, CallError> {
        self.call = None;
        let end = self.ends.session.take(call, &*self.ends.host);
        if let Some(how) = ending(&end) {
            note(&*self.ends.host, self.ends.session.peer(), call, how);
        }
        decode_end(&self.ends, end, &mut Fresh::default())
    }
}

impl<M: Request, H: Host> Future for Pending<M, H> {
    type Output = Result<M::Reply, CallError>;

    /// Polls the call, without receiving messages itself. The node's serving thread makes progress. The thread that receives the
    /// response wakes the waker.
    ///
    /// # Panics
    /// If polled again after it returned `Ready`.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let call = self.call.expect("a future is not polled after it returned `Ready`");
        if !self.ends.session.has_ended(call) {
            self.ends.session.register(call, context.waker());
            self.ends.session.listen(&mut self.ends.host.waiting_sink(&self.ends.session), &*self.ends.host);
            if !self.ends.session.has_ended(call) {
                return Poll::Pending;
            }
        }
        Poll::Ready(self.finish(call))
    }
}

impl<M: Request, H: Host> Unpin for Pending<M, H> {}

impl<M: Request, H: Host> Drop for Pending<M, H> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.ends.session.abandon(call, M::CLASS, &*self.ends.host);
        }
    }
}

impl<M: Request, H: Host> fmt::Debug for Pending<M, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("request", &M::NAME).field("call", &self.call).finish_non_exhaustive()
    }
}

/// Records in the flight recorder how a wait for a call ended, unless it got a reply.
#[inline]
pub(crate) fn note_end<H: Host, L>(host: &H, peer: NodeId, call: CallId, waited: &WaitOutcome<L>) {
    let how = match waited {
        WaitOutcome::Ended(end) => ending(end),
        WaitOutcome::TimedOut => Some(Ending::Deadline),
    };
    if let Some(how) = how {
        note(host, peer, call, how);
    }
}

#[cold]
fn note<H: Host>(host: &H, peer: NodeId, call: CallId, how: Ending) {
    host.note(Note { what: What::Ended, peer, call, more: how as u8 });
}

#[inline]
const fn ending<L>(end: &End<L>) -> Option<Ending> {
    Some(match end {
        End::Reply(_) => return None,
        End::Failure { .. } => Ending::Failure,
        End::PeerDown { .. } => Ending::PeerDown,
        End::Deadline { .. } => Ending::Deadline,
        End::Done(_) | End::Flushed | End::AccessRefused | End::Unreadable | End::Unsupported => {
            Ending::Other
        }
    })
}

/// Decodes the reply to a call.
#[inline]
pub(crate) fn decode_reply<T: Target>(bytes: &[u8], reply: &mut T) -> Result<T::Output, CallError> {
    reply.read(Reader::new(bytes)).map_err(CallError::MalformedReply)
}

/// Converts the end of a call to the result that its caller gets.
pub(crate) fn decode_end<H: Host, T: Target>(
    ends: &Ends<H>,
    end: End<LeaseOf<H>>,
    reply: &mut T,
) -> Result<T::Output, CallError> {
    match end {
        End::Reply(payload) => match read_arrived(payload, reply) {
            Ok(decoded) => decoded.map_err(CallError::MalformedReply),
            Err(Withdrawn) => Err(ends.unread()),
        },
        End::Failure { code, payload } => {
            with_bytes(&payload, |bytes| Err(CallError::from_failure(code, bytes)))
                .unwrap_or_else(|Withdrawn| Err(ends.unread()))
        }
        End::PeerDown { executed } => Err(ends.down(executed)),
        End::Deadline { executed } => Err(CallError::Deadline { executed }),
        End::Done(_) | End::Flushed | End::AccessRefused | End::Unreadable | End::Unsupported => {
            unreachable!("this end belongs to an operation that is not a call")
        }
    }
}

/// Passes the payload to `use_it` as bytes that no other process can write to: in place if possible, otherwise as a copy.
///
/// # Errors
/// If the payload was withdrawn before it was copied: `use_it` is not called.
pub fn with_bytes<L: fabric::Payload, R>(
    payload: &Arrived<L>,
    use_it: impl FnOnce(&[u8]) -> R,
) -> Result<R, Withdrawn> {
    if let Some(bytes) = payload.as_private() {
        return Ok(use_it(bytes));
    }
    // A stack buffer is zeroed before it is filled. For a short payload, zeroing a page would cost more than the copy.
    if payload.len() <= SHORT {
        return with_copy(payload, &mut [0; SHORT][..payload.len()], use_it);
    }
    if payload.len() <= ON_STACK {
        return with_copy(payload, &mut [0; ON_STACK][..payload.len()], use_it);
    }
    with_kept_copy(payload, use_it)
}

/// Passes to `use_it` a copy in memory that the provider keeps for long payloads.
#[cold]
#[inline(never)]
fn with_kept_copy<L: fabric::Payload, R>(
    payload: &Arrived<L>,
    use_it: impl FnOnce(&[u8]) -> R,
) -> Result<R, Withdrawn> {
    let (mut use_it, mut used) = (Some(use_it), None);
    payload.read_copy(&mut |bytes| used = use_it.take().map(|use_it| use_it(bytes)));
    used.ok_or(Withdrawn)
}

#[inline]
fn with_copy<L: fabric::Payload, R>(
    payload: &Arrived<L>,
    bytes: &mut [u8],
    use_it: impl FnOnce(&[u8]) -> R,
) -> Result<R, Withdrawn> {
    // `bytes` is as long as the payload, so the copy fails only if the payload cannot be read any more.
    payload.copy_to(0, bytes).map_err(|_| Withdrawn)?;
    payload.validate()?;
    Ok(use_it(bytes))
}

/// Longest payload that is copied to the small stack buffer, bytes. It covers usual control messages.
const SHORT: usize = 256;
/// Longest payload that is copied to the stack, bytes: a page and some fields.
const ON_STACK: usize = 4096 + 256;
