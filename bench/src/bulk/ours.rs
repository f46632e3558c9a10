//! Pronto as a participant: the sending side.

use core::hint::black_box;
use core::time::Duration;
use std::sync::Arc;

use anyhow::Context as _;
use pronto::progress::Engine;
use pronto::{Memory, Node, Peer, Pending, Receive, Region, Sending, WaitPolicy};
use pronto_sync::atomic::{AtomicU64, Ordering};

use super::raw::{READ, time_reading};
use super::receiver::{self, ANSWER, ANSWER_BYTES, ENDED, LIMIT, MESSAGE, POSTED, RECEIVER, SENDER, SIDE};
use super::round::Rounds;
use super::sum::{self, BLOCK};
use super::{Cell, NUMBER, Read, Sender, send_cell, stamp};
use crate::child::{Child, START};
use crate::clock;
use crate::echo::{LIVENESS, Provider};
use crate::params::Choice as _;
use crate::placement::{CpuPair, alone};
use crate::rendezvous::receiver::name;
use crate::traffic::messages::Read as ReadInPlace;

/// Memory of a message before it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Private memory of the program, from which the program or the library copies the message.
    Private,
    /// A region, to which the message refers.
    Region,
    /// Memory of the program, to which the message refers. Messages into posted buffers only.
    Heap,
}

/// A message in the heap.
#[derive(Clone)]
struct InHeap(Arc<Vec<u8>>);

impl AsRef<[u8]> for InHeap {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// A form of sending, and the engine of both nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub(crate) provider: Provider,
    pub(crate) source: Source,
    pub(crate) read: Read,
    pub(crate) engine: Engine,
}

/// Runs one round over a transport: a fresh child, and a fresh node in this process.
pub(crate) fn round(
    Form { provider, source, read, engine }: Form,
    cpus: CpuPair,
    cells: &[Cell],
    budget: Duration,
    rounds: &mut Rounds,
) -> anyhow::Result<()> {
    rounds.version = Some(format!("Pronto {}", env!("CARGO_PKG_VERSION")));
    let made = alone(cpus.caller, || {
        let cpu = cpus.server.0.to_string();
        let mut child = Child::spawn(&SIDE, [&address(provider), read.name(), name(engine), &cpu])?;
        let (_node, peer) = meet(&child.hear()?, engine)?;
        let one = |cell: &Cell| match read {
            Read::Posted => {
                child.tell(&format!("{} {}", cell.bytes, cell.open))?;
                child.expect(POSTED)?;
                let made = send_posted(&peer, source, *cell, budget)?;
                child.expect(ENDED)?;
                Ok((*cell, made))
            }
            Read::InPlace => Ok((*cell, send_in_place(&peer, source, *cell, budget)?)),
        };
        let made = cells.iter().map(one).collect::<anyhow::Result<Vec<_>>>()?;
        let memory = pronto::region(READ).context("a region")?;
        memory.write(0, &vec![7; READ]).context("touching a region")?;
        let reading = time_reading(|| receiver::read(black_box(&memory), 0, READ).unwrap_or_default());
        anyhow::Ok((made, reading))
    })?;
    let (made, (bytes, time)) = made;
    rounds.reading.round(bytes, time);
    made.into_iter().for_each(|(cell, made)| rounds.cell(cell, made));
    Ok(())
}

/// Returns an address for a receiver on this host, a different one at each call.
fn address(provider: Provider) -> String {
    static STARTED: AtomicU64 = AtomicU64::new(0);
    provider.address(&format!("-bulk-{}", STARTED.fetch_add(1, Ordering::Relaxed)))
}

/// Starts the sending node. Its own threads sleep while its caller polls.
fn meet(address: &str, engine: Engine) -> anyhow::Result<(Node, Peer)> {
    let node = Node::builder(SENDER).liveness(LIVENESS).wait(WaitPolicy::Block).engine(engine);
    let node = node.peer(RECEIVER, address).start().context("starting the sender")?;
    let peer = node.wait_for_peer(RECEIVER, START).context("meeting the receiver")?;
    Ok((node, peer.waiting(WaitPolicy::Spin)))
}

/// Messages that are sent into posted buffers.
struct IntoPosted<'a> {
    peer: &'a Peer,
    cell: Cell,
    /// Messages that are copied into the region; empty if they are in the region already.
    private: Vec<Vec<u8>>,
    /// Messages that are sent from where they are; empty if they are in the region.
    heap: Vec<InHeap>,
    region: Region,
    answers: Region,
    slots: Vec<Option<(Receive, Sending)>>,
}

