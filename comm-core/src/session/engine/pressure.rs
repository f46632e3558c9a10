//! The pressure in headers: writing that of this node, and taking that of the peer out of a received header.

use pronto_wire::{FirstWords, Header, Pressure, RawHeader};

use super::Engine;
use crate::fabric::{FabricError, PeerFault, QueuePair};
use crate::session::shared::Shared;

impl<Q: QueuePair> Engine<Q> {
    /// Writes the pressure of this node into the headers of the present link, if it has changed and the link has that feature.
    pub(in crate::session) fn write_pressure(&mut self, shared: &Shared<Q::Lease>) {
        let Some(pressure) = shared.own_pressure.unwritten() else { return };
        if let Some(link) = self.phase.link_mut()
            && link.carries_pressure
        {
            link.first_words = FirstWords::with(pressure);
        }
    }

    /// Takes the pressure of the peer out of a header that is illegal with it, on a link that has that feature. Returns the header without
    /// it, which is legal. `len` is the length of the payload.
    pub(super) fn take_pressure(
        &self,
        header: RawHeader,
        len: usize,
        shared: &Shared<Q::Lease>,
    ) -> Result<RawHeader, FabricError> {
        let agreed = self.phase.link().is_some_and(|link| link.carries_pressure);
        let split = header.split_pressure().filter(|_| agreed);
        let (pressure, plain) = split.unwrap_or((Pressure::NONE, header));
        Header::check(&plain, len).map_err(PeerFault::Header)?;
        shared.peer_pressure.enter(pressure);
        Ok(plain)
    }
}
