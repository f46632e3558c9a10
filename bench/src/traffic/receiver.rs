//! The child that receives traffic: a node that replies to calls with their payload, and counts one-way messages.

use core::cell::RefCell;
use core::time::Duration;
use std::sync::Arc;

use anyhow::Context as _;
use pronto::{Builder, InPlace, Limits, Node, Peer, Rdma, Route, WaitPolicy};
use pronto_core::session::Doorbells;
use pronto_sync::atomic::{AtomicU64, Ordering};

use super::cost::Cost;
use super::messages::{
    Back32, Back224, BackMany, Call32, Call224, CallMany, Count, CountBulk, Counted, Decoded, Note32,
    Note224, NoteMany, OneWay, Pooled32, Read, Slow, Taken, Total, sum,
};
use crate::child::{self, Child, START};
use crate::clock;
use crate::echo::{LIVENESS, Provider, Wait};
use crate::home::Home;
use crate::placement::Cpu;
use crate::side::{Arguments, Side, settle};

/// The receiving child.
pub(crate) const SIDE: Side = Side {
    name: "serve-traffic",
    arguments: &["listen", "rdma", "wait", "cpu", "doorbells"],
    more: None,
    run: serve,
};

const RECEIVER: u16 = 1;
const SENDER: u16 = 2;
/// Duration of the slow handler.
const SLOW: Duration = Duration::from_micros(20);

/// Counters of the handlers.
#[derive(Debug, Default)]
struct Counts {
    notes: AtomicU64,
    bytes: AtomicU64,
    sum: AtomicU64,
}

impl Counts {
    fn note(&self, bytes: usize, sum: u64) {
        // Handlers run one at a time on the serving thread, so there are no concurrent updates.
        let add = |count: &AtomicU64, more: u64| {
            count.store(count.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        };
        add(&self.notes, 1);
        add(&self.bytes, bytes as u64);
        add(&self.sum, sum);
    }

    fn take(&self) -> Counted {
        let Cost { cpu_ns, switches } = Cost::of_this_process().unwrap_or_default();
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        Counted { notes: take(&self.notes), bytes: take(&self.bytes), sum: take(&self.sum), cpu_ns, switches }
    }
}

/// Starts a receiver and a sender in this process. Returns both with the receiver as a peer; `name` distinguishes receivers.
#[cfg(test)]
pub(crate) fn connected(provider: Provider, name: &str) -> anyhow::Result<([Node; 2], Peer)> {
    let home = of_this_host(provider, name);
    let receiver = receive_at(&home, Wait(WaitPolicy::Adaptive), Doorbells::Shared)?;
    let address = receiver.listening()[0].to_string();
    let sender = Node::builder(SENDER).peer(RECEIVER, &address).start()?;
    let peer = sender.wait_for_peer(RECEIVER, START)?;
    Ok(([receiver, sender], peer))
}

/// Returns an address for a receiver on this host, a different one at each call.
fn of_this_host(provider: Provider, name: &str) -> Home {
    static STARTED: AtomicU64 = AtomicU64::new(0);
    let number = STARTED.fetch_add(1, Ordering::Relaxed);
    Home::here(provider.address(&format!("-traffic{name}-{number}")))
}

fn receive_at(home: &Home, wait: Wait, doorbells: Doorbells) -> anyhow::Result<Node> {
    let counts = Arc::new(Counts::default());
    let builder = Node::builder(RECEIVER).wait(wait.0).listen(&home.listen);
    let builder = builder.plaintext_i_understand().rdma(home.rdma);
    let builder = builder.limits(Limits { doorbells, ..Limits::default() }).liveness(LIVENESS);
    handlers(builder, &counts).start().context("starting the receiver")
}

fn handlers(builder: Builder, counts: &Arc<Counts>) -> Builder {
    macro_rules! counting {
        ($builder:expr, $($note:ident)*) => {{
            let builder = $builder;
            $(let builder = {
                let counts = Arc::clone(counts);
                builder.on_inline(move |_, note: $note| counts.note(note.bytes.len(), note.bytes[0].into()))
            };)*
            builder
        }};
    }
    let one_way = {
        let counts = Arc::clone(counts);
        Route::inline_notification_in_place::<OneWay>(move |_, place| {
            let mut total = 0_u64;
            // A payload that cannot be read is missing in the sum, and in the count of bytes.
            let read = place.read_blocks(|block, _| total = total.wrapping_add(sum(block)));
            counts.note(if read.is_ok() { place.len() } else { 0 }, total);
        })
    };
    let (first, second) = (Arc::clone(counts), Arc::clone(counts));
    let builder = builder
        .route(one_way)
        .handle_in_place::<Read, _>(|_, place| {
            let mut total = 0_u64;
            place
                .read_blocks(|block, _| total = total.wrapping_add(sum(block)))
                .map_or(Total { sum: 0 }, |()| Total { sum: total })
        })
        .handle_in_place::<Taken, _>(|_, place| OWN.with_borrow_mut(|own| Total { sum: take(place, own) }))
        .handle_inline(|_, blob: Decoded| Total { sum: sum(&blob.bytes) });
    counting!(builder, Note32 Note224 NoteMany)
        .handle_inline(|_, _: Slow| {
            let since = clock::now();
            while since.elapsed() < SLOW {}
        })
        .handle(|_, call: Pooled32| Back32 { bytes: call.bytes })
        .handle_inline(|_, call: Call32| Back32 { bytes: call.bytes })
        .handle_inline(|_, call: Call224| Back224 { bytes: call.bytes })
        .handle_inline(|_, call: CallMany| BackMany { bytes: call.bytes })
        .handle_inline(move |_, _: Count| first.take())
        .handle_inline(move |_, _: CountBulk| second.take())
}

thread_local! {
    /// Destination of copied payloads, kept so that only the first one pays for fresh memory.
    static OWN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Copies a payload to private memory, and returns its sum; 0 if it cannot be read.
fn take(place: &InPlace<'_>, own: &mut Vec<u8>) -> u64 {
    if own.len() < place.len() {
        own.resize(place.len(), 0);
    }
    let own = &mut own[..place.len()];
    place.copy_to(0, own).map_or(0, |()| sum(own))
}

/// A receiving child, pinned to a CPU.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// The child.
    pub(crate) child: Child,
    address: String,
    rdma: Rdma,
    doorbells: Doorbells,
}

impl Receiver {
    /// Starts the child. It serves when this returns.
    pub(crate) fn spawn(provider: Provider, wait: Wait, cpu: Cpu) -> anyhow::Result<Self> {
        Self::spawn_with(provider, wait, cpu, Doorbells::Shared)
    }

