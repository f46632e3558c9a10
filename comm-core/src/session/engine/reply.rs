//! The fast path of a reply: the next message is compared with the one that the caller expects.

use pronto_wire::{CallId, Class, RawHeader};

use super::Engine;
use crate::fabric::{InlineMessage, MessageSlot, PollOutcome, QueuePair};
use crate::session::connection::Connection;
use crate::session::shared::Shared;

/// The outcome of the polls for a reply.
#[derive(Clone, Copy, Debug)]
pub(in crate::session) enum NextMessage {
    /// The reply, in the caller's memory for inline messages.
    Reply,
    /// The reply, in the engine's message slot.
    ShortReply,
    /// Another message, or none. `None` if no poll was made.
    Other(Option<Prefetched>),
}

/// The result of the polls before a turn, with the class of the connection. The message itself stays in the engine, so that nothing is
/// moved on the path of a reply.
#[derive(Clone, Copy, Debug)]
pub(in crate::session) enum Prefetched {
    /// No message on either connection.
    Nothing,
    /// An inline message in the engine's message slot.
    Inline(Class),
    /// A short message in the engine's message slot.
    Short(Class),
    /// Any other outcome, in [`Engine::prefetched`].
    Outcome(Class),
}

impl<Q: QueuePair> Engine<Q> {
    /// Polls the connections for which `may_hold` returns true, and takes the reply to a call if it is the next message. This ends the call
    /// and moves its slot to the engine reserve. Call this only if no other work is due.
    #[inline(always)]
    pub(in crate::session) fn find_reply(
        &mut self,
        call: CallId,
        inline: &mut InlineMessage,
        may_hold: impl Fn(&Connection<Q>) -> bool,
        shared: &Shared<Q::Lease>,
    ) -> NextMessage {
        if !self.phase.is_linked() {
            return NextMessage::Other(None);
        }
        // Not a loop, so that the class is a constant in each copy.
        if let Some(found) = self.find_reply_of(Class::Control, call, inline, &may_hold, shared) {
            return found;
        }
        if let Some(found) = self.find_reply_of(Class::Bulk, call, inline, &may_hold, shared) {
            return found;
        }
        NextMessage::Other(Some(Prefetched::Nothing))
    }

    /// Polls one connection for [`Self::find_reply`]. Returns `None` if the connection has no message.
    #[inline(always)]
    fn find_reply_of(
        &mut self,
        class: Class,
        call: CallId,
        inline: &mut InlineMessage,
        may_hold: impl Fn(&Connection<Q>) -> bool,
        shared: &Shared<Q::Lease>,
    ) -> Option<NextMessage> {
        let connection = &mut self.phase.link_mut()?.connections[class.index()];
        if !may_hold(connection) {
            return None;
        }
        match connection.qp.poll(MessageSlot { inline, short: &mut self.short }) {
            Ok(PollOutcome::Nothing) => None,
            Ok(PollOutcome::Inline) => {
                if self.take_reply(class, &inline.header, inline.payload.len().into(), call, shared) {
                    return Some(NextMessage::Reply);
                }
                self.inline = *inline;
                Some(NextMessage::Other(Some(Prefetched::Inline(class))))
            }
            Ok(PollOutcome::Short) => {
                let (header, len) = (self.short.header, self.short.payload().len());
                if self.take_reply(class, &header, len, call, shared) {
                    return Some(NextMessage::ShortReply);
                }
                Some(NextMessage::Other(Some(Prefetched::Short(class))))
            }
            outcome => {
                debug_assert!(
                    matches!(self.prefetched, Ok(PollOutcome::Nothing)),
                    "a turn takes each outcome"
                );
                self.prefetched = outcome;
                Some(NextMessage::Other(Some(Prefetched::Outcome(class))))
            }
        }
    }

    /// Processes a message like [`Engine::receive`], if it is the plain reply to the call. Otherwise returns false and changes nothing, so
    /// that `receive` can process the message.
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
        let connection = &mut link.connections[class.index()];
        let expected = header.is_reply_to(call)
            && connection.responses.is_empty()
            && connection.is_credible(header.acks())
            && self.calls.end_posted(call);
        if !expected {
            return false;
        }
        // The acknowledgements that it carries are processed later, when there is time or need.
        connection.count_received(header.acks());
        connection.respond_to_received(len);
        link.has_received = true;
        shared.stats.messages_received.add_alone(1);
        shared.stats.bytes_received.add_alone(len as u64);
        shared.calls.put_in_reserve(call.slot);
        if connection.owes_receipts() {
            self.give_credit(shared);
            self.ring_if_due(shared);
        }
        true
    }
}
