//! The provider alone: messages between two bare queue pairs of one thread.

use core::hint::black_box;

use crate::pair::{POLL_BATCH, Pairs};
use anyhow::Context as _;
use pronto::Class;
use pronto_core::fabric::{
    ConnectionLimits, DoorbellEvent, Extent, Gather, InlineMessage, MessageSlot, Operation, PollOutcome,
    QueuePair, SendWork, ShortMessage, Signal, WrId,
};
use pronto_wire::{INLINE_PAYLOAD, InlinePayload, RawHeader};

use super::{LINKS, Part, Parts};

/// [`LINKS`] pairs of queue pairs, with a message between each.
#[derive(Debug)]
pub(crate) struct Raw<Q> {
    pairs: Vec<(Q, Q)>,
    size: u32,
    inline: InlineMessage,
    short: ShortMessage,
}

impl<Q: QueuePair> Raw<Q> {
    /// Creates links for messages of `size` bytes in `class`.
    pub(crate) fn new(
        class: Class,
        size: usize,
        link: impl Fn([ConnectionLimits; 2]) -> anyhow::Result<(Pairs<Q>, Pairs<Q>)>,
    ) -> anyhow::Result<Self> {
        let mut pairs = Vec::new();
        for _ in 0..LINKS {
            let (near, far) = link([LIMITS; 2])?;
            let of_class = |side: Pairs<Q>| side.into_iter().nth(class.index()).context("two classes");
            let (mut near, mut far) = (of_class(near)?, of_class(far)?);
            near.prepare(0..CHUNK)?;
            far.prepare(0..CHUNK)?;
            pairs.push((near, far));
        }
        let size = u32::try_from(size).context("a short message")?;
        Ok(Self { pairs, size, inline: InlineMessage::default(), short: ShortMessage::default() })
    }

    /// Sends one message on each link, and one back: over TCP, the second carries the first one's acknowledgement, as a reply does.
    pub(crate) fn round(&mut self, parts: &mut Parts) -> anyhow::Result<()> {
        let Self { pairs, size, inline, short } = self;
        parts.time(Part::EngineThreads, OPS, || {
            pairs.iter_mut().try_for_each(|(near, _)| post(near, *size))
        })?;
        parts.time(Part::Poll, OPS, || pairs.iter_mut().try_for_each(|(_, far)| poll(far, inline, short)))?;
        parts
            .time(Part::EngineThreads, OPS, || pairs.iter_mut().try_for_each(|(_, far)| post(far, *size)))?;
        parts
            .time(Part::Poll, OPS, || pairs.iter_mut().try_for_each(|(near, _)| poll(near, inline, short)))?;
        for side in pairs.iter_mut().flat_map(|(near, far)| [near, far]) {
            while side.poll_send().is_some() {}
            // Work of the provider between messages.
            let polled = side.poll(MessageSlot { inline, short })?;
            anyhow::ensure!(matches!(polled, PollOutcome::Nothing), "one message was posted");
        }
        Ok(())
    }
}

fn post(side: &mut impl QueuePair, size: u32) -> anyhow::Result<()> {
    let (header, bytes) = (RawHeader::default(), [7; INLINE_PAYLOAD]);
    let inline = bytes.get(..size as usize).and_then(InlinePayload::new);
    let (signal, payload) = match &inline {
        Some(payload) => (Signal::Unsignalled, Gather::Inline(payload)),
        None => (Signal::Signalled(WORK), Gather::Ring(Extent { offset: 0, len: size })),
    };
    side.post(SendWork { signal, operation: Operation::Send { header: black_box(&header), payload } })?;
    Ok(side.ring_doorbell(DoorbellEvent::Solicited)?)
}

fn poll(
    side: &mut impl QueuePair,
    inline: &mut InlineMessage,
    short: &mut ShortMessage,
) -> anyhow::Result<()> {
    for _ in 0..POLL_BATCH {
        match side.poll(MessageSlot { inline, short })? {
            PollOutcome::Nothing | PollOutcome::OneSided => {}
            found => {
                black_box((&*inline, &*short, found));
                return Ok(());
            }
        }
    }
    anyhow::bail!("a message was posted and did not come")
}

/// Number of links as a count of operations.
const OPS: u32 = 8;
const _: () = assert!(OPS as usize == LINKS);

/// Id of the only work request under way.
const WORK: WrId = WrId { slot: 0, generation: 1 };

/// Length of the prepared send memory in bytes.
const CHUNK: usize = 4 << 20;

/// More than one message in each direction.
const LIMITS: ConnectionLimits = ConnectionLimits {
    send_depth: 64,
    receive_depth: 64,
    max_send_payload: 1 << 20,
    max_receive_payload: 1 << 20,
    send_memory: 32 << 20,
};
