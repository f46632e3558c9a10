//! The fast path of a reply: the next message is compared with the one that the caller expects.

use pronto_wire::{CallId, Class, RawHeader};

use super::Engine;
use crate::fabric::{QueuePair, SmallMessage};
use crate::session::shared::Shared;

/// What was found first.
pub(in crate::session) enum Found {
    /// The reply, in the caller's place for small ones.
    Reply,
    /// The reply, in the engine's place for short ones.
    ShortReply,
    /// Something else, in one of these places if it is not too long.
    Other(Option<Polled>),
}

/// A message of this class that was polled, and lies in the engine's own place for small messages or for short ones.
#[derive(Clone, Copy, Debug)]
pub(in crate::session) enum Polled {
    Small(Class),
    Short(Class),
}

impl<Q: QueuePair> Engine<Q> {
    /// Takes the reply to a call in, if it is the next message; asked where nothing else is due. Its call is over then, and the slot
    /// set aside.
    #[inline(always)]
    pub(in crate::session) fn find_reply(
        &mut self,
        call: CallId,
        small: &mut SmallMessage,
        shared: &Shared<Q::Lease>,
    ) -> Found {
        let Some(link) = self.phase.link_mut() else { return Found::Other(None) };
        for class in Class::ALL {
            let qp = &mut link.lanes[class.index()].qp;
            if qp.poll_small(small) {
                if self.take_reply(class, &small.header, small.payload.len().into(), call, shared) {
                    return Found::Reply;
                }
                self.small = *small;
                return Found::Other(Some(Polled::Small(class)));
            }
            if qp.poll_short(&mut self.short) {
                let (header, len) = (self.short.header, self.short.payload().len());
                let is_it = self.take_reply(class, &header, len, call, shared);
                return if is_it { Found::ShortReply } else { Found::Other(Some(Polled::Short(class))) };
            }
        }
        Found::Other(None)
    }

    /// Does for a reply what [`Engine::receive`] would do, if it is that of the call; if it is not, or there is more to it,
    /// nothing has changed that `receive` would not find again.
    #[inline(always)]
    fn take_reply(
        &mut self,
        class: Class,
        header: &RawHeader,
        len: usize,
        call: CallId,
        shared: &Shared<Q::Lease>,
    ) -> bool {
        let Some(link) = self.phase.link_mut() else { return false };
        let lane = &mut link.lanes[class.index()];
        let expected = header.is_reply_to(call)
            && lane.answers.is_empty()
            && lane.is_credible(header.acks())
            && self.calls.end_posted(call);
        if !expected {
            return false;
        }
        // What it acknowledges is taken in when there is time, or need.
        lane.hear(header.acks());
        lane.answer_received(len);
        link.heard = true;
        shared.stats.messages_received.add_alone(1);
        shared.stats.bytes_received.add_alone(len as u64);
        shared.calls.set_aside(call.slot);
        if lane.owes_receipts() {
            self.give_credit(shared);
            self.ring_due(shared);
        }
        true
    }
}
