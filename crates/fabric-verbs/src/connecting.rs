//! Creation of a queue pair: made, connected to the other end, and tested.

use std::collections::VecDeque;
use std::sync::Arc;

use nix::sys::eventfd::{EfdFlags, EventFd};
use pronto_core::fabric::{
    AtomicScope, Capabilities, ConnectionLimits, FabricError, OneSided, Revocation, SHORT_PAYLOAD,
};
use pronto_mapping::Mapping;
use pronto_wire::INLINE_PAYLOAD;

use crate::account::Share;
use crate::alive::Alive;
use crate::device::Shared;
use crate::error::VerbsError;
use crate::inbox::Inbox;
use crate::queue_pair::{Counters, LAST_POLLS, VerbsQueuePair};
use crate::reaping::Reaping;
use crate::receives::Receives;
use crate::sleep::{Waits, WakeSources};
use crate::sys::{COPY, Channel, CompletionQueue, Connect, Queue, QueueSizes, Verb};
use crate::windows::{self, Windows};

/// Requests in addition to messages: one-sided operations, reads of payloads, reports to the peer.
const MORE_REQUESTS: u32 = 128;

/// Returns the maximum number of receives that a connection with these limits needs at a time. They are posted before
/// the peer learns of the connection. The number is the sum of these uses:
/// - `receive_depth` messages, which is the depth of the windows that the greeting grants: requests, replies and control;
/// - for each of this side's windows onto payloads, the peer's report that it has read the payload;
/// - one receive that is being filled when the connection ends ([`Share::connected`]).
///
/// Reads, writes and atomics take no receive.
const fn receives(limits: &ConnectionLimits) -> u32 {
    limits.receive_depth + payload_windows(limits) + 1
}

/// Returns the maximum number of payloads of this side that may wait to be read.
const fn payload_windows(limits: &ConnectionLimits) -> u32 {
    if limits.send_depth < windows::MOST { limits.send_depth } else { windows::MOST }
}

/// A queue pair before it is connected.
#[derive(Debug)]
pub(crate) struct Half {
    queue: Queue,
    windows: Windows,
    sends: CompletionQueue,
    receives: CompletionQueue,
    channel: Arc<Channel>,
    memory: Arc<Mapping>,
    limits: ConnectionLimits,
    depth: u32,
    shared: Arc<Shared>,
    buffers: Arc<Receives>,
    share: Share,
}

impl Half {
    pub(crate) fn new(shared: &Arc<Shared>, limits: ConnectionLimits) -> Result<Self, VerbsError> {
        let domain = &shared.domain;
        let windows = payload_windows(&limits);
        // A rendezvous takes two requests; as many payloads of the peer may have to be read and reported.
        let depth = 2 * limits.send_depth + MORE_REQUESTS;
        let buffers = shared.receives();
        let share = buffers.promise(receives(&limits))?;
        let channel = Channel::new(domain.context())?;
        let sends = CompletionQueue::new(&channel, depth + 1, domain.place())?;
        let completions = CompletionQueue::new(&channel, receives(&limits), domain.place())?;
        let sizes = QueueSizes { depth };
        let queue = Queue::new(domain, shared.port, (&sends, &completions), buffers.queue(), sizes)?;
        Ok(Self {
            queue,
            windows: Windows::new(domain, windows)?,
            sends,
            receives: completions,
            channel,
            memory: domain.memory(limits.send_memory)?,
            limits,
            depth,
            shared: Arc::clone(shared),
            buffers,
            share,
        })
    }

    pub(crate) fn number(&self) -> u32 {
        self.queue.number()
    }

    /// Returns the capabilities with a peer, given the longest message of both devices in bytes.
    fn capabilities(&self, longest: u32) -> Capabilities {
        let limits = &self.limits;
        let device = self.shared.domain.context().limits();
        let scope = if device.atomics_are_global { AtomicScope::Global } else { AtomicScope::Fabric };
        let max_payload = limits.max_send_payload.min(longest);
        let copies = if self.queue.copies(COPY) { SHORT_PAYLOAD } else { INLINE_PAYLOAD };
        Capabilities {
            provider: "verbs",
            max_payload,
            receive_depth: limits.receive_depth,
            send_depth: limits.send_depth,
            polls_without_syscalls: true,
            visible_when_posted: false,
            by_reference: true,
            copies: u32::try_from(copies).unwrap_or(0).min(max_payload),
            pins_memory: true,
            ready_when_touched: false,
            one_sided: if device.has_atomics {
                OneSided::Supported { passive_target: true, atomics: scope, revocation: Revocation::Enforced }
            } else {
                OneSided::None
            },
        }
    }

