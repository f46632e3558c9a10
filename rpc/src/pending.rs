//! A call that was sent and is not answered yet: wait, poll, await or cancel.

use alloc::sync::Arc;
use core::fmt;
use core::marker::PhantomData;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;

use pronto_core::executor::{Asked, expecting};
use pronto_core::fabric::{Arrived, InlineMessage, QueuePair, Withdrawn};
use pronto_core::note::{Ending, Note, What};
use pronto_core::session::{End, Executed, Places, Soon, Waited};
use pronto_core::{Nanos, WaitPolicy};
use pronto_wire::{CallId, NodeId};

use crate::codec::decode_message;
use crate::error::{CallError, Rejection};
use crate::host::{Host, MayWait};
use crate::message::Request;
use crate::peer::Ends;

/// A call on its way. Dropping it cancels the call: nobody waits for it any more.
#[must_use = "dropping it cancels the call"]
pub struct Pending<M: Request, H: Host> {
    ends: Arc<Ends<H>>,
    /// None once the end was taken.
    call: Option<CallId>,
    timeout: Nanos,
    asked: Asked,
    request: PhantomData<fn() -> M>,
}

impl<M: Request, H: Host> Pending<M, H> {
    pub(crate) fn new(ends: Arc<Ends<H>>, call: CallId, timeout: Nanos, policy: WaitPolicy) -> Self {
        Self { ends, call: Some(call), timeout, asked: policy.into(), request: PhantomData }
    }

    /// Looks once, without waiting. `None` while there is no end; after the end, an error that says it was taken.
    pub fn poll(&mut self) -> Option<Result<M::Reply, CallError>> {
        let call = self.call?;
        if !self.ends.session.has_ended(call) {
            self.ends.session.ring_if_held(&*self.ends.host);
            let mut sink = self.ends.host.waiting_sink(&self.ends.session);
            self.ends.session.turn(1, || self.ends.session.has_ended(call), &mut sink, &*self.ends.host);
        }
        self.ends.session.has_ended(call).then(|| self.finish(call))
    }

    /// The same, of which the end is expected so long after it begins to be waited for: see [`Peer::expecting`](crate::Peer::expecting).
    pub fn expecting(mut self, after: Duration) -> Self {
        self.asked = expecting(self.asked, after);
        self
    }

    /// Waits for the end.
    pub fn wait(mut self) -> Result<M::Reply, CallError> {
        let Some(call) = self.call else { return Err(CallError::Cancelled { executed: Executed::Maybe }) };
        let wait = |preference| {
            let mut sink = self.ends.host.waiting_sink(&self.ends.session);
            let asked = self.asked.by(preference);
            self.ends.session.wait(call, self.timeout, asked, &mut sink, &*self.ends.host)
        };
        let waited = match self.ends.host.may_wait() {
            MayWait::Freely => {
                // Some looks for the answer, which is taken in past everything that a wait is made of. Written out here and in
                // Peer::call_once: an outcome that passed through another function would be copied on its way out.
                let mut sink = self.ends.host.waiting_sink(&self.ends.session);
                let (mut inline, mut short, mut end) = (InlineMessage::default(), None, None);
                let places = Places {
                    inline: &mut inline,
                    short: |bytes: &[u8]| short = Some(decode_reply::<M>(bytes)),
                    end: &mut end,
                };
                match self.ends.session.wait_soon(call, self.asked, places, &mut sink, &*self.ends.host) {
                    Some(Soon::Inline) => {
                        self.call = None;
                        return decode_reply::<M>(inline.payload.as_slice());
                    }
                    Some(Soon::Short) => {
                        self.call = None;
                        return short.expect("it was given the reply");
                    }
                    Some(Soon::Ended(_)) => Waited::Ended(end.expect("its end is in its place")),
                    Some(Soon::Open(_)) | None => wait(self.asked.preference),
                }
            }
            MayWait::InPool => {
                let wait = || wait(self.asked.preference.nested());
                self.ends.host.while_waiting(wait).ok_or(Rejection::NoWorker)?
            }
            MayWait::Never => return Err(Rejection::InlineHandler.into()),
            MayWait::Forked => return Err(Rejection::Forked.into()),
        };
        note_end(&*self.ends.host, self.ends.session.peer(), call, &waited);
        match waited {
            Waited::Ended(end) => {
                self.call = None;
                decode_end::<M, H>(end)
            }
            Waited::TimedOut => Err(CallError::Deadline { executed: Executed::Maybe }),
        }
    }

    /// Waits for the end, until a point in time of the host's clock.
    pub(crate) fn wait_until(mut self, deadline: Nanos) -> Result<M::Reply, CallError> {
        self.timeout = deadline.since(self.ends.host.now());
        self.wait()
    }

