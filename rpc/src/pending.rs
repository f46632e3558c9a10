//! A call that was sent and is not answered yet: wait, poll, await or cancel.

use alloc::sync::Arc;
use core::fmt;
use core::marker::PhantomData;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;

use pronto_core::executor::{Asked, expecting};
use pronto_core::fabric::{Arrived, QueuePair, SmallMessage};
use pronto_core::note::{Ending, Note, What};
use pronto_core::session::{End, Executed, Places, Session, Soon, Waited};
use pronto_core::{Nanos, WaitPolicy};
use pronto_wire::{CallId, NodeId};

use crate::codec::decode_message;
use crate::error::{CallError, Rejection};
use crate::host::{Host, MayWait};
use crate::message::Request;

/// A call on its way. Dropping it cancels the call: nobody waits for it any more.
#[must_use = "dropping it cancels the call"]
pub struct Pending<M: Request, H: Host> {
    session: Arc<Session<H::Qp>>,
    host: Arc<H>,
    /// None once the end was taken.
    call: Option<CallId>,
    timeout: Nanos,
    asked: Asked,
    request: PhantomData<fn() -> M>,
}

impl<M: Request, H: Host> Pending<M, H> {
    pub(crate) fn new(
        session: Arc<Session<H::Qp>>,
        host: Arc<H>,
        call: CallId,
        timeout: Nanos,
        policy: WaitPolicy,
    ) -> Self {
        Self { session, host, call: Some(call), timeout, asked: policy.into(), request: PhantomData }
    }

    /// Looks once, without waiting. `None` while there is no end; after the end, an error that says it was taken.
    pub fn poll(&mut self) -> Option<Result<M::Reply, CallError>> {
        let call = self.call?;
        if !self.session.has_ended(call) {
            self.session.ring_if_held(&*self.host);
            let mut sink = self.host.waiting_sink(&self.session);
            self.session.turn(1, || self.session.has_ended(call), &mut sink, &*self.host);
        }
        self.session.has_ended(call).then(|| self.finish(call))
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
            let mut sink = self.host.waiting_sink(&self.session);
            let asked = self.asked.by(preference);
            self.session.wait(call, self.timeout, asked, &mut sink, &*self.host)
        };
        let waited = match self.host.may_wait() {
            MayWait::Freely => {
                if let Some(outcome) = self.wait_soon(call) {
                    self.call = None;
                    return outcome;
                }
                wait(self.asked.preference)
            }
            MayWait::InPool => {
                let wait = || wait(self.asked.preference.nested());
                self.host.while_waiting(wait).ok_or(Rejection::NoWorker)?
            }
            MayWait::Never => return Err(Rejection::InlineHandler.into()),
            MayWait::Forked => return Err(Rejection::Forked.into()),
        };
        note_end(&*self.host, self.session.peer(), call, &waited);
        match waited {
            Waited::Ended(end) => {
                self.call = None;
                decode_end::<M, H>(end)
            }
            Waited::TimedOut => Err(CallError::Deadline { executed: Executed::Maybe }),
        }
    }

    /// Some looks for the answer, which is taken in past everything that a wait is made of. The places are written out here and in
    /// [`Peer::call`](crate::Peer::call): made by one function for both, they cost a call 3 % more instructions.
    #[inline]
    fn wait_soon(&self, call: CallId) -> Option<Result<M::Reply, CallError>> {
        let mut sink = self.host.waiting_sink(&self.session);
        let (mut small, mut short, mut end) = (SmallMessage::default(), None, None);
        let places = Places {
            small: &mut small,
            short: |bytes: &[u8]| short = Some(decode_reply::<M>(bytes)),
            end: &mut end,
        };
        Some(match self.session.wait_soon(call, self.asked, places, &mut sink, &*self.host)? {
            Soon::Open(_) => return None,
            Soon::Small => decode_reply::<M>(small.payload.as_slice()),
            Soon::Short => short.expect("it was given the reply"),
            Soon::Ended(_) => {
                let end = end.expect("its end is in its place");
                if let Some(how) = ending(&end) {
                    note(&*self.host, self.session.peer(), call, how);
                }
                decode_end::<M, H>(end)
            }
        })
    }

    /// Waits for the end, until a point in time of the host's clock.
    pub(crate) fn wait_until(mut self, deadline: Nanos) -> Result<M::Reply, CallError> {
        self.timeout = deadline.since(self.host.now());
        self.wait()
    }

    /// Gives the call up. The callee is told; whether it still executes is not known.
    pub fn cancel(self) -> CallError {
        CallError::Cancelled { executed: Executed::Maybe }
    }

    fn finish(&mut self, call: CallId) -> Result<M::Reply, CallError> {
        self.call = None;
        let end = self.session.take(call);
        if let Some(how) = ending(&end) {
            note(&*self.host, self.session.peer(), call, how);
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
        if !self.session.has_ended(call) {
            self.session.register(call, context.waker());
            self.session.listen(&mut self.host.waiting_sink(&self.session), &*self.host);
            if !self.session.has_ended(call) {
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
            self.session.abandon(call, M::CLASS, &*self.host);
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
        End::Reply(payload) => with_bytes(&payload, decode_reply::<M>),
        End::Failure { code, payload } => {
            with_bytes(&payload, |bytes| Err(CallError::from_failure(code, bytes)))
        }
        End::PeerDown { executed } => Err(CallError::PeerDown { executed }),
        End::Deadline { executed } => Err(CallError::Deadline { executed }),
        End::Done(_) | End::Flushed | End::AccessRefused | End::Unsupported => {
            unreachable!("a call's slot ends as a call")
        }
    }
}

/// The payload as bytes that nobody else can write to: in place where that is so, else a copy.
pub fn with_bytes<L: pronto_core::fabric::Payload, R>(
    payload: &Arrived<L>,
    use_it: impl FnOnce(&[u8]) -> R,
) -> R {
    if let Some(bytes) = payload.as_private() {
        return use_it(bytes);
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

/// The same with the provider's memory for it.
#[cold]
#[inline(never)]
fn with_kept_copy<L: pronto_core::fabric::Payload, R>(
    payload: &Arrived<L>,
    use_it: impl FnOnce(&[u8]) -> R,
) -> R {
    let (mut use_it, mut used) = (Some(use_it), None);
    payload.read_copy(&mut |bytes| used = use_it.take().map(|use_it| use_it(bytes)));
    used.expect("a payload can be copied, but in a forked child")
}

#[inline]
fn with_copy<L: pronto_core::fabric::Payload, R>(
    payload: &Arrived<L>,
    bytes: &mut [u8],
    use_it: impl FnOnce(&[u8]) -> R,
) -> R {
    payload.copy_to(0, bytes).expect("as long as the payload");
    use_it(bytes)
}

/// Payloads up to this are short, bytes: what control messages carry.
const SHORT: usize = 256;
/// Payloads up to this are copied to the stack, bytes: a page and what comes with it.
const ON_STACK: usize = 4096 + 256;
