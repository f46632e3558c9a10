//! A queue pair in plain memory, as small as the fabric allows, with one chosen flaw or none.
//!
//! A message's payload stays where it was posted until the other end receives it; only then does its request complete.

mod access;
mod flaw;
mod queue_pair;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use nix::sys::eventfd::EventFd;
use pronto_conformance::{Harness, Pair};
use pronto_core::fabric::{
    Completion, ConnectionLimits, HeapMemory, OutOfBounds, Payload, Region, Rights, Status, WrId,
};
use pronto_wire::RawHeader;

pub(crate) use flaw::Flaw;
pub(crate) use queue_pair::Reference;

/// Makes pairs of [`Reference`] with one flaw, or none.
pub(crate) struct ReferenceHarness {
    flaw: Option<Flaw>,
    patience: u32,
    node: Arc<Node>,
}

/// State shared by all pairs of one harness; only flaws use it.
#[derive(Debug, Default)]
pub(crate) struct Node {
    state: Mutex<NodeState>,
}

#[derive(Debug, Default)]
struct NodeState {
    keys: u64,
    grants: HashMap<u64, GrantEntry>,
    lost: bool,
}

impl ReferenceHarness {
    pub(crate) fn new(flaw: Option<Flaw>) -> Self {
        // A mutant fails soon; the reference itself must not fail because the machine is busy.
        let patience = if flaw.is_some() { 5_000 } else { 2_000_000 };
        Self { flaw, patience, node: Arc::default() }
    }
}

impl Harness for ReferenceHarness {
    type Qp = Reference;
    type Link = Arc<Mutex<Wire>>;

    fn name(&self) -> &'static str {
        "reference"
    }

    fn pair(&self, limits: ConnectionLimits) -> Pair<Reference, Self::Link> {
        self.node.lock().lost = false;
        let wire = Arc::new(Mutex::new(Wire::default()));
        let end =
            |me, limits| Reference::new(me, limits, Arc::clone(&wire), Arc::clone(&self.node), self.flaw);
        Pair { a: end(0, limits), b: end(1, limits.mirrored()), link: wire }
    }

    fn region(&self, len: usize) -> Region {
        Region::new(Arc::new(HeapMemory::new(len)))
    }

    fn settle(&self, _link: &mut Self::Link) {
        thread::yield_now();
    }

    fn break_link(&self, link: &mut Self::Link) -> bool {
        let mut wire = link.lock().expect("no test panics while it holds this");
        wire.lose(0, self.flaw);
        wire.lose(1, self.flaw);
        true
    }

    fn event(&self, qp: &Reference) -> Option<bool> {
        Some(qp.has_event())
    }

    fn patience(&self) -> u32 {
        self.patience
    }
}

impl Node {
    fn lock(&self) -> MutexGuard<'_, NodeState> {
        self.state.lock().expect("no test panics while it holds this")
    }
}

/// The state of one connection.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    ends: [EndState; 2],
}

#[derive(Debug, Default)]
struct EndState {
    inbox: VecDeque<Sent>,
    /// One-sided requests of the other end that wait for this one; used only by a flaw.
    waiting: VecDeque<access::Request>,
    completions: VecDeque<Completion>,
    grants: HashMap<u64, GrantEntry>,
    armed: bool,
    event: bool,
    /// Signalled with an event.
    bell: Option<Arc<EventFd>>,
    /// True while polls find nothing until disarming; used only by a flaw.
    left_out: bool,
    closed: bool,
    lost: bool,
}

#[derive(Clone, Debug)]
struct GrantEntry {
    region: Region,
    start: u64,
    len: u64,
    rights: Rights,
    revoked: bool,
}

/// A message in flight.
#[derive(Debug)]
struct Sent {
    header: RawHeader,
    wr: Option<WrId>,
    inline: bool,
    body: Body,
}

/// A payload in flight.
#[derive(Debug)]
enum Body {
    Bytes(Vec<u8>),
    Place { region: Region, offset: usize, len: usize },
}

impl Body {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Place { len, .. } => *len,
        }
    }

    fn take(self) -> Vec<u8> {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Place { region, offset, len } => {
                let mut bytes = vec![0; len];
                let _ = region.read(offset, &mut bytes);
                bytes
            }
        }
    }
}

impl Wire {
    fn wake(&mut self, end: usize) {
        let state = &mut self.ends[end];
        state.event |= state.armed;
        if let Some(bell) = state.bell.as_ref().filter(|_| state.armed) {
            bell.write(1).expect("an eventfd takes a one");
        }
        state.armed = false;
    }

    fn complete(&mut self, end: usize, wr: WrId, status: Status, flaw: Option<Flaw>) {
        if flaw == Some(Flaw::LosesCompletions) && wr.generation.is_multiple_of(7) {
            return;
        }
        let times = if flaw == Some(Flaw::CompletesTwice) && wr.generation.is_multiple_of(7) { 2 } else { 1 };
        for _ in 0..times {
            self.ends[end].completions.push_back(Completion { wr, status });
        }
        if flaw != Some(Flaw::CompletionsDoNotWake) {
            self.wake(end);
        }
    }

    /// Reports to one end that the connection is gone, and flushes its messages in flight.
    fn lose(&mut self, end: usize, flaw: Option<Flaw>) {
        if flaw == Some(Flaw::NeverLost) || self.ends[end].lost {
            return;
        }
        self.ends[end].lost = true;
        let under_way = core::mem::take(&mut self.ends[1 - end].inbox);
        if flaw != Some(Flaw::LossFlushesNothing) {
            for wr in under_way.into_iter().filter_map(|sent| sent.wr) {
                self.complete(end, wr, Status::Flushed, flaw);
            }
        }
        if flaw != Some(Flaw::LossDoesNotWake) {
            self.wake(end);
        }
    }
}

/// A received payload.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    bytes: Arc<Mutex<Vec<u8>>>,
    sloppy: bool,
}

impl Payload for Lease {
    fn len(&self) -> usize {
        self.bytes.lock().expect("no test panics while it holds this").len()
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) -> Result<(), OutOfBounds> {
        let bytes = self.bytes.lock().expect("no test panics while it holds this");
        let end = offset.checked_add(out.len()).filter(|end| *end <= bytes.len());
        match end {
            Some(end) => out.copy_from_slice(&bytes[offset..end]),
            None if self.sloppy => out.fill(0),
            None => return Err(OutOfBounds { offset, wanted: out.len(), len: bytes.len() }),
        }
        Ok(())
    }

    fn as_private(&self) -> Option<&[u8]> {
        None
    }
}
