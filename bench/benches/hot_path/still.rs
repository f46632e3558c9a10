//! A host that does nothing: parts of a call are measured on it without a node's threads beside them.

use std::sync::Arc;

use pronto::rpc::Host;
use pronto::rpc::host::MayWait;
use pronto_core::fabric::Arrived;
use pronto_core::session::{Event, Inbound, Session, Sink};
use pronto_core::{Channels, Clock, Executor, Nanos, WaitPolicy};
use pronto_fabric_shm::ShmQueuePair;
use pronto_sync::atomic::AtomicU32;

/// Its clock stands, and nobody sleeps on it.
#[derive(Debug)]
pub(crate) struct Still;

impl Clock for Still {
    fn now(&self) -> Nanos {
        Nanos(1)
    }
}

impl Executor for Still {
    fn circumstances(&self, _: WaitPolicy) -> pronto_core::executor::Circumstances {
        pronto_core::executor::alone(Nanos::NEVER)
    }

    fn sleep(&self, _: &AtomicU32, _: Nanos) {}

    fn wake(&self, _: &AtomicU32) {}

    fn yield_now(&self) {}

    fn back_off(&self, _: Nanos) {}

    fn sleep_on_channels(&self, _: &Channels, _: Nanos) -> [bool; 2] {
        [false; 2]
    }
}

impl Host for Still {
    type Qp = ShmQueuePair;

    fn waiting_sink<'a>(self: &'a Arc<Self>, _: &'a Arc<Session<ShmQueuePair>>) -> impl Sink<Lease> {
        Nobody
    }

    fn wait_policy(&self) -> WaitPolicy {
        WaitPolicy::Spin
    }

    fn may_wait(&self) -> MayWait {
        MayWait::Freely
    }

    fn while_waiting<R>(&self, wait: impl FnOnce() -> R) -> Option<R> {
        Some(wait())
    }

    fn expects_responses(&self) {}

    fn eager_limit(&self, _: &Session<ShmQueuePair>) -> u64 {
        0
    }

    fn pause(&self) {}
}

type Lease = <ShmQueuePair as pronto_core::fabric::QueuePair>::Lease;

/// Takes whatever arrives, and does nothing with it.
#[derive(Debug)]
pub(crate) struct Nobody;

impl<L> Sink<L> for Nobody {
    fn request(&mut self, inbound: Inbound<'_, Arrived<L>>) {
        inbound.token.finish();
    }

    fn event(&mut self, _: Event) {}
}
