//! The payload length up to which a rendezvous is eager, measured on this host.
//!
//! An eager payload travels inside the rendezvous call. It is copied into send memory and out of the receive buffer. A granted payload
//! is read by its receiver from the sender's memory, at the cost of a grant, an offer and a reply. The cheaper way depends on the
//! transport and the machine. This module measures both between the two ends of a link within this process, on one thread, so it
//! compares the CPU time without wake-ups. A network would add a round trip to granted payloads, which is not measured.

use core::marker::PhantomData;
use std::sync::{Arc, Once, OnceLock};

use pronto_core::executor::Channels;
use pronto_core::fabric::{Arrived, ConnectionLimits, QueuePair, Region};
use pronto_core::session::{Event, Identity, Inbound, Limits, Links, Session, Sink, introduce};
use pronto_core::{Clock, Executor, Nanos, WaitPolicy};
use pronto_fabric_tcp::ReceivePool;
use pronto_rpc::host::MayWait;
use pronto_rpc::rendezvous::{Form, take_in};
use pronto_rpc::{Host, Peer, Route};
use pronto_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use pronto_wire::{Class, Epoch, FailureCode, NodeId, TypeEntry, TypeId};

use crate::host::NodeClock;
use crate::node::region;

/// Threshold before a measurement and for transports that cannot be measured, bytes.
const ASSUMED: u64 = 4 << 10;
/// Compared lengths, bytes. Longer payloads are never eager, because an eager payload that arrives before its receive is copied and
/// kept.
const LENGTHS: [u64; 6] = [1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10];
/// Number of transfers of each length and kind, of which the median counts. The first ones also fault in the memory.
const ROUNDS: usize = 9;
/// Number of polls of both ends after which a transfer counts as failed.
const POLLS: u32 = 100_000;
/// Receive memory of the TCP ends, bytes.
const POOL: usize = 8 << 20;

/// Maximum length of eager payloads, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threshold {
    /// Longest length at which eager payloads were not slower than granted ones.
    Measured(u64),
    /// Default, as there is no measurement or none yet.
    Assumed(u64),
}

impl Threshold {
    /// Returns the length in bytes.
    pub(crate) const fn bytes(self) -> u64 {
        match self {
            Self::Measured(bytes) | Self::Assumed(bytes) => bytes,
        }
    }
}

static SHM: OnceLock<u64> = OnceLock::new();
static TCP: OnceLock<u64> = OnceLock::new();

/// Returns the threshold of a transport.
pub(crate) fn of(provider: &str) -> Threshold {
    let measured = match provider {
        "shm" => SHM.get(),
        "tcp" => TCP.get(),
        _ => None,
    };
    measured.map_or(Threshold::Assumed(ASSUMED), |bytes| Threshold::Measured(*bytes))
}

/// Describes the thresholds of the measured transports in a human-readable form.
pub(crate) fn described() -> String {
    let of = |provider| match of(provider) {
        Threshold::Measured(bytes) => format!("{provider} {bytes} B"),
        Threshold::Assumed(bytes) => format!("{provider} {bytes} B (assumed)"),
    };
    ["shm", "tcp"].map(of).join(", ")
}

/// Starts the measurement of the rendezvous thresholds, once per process, on a thread that runs for some milliseconds. Until it has
/// ended, defaults are used. The first rendezvous of a process calls this; daemons call it at their start.
pub fn measure_soon() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let thread = std::thread::Builder::new().name("pronto-measure".into());
        if let Err(error) = thread.spawn(measure) {
            tracing::warn!(%error, "cannot start the thread that measures rendezvous thresholds; using defaults");
        }
    });
}

fn measure() {
    let shm = compare(|limits| {
        let (near, far) = pronto_fabric_shm::Link::pair(limits).ok()?;
        Some([[near.control, near.bulk], [far.control, far.bulk]])
    });
    let tcp = compare(|limits| {
        let pools = [ReceivePool::new(POOL).ok()?, ReceivePool::new(POOL).ok()?];
        let (near, far) = pronto_fabric_tcp::Link::pair(limits, &pools).ok()?;
        Some([[near.control, near.bulk], [far.control, far.bulk]])
    });
    for (provider, measured, place) in [("shm", shm, &SHM), ("tcp", tcp, &TCP)] {
        if let Some(bytes) = measured {
            tracing::debug!(provider, bytes, "rendezvous payloads up to this length are eager");
            place.set(bytes).expect("measured once");
        } else {
            tracing::warn!(provider, "cannot measure the rendezvous threshold; using the default");
        }
    }
}

