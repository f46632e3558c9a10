//! A connection: two ends, and a line in each direction on which frames keep their order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pronto_core::Nanos;
use pronto_core::fabric::{
    Armed, Completion, ConnectionLimits, DoorbellEvent, FabricError, OutOfBounds, Region, Rights, Status,
    WrId,
};
use pronto_wire::{CallId, Header, Kind, RawHeader};

use crate::access::{Outcome, Request};
use crate::world::SimNode;

/// One connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) ends: [End; 2],
    /// `lines[end]` carries the frames from that end.
    pub(crate) lines: [Line; 2],
    /// True if nothing passes any more, in both directions.
    pub(crate) cut: bool,
}

impl Link {
    pub(crate) fn new(nodes: [SimNode; 2], limits: [ConnectionLimits; 2]) -> Self {
        let [a, b] = [0, 1].map(|end| End::new(nodes[end], limits[end]));
        Self { ends: [a, b], lines: [Line::default(), Line::default()], cut: false }
    }

    /// Copies the payloads in flight from `end`, whose memory must not be read any more.
    pub(crate) fn detach(&mut self, end: usize) {
        let line = &mut self.lines[end];
        for frame in line.in_flight.iter_mut().chain(&mut line.stalled) {
            frame.own();
        }
        for message in &mut self.ends[1 - end].inbox {
            message.body.own();
        }
        for request in &mut self.ends[1 - end].requests {
            request.own();
        }
    }
}

/// Frames that one end has sent and the other one has not received.
#[derive(Debug, Default)]
pub(crate) struct Line {
    pub(crate) in_flight: VecDeque<Frame>,
    /// Frames that cannot pass for now.
    pub(crate) stalled: VecDeque<Frame>,
    /// Number of times that frames began to wait.
    pub(crate) stalls: u64,
    /// Arrival time of the last frame in flight.
    pub(crate) last_arrival: Nanos,
}

/// Frame on a line.
#[derive(Debug)]
pub(crate) enum Frame {
    Message(Message),
    /// Reports that a send is complete at the other end.
    Ack(WrId),
    Request(Request),
    Response(Outcome),
    /// The sender of this frame is gone.
    Closed,
}

impl Frame {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Message(_) => "message",
            Self::Ack(_) => "ack",
            Self::Request(_) => "request",
            Self::Response(_) => "response",
            Self::Closed => "closed",
        }
    }

    /// Returns the length of its payload, bytes.
    pub(crate) fn len(&self) -> usize {
        if let Self::Message(message) = self { message.body.len() } else { 0 }
    }

    fn own(&mut self) {
        match self {
            Self::Message(message) => message.body.own(),
            Self::Request(request) => request.own(),
            Self::Ack(_) | Self::Response(_) | Self::Closed => {}
        }
    }
}

/// Offset of the kind in a header.
const KIND: usize = 4;

/// A message in flight, or received.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) header: RawHeader,
    pub(crate) inline: bool,
    pub(crate) body: Body,
    /// Work request to be acknowledged, if completions require that.
    pub(crate) wr: Option<WrId>,
    /// True if its doorbell was rung for a solicited event.
    pub(crate) solicited: bool,
}

impl Message {
    pub(crate) fn is_request(&self) -> bool {
        self.request().is_some()
    }

    /// Returns the call of a request; `None` for other messages.
    pub(crate) fn request(&self) -> Option<CallId> {
        match self.kind() {
            Some(Kind::Request { call, .. }) => Some(call),
            _ => None,
        }
    }

    pub(crate) fn is_response(&self) -> bool {
        self.response().is_some()
    }

    /// Returns the call of a response; `None` for other messages.
    pub(crate) fn response(&self) -> Option<CallId> {
        match self.kind() {
            Some(Kind::Reply { call, .. } | Kind::Failure { call, .. }) => Some(call),
            _ => None,
        }
    }

    /// Replaces the header by one of no kind.
    pub(crate) fn damage(&mut self) {
        let mut bytes = *self.header.as_array();
        bytes[KIND] = u8::MAX;
        self.header = RawHeader::from_array(bytes);
    }

    fn kind(&self) -> Option<Kind> {
        Header::check(&self.header, self.body.len()).ok().map(|header| header.kind)
    }
}

/// Requests that one end of a connection has sent, and responses that have arrived there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exchanged {
    /// Requests passed to the connection, including resent ones.
    pub requests: u64,
    /// Replies and failures that have arrived.
    pub responses: u64,
}

/// A payload.
#[derive(Debug)]
pub(crate) enum Body {
    Owned(Vec<u8>),
    /// In the sender's memory.
    Place {
        region: Region,
        offset: usize,
        len: usize,
    },
}

