//! The rendezvous' own messages: offers, with their bytes or without, and what a node does with them.

use pronto_core::fabric::{Arrived, QueuePair, Withdrawn};
use pronto_core::session::{Inbound, Offered, Session, TypeKey};
use pronto_wire::{CallId, FailureCode, ServiceId};

use crate::Message;
use crate::codec::decode_message;
use crate::host::Host;
use crate::one_sided::RemoteMemory;
use crate::pending::with_bytes;

/// A message that travels by reference.
#[derive(Message, Debug)]
#[message(name = "pronto.rendezvous.offer", reply = (), class = bulk)]
pub(crate) struct ByReference {
    pub(super) tag: u64,
    pub(super) memory: RemoteMemory,
}

/// A message that is carried along: its bytes follow this.
#[derive(Message, Debug)]
#[message(name = "pronto.rendezvous.carried", reply = (), class = bulk)]
pub(crate) struct Carried {
    pub(super) tag: u64,
}

/// The bytes of an offer, granted again on another link.
#[derive(Message, Debug)]
#[message(name = "pronto.rendezvous.regrant", class = bulk)]
pub(crate) struct Regrant {
    pub(super) slot: u16,
    pub(super) generation: u32,
    pub(super) memory: RemoteMemory,
}

/// Length of a [`Carried`], bytes.
pub(super) const CARRIED: usize = 8;

/// Which of the rendezvous' own messages a route takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An offer by reference.
    ByReference,
    /// A message that is carried along.
    Carried,
    /// Another grant for an offer.
    Regrant,
}

/// Takes one of the rendezvous' own messages in; for sinks. It runs no user's code, so any thread that polls may do it.
pub fn take_in<H: Host>(
    form: Form,
    inbound: Inbound<'_, Arrived<<H::Qp as QueuePair>::Lease>>,
    session: &Session<H::Qp>,
    host: &H,
) {
    match form {
        Form::ByReference => match with_bytes(&inbound.payload, decode_message::<ByReference>) {
            Ok(Ok(ByReference { tag, memory })) => {
                session.take_offer(inbound, tag, Offered::ByReference(memory.into()), host);
            }
            Ok(Err(_)) => inbound.token.fail(FailureCode::Malformed),
            Err(Withdrawn) => inbound.token.fail(FailureCode::Cancelled),
        },
        Form::Carried => {
            let mut tag = [0; CARRIED];
            if inbound.payload.copy_to(0, &mut tag).is_ok() {
                let offered = Offered::Carried { skip: CARRIED };
                session.take_offer(inbound, u64::from_le_bytes(tag), offered, host);
            } else {
                inbound.token.fail(FailureCode::Malformed);
            }
        }
        Form::Regrant => {
            if let Ok(Ok(regrant)) = with_bytes(&inbound.payload, decode_message::<Regrant>) {
                let Regrant { slot, generation, memory } = regrant;
                let link = inbound.token.link();
                session.take_regrant(CallId { slot, generation }, memory.into(), link, host);
            }
            inbound.token.finish();
        }
    }
}

/// A message of this module, as both sides know it.
pub(super) fn key_of<M: Message>() -> TypeKey {
    let (name, layout) = M::type_key();
    TypeKey { service: ServiceId(0), name, layout }
}
