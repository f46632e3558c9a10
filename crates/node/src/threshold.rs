//! Up to which length a rendezvous carries its payload along, as measured on this host.
//!
//! A payload that is carried travels in one message, and is copied into send memory and out of what arrived. One that is granted is
//! read by its receiver from where it lies, for the price of a grant, an offer and an answer. Which is cheaper depends on the transport
//! and the machine. Both are done here between the two ends of a link within this process, by one thread: what is compared is the work,
//! without wake-ups. A network adds to granted payloads a way there and back, which is in no figure: there is no network here.

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

/// What is assumed before anything is measured, and where nothing can be, bytes.
const ASSUMED: u64 = 4 << 10;
/// Lengths that are compared, bytes. Not more: what is carried before its receive is posted is copied, and kept.
const LENGTHS: [u64; 6] = [1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10];
/// Transfers of each length and kind, of which the median counts. The first ones touch memory.
const ROUNDS: usize = 9;
/// Looks at both ends after which a transfer counts as stuck.
const LOOKS: u32 = 100_000;
/// For what arrives over TCP, bytes.
const POOL: usize = 8 << 20;

/// Up to which length payloads are carried along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threshold {
    /// Up to so many bytes they were not slower than granted ones.
    Measured(u64),
    /// Not measured, or not yet.
    Assumed(u64),
}

impl Threshold {
    /// Bytes.
    pub(crate) const fn bytes(self) -> u64 {
        match self {
            Self::Measured(bytes) | Self::Assumed(bytes) => bytes,
        }
    }
}

static SHM: OnceLock<u64> = OnceLock::new();
static TCP: OnceLock<u64> = OnceLock::new();

/// What holds for a transport.
pub(crate) fn of(provider: &str) -> Threshold {
    let measured = match provider {
        "shm" => SHM.get(),
        "tcp" => TCP.get(),
        _ => None,
    };
    measured.map_or(Threshold::Assumed(ASSUMED), |bytes| Threshold::Measured(*bytes))
}

/// What holds for every transport that is measured, for people.
pub(crate) fn described() -> String {
    let of = |provider| match of(provider) {
        Threshold::Measured(bytes) => format!("{provider} {bytes} B"),
        Threshold::Assumed(bytes) => format!("{provider} {bytes} B (assumed)"),
    };
    ["shm", "tcp"].map(of).join(", ")
}

/// Has the thresholds of rendezvous measured, once per process, by a thread of its own that lives for some milliseconds. Until then
/// they are assumed. The first rendezvous of a process asks for it, and daemons do when they start.
pub fn measure_soon() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let thread = std::thread::Builder::new().name("pronto-measure".into());
        if let Err(error) = thread.spawn(measure) {
            tracing::warn!(%error, "rendezvous thresholds are not measured");
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
            tracing::debug!(provider, bytes, "a rendezvous carries payloads up to this length");
            place.set(bytes).expect("measured once");
        } else {
            tracing::warn!(provider, "no rendezvous can be measured; a threshold is assumed");
        }
    }
}

