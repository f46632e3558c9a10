//! A polled message in the engine's message slot or in a receive buffer. Its payload is moved only once.

use pronto_wire::{Class, RawHeader};

use super::Engine;
use crate::fabric::{Arrived, QueuePair, Received};

/// A polled message, in whichever memory it is. Its payload is moved only once, to its destination.
pub(in crate::session) trait Arriving<Q: QueuePair> {
    /// Returns the payload, if it is in the engine's message slot.
    fn bytes<'a>(&self, engine: &'a Engine<Q>) -> Option<&'a [u8]>;

    fn header<'a>(&'a self, engine: &'a Engine<Q>) -> &'a RawHeader;
    fn set_header(&mut self, engine: &mut Engine<Q>, header: RawHeader);
    fn len(&self, engine: &Engine<Q>) -> usize;
    fn into_payload(self, engine: &Engine<Q>) -> Arrived<Q::Lease>;
}

impl<Q: QueuePair> Arriving<Q> for Received<Q::Lease> {
    fn bytes<'a>(&self, _: &'a Engine<Q>) -> Option<&'a [u8]> {
        None
    }

    fn header<'a>(&'a self, _: &'a Engine<Q>) -> &'a RawHeader {
        &self.header
    }

    fn set_header(&mut self, _: &mut Engine<Q>, header: RawHeader) {
        self.header = header;
    }

    fn len(&self, _: &Engine<Q>) -> usize {
        self.payload.len()
    }

    fn into_payload(self, _: &Engine<Q>) -> Arrived<Q::Lease> {
        self.payload
    }
}

/// The inline message in the engine's message slot.
pub(in crate::session) struct InlineInSlot;

impl<Q: QueuePair> Arriving<Q> for InlineInSlot {
    #[inline]
    fn bytes<'a>(&self, engine: &'a Engine<Q>) -> Option<&'a [u8]> {
        Some(engine.inline.payload.as_slice())
    }

    #[inline]
    fn header<'a>(&'a self, engine: &'a Engine<Q>) -> &'a RawHeader {
        &engine.inline.header
    }

    fn set_header(&mut self, engine: &mut Engine<Q>, header: RawHeader) {
        engine.inline.header = header;
    }

    #[inline]
    fn len(&self, engine: &Engine<Q>) -> usize {
        engine.inline.payload.len().into()
    }

    #[inline]
    fn into_payload(self, engine: &Engine<Q>) -> Arrived<Q::Lease> {
        Arrived::Inline(engine.inline.payload)
    }
}

/// The short message in the engine's message slot, of a connection of this class.
pub(in crate::session) struct ShortInSlot(pub(in crate::session) Class);

impl<Q: QueuePair> Arriving<Q> for ShortInSlot {
    #[inline]
    fn bytes<'a>(&self, engine: &'a Engine<Q>) -> Option<&'a [u8]> {
        Some(engine.short.payload())
    }

    #[inline]
    fn header<'a>(&'a self, engine: &'a Engine<Q>) -> &'a RawHeader {
        &engine.short.header
    }

    fn set_header(&mut self, engine: &mut Engine<Q>, header: RawHeader) {
        engine.short.header = header;
    }

    #[inline]
    fn len(&self, engine: &Engine<Q>) -> usize {
        engine.short.payload().len()
    }

    fn into_payload(self, engine: &Engine<Q>) -> Arrived<Q::Lease> {
        let link = engine.phase.link().expect("messages are polled from a link");
        Arrived::Buffer(link.connections[self.0.index()].qp.lease_copy(engine.short.payload()))
    }
}
