//! One end of a pair under test: its queue pair, the messages that it has posted, and those that it must receive.

use core::ops::Range;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use pronto_core::fabric::{
    Arrived, Completion, FabricError, InlineMessage, MessageSlot, Payload, PollOutcome, QueuePair, Received,
    Region, SendMemory, ShortMessage, Status, WrId,
};
use pronto_wire::RawHeader;

use super::space::Space;
use super::{Form, OUTBOX};
use crate::memory::compose;
use crate::random::payload;
use crate::watchdog;

/// Byte that overwrites a buffer once its work request is done.
const SCRIBBLE: u8 = 0xdb;

/// A message that was posted and has not arrived.
#[derive(Debug)]
pub(crate) struct Expected {
    pub(super) header: RawHeader,
    pub(super) seed: u64,
    pub(super) len: usize,
    pub(super) inline: bool,
}

/// A message that has arrived and is held.
pub(crate) struct Held<L> {
    pub(crate) payload: Arrived<L>,
    pub(crate) seed: u64,
    pub(crate) len: usize,
}

impl<L: Payload> Held<L> {
    /// Checks that the payload equals the sent one, byte for byte.
    pub(crate) fn check(&self) {
        let mut bytes = vec![0; self.len];
        assert_eq!(self.payload.len(), self.len, "length of a payload that was sent with {} bytes", self.len);
        self.payload.copy_to(0, &mut bytes).expect("a payload can be copied out whole");
        let sent = payload(self.seed, self.len);
        let differs = bytes.iter().zip(&sent).position(|(got, sent)| got != sent);
        assert_eq!(differs, None, "first wrong byte of a payload of {} bytes", self.len);
    }
}

/// Purpose of a signalled work request.
#[derive(Debug)]
pub(crate) enum Asked {
    Message { form: Form, space: Option<Range<usize>> },
    Access,
    Atomic,
}

/// One end of a pair under test.
pub(crate) struct Side<Q: QueuePair> {
    pub(crate) qp: Q,
    pub(crate) memory: Arc<dyn SendMemory>,
    pub(super) ring: Space,
    pub(super) outbox: Region,
    pub(super) outbox_space: Space,
    open: HashMap<WrId, Asked>,
    posted: u32,
    /// Completions in order of arrival.
    pub(crate) done: Vec<Completion>,
    pub(super) expected: VecDeque<Expected>,
    /// True if messages are held on arrival instead of dropped after the check.
    pub(crate) hold: bool,
    pub(crate) held: Vec<Held<Q::Lease>>,
    /// Number of messages that have arrived.
    pub(crate) received: usize,
    /// Number of polls that have reported one-sided work.
    pub(crate) served: usize,
    pub(crate) failure: Option<FabricError>,
    pub(super) may_fail: bool,
}

impl<Q: QueuePair> Side<Q> {
    pub(super) fn new(qp: Q, outbox: Region, prepared: usize) -> Self {
        Self {
            memory: qp.send_memory(),
            qp,
            ring: Space::new(0..prepared, 64),
            outbox,
            outbox_space: Space::new(0..OUTBOX, 1),
            open: HashMap::new(),
            posted: 0,
            done: Vec::new(),
            expected: VecDeque::new(),
            hold: false,
            held: Vec::new(),
            received: 0,
            served: 0,
            failure: None,
            may_fail: false,
        }
    }

    /// Composes in this part of the send memory from now on.
    pub(crate) fn compose_in(&mut self, window: Range<usize>) {
        self.ring.move_to(window);
    }

    /// Returns the number of signalled work requests that have not completed.
    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    /// Returns the number of messages that have not arrived.
    pub(crate) fn expects(&self) -> usize {
        self.expected.len()
    }

    /// Returns the number of receives in use, by messages in flight and by leases.
    pub(crate) fn in_flight(&self) -> usize {
        let leases = self.held.iter().filter(|held| matches!(held.payload, Arrived::Buffer(_))).count();
        self.expected.len() + leases
    }

    /// Returns a name that no other work request of this end has; names are spread over all possible values.
    pub(super) fn next_name(&mut self) -> WrId {
        self.posted += 1;
        let scattered = self.posted.wrapping_mul(0x9e37_79b1);
        let slot = u16::try_from(scattered >> 16).expect("sixteen bits are left");
        WrId { slot, generation: scattered }
    }

