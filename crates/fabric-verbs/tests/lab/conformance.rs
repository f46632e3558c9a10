//! The conformance suite of the fabric: with polling only, and with an owner that sleeps whenever there is nothing to
//! do.

use core::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::thread;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use pronto_conformance::{Capability, Harness, Pair, Summary};
use pronto_core::Class;
use pronto_core::fabric::{
    Armed, Capabilities, Completion, CompletionChannel, ConnectionLimits, DoorbellEvent, FabricError, Grant,
    GrantError, GrantId, HeapMemory, MessageSlot, PollOutcome, PostError, QueuePair, Region, Rights,
    SendMemory, SendWork,
};
use pronto_fabric_verbs::{Lease, Lifeline, VerbsQueuePair};

use crate::pair::Devices;

/// Two nodes whose queue pairs only poll.
struct Polled(Devices);

impl Harness for Polled {
    type Qp = VerbsQueuePair;
    type Link = [Lifeline; 2];

    fn name(&self) -> &'static str {
        "verbs"
    }

    // Nothing here depends on the class.
    fn pair(&self, limits: ConnectionLimits) -> Pair<VerbsQueuePair, [Lifeline; 2]> {
        let [a, b] = self.0.link(limits);
        let link = [a.lifeline, b.lifeline].map(|line| line.of(Class::Bulk));
        Pair { a: a.bulk, b: b.bulk, link }
    }

    fn region(&self, len: usize) -> Region {
        Region::new(Arc::new(HeapMemory::new(len)))
    }

    /// Gives the watcher of the link, and the device's own threads, time to run.
    fn settle(&self, link: &mut [Lifeline; 2]) {
        for line in link {
            line.check();
        }
        for device in &self.0.0 {
            device.take_events();
        }
        thread::yield_now();
    }

    fn break_link(&self, link: &mut [Lifeline; 2]) -> bool {
        link[0].cut();
        true
    }
}

/// Two nodes whose queue pairs sleep: a poll that finds nothing arms, polls again, and sleeps until the channel is
/// readable, or for a millisecond.
struct EventDriven(Polled);

/// A queue pair whose owner sleeps.
#[derive(Debug)]
struct Sleeper(VerbsQueuePair);

impl Harness for EventDriven {
    type Qp = Sleeper;
    type Link = [Lifeline; 2];

    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn pair(&self, limits: ConnectionLimits) -> Pair<Sleeper, [Lifeline; 2]> {
        let Pair { a, b, link } = self.0.pair(limits);
        Pair { a: Sleeper(a), b: Sleeper(b), link }
    }

    fn region(&self, len: usize) -> Region {
        self.0.region(len)
    }

    fn settle(&self, link: &mut [Lifeline; 2]) {
        self.0.settle(link);
    }

    fn break_link(&self, link: &mut [Lifeline; 2]) -> bool {
        self.0.break_link(link)
    }
}

impl Sleeper {
    /// Arms, rechecks and sleeps.
    fn sleep(&mut self, slot: MessageSlot<'_>) -> Result<PollOutcome<Lease>, FabricError> {
        self.0.arm(Armed::All)?;
        let found = self.0.poll(slot)?;
        if matches!(found, PollOutcome::Nothing)
            && let Some(channel) = self.0.channel()
        {
            #[expect(unsafe_code, reason = "a descriptor by its number")]
            // SAFETY: the queue pair keeps it open, and is borrowed.
            let channel = unsafe { BorrowedFd::borrow_raw(channel.fd) };
            poll(&mut [PollFd::new(channel, PollFlags::POLLIN)], PollTimeout::from(1_u8)).unwrap();
        }
        self.0.arm(Armed::Nothing)?;
        Ok(found)
    }
}

impl QueuePair for Sleeper {
    type Lease = Lease;

    fn poll(&mut self, slot: MessageSlot<'_>) -> Result<PollOutcome<Lease>, FabricError> {
        let MessageSlot { inline, short } = slot;
        match self.0.poll(MessageSlot { inline, short })? {
            PollOutcome::Nothing => self.sleep(MessageSlot { inline, short }),
            found => Ok(found),
        }
    }

    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }

    fn send_memory(&self) -> Arc<dyn SendMemory> {
        self.0.send_memory()
    }

    fn prepare(&mut self, range: Range<usize>) -> Result<(), FabricError> {
        self.0.prepare(range)
    }

    fn retire(&mut self, range: Range<usize>) -> Result<(), FabricError> {
        self.0.retire(range)
    }

    fn register(&mut self, region: &Region) -> Result<(), FabricError> {
        self.0.register(region)
    }

    fn post(&mut self, work: SendWork<'_>) -> Result<(), PostError> {
        self.0.post(work)
    }

    fn ring_doorbell(&mut self, event: DoorbellEvent) -> Result<(), FabricError> {
        self.0.ring_doorbell(event)
    }

    fn poll_send(&mut self) -> Option<Completion> {
        self.0.poll_send()
    }

    fn lease_copy(&self, payload: &[u8]) -> Lease {
        self.0.lease_copy(payload)
    }

    fn arm(&mut self, events: Armed) -> Result<(), FabricError> {
        self.0.arm(events)
    }

    fn channel(&self) -> Option<CompletionChannel> {
        self.0.channel()
    }

    fn grant(&mut self, region: &Region, range: Range<u64>, rights: Rights) -> Result<Grant, GrantError> {
        self.0.grant(region, range, rights)
    }

    fn revoke(&mut self, grant: GrantId) -> Result<(), GrantError> {
        self.0.revoke(grant)
    }

    fn close(&mut self) {
        self.0.close();
    }
}

#[track_caller]
fn complete(summary: &Summary) {
    summary.announce();
    summary.assert_complete(&[Capability::GlobalAtomics, Capability::VisibleWhenPosted]);
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn conforms() {
    complete(&pronto_conformance::run(&Polled(Devices::open())));
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn conforms_asleep() {
    let harness = EventDriven(Polled(Devices::open()));
    // All chapters except those that arm and sleep themselves.
    for chapter in [
        "atomics",
        "bounds",
        "completion",
        "depth",
        "disconnect",
        "doorbell",
        "gather",
        "grants",
        "leases",
        "one-sided",
        "ordering",
        "registration",
        "rendezvous",
    ] {
        let summary = pronto_conformance::run_chapter(&harness, chapter);
        summary.announce();
        assert!(summary.failed_chapters().is_empty(), "{summary}");
    }
}
