//! The child that takes traffic in: a node that answers calls with their own payload, and counts one-way messages.

use core::cell::RefCell;
use core::time::Duration;
use std::sync::Arc;

use anyhow::Context as _;
use clap::{Arg, ArgMatches, Command};
use pronto::{Builder, InPlace, Limits, Node, Peer, Rdma, Route, WaitPolicy};
use pronto_core::session::Doorbells;
use pronto_sync::atomic::{AtomicU64, Ordering};

use super::cost::Cost;
use super::messages::{
    Back32, Back224, BackMany, Call32, Call224, CallMany, Count, CountBulk, Counted, Decoded, Note32,
    Note224, NoteMany, OneWay, Pooled32, Read, Slow, Taken, Total, sum,
};
use crate::child::{self, Child};
use crate::clock;
use crate::echo::{Home, Provider, Wait};
use crate::placement::{Cpu, pin};

/// The hidden command of a receiving child.
pub(crate) const SERVE: &str = "serve-traffic";

const RECEIVER: u16 = 1;
const SENDER: u16 = 2;
/// What the slow handler takes.
const SLOW: Duration = Duration::from_micros(20);
/// Longer than a start on the busiest machine takes.
const START: Duration = Duration::from_secs(20);

/// What the handlers count.
#[derive(Debug, Default)]
struct Counts {
    notes: AtomicU64,
    bytes: AtomicU64,
    sum: AtomicU64,
}

impl Counts {
    fn note(&self, bytes: usize, sum: u64) {
        // Handlers run one by one on the serving thread; the atomics only make that safe to say.
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

/// A node in this process that takes in all traffic; `name` tells those of one process apart.
///
/// # Errors
/// If it does not start.
#[cfg(test)]
pub(crate) fn receive(
    provider: Provider,
    wait: Wait,
    name: &str,
    doorbells: Doorbells,
) -> anyhow::Result<Node> {
    receive_at(&of_this_host(provider, name), wait, doorbells)
}

/// Where a receiver on this host listens: each that this process starts at a place of its own.
fn of_this_host(provider: Provider, name: &str) -> Home {
    static STARTED: AtomicU64 = AtomicU64::new(0);
    let number = STARTED.fetch_add(1, Ordering::Relaxed);
    Home { listen: provider.address(&format!("-traffic{name}-{number}")), rdma: Rdma::Off }
}

fn receive_at(home: &Home, wait: Wait, doorbells: Doorbells) -> anyhow::Result<Node> {
    let counts = Arc::new(Counts::default());
    let builder = Node::builder(RECEIVER).wait(wait.0).listen(&home.listen);
    let builder = builder.plaintext_i_understand().rdma(home.rdma);
    let builder = builder.limits(Limits { doorbells, ..Limits::default() });
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
            // What cannot be read is missing in the sum, and in the count of bytes.
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
    /// Where payloads are copied to, kept so that only the first one pays for fresh memory.
    static OWN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Copies a payload to private memory, and adds it up there; nothing if it cannot be read.
fn take(place: &InPlace<'_>, own: &mut Vec<u8>) -> u64 {
    if own.len() < place.len() {
        own.resize(place.len(), 0);
    }
    let own = &mut own[..place.len()];
    place.copy_to(0, own).map_or(0, |()| sum(own))
}

/// A receiving child on a CPU of its own.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// The child.
    pub(crate) child: Child,
    address: String,
    rdma: Rdma,
    doorbells: Doorbells,
}

impl Receiver {
    /// Starts the child; it serves when this returns.
    ///
    /// # Errors
    /// If it does not start.
    pub(crate) fn spawn(provider: Provider, wait: Wait, cpu: Cpu) -> anyhow::Result<Self> {
        Self::spawn_with(provider, wait, cpu, Doorbells::Shared)
    }

    /// The same, where messages of both sides share doorbells, or do not.
    ///
    /// # Errors
    /// If it does not start.
    pub(crate) fn spawn_with(
        provider: Provider,
        wait: Wait,
        cpu: Cpu,
        doorbells: Doorbells,
    ) -> anyhow::Result<Self> {
        Self::spawn_at(&of_this_host(provider, ""), wait, cpu, doorbells)
    }

    /// The same at `home`, in the calling thread's network namespace; it ends with that thread.
    ///
    /// # Errors
    /// If it does not start.
    pub(crate) fn spawn_at(home: &Home, wait: Wait, cpu: Cpu, doorbells: Doorbells) -> anyhow::Result<Self> {
        let shared = if doorbells == Doorbells::Shared { SHARED } else { ALONE };
        let rdma = if home.rdma == Rdma::Require { REQUIRE } else { OFF };
        let cpu = cpu.0.to_string();
        let mut child = Child::spawn([SERVE, &home.listen, rdma, wait.name(), &cpu, shared])?;
        let address = child.hear()?;
        Ok(Self { child, address, rdma: home.rdma, doorbells })
    }

    /// A node that sends to it, and the peer to send to. The node's own threads sleep while its callers poll.
    ///
    /// # Errors
    /// If the two do not meet.
    pub(crate) fn meet(&self, wait: Wait) -> anyhow::Result<(Node, Peer)> {
        self.meet_as(0, wait)
    }

    /// The same for one of several senders.
    ///
    /// # Errors
    /// If the two do not meet.
    pub(crate) fn meet_as(&self, sender: u16, wait: Wait) -> anyhow::Result<(Node, Peer)> {
        let limits = Limits { doorbells: self.doorbells, ..Limits::default() };
        let node = Node::builder(SENDER + sender).limits(limits).wait(WaitPolicy::Block);
        let node = node.plaintext_i_understand().rdma(self.rdma).peer(RECEIVER, &self.address);
        let node = node.start().context("starting the sending node")?;
        let peer = node.wait_for_peer(RECEIVER, START).context("meeting the receiver")?.waiting(wait.0);
        Ok((node, peer))
    }
}

/// Values of the argument that says whether messages share doorbells.
const SHARED: &str = "shared";
const ALONE: &str = "alone";
/// Values of the argument that says whether links go over RDMA.
const OFF: &str = "off";
const REQUIRE: &str = "require";

pub(crate) fn command() -> Command {
    let arguments = ["listen", "rdma", "wait", "cpu", "doorbells"];
    Command::new(SERVE).hide(true).args(arguments.map(|name| Arg::new(name).required(true)))
}

/// Serves until the parent ends this process.
pub(crate) fn serve_command(options: &ArgMatches) -> anyhow::Result<()> {
    child::end_with_parent()?;
    let value = |name: &str| options.get_one::<String>(name).context("all arguments are required");
    let rdma = if value("rdma")? == REQUIRE { Rdma::Require } else { Rdma::Off };
    let (home, wait) = (Home { listen: value("listen")?.clone(), rdma }, value("wait")?.parse()?);
    // Before pinning: what is learned here is to hold for two CPUs.
    let _learned = pronto_node::wake_up_cost();
    pin(Cpu(value("cpu")?.parse().context("a CPU's number")?))?;
    let doorbells = if value("doorbells")? == ALONE { Doorbells::PerMessage } else { Doorbells::Shared };
    let node = receive_at(&home, wait, doorbells)?;
    let address = node.listening().first().context("it listens")?;
    child::say(&address.to_string())?;
    loop {
        std::thread::park();
    }
}
