//! What calls stand on: the node that owns threads, clock and connections.

use alloc::sync::Arc;
use core::fmt;

use pronto_core::fabric::QueuePair;
use pronto_core::session::{Session, Sink};
use pronto_core::{Executor, WaitPolicy};

/// The node under the calls. Production and simulation have one each.
pub trait Host: Executor + Send + Sync + fmt::Debug + 'static {
    /// Its connections.
    type Qp: QueuePair + 'static;

    /// Where a waiting thread puts what arrives for others: it starts no handler itself.
    fn waiting_sink<'a>(
        self: &'a Arc<Self>,
        session: &'a Arc<Session<Self::Qp>>,
    ) -> impl Sink<<Self::Qp as QueuePair>::Lease>;

    /// The policy of waits that do not name one.
    fn wait_policy(&self) -> WaitPolicy;

    /// What the calling thread may do.
    fn may_wait(&self) -> MayWait;

    /// Runs a wait of a handler's thread. Another thread takes over its place in the pool meanwhile; none if there is no
    /// spare left.
    fn while_waiting<R>(&self, wait: impl FnOnce() -> R) -> Option<R>;

    /// An answer will be waited for by nobody who polls: the node keeps time and takes it in.
    fn expects_answers(&self);

    /// Payloads of a rendezvous that are carried along in the message, at most, bytes: longer ones are granted, and read by
    /// their receiver.
    fn carries_up_to(&self, session: &Session<Self::Qp>) -> u64;

    /// Gives the processor away for a moment, because of back-pressure.
    fn pause(&self);
}

/// What the calling thread may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MayWait {
    /// An application's thread: anything.
    Freely,
    /// A handler of the pool: its place must be taken meanwhile.
    InPool,
    /// An inline handler: nothing that waits.
    Never,
    /// A forked child of the node's process: nothing at all, the connections are the parent's.
    Forked,
}