    /// Gives the call up. The callee is told; whether it still executes is not known.
    pub fn cancel(self) -> CallError {
        CallError::Cancelled { executed: Executed::Maybe }
    }

    fn finish(&mut self, call: CallId) -> Result<M::Reply, CallError> {
        self.call = None;
        let end = self.ends.session.take(call);
        if let Some(how) = ending(&end) {
            note(&*self.ends.host, self.ends.session.peer(), call, how);
        }
        decode_end::<M, H>(end)
    }
}

impl<M: Request, H: Host> Future for Pending<M, H> {
    type Output = Result<M::Reply, CallError>;

    /// The node's serving thread makes the progress; the waker is woken by whoever takes the answer in.
    ///
    /// # Panics
    /// When polled again after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let call = self.call.expect("a future is not polled after it was ready");
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

/// Notes how a wait for a call ended, if not with a reply.
#[inline]
pub(crate) fn note_end<H: Host, L>(host: &H, peer: NodeId, call: CallId, waited: &Waited<L>) {
    let how = match waited {
        Waited::Ended(end) => ending(end),
        Waited::TimedOut => Some(Ending::Deadline),
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
        End::Done(_) | End::Flushed | End::AccessRefused | End::Unsupported => Ending::Other,
    })
}

/// The reply to a call as its caller sees it.
#[inline]
pub(crate) fn decode_reply<M: Request>(bytes: &[u8]) -> Result<M::Reply, CallError> {
    decode_message(bytes).map_err(CallError::MalformedReply)
}

/// The end of a call as its caller sees it.
pub(crate) fn decode_end<M: Request, H: Host>(
    end: End<<H::Qp as QueuePair>::Lease>,
) -> Result<M::Reply, CallError> {
    match end {
        End::Reply(payload) => with_bytes(&payload, decode_reply::<M>).unwrap_or_else(withdrawn),
        End::Failure { code, payload } => {
            with_bytes(&payload, |bytes| Err(CallError::from_failure(code, bytes))).unwrap_or_else(withdrawn)
        }
        End::PeerDown { executed } => Err(CallError::PeerDown { executed }),
        End::Deadline { executed } => Err(CallError::Deadline { executed }),
        End::Done(_) | End::Flushed | End::AccessRefused | End::Unsupported => {
            unreachable!("a call's slot ends as a call")
        }
    }
}

/// The end of a call whose answer came, and was withdrawn before it was read: the peer went away.
#[cold]
fn withdrawn<R>(Withdrawn: Withdrawn) -> Result<R, CallError> {
    Err(CallError::PeerDown { executed: Executed::Maybe })
}

/// Hands the payload to `use_it` as bytes that nobody else can write to: in place where that is so, else a copy.
///
/// # Errors
/// If the payload was withdrawn before it was copied: `use_it` is not called.
pub fn with_bytes<L: pronto_core::fabric::Payload, R>(
    payload: &Arrived<L>,
    use_it: impl FnOnce(&[u8]) -> R,
) -> Result<R, Withdrawn> {
    if let Some(bytes) = payload.as_private() {
        return Ok(use_it(bytes));
    }
    // Room on the stack is cleared before it is written to: for a short payload a page of it would cost more than the rest.
    if payload.len() <= SHORT {
        return with_copy(payload, &mut [0; SHORT][..payload.len()], use_it);
    }
    if payload.len() <= ON_STACK {
        return with_copy(payload, &mut [0; ON_STACK][..payload.len()], use_it);
    }
    with_kept_copy(payload, use_it)
}

/// Hands `use_it` a copy in memory that the provider keeps for long payloads.
#[cold]
#[inline(never)]
fn with_kept_copy<L: pronto_core::fabric::Payload, R>(
    payload: &Arrived<L>,
    use_it: impl FnOnce(&[u8]) -> R,
) -> Result<R, Withdrawn> {
    let (mut use_it, mut used) = (Some(use_it), None);
    payload.read_copy(&mut |bytes| used = use_it.take().map(|use_it| use_it(bytes)));
    used.ok_or(Withdrawn)
}

#[inline]
fn with_copy<L: pronto_core::fabric::Payload, R>(
    payload: &Arrived<L>,
    bytes: &mut [u8],
    use_it: impl FnOnce(&[u8]) -> R,
) -> Result<R, Withdrawn> {
    // As long as the payload: the copy fails only where there is nothing to copy from any more.
    payload.copy_to(0, bytes).map_err(|_| Withdrawn)?;
    payload.validate()?;
    Ok(use_it(bytes))
}

/// Payloads up to this are short, bytes: what control messages carry.
const SHORT: usize = 256;
/// Payloads up to this are copied to the stack, bytes: a page and what comes with it.
const ON_STACK: usize = 4096 + 256;
