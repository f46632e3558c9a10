//! One queue pair to a node.
//!
//! # Invariants
//! 1. The device writes a piece of `received` while its receive is posted, and this code reads it only after the
//!    receive has completed. A piece of `sent` is written only after the send from it has completed.
//! 2. The queue pair ends before the memory: it comes first among the fields.
#![expect(unsafe_code, reason = "the device reads and writes memory while requests are outstanding")]

use std::collections::VecDeque;
use std::thread;

use anyhow::{Context as _, Result, bail};
use ibverbs::{
    CompletionQueue, MemoryRegion, ProtectionDomain, QueuePair, ibv_access_flags, ibv_qp_type, ibv_wc,
};

use crate::wire::{HEADER, Message, Offer, word};

/// Length of a receive, bytes, as in the offer.
const RECEIVE: usize = 2048;
/// Number of posted receives.
const RECEIVES: usize = 64;
/// Maximum number of polls of the completion queue in one wait.
const LOOKS: u32 = 20_000_000;
/// Name of the one outstanding send; receives are named by their numbers.
const SEND: u64 = u64::MAX;

pub(crate) struct Connection<'a> {
    queue_pair: QueuePair<'a>,
    queue: &'a CompletionQueue<'a>,
    received: MemoryRegion<u8>,
    sent: MemoryRegion<u8>,
    /// Completions that arrived during a wait for another one.
    early: VecDeque<ibv_wc>,
}

impl<'a> Connection<'a> {
    /// Connects to the queue pair offered for this class. Returns the number and the first sequence number of this end.
    pub(crate) fn new(
        domain: &'a ProtectionDomain<'a>,
        queue: &'a CompletionQueue<'a>,
        gid_index: u32,
        theirs: &Offer,
        class: usize,
    ) -> Result<(Self, (u32, u32))> {
        let (number, first_sequence) = *theirs.ends.get(class).context("two classes")?;
        let access = [
            ibv_access_flags::IBV_ACCESS_REMOTE_WRITE,
            ibv_access_flags::IBV_ACCESS_REMOTE_READ,
            ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC,
        ];
        let access = access.into_iter().fold(ibv_access_flags::IBV_ACCESS_LOCAL_WRITE, |all, one| all | one);
        let receives = u32::try_from(RECEIVES)?;
        let prepared = domain
            .create_qp(queue, queue, ibv_qp_type::IBV_QPT_RC)
            .set_max_recv_wr(receives)
            .set_gid_index(gid_index)
            .set_access(access)
            .set_path_mtu(theirs.mtu)
            .set_rq_psn(first_sequence)
            .set_timeout(14)
            .build()?;
        let ours = prepared.endpoint();
        let mut them = ours;
        them.num = number;
        them.gid = Some(theirs.gid()?);
        let mut this = Self {
            queue_pair: prepared.handshake(them)?,
            queue,
            received: domain.allocate(RECEIVE * RECEIVES)?,
            sent: domain.allocate(RECEIVE)?,
            early: VecDeque::new(),
        };
        (0..RECEIVES).try_for_each(|number| this.post_receive(number))?;
        // The crate sends from sequence number 0.
        Ok((this, (ours.num, 0)))
    }

    fn post_receive(&mut self, number: usize) -> Result<()> {
        let piece = number * RECEIVE..(number + 1) * RECEIVE;
        // SAFETY: invariant 1: it was not posted yet, or has completed and was read.
        unsafe { self.queue_pair.post_receive(&mut self.received, piece, number as u64)? };
        Ok(())
    }

    /// Waits for a completion with a name for which `wanted` returns true.
    fn wait(&mut self, wanted: impl Fn(u64) -> bool) -> Result<ibv_wc> {
        for _ in 0..LOOKS {
            let found = self.early.iter().position(|completion| wanted(completion.wr_id()));
            if let Some(completion) = found.and_then(|at| self.early.remove(at)) {
                return Ok(completion);
            }
            let mut completions = [ibv_wc::default(); 16];
            for completion in self.queue.poll(&mut completions)? {
                if let Some((status, _)) = completion.error() {
                    bail!("a request ended with status {status}");
                }
                self.early.push_back(*completion);
            }
            thread::yield_now();
        }
        bail!("no completion arrived")
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.sent[..bytes.len()].copy_from_slice(bytes);
        // SAFETY: invariant 1: the only send, whose completion is waited for.
        unsafe { self.queue_pair.post_send(&mut self.sent, ..bytes.len(), SEND)? };
        self.wait(|name| name == SEND).map(drop)
    }

    /// Receives one message and responds. A message with its payload gets a message with the same header and the
    /// payload reversed. A message whose payload waits gets a report that it was read, although this crate has no verb
    /// to read it. Returns the payload's length.
    pub(crate) fn echo(&mut self) -> Result<usize> {
        let completion = self.wait(|name| name != SEND)?;
        let number = usize::try_from(completion.wr_id())?;
        let bytes = self.received[number * RECEIVE..][..completion.len()].to_vec();
        self.post_receive(number)?;
        match Message::read(&bytes)? {
            Message::Here(payload) => {
                let reversed: Vec<u8> = payload.iter().rev().copied().collect();
                self.send(&[&bytes[..HEADER], &reversed].concat())?;
                Ok(payload.len())
            }
            Message::Waits { len, number } => {
                self.send(&word(3, number))?;
                Ok(usize::try_from(len)?)
            }
            Message::Taken => bail!("unexpected taken message: this side offered no payload"),
        }
    }

    /// Offers a payload of `len` bytes. The key is that of memory whose addresses do not begin with 0, as the protocol
    /// requires.
    pub(crate) fn claim(&mut self, len: u32, window: u32) -> Result<()> {
        let mut message = word(2, 0).to_vec();
        message.resize(HEADER, 0);
        for number in [len, self.sent.rkey().key, window] {
            message.extend(number.to_le_bytes());
        }
        self.send(&message)
    }
}
