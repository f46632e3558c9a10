//! The internal messages of rendezvous: offers with or without payload, regrants, and their processing.

use alloc::vec::Vec;

use pronto_core::fabric::{Arrived, QueuePair, RemoteRange, Withdrawn};
use pronto_core::session::{Inbound, Offered, Pieces, Session, TypeKey};
use pronto_wire::{CallId, FailureCode, ServiceId};

use crate::Message;
use crate::codec::decode_message;
use crate::host::Host;
use crate::one_sided::RemoteMemory;
use crate::pending::with_bytes;

/// An offer of a message by reference.
#[derive(Message, Debug)]
#[message(name = "pronto.rendezvous.offer", reply = (), class = bulk)]
pub(crate) struct ByReference {
    pub(super) tag: u64,
    pub(super) memory: RemoteMemory,
    /// The other pieces of the message.
    pub(super) more: Vec<RemoteMemory>,
}

/// An eager message. Its payload follows this header.
#[derive(Message, Debug)]
#[message(name = "pronto.rendezvous.carried", reply = (), class = bulk)]
pub(crate) struct Eager {
    pub(super) tag: u64,
}

/// A new grant for an earlier offer, on a later link.
#[derive(Message, Debug)]
#[message(name = "pronto.rendezvous.regrant", class = bulk)]
pub(crate) struct Regrant {
    pub(super) slot: u16,
    pub(super) generation: u32,
    pub(super) memory: RemoteMemory,
    /// The other pieces of the message.
    pub(super) more: Vec<RemoteMemory>,
}

/// Length of a [`Eager`], bytes.
pub(super) const EAGER_HEADER: usize = 8;

/// The internal rendezvous message that a route takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An offer by reference.
    ByReference,
    /// An eager message.
    Eager,
    /// A new grant for an offer.
    Regrant,
}

/// Processes an internal rendezvous message; for sinks. It runs no user code, so any polling thread may call it.
pub fn take_in<H: Host>(
    form: Form,
    inbound: Inbound<'_, Arrived<<H::Qp as QueuePair>::Lease>>,
    session: &Session<H::Qp>,
    host: &H,
) {
    match form {
        Form::ByReference => match with_bytes(&inbound.payload, decode_message::<ByReference>) {
            Ok(Ok(ByReference { tag, memory, more })) => match pieces(memory, &more) {
                Some(pieces) => session.take_offer(inbound, tag, Offered::ByReference(pieces), host),
                None => inbound.token.fail(FailureCode::Malformed),
            },
            Ok(Err(_)) => inbound.token.fail(FailureCode::Malformed),
            Err(Withdrawn) => inbound.token.fail(FailureCode::Cancelled),
        },
        Form::Eager => {
            let mut tag = [0; EAGER_HEADER];
            if inbound.payload.copy_to(0, &mut tag).is_ok() {
                let offered = Offered::Eager { skip: EAGER_HEADER };
                session.take_offer(inbound, u64::from_le_bytes(tag), offered, host);
            } else {
                inbound.token.fail(FailureCode::Malformed);
            }
        }
        Form::Regrant => {
            if let Ok(Ok(regrant)) = with_bytes(&inbound.payload, decode_message::<Regrant>) {
                let Regrant { slot, generation, memory, more } = regrant;
                let link = inbound.token.link();
                if let Some(pieces) = pieces(memory, &more) {
                    session.take_regrant(CallId { slot, generation }, pieces, link, host);
                }
            }
            inbound.token.finish();
        }
    }
}

/// Returns the pieces of an offer or regrant, if a correct peer could send them.
fn pieces(first: RemoteMemory, more: &[RemoteMemory]) -> Option<Pieces> {
    Pieces::new(first.into(), more.iter().map(|memory| RemoteRange::from(*memory)))
}

/// Returns the type key of a message of this module.
pub(super) fn key_of<M: Message>() -> TypeKey {
    let (name, layout) = M::type_key();
    TypeKey { service: ServiceId(0), name, layout }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use pronto_core::fabric::RemoteRange;
    use pronto_wire::Class;

    use super::*;
    use crate::codec::encode_message;

    /// Shows: protocol.rendezvous
    #[test]
    fn names_classes_and_bytes_are_those_of_the_protocol() {
        let names = [ByReference::NAME, Eager::NAME, Regrant::NAME];
        let expected = ["pronto.rendezvous.offer", "pronto.rendezvous.carried", "pronto.rendezvous.regrant"];
        assert_eq!(names, expected);
        assert_eq!([ByReference::CLASS, Eager::CLASS, Regrant::CLASS], [Class::Bulk; 3]);
        let mut bytes = [0; EAGER_HEADER];
        assert_eq!(encode_message(&Eager { tag: 0x0102_0304_0506_0708 }, &mut bytes), Ok(EAGER_HEADER));
        assert_eq!(bytes, [8, 7, 6, 5, 4, 3, 2, 1]);
        let memory = RemoteMemory::from(RemoteRange { key: 3, offset: 4, len: 5 });
        let mut bytes = [0; 64];
        let len = encode_message(&ByReference { tag: 9, memory, more: Vec::new() }, &mut bytes);
        let words = [9_u64, 3, 4, 5].map(u64::to_le_bytes);
        assert_eq!((len, &bytes[..32]), (Ok(36), words.as_flattened()), "the tag, then the grant");
        assert_eq!(bytes[32..36], [0; 4], "no other piece");
        let len = encode_message(&ByReference { tag: 9, memory, more: vec![memory] }, &mut bytes);
        assert_eq!((len, bytes[32]), (Ok(60), 1));
        assert_eq!(bytes[36..60], bytes[8..32], "another piece has the form of the first");
        let regrant = Regrant { slot: 0x0102, generation: 0x0304_0506, memory, more: Vec::new() };
        assert_eq!(encode_message(&regrant, &mut bytes), Ok(34));
        assert_eq!(bytes[..6], [2, 1, 6, 5, 4, 3]);
    }
}