/// Returns the longest of [`LENGTHS`] up to which eager payloads are not slower than granted ones, or the shortest: a program may rely on
/// short messages to be eager. Returns `None` if there is no link or a transfer fails.
fn compare<Q: QueuePair + 'static>(
    link: impl FnOnce([ConnectionLimits; 2]) -> Option<[[Q; 2]; 2]>,
) -> Option<u64> {
    let ends = Ends::new(link)?;
    let [mut best, longer @ ..] = LENGTHS;
    for len in longer {
        let mut times = [(); 2].map(|()| Vec::with_capacity(ROUNDS));
        for _ in 0..ROUNDS {
            for (limit, times) in [u64::MAX, 0].into_iter().zip(&mut times) {
                times.push(ends.transfer(len, limit)?);
            }
        }
        let [eager, granted] = times.map(|mut times| {
            times.sort_unstable();
            times[ROUNDS / 2]
        });
        if eager > granted {
            break;
        }
        best = len;
    }
    Some(best)
}

/// Two nodes without threads.
struct Ends<Q: QueuePair + 'static> {
    sender: Peer<ThreadlessNode<Q>>,
    receiver: Peer<ThreadlessNode<Q>>,
    from: Region,
    to: Region,
}

impl<Q: QueuePair + 'static> Ends<Q> {
    fn new(link: impl FnOnce([ConnectionLimits; 2]) -> Option<[[Q; 2]; 2]>) -> Option<Self> {
        let limits = Limits::default();
        let [one, other] = [1, 2].map(|node| Identity {
            node: NodeId(node),
            epoch: Epoch(1),
            name: String::new(),
            types: types::<Q>(),
        });
        let agreements = introduce(&one, &other, &limits).ok()?;
        let pairs = link(Class::ALL.map(|class| agreements[0].connection(class)))?;
        let mut peers = pairs.into_iter().zip(agreements).map(|(pairs, agreement)| {
            let session = Arc::new(Session::new(agreement.peer, limits));
            let host = Arc::new(ThreadlessNode::new());
            session.install(
                Links { pairs, agreement },
                &mut RendezvousSink { session: &session, host: &host },
                &*host,
            );
            Peer::new(session, host)
        });
        let len = usize::try_from(LENGTHS[LENGTHS.len() - 1]).ok()?;
        let (from, to) = (region(len).ok()?, region(len).ok()?);
        Some(Self { sender: peers.next()?, receiver: peers.next()?, from, to })
    }

    /// Returns the time of one transfer, of both ends together. Payloads of up to `eager` bytes are eager.
    fn transfer(&self, len: u64, eager: u64) -> Option<Nanos> {
        let host = self.sender.host();
        host.eager.store(eager, Ordering::Relaxed);
        let begun = host.now();
        let mut receive = self.receiver.post(0, &self.to, 0..len).ok()?;
        let mut sending = self.sender.start_send(0, &self.from, 0..len, core::time::Duration::MAX).ok()?;
        let (mut received, mut sent) = (None, None);
        for _ in 0..POLLS {
            received = received.or_else(|| receive.poll());
            sent = sent.or_else(|| sending.poll());
            if let (Some(received), Some(sent)) = (&received, &sent) {
                let well = sent.is_ok() && received.as_ref().is_ok_and(|received| *received == len);
                return well.then(|| Nanos(host.now().since(begun).0));
            }
        }
        None
    }
}

/// Returns the message types of the rendezvous, numbered as [`RendezvousSink`] expects them.
fn types<Q: QueuePair + 'static>() -> Vec<TypeEntry> {
    let entry = |(number, route): (u16, Route<ThreadlessNode<Q>>)| TypeEntry {
        name: route.key.name,
        layout: route.key.layout,
        service: route.key.service,
        type_id: TypeId(number),
    };
    (0..).zip(Route::rendezvous()).map(entry).collect()
}

