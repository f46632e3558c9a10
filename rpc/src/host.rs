//! The interface of the node that owns threads, clock and connections, as calls use it.

use alloc::sync::Arc;
use core::fmt;

use pronto_core::fabric::QueuePair;
use pronto_core::session::{Session, Sink};
use pronto_core::{Executor, WaitPolicy};

/// The node under the calls. Production and simulation have one each.
pub trait Host: Executor + Send + Sync + fmt::Debug + 'static {
    /// The type of its connections.
    type Qp: QueuePair + 'static;

    /// Returns the sink for messages that a waiting thread receives for others. The waiting thread starts no handler itself.
    fn waiting_sink<'a>(
        self: &'a Arc<Self>,
        session: &'a Arc<Session<Self::Qp>>,
    ) -> impl Sink<<Self::Qp as QueuePair>::Lease>;

    /// Returns the policy of waits that do not name one.
    fn wait_policy(&self) -> WaitPolicy;

    /// Returns how the calling thread may wait.
    fn may_wait(&self) -> MayWait;

    /// Runs a wait of a handler's thread. A spare worker takes its place in the pool meanwhile. Returns `None` if no spare worker is
    /// left.
    fn while_waiting<R>(&self, wait: impl FnOnce() -> R) -> Option<R>;

    /// Reports that a call is open without a thread that polls for its response. The node then receives it and keeps time.
    fn expects_responses(&self);

    /// Returns the longest rendezvous payload that is sent eagerly, bytes. A longer one is granted, and its receiver reads it.
    fn eager_limit(&self, session: &Session<Self::Qp>) -> u64;

    /// Yields the CPU for a moment, because of back-pressure.
    fn pause(&self);

    /// Yields the CPU for a moment, because there is no link yet.
    fn pause_for_link(&self) {
        self.pause();
    }

    /// Returns a future that ends a moment later, because of back-pressure.
    fn pause_async(self: &Arc<Self>) -> impl Future<Output = ()> + Send;
}

/// Ways in which the calling thread may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MayWait {
    /// An application's thread may wait.
    Freely,
    /// A handler on the pool may wait while a spare worker takes its place.
    InPool,
    /// An inline handler must not wait.
    Never,
    /// A forked child of the node's process can neither send nor wait, as the connections belong to the parent.
    Forked,
}
