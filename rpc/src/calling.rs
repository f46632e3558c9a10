//! Calls that wait for their reply.

use core::time::Duration;

use pronto_core::Nanos;
use pronto_core::fabric::{Gather, InlineMessage, SHORT_PAYLOAD};
use pronto_core::session::{CallSpec, Executed, FastOutcome, ReplySlots, SendError, Sink, WaitOutcome};
use pronto_wire::CallId;

use crate::arrived::Target;
use crate::codec::encode_message;
use crate::encode::{encode_small, is_small};
use crate::error::{CallError, CallRejection};
use crate::host::{Host, MayWait};
use crate::message::Request;
use crate::peer::{LeaseOf, Peer, nanos};
use crate::pending::{decode_end, decode_reply, note_end};

impl<H: Host> Peer<H> {
    #[inline]
    pub(crate) fn call_for<M: Request, T: Target<Value = M::Reply>>(
        &self,
        request: &M,
        timeout: Duration,
        reply: &mut T,
    ) -> Result<T::Output, CallError> {
        let timeout = nanos(timeout);
        match self.ends.host.may_wait() {
            MayWait::Freely => self.call_and_wait(request, timeout, reply),
            MayWait::Never => Err(CallRejection::InlineHandler.into()),
            MayWait::Forked => Err(CallRejection::Forked.into()),
            MayWait::InPool => self
                .ends
                .host
                .while_waiting(|| self.waiting(self.policy().nested()).call_and_wait(request, timeout, reply))
                .unwrap_or(Err(CallRejection::NoWorker.into())),
        }
    }

    fn call_and_wait<M: Request, T: Target<Value = M::Reply>>(
        &self,
        request: &M,
        timeout: Nanos,
        reply: &mut T,
    ) -> Result<T::Output, CallError> {
        if !M::IDEMPOTENT {
            return self.call_once(request, timeout, reply);
        }
        match self.call_once(request, timeout, reply) {
            outcome @ Err(CallError::PeerDown { .. }) => self.call_again(request, timeout, outcome, reply),
            outcome => outcome,
        }
    }

    fn call_once<M: Request, T: Target<Value = M::Reply>>(
        &self,
        request: &M,
        timeout: Nanos,
        reply: &mut T,
    ) -> Result<T::Output, CallError> {
        let mut sink = self.ends.host.waiting_sink(&self.ends.session);
        let spec = CallSpec { key: self.key::<M>(), class: M::CLASS, timeout };
        let (mut inline, mut short, mut end) = (InlineMessage::default(), None, None);
        let slots = ReplySlots {
            inline: &mut inline,
            short: |bytes: &[u8]| short = Some(decode_reply(bytes, reply)),
            end: &mut end,
        };
        let outcome = if is_small(request) {
            let small = encode_small(request).map_err(CallRejection::Encoding)?;
            self.call_fast(&spec, Gather::Inline(&small), slots, &mut sink)
        } else if request.encoded_len() <= SHORT_PAYLOAD {
            let mut bytes = [0; SHORT_PAYLOAD];
            let len = encode_message(request, &mut bytes).map_err(CallRejection::Encoding)?;
            self.call_fast(&spec, Gather::Short(&bytes[..len]), slots, &mut sink)
        } else {
            None
        };
        match outcome {
            Some(FastOutcome::Inline) => return decode_reply(inline.payload.as_slice(), reply),
            Some(FastOutcome::Short) => return short.expect("the short reply was decoded"),
            Some(FastOutcome::Ended(call)) => {
                let waited = WaitOutcome::Ended(end.expect("the end was stored"));
                note_end(&*self.ends.host, self.node(), call, &waited);
                return self.outcome::<M, T>(call, waited, reply);
            }
            Some(FastOutcome::Open(call)) => return self.wait_for::<M, T>(call, timeout, &mut sink, reply),
            None => {}
        }
        let call = self.when_there_is_room(timeout, || self.try_start(request, timeout))?;
        self.wait_for::<M, T>(call, timeout, &mut sink, reply)
    }

    #[inline]
    fn call_fast(
        &self,
        spec: &CallSpec,
        payload: Gather<'_>,
        slots: ReplySlots<'_, LeaseOf<H>, impl FnOnce(&[u8])>,
        sink: &mut impl Sink<LeaseOf<H>>,
    ) -> Option<FastOutcome> {
        self.ends.session.call_fast(spec, payload, self.asked, slots, sink, &*self.ends.host)
    }

    fn wait_for<M: Request, T: Target<Value = M::Reply>>(
        &self,
        call: CallId,
        timeout: Nanos,
        sink: &mut impl Sink<LeaseOf<H>>,
        reply: &mut T,
    ) -> Result<T::Output, CallError> {
        let waited = self.ends.session.wait(call, timeout, self.asked, sink, &*self.ends.host);
        note_end(&*self.ends.host, self.node(), call, &waited);
        self.outcome::<M, T>(call, waited, reply)
    }

    fn outcome<M: Request, T: Target<Value = M::Reply>>(
        &self,
        call: CallId,
        waited: WaitOutcome<LeaseOf<H>>,
        reply: &mut T,
    ) -> Result<T::Output, CallError> {
        match waited {
            WaitOutcome::Ended(end) => decode_end(&self.ends, end, reply),
            WaitOutcome::TimedOut => {
                self.ends.session.abandon(call, M::CLASS, &*self.ends.host);
                Err(CallError::Deadline { executed: Executed::Maybe })
            }
        }
    }

    /// Repeats an idempotent request whose peer went down, if the peer or its next incarnation is back within `timeout`.
    fn call_again<M: Request, T: Target<Value = M::Reply>>(
        &self,
        request: &M,
        timeout: Nanos,
        mut outcome: Result<T::Output, CallError>,
        reply: &mut T,
    ) -> Result<T::Output, CallError> {
        let deadline = self.ends.host.now() + timeout;
        while let Err(
            CallError::PeerDown { .. }
            | CallError::Rejected(CallRejection::Here(SendError::NotConnected { .. })),
        ) = outcome
        {
            let left = deadline.since(self.ends.host.now());
            if left == Nanos::ZERO {
                break;
            }
            if self.is_up() {
                outcome = self.call_once(request, left, reply);
            } else {
                self.ends.session.want_link(&*self.ends.host);
                self.ends.host.pause_for_link();
            }
        }
        outcome
    }
}