/// A sink for the messages of a rendezvous, the only ones that are sent here.
struct RendezvousSink<'a, Q: QueuePair + 'static> {
    session: &'a Arc<Session<Q>>,
    host: &'a Arc<ThreadlessNode<Q>>,
}

impl<Q: QueuePair + 'static> Sink<Q::Lease> for RendezvousSink<'_, Q> {
    fn request(&mut self, inbound: Inbound<'_, Arrived<Q::Lease>>) {
        const FORMS: [Form; 3] = [Form::ByReference, Form::Eager, Form::Regrant];
        let form = FORMS.get(usize::from(inbound.type_id.0));
        let Some(form) = form else { return inbound.token.fail(FailureCode::NoHandler) };
        take_in(*form, inbound, self.session, &**self.host);
    }

    fn event(&mut self, _: Event) {}
}

/// A node without threads, which never sleeps.
struct ThreadlessNode<Q> {
    clock: NodeClock,
    eager: AtomicU64,
    _connections: PhantomData<fn() -> Q>,
}

impl<Q> ThreadlessNode<Q> {
    fn new() -> Self {
        Self { clock: NodeClock::start(), eager: AtomicU64::new(0), _connections: PhantomData }
    }
}

impl<Q> core::fmt::Debug for ThreadlessNode<Q> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ThreadlessNode").finish_non_exhaustive()
    }
}

impl<Q> Clock for ThreadlessNode<Q> {
    fn now(&self) -> Nanos {
        self.clock.now()
    }
}

impl<Q: 'static> Executor for ThreadlessNode<Q> {
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

impl<Q: QueuePair + 'static> Host for ThreadlessNode<Q> {
    type Qp = Q;

    fn waiting_sink<'a>(self: &'a Arc<Self>, session: &'a Arc<Session<Q>>) -> impl Sink<Q::Lease> {
        RendezvousSink { session, host: self }
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

    fn eager_limit(&self, _: &Session<Q>) -> u64 {
        self.eager.load(Ordering::Relaxed)
    }

    fn pause(&self) {}

    async fn pause_async(self: &Arc<Self>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shm(limits: [ConnectionLimits; 2]) -> Option<[[pronto_fabric_shm::ShmQueuePair; 2]; 2]> {
        let (near, far) = pronto_fabric_shm::Link::pair(limits).ok()?;
        Some([[near.control, near.bulk], [far.control, far.bulk]])
    }

    /// Shows: calls.eager
    #[test]
    fn payloads_arrive_either_way() {
        let ends = Ends::new(shm).expect("a link");
        for len in LENGTHS {
            for eager in [u64::MAX, 0] {
                let len_here = usize::try_from(len).expect("it is short");
                let bytes: Vec<u8> = (0..=250).cycle().skip(usize::from(eager == 0)).take(len_here).collect();
                ends.from.write(0, &bytes).expect("it fits");
                assert!(ends.transfer(len, eager).is_some(), "{len} bytes, eager up to {eager}");
                let mut arrived = vec![0; bytes.len()];
                ends.to.read(0, &mut arrived).expect("it fits");
                assert_eq!(arrived, bytes);
            }
        }
    }

    /// Shows: calls.eager-limit, operations.carries
    #[test]
    fn both_transports_are_measured_once_and_others_assumed() {
        measure_soon();
        measure_soon();
        let clock = NodeClock::start();
        while (SHM.get().is_none() || TCP.get().is_none()) && clock.now() < Nanos::from_secs(60) {
            std::thread::yield_now();
        }
        for provider in ["shm", "tcp"] {
            let Threshold::Measured(bytes) = of(provider) else { panic!("{provider} was not measured") };
            assert!(LENGTHS.contains(&bytes), "{bytes}");
        }
        assert_eq!(of("verbs"), Threshold::Assumed(ASSUMED));
        assert!(!described().contains("assumed"), "{}", described());
    }
}
