//! The sender's side of the traffic: calls with a window, one-way messages as fast as they go.

use core::hint::black_box;
use core::time::Duration;
use std::collections::VecDeque;

use anyhow::Context as _;
use pronto::{CallError, Message, Peer, Pending, Request};

use super::messages::{
    Call32, Call224, CallMany, Count, CountBulk, Counted, Note32, Note224, NoteMany, Pooled32,
};
use crate::clock;

/// A payload length, with what is done with payloads of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Payload, bytes.
    pub(crate) bytes: usize,
    /// The same, as the value of a column.
    pub(crate) name: &'static str,
    calls: fn(&Peer, usize, Open, Duration) -> anyhow::Result<u64>,
    batches: fn(&Peer, usize, Open, Duration) -> anyhow::Result<u64>,
    notes: fn(&Peer, usize, Duration) -> anyhow::Result<u64>,
    counted: fn(&Peer) -> anyhow::Result<Counted>,
}

/// How many calls of one thread are open at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Open(pub(crate) usize);

/// Every size. Up to 224 bytes the payload is an array and travels as control; above, a vector (4 bytes of it are its
/// count), as bulk.
pub(crate) const SIZES: &[Size] = &[
    Size {
        bytes: 32,
        name: "32",
        calls: |peer, _, open, time| calls(peer, &Call32 { bytes: [7; 32] }, open, time),
        batches: |peer, _, open, time| batches(peer, &Call32 { bytes: [7; 32] }, open, time),
        notes: |peer, _, time| notes(peer, &Note32 { bytes: [7; 32] }, time),
        counted: count,
    },
    Size {
        bytes: 224,
        name: "224",
        calls: |peer, _, open, time| calls(peer, &Call224 { bytes: [7; 224] }, open, time),
        batches: |peer, _, open, time| batches(peer, &Call224 { bytes: [7; 224] }, open, time),
        notes: |peer, _, time| notes(peer, &Note224 { bytes: [7; 224] }, time),
        counted: count,
    },
    Size {
        bytes: 4096,
        name: "4096",
        calls: calls_many,
        batches: |peer, len, open, time| {
            batches(peer, &CallMany { bytes: vec![7; len - size_of::<u32>()] }, open, time)
        },
        notes: notes_many,
        counted: count_bulk,
    },
];

fn calls_many(peer: &Peer, len: usize, open: Open, time: Duration) -> anyhow::Result<u64> {
    calls(peer, &CallMany { bytes: vec![7; len - size_of::<u32>()] }, open, time)
}

fn notes_many(peer: &Peer, len: usize, time: Duration) -> anyhow::Result<u64> {
    notes(peer, &NoteMany { bytes: vec![7; len - size_of::<u32>()] }, time)
}

impl Size {
    /// Calls for about `time`, with so many open; returns how many were answered.
    ///
    /// # Errors
    /// If one fails.
    pub(crate) fn calls(&self, peer: &Peer, open: Open, time: Duration) -> anyhow::Result<u64> {
        (self.calls)(peer, self.bytes, open, time)
    }

    /// Calls for about `time`, so many started together, and all waited for; returns how many were answered.
    ///
    /// # Errors
    /// If one fails.
    pub(crate) fn batches(&self, peer: &Peer, open: Open, time: Duration) -> anyhow::Result<u64> {
        (self.batches)(peer, self.bytes, open, time)
    }

    /// One-way messages for about `time`; returns how many were sent.
    ///
    /// # Errors
    /// If one fails.
    pub(crate) fn notes(&self, peer: &Peer, time: Duration) -> anyhow::Result<u64> {
        (self.notes)(peer, self.bytes, time)
    }

    /// What the receiver has counted since the last time, all messages of this size that this thread sent before included.
    ///
    /// # Errors
    /// If the call fails.
    pub(crate) fn counted(&self, peer: &Peer) -> anyhow::Result<Counted> {
        (self.counted)(peer)
    }
}

/// Calls for about `time`, with so many open; returns how many were answered. The oldest call is waited for before the next is
/// started: with several open there is always work for both sides.
///
/// # Errors
/// If one fails.
pub(crate) fn calls<M: Request>(peer: &Peer, request: &M, open: Open, time: Duration) -> anyhow::Result<u64> {
    let started = clock::now();
    let mut pending: VecDeque<Pending<M>> = VecDeque::with_capacity(open.0);
    let mut answered = 0;
    let finish = |oldest: Pending<M>| oldest.wait().map(|reply| drop(black_box(reply))).context("a call");
    while answered % LOOKS != 0 || pending.is_empty() || started.elapsed() < time {
        if pending.len() == open.0 {
            let oldest = pending.pop_front().context("a window of none")?;
            finish(oldest)?;
            answered += 1;
        }
        pending.push_back(start(peer, request)?);
    }
    answered += pending.len() as u64;
    pending.into_iter().try_for_each(finish)?;
    Ok(answered)
}