    /// Starts the child; `doorbells` is the policy of both sides.
    pub(crate) fn spawn_with(
        provider: Provider,
        wait: Wait,
        cpu: Cpu,
        doorbells: Doorbells,
    ) -> anyhow::Result<Self> {
        Self::spawn_at(&of_this_host(provider, ""), wait, cpu, doorbells)
    }

    /// Starts the child at `home`, in the calling thread's network namespace. It ends with that thread.
    pub(crate) fn spawn_at(home: &Home, wait: Wait, cpu: Cpu, doorbells: Doorbells) -> anyhow::Result<Self> {
        let shared = if doorbells == Doorbells::Shared { "shared" } else { ALONE };
        let (rdma, cpu) = (home.rdma_argument(), cpu.0.to_string());
        let mut child = Child::spawn(&SIDE, [&home.listen, rdma, wait.name(), &cpu, shared])?;
        let address = child.hear()?;
        Ok(Self { child, address, rdma: home.rdma, doorbells })
    }

    /// Starts a sending node, and returns it with the peer to send to. The node's own threads sleep while its callers poll.
    pub(crate) fn meet(&self, wait: Wait) -> anyhow::Result<(Node, Peer)> {
        self.meet_as(0, wait)
    }

    /// Starts the sending node of one of several senders.
    pub(crate) fn meet_as(&self, sender: u16, wait: Wait) -> anyhow::Result<(Node, Peer)> {
        self.meet_with(sender, wait, Limits::default())
    }

    /// Starts the sending node of one of several senders, with these limits but the receiver's doorbells.
    pub(crate) fn meet_with(&self, sender: u16, wait: Wait, limits: Limits) -> anyhow::Result<(Node, Peer)> {
        let (node, peer) = self.meet_served(sender, Wait(WaitPolicy::Block), limits)?;
        Ok((node, peer.waiting(wait.0)))
    }

    /// Starts the sending node of one of several senders, whose own threads wait by this policy.
    pub(crate) fn meet_served(
        &self,
        sender: u16,
        wait: Wait,
        limits: Limits,
    ) -> anyhow::Result<(Node, Peer)> {
        let limits = Limits { doorbells: self.doorbells, ..limits };
        let node = Node::builder(SENDER + sender).limits(limits).liveness(LIVENESS).wait(wait.0);
        let node = node.plaintext_i_understand().rdma(self.rdma).peer(RECEIVER, &self.address);
        let node = node.start().context("starting the sending node")?;
        let peer = node.wait_for_peer(RECEIVER, START).context("meeting the receiver")?;
        Ok((node, peer))
    }
}

/// Value of the argument `doorbells` if each message has its own.
const ALONE: &str = "alone";

/// Serves until the parent ends this process.
fn serve(arguments: &Arguments<'_>) -> anyhow::Result<()> {
    let (home, wait) = (Home::of(arguments)?, arguments.get("wait")?);
    settle(arguments.cpu("cpu")?)?;
    let alone = arguments.text("doorbells")? == ALONE;
    let doorbells = if alone { Doorbells::PerMessage } else { Doorbells::Shared };
    let node = receive_at(&home, wait, doorbells)?;
    child::announce(&node)?;
    child::park()
}
