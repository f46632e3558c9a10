//! The pressure of both sides of a session: that of this node, for headers, and that of the peer, from headers.
//!
//! # Invariants
//! 1. A pressure that the engine enters is in the result of a [`PeerPressure::take`] that ends later, unless a larger one is.
//! 2. The engine writes pressure into headers only on a link on which both greetings have the feature bit.

use pronto_sync::atomic::{AtomicU8, Ordering};
use pronto_wire::Pressure;

/// Choice whether headers carry the pressure of their sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeaderPressure {
    /// No header of this node has any, and this node accepts none.
    #[default]
    Off,
    /// Messages of programs carry it, if the peer wants that, too.
    Carried,
}

/// The pressure of this node, as its program has set it, and as the engine has last written it into the first words of headers.
#[derive(Debug, Default)]
pub(super) struct OwnPressure {
    set: AtomicU8,
    written: AtomicU8,
}

impl OwnPressure {
    /// Sets the pressure. Returns whether headers do not have it yet.
    pub(super) fn set(&self, pressure: Pressure) -> bool {
        self.set.store(pressure.as_bits(), Ordering::Relaxed);
        self.written.load(Ordering::Relaxed) != pressure.as_bits()
    }

    /// Returns the pressure if the engine has not written it yet, and counts it as written. Only the holder of the engine calls this.
    pub(super) fn unwritten(&self) -> Option<Pressure> {
        let is_written = self.set.load(Ordering::Relaxed) == self.written.load(Ordering::Relaxed);
        (!is_written).then(|| self.write())
    }

    /// Returns the pressure, and counts it as written. Only the holder of the engine calls this.
    pub(super) fn write(&self) -> Pressure {
        let set = self.set.load(Ordering::Relaxed);
        self.written.store(set, Ordering::Relaxed);
        Pressure::from_bits(set)
    }
}

/// The largest pressure in the headers of the peer since it was last taken.
#[derive(Debug, Default)]
pub(super) struct PeerPressure(AtomicU8);

impl PeerPressure {
    /// Enters the pressure of a received header. Usually a larger or equal one was entered before, so that nothing is written.
    pub(super) fn enter(&self, pressure: Pressure) {
        if self.0.load(Ordering::Relaxed) < pressure.as_bits() {
            self.0.fetch_max(pressure.as_bits(), Ordering::Relaxed);
        }
    }

    /// Returns the largest pressure since the last call.
    pub(super) fn take(&self) -> Pressure {
        Pressure::from_bits(self.0.swap(0, Ordering::Relaxed))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_pressure_is_written_once_until_another_one_is_set() {
        let own = OwnPressure::default();
        assert_eq!(own.unwritten(), None);
        assert!(own.set(Pressure::of(8)) && own.set(Pressure::of(8)));
        assert_eq!(own.unwritten(), Some(Pressure::of(8)));
        assert!(!own.set(Pressure::of(8)));
        assert_eq!(own.unwritten(), None);
        assert!(own.set(Pressure::NONE));
        assert_eq!((own.write(), own.unwritten()), (Pressure::NONE, None));
    }

    #[test]
    fn the_largest_pressure_is_taken_once() {
        let peer = PeerPressure::default();
        assert_eq!(peer.take(), Pressure::NONE);
        for messages in [2, 8, 4] {
            peer.enter(Pressure::of(messages));
        }
        assert_eq!((peer.take(), peer.take()), (Pressure::of(8), Pressure::NONE));
        peer.enter(Pressure::of(1));
        assert_eq!(peer.take(), Pressure::of(1));
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