/// Calls as [`calls`] makes them, of 32 bytes, whose handler runs on a worker of the receiver.
///
/// # Errors
/// If one fails.
pub(crate) fn pooled(peer: &Peer, open: Open, time: Duration) -> anyhow::Result<u64> {
    calls(peer, &Pooled32 { bytes: [7; 32] }, open, time)
}

fn batches<M: Request>(peer: &Peer, request: &M, open: Open, time: Duration) -> anyhow::Result<u64> {
    let started = clock::now();
    let mut pending: Vec<Pending<M>> = Vec::with_capacity(open.0);
    let mut answered = 0;
    while started.elapsed() < time {
        let together = peer.together();
        for _ in 0..open.0 {
            pending.push(start(peer, request)?);
        }
        drop(together);
        answered += pending.len() as u64;
        for call in pending.drain(..) {
            drop(black_box(call.wait().context("a call")?));
        }
    }
    Ok(answered)
}

/// Starts a call; waits for room if other threads have taken all of it. Inlined with nothing but a call that is taken at once: each time
/// that a pending call is moved from one result into another its parts are waited for.
#[inline(always)]
fn start<M: Request>(peer: &Peer, request: &M) -> anyhow::Result<Pending<M>> {
    match peer.start(black_box(request)) {
        Ok(pending) => Ok(pending),
        Err(error) => start_patiently(peer, request, error),
    }
}

#[cold]
#[inline(never)]
fn start_patiently<M: Request>(peer: &Peer, request: &M, mut error: CallError) -> anyhow::Result<Pending<M>> {
    let since = clock::now();
    while error.is_retryable() && since.elapsed() < PATIENCE {
        std::thread::yield_now();
        match peer.start(black_box(request)) {
            Ok(pending) => return Ok(pending),
            Err(again) => error = again,
        }
    }
    Err(error).context("starting a call")
}

fn notes<M: Message>(peer: &Peer, note: &M, time: Duration) -> anyhow::Result<u64> {
    let started = clock::now();
    let mut sent = 0;
    while sent % LOOKS != 0 || sent == 0 || started.elapsed() < time {
        peer.notify_within(black_box(note), PATIENCE).context("a one-way message")?;
        sent += 1;
    }
    Ok(sent)
}

fn count(peer: &Peer) -> anyhow::Result<Counted> {
    peer.call(&Count {}).context("asking what was counted")
}

fn count_bulk(peer: &Peer) -> anyhow::Result<Counted> {
    peer.call(&CountBulk {}).context("asking what was counted")
}

/// Messages between two looks at the clock, which takes a fifth of the time of one.
const LOOKS: u64 = 64;
/// Far longer than a receiver needs to make room.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use pronto::Node;

    use super::*;
    use crate::echo::{Provider, Wait};
    use crate::traffic::receiver::receive;
    use pronto_core::session::Doorbells;

    #[test]
    fn everything_sent_is_counted_by_the_receiver_on_both_transports() {
        for provider in Provider::ALL {
            let receiver =
                receive(provider, Wait(pronto::WaitPolicy::Adaptive), "-drive", Doorbells::Shared).unwrap();
            let address = receiver.listening()[0].to_string();
            let sender = Node::builder(2).peer(1, &address).start().unwrap();
            let peer = sender.wait_for_peer(1, PATIENCE).unwrap();
            for size in SIZES {
                assert!(size.calls(&peer, Open(8), Duration::from_millis(1)).unwrap() > 0, "{}", size.name);
                assert!(size.batches(&peer, Open(8), Duration::from_millis(1)).unwrap() > 0, "{}", size.name);
                let sent = size.notes(&peer, Duration::from_millis(1)).unwrap();
                let counted = size.counted(&peer).unwrap();
                let taken_in = size.bytes - if size.bytes > 224 { size_of::<u32>() } else { 0 };
                assert_eq!((counted.notes, counted.bytes), (sent, sent * taken_in as u64), "{}", size.name);
            }
            peer.notify(&Note32 { bytes: [3; 32] }).unwrap();
            let counted = count(&peer).unwrap();
            assert_eq!((counted.notes, counted.bytes, counted.sum), (1, 32, 3));
            assert_eq!(count(&peer).unwrap().notes, 0, "what was counted is counted once");
        }
    }
}
