//! The pressure in headers: that of this node, which its program sets, and that of its peers.

use pronto_sync::atomic::Ordering;
use pronto_wire::Pressure;

use crate::host::{NodeHost, NodeSession};
use crate::node::Node;

impl Node {
    /// Sets the pressure that headers to all peers carry from now on: about how many messages the program has to do with. It has no effect
    /// without [`Builder::carry_pressure`](crate::Builder::carry_pressure), and for peers without that. No system call is made.
    pub fn set_pressure(&self, pressure: Pressure) {
        self.host.pressure.store(pressure.as_bits(), Ordering::Relaxed);
        for session in self.host.sessions() {
            session.set_pressure(pressure, &*self.host);
        }
    }

    /// Returns the largest pressure in headers of all peers since the last call. No system call is made.
    pub fn take_pressure(&self) -> Pressure {
        let sessions = self.host.sessions();
        sessions.iter().map(|session| session.take_pressure()).max().unwrap_or_default()
    }

    /// Returns the number of messages that the program has to do with: calls without a response, and messages whose handlers wait, run or
    /// have futures. Programs set their pressure by it.
    pub fn messages(&self) -> usize {
        let calls =
            self.host.sessions().iter().map(|session| usize::from(session.open_calls())).sum::<usize>();
        calls + self.host.pool.messages()
    }
}

impl NodeHost {
    /// Sets the pressure of the headers of a session that begins.
    pub(crate) fn begin_pressure(&self, session: &NodeSession) {
        session.set_pressure(Pressure::from_bits(self.pressure.load(Ordering::Relaxed)), self);
    }
}