impl Body {
    /// Returns a piece of a region, if it lies inside.
    pub(crate) fn place(region: Region, offset: u64, len: u64) -> Result<Self, OutOfBounds> {
        let [offset, len] = [offset, len].map(|n| usize::try_from(n).unwrap_or(usize::MAX));
        match offset.checked_add(len) {
            Some(end) if end <= region.len() => Ok(Self::Place { region, offset, len }),
            _ => Err(OutOfBounds { offset, wanted: len, len: region.len() }),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Owned(bytes) => bytes.len(),
            Self::Place { len, .. } => *len,
        }
    }

    pub(crate) fn copy_to(&self, offset: usize, out: &mut [u8]) -> Result<(), OutOfBounds> {
        let outside = OutOfBounds { offset, wanted: out.len(), len: self.len() };
        let end = offset.checked_add(out.len()).filter(|end| *end <= self.len()).ok_or(outside)?;
        match self {
            Self::Owned(bytes) => out.copy_from_slice(&bytes[offset..end]),
            Self::Place { region, offset: start, .. } => region.read(start + offset, out)?,
        }
        Ok(())
    }

    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.copy_to(0, &mut bytes).expect("a copy of the whole lies within");
        bytes
    }

    pub(crate) fn own(&mut self) {
        if let Self::Place { .. } = self {
            *self = Self::Owned(self.to_vec());
        }
    }
}

/// Work that one end has posted and that the network has not seen.
#[derive(Debug)]
pub(crate) enum Posted {
    Message(Message),
    Request(Request),
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) node: SimNode,
    pub(crate) limits: ConnectionLimits,
    pub(crate) batch: Vec<Posted>,
    /// Signalled work requests that have not completed.
    pub(crate) outstanding: BTreeSet<(u16, u32)>,
    pub(crate) completions: VecDeque<Completion>,
    pub(crate) inbox: VecDeque<Message>,
    pub(crate) exchanged: Exchanged,
    /// One-sided requests of the other end that wait for this end's poll.
    pub(crate) requests: VecDeque<Request>,
    /// Payloads that were received and not dropped.
    pub(crate) leases: u32,
    /// True if one-sided work of the peer was carried out here and no poll has reported it yet.
    pub(crate) served: bool,
    pub(crate) grants: BTreeMap<u64, GrantEntry>,
    pub(crate) armed: Armed,
    pub(crate) event: bool,
    /// True if the next poll finds nothing, unless a thread reports before that an event has woken it.
    pub(crate) skips: bool,
    pub(crate) closed: bool,
    pub(crate) failed: Option<FabricError>,
}

/// Memory covered by a grant.
#[derive(Clone, Debug)]
pub(crate) struct GrantEntry {
    pub(crate) id: u32,
    pub(crate) region: Region,
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) rights: Rights,
}

impl End {
    fn new(node: SimNode, limits: ConnectionLimits) -> Self {
        Self {
            node,
            limits,
            batch: Vec::new(),
            outstanding: BTreeSet::new(),
            completions: VecDeque::new(),
            inbox: VecDeque::new(),
            exchanged: Exchanged::default(),
            requests: VecDeque::new(),
            leases: 0,
            served: false,
            grants: BTreeMap::new(),
            armed: Armed::Nothing,
            event: false,
            skips: false,
            closed: false,
            failed: None,
        }
    }

    /// Returns whether this end neither sends nor receives any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.closed || self.failed.is_some()
    }

    /// Returns whether an event of this kind was requested.
    pub(crate) fn is_armed_for(&self, event: DoorbellEvent) -> bool {
        match self.armed {
            Armed::Nothing => false,
            Armed::Solicited => event == DoorbellEvent::Solicited,
            Armed::All => true,
        }
    }

    /// Returns whether a poll would find something: a message, a completion, a request of the other end, or the loss.
    pub(crate) fn has_anything(&self) -> bool {
        !self.closed
            && (self.failed.is_some()
                || self.served
                || !self.inbox.is_empty()
                || !self.completions.is_empty()
                || !self.requests.is_empty())
    }

    /// Completes a work request, if it has not completed yet. Returns whether it has not.
    pub(crate) fn complete(&mut self, wr: WrId, status: Status) -> bool {
        let open = self.outstanding.remove(&(wr.slot, wr.generation));
        if open {
            self.completions.push_back(Completion { wr, status });
        }
        open
    }

    /// Completes everything outstanding as flushed, and drops work that was not passed to the network.
    pub(crate) fn flush(&mut self) {
        self.batch.clear();
        for (slot, generation) in core::mem::take(&mut self.outstanding) {
            let wr = WrId { slot, generation };
            self.completions.push_back(Completion { wr, status: Status::Flushed });
        }
    }
}
