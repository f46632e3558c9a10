//! Handlers of decoded messages, without the type of the message.

use core::marker::PhantomData;

use pronto_core::fabric::{Arrived, Withdrawn};
use pronto_core::session::RequestToken;
use pronto_wire::FailureCode;

use crate::arrived::{Fresh, read_arrived};
use crate::codec::decode_message;
use crate::handler::Incoming;
use crate::host::Host;
use crate::message::Message;
use crate::peer::LeaseOf;

/// A handler of messages, which are decoded for it.
pub(crate) trait Decoding<H: Host>: Send + Sync {
    /// Decodes a message from memory that no other process can write to, and runs the handler.
    fn run_on(&self, incoming: &Incoming<'_, H>, bytes: &[u8], token: RequestToken<'_>);

    /// Decodes a message from where it arrived, and runs the handler. Does not run it if the payload was withdrawn.
    fn run(
        &self,
        incoming: &Incoming<'_, H>,
        payload: Arrived<LeaseOf<H>>,
        token: RequestToken<'_>,
    ) -> Result<(), Withdrawn>;
}

/// A function of decoded messages, as a handler.
pub(crate) struct Decoded<M, F> {
    handle: F,
    message: PhantomData<fn() -> M>,
}

impl<M, F> Decoded<M, F> {
    pub(crate) const fn new(handle: F) -> Self {
        Self { handle, message: PhantomData }
    }
}

impl<H, M, F> Decoding<H> for Decoded<M, F>
where
    H: Host,
    M: Message,
    F: Fn(&Incoming<'_, H>, M, RequestToken<'_>) + Send + Sync,
{
    #[inline]
    fn run_on(&self, incoming: &Incoming<'_, H>, bytes: &[u8], token: RequestToken<'_>) {
        match decode_message(bytes) {
            Ok(message) => (self.handle)(incoming, message, token),
            Err(_) => token.fail(FailureCode::Malformed),
        }
    }

    fn run(
        &self,
        incoming: &Incoming<'_, H>,
        payload: Arrived<LeaseOf<H>>,
        token: RequestToken<'_>,
    ) -> Result<(), Withdrawn> {
        match read_arrived(payload, &mut Fresh::default())? {
            Ok(message) => (self.handle)(incoming, message, token),
            Err(_) => token.fail(FailureCode::Malformed),
        }
        Ok(())
    }
}