    pub(crate) fn connect(
        mut self,
        first_sequence: u32,
        to: &Connect,
        (their_buffer, longest): (u32, u32),
        waits: Waits,
        alive: &Arc<Alive>,
    ) -> Result<VerbsQueuePair, VerbsError> {
        let system = |what: &'static str| move |errno| VerbsError::System { what, errno };
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        let bell = Arc::new(bell.map_err(system("eventfd"))?);
        waits.add(WakeSources::CHANNEL, &*self.channel)?;
        waits.add(WakeSources::BELL, &*bell)?;
        self.share.connected();
        self.queue.connect(first_sequence, to)?;
        let limits = &self.limits;
        let capabilities = self.capabilities(longest);
        self.shared.enlist(self.queue.number(), alive);
        let depth = self.depth as usize;
        Ok(VerbsQueuePair {
            queue: self.queue,
            windows: self.windows,
            grants: Vec::new(),
            sends: self.sends,
            receives: self.receives,
            entries: VecDeque::with_capacity(depth),
            chunks: Vec::new(),
            abandoned: Vec::new(),
            memory: self.memory,
            done: VecDeque::with_capacity(2 * depth),
            copied: VecDeque::with_capacity(depth),
            inbox: Inbox::with_capacity(limits.receive_depth as usize),
            owed: VecDeque::with_capacity(windows::MOST as usize),
            closing: VecDeque::with_capacity(windows::MOST as usize),
            in_use: Arc::default(),
            capabilities,
            max_receive: limits.max_receive_payload,
            their_buffer,
            longest,
            since_signal: 0,
            reaping: Reaping::default(),
            kept: Arc::default(),
            depth: self.depth,
            fetch_waiter: self.shared.pool.waiter(&bell),
            copy_waiter: self.shared.pool.waiter(&bell),
            bell,
            waits,
            channel: self.channel,
            has_events: false,
            slept_for_all: false,
            alive: Arc::clone(alive),
            shared: self.shared,
            next_grant: 0,
            settled: 0,
            asked: 0,
            failed: None,
            last_polls: LAST_POLLS,
            closed: false,
            counters: Counters::default(),
            buffers: self.buffers,
            _share: self.share,
        })
    }
}

impl VerbsQueuePair {
    pub(crate) fn begin_probe(&mut self) -> Result<(), VerbsError> {
        // A write of no bytes: it needs no key, takes no receive, and is acknowledged.
        self.ask(Verb::Write(0, 0)).map(drop).map_err(|error| unreachable_peer(&error))
    }

    pub(crate) fn probe_has_ended(&mut self) -> Result<bool, VerbsError> {
        self.has_settled(1).map_err(|error| unreachable_peer(&error))
    }
}

fn unreachable_peer(error: &FabricError) -> VerbsError {
    match error {
        FabricError::WorkFailed { status } => VerbsError::Unreachable { status: *status },
        // IBV_WC_RETRY_EXC_ERR
        _ => VerbsError::Unreachable { status: 12 },
    }
}

#[cfg(test)]
mod tests {
    use pronto_core::Class;
    use pronto_core::session::{Identity, Limits, MAX_SENDS, introduce};
    use pronto_wire::{Epoch, NodeId};

    use super::*;

    /// Shows: protocol.reserves
    #[test]
    fn every_message_that_the_windows_grant_has_a_receive() {
        let ours = Limits { calls: 5, requests: [200, 3], first_requests: [100, 3], ..Limits::default() };
        let identity =
            |id| Identity { node: NodeId(id), epoch: Epoch(1), name: String::new(), types: Vec::new() };
        for limits in [ours, Limits::default()] {
            let [near, far] = introduce(&identity(1), &identity(2), &limits).unwrap();
            for class in Class::ALL {
                let (here, there) = (near.fixed().connection(class), far.fixed().connection(class));
                let window = limits.window(class);
                let granted: u16 = Class::ALL.map(|class| limits.window(class).requests).iter().sum();
                // Responses to offers, whose credits were returned.
                let offers = if class == Class::Control { MAX_SENDS } else { 0 };
                let replies = u32::from(window.replies).min(u32::from(granted) + offers);
                assert_eq!(here.receive_depth, u32::from(window.requests + window.control) + replies);
                // The peer sends messages up to the granted depth, and a report for each window onto a payload.
                let reports = here.send_depth.min(windows::MOST);
                assert!(there.send_depth + reports < receives(&here), "{class:?}");
            }
        }
    }
}
