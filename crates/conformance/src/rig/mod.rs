//! A pair under test, driven as by an engine. The rig checks everything that must hold in every test.

mod side;
mod space;

use pronto_core::fabric::{
    ConnectionLimits, DoorbellEvent, Extent, Gather, Operation, PostError, QueuePair, SendWork, Signal, WrId,
};
use pronto_wire::{INLINE_PAYLOAD, InlinePayload, RawHeader};

use crate::memory::compose;
use crate::random::{Random, payload};
use crate::{Harness, Pair, watchdog};

pub(crate) use side::Side;
use side::{Asked, Expected};

/// Chunk of send memory that is prepared and retired at a time, bytes.
pub(crate) const CHUNK: usize = 4 << 20;

/// Default limits of a test: small enough to be pinned twice under the default memlock limit of 8 MiB.
pub(crate) const LIMITS: ConnectionLimits = ConnectionLimits {
    send_depth: 16,
    receive_depth: 16,
    max_send_payload: 128 << 10,
    max_receive_payload: 128 << 10,
    send_memory: 4 << 20,
};

/// Rounds of polling for events that must not happen.
const QUIET: u32 = 256;

/// Length of the region for by-reference payloads of one end, bytes.
const OUTBOX: usize = 1 << 20;

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    A,
    B,
}

impl End {
    pub(crate) const BOTH: [Self; 2] = [Self::A, Self::B];

    pub(crate) fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// Place of a message's payload when it is posted, and whether the message is signalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Inline,
    Unsignalled,
    Ring,
    Region,
}

impl Form {
    pub(crate) const ALL: [Self; 4] = [Self::Inline, Self::Unsignalled, Self::Ring, Self::Region];

    pub(crate) fn is_inline(self) -> bool {
        matches!(self, Self::Inline | Self::Unsignalled)
    }
}

/// A pair under test.
pub(crate) struct Rig<'h, H: Harness> {
    harness: &'h H,
    ends: [Option<Side<H::Qp>>; 2],
    pub(crate) link: H::Link,
    pub(crate) random: Random,
}

impl<'h, H: Harness> Rig<'h, H> {
    /// Creates a pair with the usual limits.
    pub(crate) fn new(harness: &'h H) -> Self {
        Self::with_limits(harness, LIMITS)
    }

    /// Creates a pair with other limits, and prepares the first chunk of each end's send memory.
    pub(crate) fn with_limits(harness: &'h H, limits: ConnectionLimits) -> Self {
        let Pair { a, b, link } = harness.pair(limits);
        let ends = [a, b].map(|mut qp| {
            let first = CHUNK.min(qp.send_memory().len());
            qp.prepare(0..first).expect("a new queue pair prepares its first chunk");
            Some(Side::new(qp, harness.region(OUTBOX), first))
        });
        Self { harness, ends, link, random: Random::new(0x5eed) }
    }

