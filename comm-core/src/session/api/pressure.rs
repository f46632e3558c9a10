//! The pressure in headers: setting that of this node, and taking that of the peer.

use pronto_wire::Pressure;

use super::Session;
use crate::executor::Executor;
use crate::fabric::QueuePair;

impl<Q: QueuePair> Session<Q> {
    /// Sets the pressure of this node, which headers to the peer carry from now on if the link has that feature. While another thread holds
    /// the engine, it takes effect at the next tick, or when this is called again.
    pub fn set_pressure(&self, pressure: Pressure, executor: &impl Executor) {
        if self.own_pressure.set(pressure) {
            self.in_free_engine(executor, |engine| {
                engine.write_pressure(self);
                Some(())
            });
        }
    }

    /// Returns the largest pressure in headers of the peer since the last call; none on a link without that feature.
    pub fn take_pressure(&self) -> Pressure {
        self.peer_pressure.take()
    }
}