impl IntoPosted<'_> {
    /// Numbers a message in the heap as soon as the node has returned its memory, and starts to send it.
    fn start_from_heap(&mut self, slot: usize, number: u64) -> anyhow::Result<Sending> {
        let since = clock::now();
        let message = &mut self.heap[slot];
        loop {
            if let Some(bytes) = Arc::get_mut(&mut message.0) {
                stamp(bytes, number);
                break;
            }
            anyhow::ensure!(since.elapsed() < LIMIT, "the memory of a message was not returned");
            std::thread::yield_now();
        }
        let memory = Memory::from_owner(message.clone());
        self.peer.start_send(MESSAGE, &memory, 0..memory.len() as u64, LIMIT).context("sending")
    }

    fn range(&self, slot: usize) -> (usize, core::ops::Range<u64>) {
        let at = slot * self.cell.bytes;
        (at, at as u64..(at + self.cell.bytes) as u64)
    }
}

impl Sender for IntoPosted<'_> {
    fn start(&mut self, slot: usize, number: u64) -> anyhow::Result<()> {
        let (at, range) = self.range(slot);
        match self.private.get_mut(slot) {
            Some(message) => {
                stamp(message, number);
                self.region.write(at, black_box(message)).context("copying a message")?;
            }
            None if !self.heap.is_empty() => {}
            None => self.region.write(at + NUMBER, &number.to_le_bytes()).context("numbering a message")?,
        }
        let answer = (slot * BLOCK) as u64;
        let receive = self.peer.post(ANSWER, &self.answers, answer..answer + ANSWER_BYTES);
        let receive = receive.context("posting an answer")?;
        let sending = if self.heap.is_empty() {
            self.peer.start_send(MESSAGE, &self.region, range, LIMIT).context("sending")?
        } else {
            self.start_from_heap(slot, number)?
        };
        self.slots[slot] = Some((receive, sending));
        Ok(())
    }

    fn finish(&mut self, slot: usize) -> anyhow::Result<u64> {
        let (mut receive, sending) = self.slots[slot].take().context("a message that was started")?;
        let len = receive.wait(LIMIT).context("an answer")?;
        anyhow::ensure!(len == ANSWER_BYTES, "an answer of {len} bytes");
        sending.wait().context("the end of a message")?;
        let mut sum = [0; 8];
        self.answers.read(slot * BLOCK, &mut sum).context("an answer")?;
        Ok(u64::from_le_bytes(sum))
    }
}

fn send_posted(peer: &Peer, source: Source, cell: Cell, budget: Duration) -> anyhow::Result<(u64, Duration)> {
    let of_region = if source == Source::Heap { BLOCK } else { cell.footprint() };
    let region = pronto::region(of_region).context("the messages")?;
    let (mut private, mut heap, mut sums) = (Vec::new(), Vec::new(), Vec::new());
    for slot in 0..cell.open {
        let message = cell.message(slot);
        sums.push(sum::of(&message));
        if source == Source::Heap {
            heap.push(InHeap(Arc::new(message)));
            continue;
        }
        region.write(slot * cell.bytes, &message).context("a message")?;
        if source == Source::Private {
            private.push(message);
        }
    }
    let answers = pronto::region(cell.open * BLOCK).context("the answers")?;
    let slots = (0..cell.open).map(|_| None).collect();
    let mut sender = IntoPosted { peer, cell, private, heap, region, answers, slots };
    let made = send_cell(&mut sender, cell, &sums, budget)?;
    for _ in 0..cell.open {
        peer.send(MESSAGE, &sender.region, 0..0, LIMIT).context("ending a cell")?;
    }
    Ok(made)
}

/// A message that is read in place.
enum Slot {
    Unused,
    Sent(Pending<ReadInPlace>),
    /// Its sum has arrived before it was asked for.
    Answered(u64),
}

/// Messages that are read in place.
struct ReadInTurns<'a> {
    peer: &'a Peer,
    cell: Cell,
    /// Messages of which the library copies the bytes; empty if messages refer to the region.
    private: Vec<ReadInPlace>,
    region: Region,
    slots: Vec<Slot>,
}

impl ReadInTurns<'_> {
    fn try_start(&self, slot: usize) -> Result<Pending<ReadInPlace>, pronto::CallError> {
        let at = (slot * self.cell.bytes) as u64;
        match self.private.get(slot) {
            Some(message) => self.peer.start(black_box(message)),
            None => self.peer.start_from::<ReadInPlace>(&self.region, at..at + self.cell.bytes as u64),
        }
    }

    fn answer(&mut self, slot: usize) -> anyhow::Result<u64> {
        match core::mem::replace(&mut self.slots[slot], Slot::Unused) {
            Slot::Sent(pending) => Ok(pending.wait().context("a message")?.sum),
            Slot::Answered(sum) => Ok(sum),
            Slot::Unused => anyhow::bail!("a message that was not started"),
        }
    }

    /// Takes the next answer ahead of time, because a message frees its memory only then. Returns whether there was one to wait for.
    fn make_room(&mut self, slot: usize) -> anyhow::Result<bool> {
        let oldest = (1..=self.cell.open).map(|next| (slot + next) % self.cell.open);
        let Some(oldest) = oldest.into_iter().find(|slot| matches!(self.slots[*slot], Slot::Sent(_))) else {
            return Ok(false);
        };
        self.slots[oldest] = Slot::Answered(self.answer(oldest)?);
        Ok(true)
    }
}

