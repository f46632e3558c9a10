//! The child that receives long messages: into buffers that it has posted, or in place.

use core::time::Duration;
use std::collections::VecDeque;

use anyhow::Context as _;
use pronto::progress::Engine;
use pronto::{Limits, Node, Peer, Receive, Region, Sending, WaitPolicy};

use super::sum::{BLOCK, Sum};
use super::{Cell, Read};
use crate::child::{self, START};
use crate::echo::LIVENESS;
use crate::rendezvous::receiver::engine;
use crate::side::{Arguments, Side, settle};
use crate::traffic::messages::{Read as ReadInPlace, Total};

/// The receiving child.
pub(crate) const SIDE: Side =
    Side { name: "serve-bulk", arguments: &["listen", "read", "engine", "cpu"], more: None, run: serve };

pub(super) const RECEIVER: u16 = 1;
pub(super) const SENDER: u16 = 2;
/// Tags of messages and of answers.
pub(super) const MESSAGE: u64 = 1;
pub(super) const ANSWER: u64 = 2;
/// Length of an answer, a sum.
pub(super) const ANSWER_BYTES: u64 = 8;
/// Longest message that is read in place, bytes. The default is a chunk of send memory, to which a region is not bound.
const LONGEST: u32 = 64 << 20;
/// Longer than any transfer takes on a busy machine.
pub(super) const LIMIT: Duration = Duration::from_secs(30);
/// Reply of the child when its buffers are posted, and when it has received the end of a cell.
pub(super) const POSTED: &str = "posted";
pub(super) const ENDED: &str = "ended";

/// Starts the receiving node. If messages are read in place, its serving thread reads them and polls. If they arrive in posted buffers,
/// the thread that waits for them polls, and the serving thread sleeps if the engine has one.
pub(super) fn node(listen: &str, read: Read, engine: Engine) -> anyhow::Result<Node> {
    let wait = match read {
        Read::Posted => WaitPolicy::Block,
        Read::InPlace => WaitPolicy::Spin,
    };
    let [control, _] = Limits::default().max_payload;
    let limits = Limits { max_payload: [control, LONGEST], ..Limits::default() };
    let builder = Node::builder(RECEIVER).wait(wait).engine(engine).listen(listen).limits(limits);
    let builder = builder.liveness(LIVENESS).handle_in_place::<ReadInPlace, _>(|_, place| {
        let mut sum = Sum::ZERO;
        // A message that cannot be read has another sum.
        place.read_blocks(|block, _| sum.add(block)).map_or(Total { sum: 0 }, |()| Total { sum: sum.total() })
    });
    builder.start().context("starting the receiver")
}

/// Receives the messages of a cell into posted buffers, up to the empty messages at its end, one for each buffer.
pub(super) fn receive_cell(
    peer: &Peer,
    cell: Cell,
    posted: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let buffers = pronto::region(cell.footprint()).context("the buffers")?;
    buffers.write(0, &vec![1; cell.footprint()]).context("touching the buffers")?;
    let answers = pronto::region(cell.open * BLOCK).context("the answers")?;
    let range = |slot: usize| (slot * cell.bytes) as u64..((slot + 1) * cell.bytes) as u64;
    let post = |slot| peer.post(MESSAGE, &buffers, range(slot)).context("posting a buffer");
    let mut receives = (0..cell.open).map(post).collect::<anyhow::Result<VecDeque<Receive>>>()?;
    let mut answering: Vec<Option<Sending>> = (0..cell.open).map(|_| None).collect();
    posted()?;
    for slot in (0..cell.open).cycle() {
        let Some(mut receive) = receives.pop_front() else { break };
        let len = receive.wait(LIMIT).context("a message")?;
        if len == 0 {
            // No buffer is posted again, so the loop ends with the last of these messages.
            continue;
        }
        anyhow::ensure!(len == cell.bytes as u64, "a message of {len} bytes");
        let sum = read(&buffers, slot * cell.bytes, cell.bytes)?;
        receives.push_back(post(slot)?);
        if let Some(before) = answering[slot].take() {
            before.wait().context("an answer")?;
        }
        let at = slot * BLOCK;
        answers.write(at, &sum.to_le_bytes()).context("an answer")?;
        let answer = peer.start_send(ANSWER, &answers, at as u64..at as u64 + ANSWER_BYTES, LIMIT);
        answering[slot] = Some(answer.context("sending an answer")?);
    }
    answering.into_iter().flatten().try_for_each(Sending::wait).context("an answer")
}

/// Returns the sum of a part of a region.
pub(super) fn read(region: &Region, at: usize, len: usize) -> anyhow::Result<u64> {
    let mut sum = Sum::ZERO;
    region.lend(at, len).context("a part of the region")?.read_blocks(&mut |block, _| sum.add(block));
    Ok(sum.total())
}

/// Serves until the parent ends this process. Each line of the parent is a cell, with its length and its number of buffers.
fn serve(arguments: &Arguments<'_>) -> anyhow::Result<()> {
    settle(arguments.cpu("cpu")?)?;
    let read: Read = arguments.get("read")?;
    let node = node(arguments.text("listen")?, read, engine(arguments.text("engine")?)?)?;
    child::announce(&node)?;
    if read == Read::InPlace {
        child::park();
    }
    let peer = node.wait_for_peer(SENDER, START).context("meeting the sender")?.waiting(WaitPolicy::Spin);
    while let Some(line) = child::listen()? {
        let (bytes, open) = line.split_once(' ').context("two numbers")?;
        let cell = Cell { bytes: bytes.parse()?, open: open.parse()? };
        receive_cell(&peer, cell, || child::say(POSTED))?;
        child::say(ENDED)?;
    }
    Ok(())
}
