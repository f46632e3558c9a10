//! Waiting in the simulated world: no thread waits; nodes make turns instead.

use pronto_core::executor::{Channels, Executor, WaitPolicy};
use pronto_core::{Clock, Nanos};
use pronto_sync::atomic::AtomicU32;
use pronto_wire::NodeId;

use crate::world::{SimClock, SimNode, SimWorld};

/// Executor of a simulated node. An actor that would sleep returns from its turn.
#[derive(Clone, Debug)]
pub struct SimExecutor {
    clock: SimClock,
}

impl SimExecutor {
    /// Returns an executor for all nodes of a world whose machines are not suspended.
    pub fn new(world: &SimWorld) -> Self {
        Self { clock: world.clock() }
    }

    /// Returns the executor of a node.
    pub fn of(world: &SimWorld, node: SimNode) -> Self {
        Self { clock: world.clock_of(node) }
    }
}

impl Clock for SimExecutor {
    fn now(&self) -> Nanos {
        self.clock.now()
    }
}

impl Executor for SimExecutor {
    fn circumstances(&self, _policy: WaitPolicy) -> pronto_core::executor::Circumstances {
        pronto_core::executor::ASLEEP
    }

    fn sleep(&self, _word: &AtomicU32, _until: Nanos) {
        unreachable!("an actor waits by returning from its turn");
    }

    fn wake(&self, _word: &AtomicU32) {
        unreachable!("no thread sleeps");
    }

    fn yield_now(&self) {
        unreachable!("no other thread holds an engine");
    }

    fn back_off(&self, _span: Nanos) {
        unreachable!("no other thread holds an engine");
    }

    fn ring_soon(&self, _: NodeId) -> bool {
        // At the node's next turn or tick.
        true
    }

    fn sleep_on_channels(&self, _channels: &Channels, _until: Nanos) -> [bool; 2] {
        unreachable!("an actor waits by returning from its turn");
    }
}