impl Sender for ReadInTurns<'_> {
    fn start(&mut self, slot: usize, number: u64) -> anyhow::Result<()> {
        match self.private.get_mut(slot) {
            Some(message) => stamp_behind_count(message, number),
            None => {
                let at = slot * self.cell.bytes + NUMBER;
                self.region.write(at, &number.to_le_bytes()).context("numbering a message")?;
            }
        }
        let since = clock::now();
        loop {
            match self.try_start(slot) {
                Ok(pending) => {
                    self.slots[slot] = Slot::Sent(pending);
                    return Ok(());
                }
                Err(error) if error.is_retryable() && since.elapsed() < LIMIT => {
                    if !self.make_room(slot)? {
                        std::thread::yield_now();
                    }
                }
                Err(error) => return Err(error).context("sending a message"),
            }
        }
    }

    fn finish(&mut self, slot: usize) -> anyhow::Result<u64> {
        self.answer(slot)
    }
}

/// Sets the number of a message, whose encoding has the count of its bytes before them.
fn stamp_behind_count(message: &mut ReadInPlace, number: u64) {
    let at = NUMBER - COUNT;
    message.bytes[at..at + size_of::<u64>()].copy_from_slice(&number.to_le_bytes());
}

fn send_in_place(
    peer: &Peer,
    source: Source,
    cell: Cell,
    budget: Duration,
) -> anyhow::Result<(u64, Duration)> {
    let of_region = if source == Source::Region { cell.footprint() } else { BLOCK };
    let region = pronto::region(of_region).context("the messages")?;
    let (mut private, mut sums) = (Vec::new(), Vec::new());
    for slot in 0..cell.open {
        let mut message = cell.message(slot);
        let count = u32::try_from(cell.bytes - COUNT).context("the length of a message")?;
        message[..COUNT].copy_from_slice(&count.to_le_bytes());
        sums.push(sum::of(&message));
        match source {
            Source::Private => private.push(ReadInPlace { bytes: message.split_off(COUNT) }),
            Source::Region => region.write(slot * cell.bytes, &message).context("a message")?,
            Source::Heap => anyhow::bail!("messages that are read in place leave from a region"),
        }
    }
    let slots = (0..cell.open).map(|_| Slot::Unused).collect();
    let mut sender = ReadInTurns { peer, cell, private, region, slots };
    send_cell(&mut sender, cell, &sums, budget)
}

/// Length of the count at the beginning of an encoded message.
const COUNT: usize = size_of::<u32>();

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends a cell to a receiver in this process.
    fn send(Form { provider, source, read, engine }: Form, cell: Cell) -> anyhow::Result<u64> {
        let node = receiver::node(&address(provider), read, engine)?;
        let (_sender, peer) = meet(&node.listening()[0].to_string(), engine)?;
        let from = node.wait_for_peer(SENDER, START)?.waiting(WaitPolicy::Block);
        let peer = peer.waiting(WaitPolicy::Block);
        if read == Read::InPlace {
            return Ok(send_in_place(&peer, source, cell, Duration::ZERO)?.0);
        }
        let (posted, is_posted) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let receiver = scope.spawn(move || receiver::receive_cell(&from, cell, || Ok(posted.send(())?)));
            is_posted.recv()?;
            let (count, _) = send_posted(&peer, source, cell, Duration::ZERO)?;
            receiver.join().expect("it does not panic")?;
            Ok(count)
        })
    }

    #[test]
    fn every_form_delivers_every_byte_on_both_transports() {
        let (posted, in_place) = (Read::Posted, Read::InPlace);
        for provider in Provider::ALL {
            for (source, read, engine) in [
                (Source::Private, posted, Engine::Idle),
                (Source::Region, posted, Engine::Idle),
                (Source::Region, posted, Engine::None),
                (Source::Heap, posted, Engine::Idle),
                (Source::Private, in_place, Engine::Idle),
                (Source::Region, in_place, Engine::Idle),
            ] {
                for cell in [Cell { bytes: 128 << 10, open: 1 }, Cell { bytes: 64 << 10, open: 16 }] {
                    let form = Form { provider, source, read, engine };
                    assert_eq!(send(form, cell).unwrap(), 2 * cell.open as u64, "{form:?} {cell:?}");
                }
            }
        }
    }
}