    pub(super) fn note_posted(&mut self, wr: WrId, asked: Asked) {
        if let Asked::Message { form, space: Some(range) } = &asked {
            self.space(*form).take(range.clone());
        }
        self.open.insert(wr, asked);
    }

    fn space(&mut self, form: Form) -> &mut Space {
        if form == Form::Region { &mut self.outbox_space } else { &mut self.ring }
    }

    /// Polls the queue pair, as in the first half of an engine's turn. Returns whether anything came.
    pub(crate) fn poll(&mut self) -> bool {
        watchdog::turn();
        if self.qp.is_quiet() {
            return false;
        }
        let mut moved = false;
        while self.failure.is_none() {
            let (mut inline, mut short) = (InlineMessage::default(), ShortMessage::default());
            match self.qp.poll(MessageSlot { inline: &mut inline, short: &mut short }) {
                Ok(PollOutcome::Nothing) => break,
                Ok(PollOutcome::Inline) => {
                    let InlineMessage { header, payload } = inline;
                    self.receive(Received { header, payload: Arrived::Inline(payload) });
                }
                Ok(PollOutcome::Short) => {
                    let payload = Arrived::Buffer(self.qp.lease_copy(short.payload()));
                    self.receive(Received { header: short.header, payload });
                }
                Ok(PollOutcome::Leased(message)) => self.receive(message),
                Ok(PollOutcome::OneSided) => {
                    self.served += 1;
                    moved = true;
                    break;
                }
                Err(error) => {
                    assert!(self.may_fail, "a queue pair failed without a cause: {error}");
                    self.failure = Some(error);
                }
            }
            moved = true;
        }
        while let Some(completion) = self.qp.poll_send() {
            self.complete(completion);
            moved = true;
        }
        moved
    }

    fn receive(&mut self, message: Received<Q::Lease>) {
        let Received { header, payload } = message;
        let Some(expected) = self.expected.pop_front() else {
            panic!("a message was not sent, or arrived twice: {header:?}");
        };
        assert_eq!(
            header.as_array()[4..],
            expected.header.as_array()[4..],
            "message {} has a changed header, or that of another message",
            self.received,
        );
        let by_line = matches!(payload, Arrived::Inline(_));
        assert!(by_line || !expected.inline, "an inline payload arrived in a receive buffer");
        let held = Held { payload, seed: expected.seed, len: expected.len };
        held.check();
        self.received += 1;
        if self.hold {
            self.held.push(held);
        }
    }

    fn complete(&mut self, completion: Completion) {
        let Completion { wr, status } = completion;
        let Some(asked) = self.open.remove(&wr) else {
            panic!("{wr:?} completed, but is not outstanding: it completed twice, or was not signalled");
        };
        match (&asked, status) {
            (Asked::Message { .. } | Asked::Access, Status::Done(value)) => {
                assert_eq!(value, 0, "only atomics have a value");
            }
            (Asked::Message { .. }, Status::AccessRefused) => {
                panic!("a message completed as a refused access")
            }
            (_, Status::Flushed) => assert!(self.may_fail, "a request was flushed, but nothing has failed"),
            _ => {}
        }
        if let Asked::Message { form, space: Some(range) } = asked {
            if let Status::Done(_) = status {
                self.scribble(form, &range);
            }
            self.space(form).give_back(&range);
        }
        self.done.push(completion);
    }

    fn scribble(&mut self, form: Form, range: &Range<usize>) {
        let garbage = vec![SCRIBBLE; range.len()];
        if form == Form::Region {
            self.outbox.write(range.start, &garbage).expect("the space lies in the region");
        } else {
            compose(&*self.memory, range.start, &garbage);
        }
    }

    /// Returns the status of a work request, if it has completed.
    pub(crate) fn ended(&self, wr: WrId) -> Option<Status> {
        self.done.iter().find(|completion| completion.wr == wr).map(|completion| completion.status)
    }

    pub(super) fn state(&self) -> String {
        format!(
            "{} received, {} in flight, {} work requests outstanding, failure {:?}",
            self.received,
            self.expected.len(),
            self.open.len(),
            self.failure
        )
    }
}