    pub(crate) fn harness(&self) -> &'h H {
        self.harness
    }

    /// Returns one end.
    pub(crate) fn at(&mut self, end: End) -> &mut Side<H::Qp> {
        self.ends[end as usize].as_mut().expect("the test has not dropped this end")
    }

    /// Returns one end's queue pair.
    pub(crate) fn qp(&mut self, end: End) -> &mut H::Qp {
        &mut self.at(end).qp
    }

    /// Removes one end, as if its process died, and forgets the messages that it expected.
    pub(crate) fn take(&mut self, end: End) -> Side<H::Qp> {
        self.ends[end as usize].take().expect("the test has not dropped this end")
    }

    /// Registers the region from which one end sends by reference.
    pub(crate) fn ready_outbox(&mut self, end: End) {
        let side = self.at(end);
        side.qp.register(&side.outbox).expect("a live queue pair registers a region");
    }

    /// Permits the ends to lose their connection from now on.
    pub(crate) fn expect_failure(&mut self) {
        for side in self.ends.iter_mut().flatten() {
            side.may_fail = true;
        }
    }

    /// Posts one message with a random header, payload and name. Ignores the depth, and rings no doorbell.
    pub(crate) fn post(&mut self, from: End, form: Form, len: usize) -> Result<(), PostError> {
        let header = self.header();
        self.post_headed(from, form, len, header)
    }

    fn header(&mut self) -> RawHeader {
        let mut header = [0; 24];
        header.copy_from_slice(&self.random.bytes(24));
        RawHeader::from_array(header)
    }

    fn post_headed(&mut self, from: End, form: Form, len: usize, header: RawHeader) -> Result<(), PostError> {
        let seed = self.random.next();
        let bytes = payload(seed, len);
        let inline = InlinePayload::new(&bytes);
        let side = self.at(from);
        let wr = side.next_name();
        let mut space = None;
        let gather = match form {
            // Bytes that fit an inline message, posted as either variant.
            Form::Inline | Form::Unsignalled => match &inline {
                Some(payload) if seed.is_multiple_of(2) => Gather::Inline(payload),
                _ => Gather::Short(&bytes),
            },
            Form::Ring => {
                let at = side.ring.find(len).expect("a test waits for room in send memory");
                compose(&*side.memory, at.start, &bytes);
                let offset = u32::try_from(at.start).expect("send memory is 32 bit");
                space = Some(at);
                Gather::Ring(Extent { offset, len: u32::try_from(len).expect("a payload is 32 bit") })
            }
            Form::Region => {
                let at = side.outbox_space.find(len).expect("a test waits for room in its region");
                side.outbox.write(at.start, &bytes).expect("the space lies in the region");
                let offset = at.start as u64;
                space = Some(at);
                let len = u32::try_from(len).expect("a payload is 32 bit");
                Gather::Region { region: &side.outbox, offset, len }
            }
        };
        let signal = if form == Form::Unsignalled { Signal::Unsignalled } else { Signal::Signalled(wr) };
        let operation = Operation::Send { header: &header, payload: gather };
        side.qp.post(SendWork { signal, operation })?;
        if form != Form::Unsignalled {
            side.note_posted(wr, Asked::Message { form, space });
        }
        let expected = Expected { header, seed, len, inline: form.is_inline() && len <= INLINE_PAYLOAD };
        if let Some(receiver) = &mut self.ends[from.other() as usize] {
            receiver.expected.push_back(expected);
        }
        Ok(())
    }

    /// Posts one message as soon as depth, space and the send queue allow, then rings the doorbell.
    pub(crate) fn send(&mut self, from: End, form: Form, len: usize) {
        self.submit(from, form, len);
        self.ring(from);
    }

    /// Posts like [`Self::send`], without the doorbell.
    pub(crate) fn submit(&mut self, from: End, form: Form, len: usize) {
        let header = self.header();
        self.submit_headed(from, form, len, header);
    }

    /// Posts like [`Self::submit`], with this header.
    pub(crate) fn submit_headed(&mut self, from: End, form: Form, len: usize, header: RawHeader) {
        self.wait_for_room(from, form, len);
        let mut posted = Err(PostError::Full);
        self.wait("for the send queue to take a message", |rig| {
            posted = rig.post_headed(from, form, len, header);
            if posted == Err(PostError::Full) {
                rig.ring(from);
            }
            posted != Err(PostError::Full)
        });
        posted.expect("a message within the limits can be posted");
    }

    fn wait_for_room(&mut self, from: End, form: Form, len: usize) {
        if self.has_room(from, form, len) {
            return;
        }
        self.ring(from);
        self.wait("for room in the receive queue", |rig| rig.has_room(from, form, len));
    }

    fn has_room(&mut self, from: End, form: Form, len: usize) -> bool {
        let in_flight = self.at(from.other()).in_flight();
        let side = self.at(from);
        let depth = side.qp.capabilities().send_depth as usize;
        let space = match form {
            Form::Inline | Form::Unsignalled => true,
            Form::Ring => side.ring.find(len).is_some(),
            Form::Region => side.outbox_space.find(len).is_some(),
        };
        in_flight < depth && space
    }

    /// Posts a one-sided operation and rings the doorbell. Waits while the send queue is full.
    pub(crate) fn one_sided(&mut self, from: End, operation: Operation<'_>) -> Result<WrId, PostError> {
        let atomic = matches!(operation, Operation::CompareSwap { .. } | Operation::FetchAdd { .. });
        let wr = self.at(from).next_name();
        let mut posted = Err(PostError::Full);
        self.wait("for the send queue to take a one-sided operation", |rig| {
            posted = rig.qp(from).post(SendWork { signal: Signal::Signalled(wr), operation });
            // The doorbell of a queue pair that may fail may fail, too.
            let rung = rig.qp(from).ring_doorbell(DoorbellEvent::Solicited);
            assert!(rung.is_ok() || rig.at(from).may_fail, "a live queue pair has a doorbell: {rung:?}");
            posted != Err(PostError::Full)
        });
        posted?;
        self.at(from).note_posted(wr, if atomic { Asked::Atomic } else { Asked::Access });
        Ok(wr)
    }

    /// Rings the doorbells of both ends.
    pub(crate) fn ring_both(&mut self) {
        for end in End::BOTH {
            self.ring(end);
        }
    }

    pub(crate) fn ring(&mut self, from: End) {
        self.qp(from).ring_doorbell(DoorbellEvent::Solicited).expect("a live queue pair has a doorbell");
    }

    /// Polls both engines once; the transport makes progress if they found nothing. Returns whether they found
    /// something.
    pub(crate) fn pump(&mut self) -> bool {
        let mut moved = false;
        for side in self.ends.iter_mut().flatten() {
            moved |= side.poll();
        }
        if !moved {
            self.settle();
        }
        moved
    }

    pub(crate) fn settle(&mut self) {
        self.harness.settle(&mut self.link);
        watchdog::turn();
    }

    /// Polls both engines until `until` returns true.
    #[track_caller]
    pub(crate) fn wait(&mut self, what: &str, mut until: impl FnMut(&mut Self) -> bool) {
        let patience = self.harness.patience();
        let (mut rounds, mut fruitless) = (0, 0);
        while !until(self) {
            rounds += 1;
            fruitless = if self.pump() { 0 } else { fruitless + 1 };
            let bounded = fruitless < patience && rounds / 4 < patience;
            assert!(bounded, "gave up waiting {what} after {rounds} rounds; {}", self.state());
        }
    }

    /// Polls only one engine. Returns whether `until` returned true within the quiet rounds.
    pub(crate) fn alone(&mut self, end: End, mut until: impl FnMut(&mut Side<H::Qp>) -> bool) -> bool {
        for _ in 0..QUIET {
            if until(self.at(end)) {
                return true;
            }
            if !self.at(end).poll() {
                self.settle();
            }
        }
        until(self.at(end))
    }

    /// Waits until everything that was posted has arrived and completed.
    #[track_caller]
    pub(crate) fn wait_idle(&mut self) {
        self.wait("for messages and completions", |rig| {
            rig.ends.iter().flatten().all(|side| side.expected.is_empty() && side.open() == 0)
        });
    }

    /// Ends a test whose connection lives: everything in flight arrives, nothing else comes, and closing is final.
    #[track_caller]
    pub(crate) fn finish(mut self) {
        for side in self.ends.iter_mut().flatten() {
            side.hold = false;
            side.held.clear();
        }
        self.wait_idle();
        for _ in 0..QUIET {
            self.pump();
        }
        self.finish_closed();
    }

    /// Ends a test whose connection may be dead: everything outstanding is flushed, and closing is final.
    #[track_caller]
    pub(crate) fn finish_closed(mut self) {
        self.expect_failure();
        for end in End::BOTH {
            if self.ends[end as usize].is_some() {
                self.qp(end).close();
            }
        }
        self.wait("for everything outstanding to be flushed", |rig| {
            rig.ends.iter().flatten().all(|side| side.open() == 0)
        });
        for end in End::BOTH {
            if self.ends[end as usize].is_some() {
                let posted = self.post(end, Form::Unsignalled, 8);
                assert!(
                    matches!(posted, Err(PostError::Failed(_))),
                    "post on a closed queue pair: {posted:?}"
                );
            }
        }
        for _ in 0..QUIET {
            self.pump();
        }
    }

    fn state(&self) -> String {
        let of = |side: &Option<Side<H::Qp>>| side.as_ref().map(Side::state).unwrap_or_default();
        format!("a: {}; b: {}", of(&self.ends[0]), of(&self.ends[1]))
    }
}