/// The longest of [`LENGTHS`] up to which carrying takes no longer than granting; 0 if it always does. None if there is no link.
fn compare<Q: QueuePair + 'static>(
    link: impl FnOnce([ConnectionLimits; 2]) -> Option<[[Q; 2]; 2]>,
) -> Option<u64> {
    let ends = Ends::new(link)?;
    let mut best = 0;
    for len in LENGTHS {
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
    sender: Peer<Alone<Q>>,
    receiver: Peer<Alone<Q>>,
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
            let host = Arc::new(Alone::new());
            session.install(
                Links { pairs, agreement },
                &mut Offers { session: &session, host: &host },
                &*host,
            );
            Peer::new(session, host)
        });
        let len = usize::try_from(LENGTHS[LENGTHS.len() - 1]).ok()?;
        let (from, to) = (region(len).ok()?, region(len).ok()?);
        Some(Self { sender: peers.next()?, receiver: peers.next()?, from, to })
    }

    /// What one transfer takes both ends together; payloads up to `eager` bytes are carried along.
    fn transfer(&self, len: u64, eager: u64) -> Option<Nanos> {
        let host = self.sender.host();
        host.eager.store(eager, Ordering::Relaxed);
        let begun = host.now();
        let mut receive = self.receiver.post(0, &self.to, 0..len).ok()?;
        let mut sending = self.sender.start_send(0, &self.from, 0..len, core::time::Duration::MAX).ok()?;
        let (mut received, mut sent) = (None, None);
        for _ in 0..LOOKS {
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

/// The types of the rendezvous, numbered as [`Offers`] takes them.
fn types<Q: QueuePair + 'static>() -> Vec<TypeEntry> {
    let entry = |(number, route): (u16, Route<Alone<Q>>)| TypeEntry {
        name: route.key.name,
        layout: route.key.layout,
        service: route.key.service,
        type_id: TypeId(number),
    };
    (0..).zip(Route::rendezvous()).map(entry).collect()
}

/// Takes in what belongs to a rendezvous; nothing else is sent.
struct Offers<'a, Q: QueuePair + 'static> {
    session: &'a Arc<Session<Q>>,
    host: &'a Arc<Alone<Q>>,
}

impl<Q: QueuePair + 'static> Sink<Q::Lease> for Offers<'_, Q> {
    fn request(&mut self, inbound: Inbound<'_, Arrived<Q::Lease>>) {
        const FORMS: [Form; 3] = [Form::ByReference, Form::Eager, Form::Regrant];
        let form = FORMS.get(usize::from(inbound.type_id.0));
        let Some(form) = form else { return inbound.token.fail(FailureCode::NoHandler) };
        take_in(*form, inbound, self.session, &**self.host);
    }

    fn event(&mut self, _: Event) {}
}

/// A node without threads, of which nobody waits for anything.
struct Alone<Q> {
    clock: NodeClock,
    eager: AtomicU64,
    _connections: PhantomData<fn() -> Q>,
}

impl<Q> Alone<Q> {
    fn new() -> Self {
        Self { clock: NodeClock::start(), eager: AtomicU64::new(0), _connections: PhantomData }
    }
}

impl<Q> core::fmt::Debug for Alone<Q> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Alone").finish_non_exhaustive()
    }
}

impl<Q> Clock for Alone<Q> {
    fn now(&self) -> Nanos {
        self.clock.now()
    }
}

impl<Q: 'static> Executor for Alone<Q> {
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

impl<Q: QueuePair + 'static> Host for Alone<Q> {
    type Qp = Q;

    fn waiting_sink<'a>(self: &'a Arc<Self>, session: &'a Arc<Session<Q>>) -> impl Sink<Q::Lease> {
        Offers { session, host: self }
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shm(limits: [ConnectionLimits; 2]) -> Option<[[pronto_fabric_shm::ShmQueuePair; 2]; 2]> {
        let (near, far) = pronto_fabric_shm::Link::pair(limits).ok()?;
        Some([[near.control, near.bulk], [far.control, far.bulk]])
    }

    #[test]
    fn payloads_arrive_either_way() {
        let ends = Ends::new(shm).expect("a link");
        for len in LENGTHS {
            for eager in [u64::MAX, 0] {
                let len_here = usize::try_from(len).expect("it is short");
                let bytes: Vec<u8> = (0..=250).cycle().skip(usize::from(eager == 0)).take(len_here).collect();
                ends.from.write(0, &bytes).expect("it fits");
                assert!(ends.transfer(len, eager).is_some(), "{len} bytes, carried up to {eager}");
                let mut arrived = vec![0; bytes.len()];
                ends.to.read(0, &mut arrived).expect("it fits");
                assert_eq!(arrived, bytes);
            }
        }
    }

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
            assert!(bytes == 0 || LENGTHS.contains(&bytes), "{bytes}");
        }
        assert_eq!(of("verbs"), Threshold::Assumed(ASSUMED));
        assert!(!described().contains("assumed"), "{}", described());
    }
}
