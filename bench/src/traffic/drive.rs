//! The sending side of the traffic: calls with a window, one-way messages at full speed.

use core::hint::black_box;
use core::time::Duration;
use std::collections::VecDeque;

use anyhow::Context as _;
use pronto::{CallError, Message, Peer, Pending, Request};

use super::messages::{
    Call32, Call224, CallMany, Count, CountBulk, Counted, Note32, Note224, NoteMany, Pooled32,
};
use crate::clock;
use crate::workers;

/// A payload length, with the operations on payloads of that length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Length of the payload, bytes.
    pub(crate) bytes: usize,
    /// Name of the length, as a value of a column.
    pub(crate) name: &'static str,
    calls: fn(&Peer, usize, Open, Duration) -> anyhow::Result<u64>,
    batches: fn(&Peer, usize, Open, Duration) -> anyhow::Result<u64>,
    notes: fn(&Peer, usize, Duration) -> anyhow::Result<u64>,
    counted: fn(&Peer) -> anyhow::Result<Counted>,
}

/// Number of calls of one thread that are open at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Open(pub(crate) usize);

/// Every size. Up to 224 bytes, the payload is an array of class control. Longer payloads are vectors of class bulk, of which 4 bytes
/// are the count.
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
    /// Makes calls for about `time` with `open` of them open. Returns the number of replies.
    pub(crate) fn calls(&self, peer: &Peer, open: Open, time: Duration) -> anyhow::Result<u64> {
        (self.calls)(peer, self.bytes, open, time)
    }

    /// Makes calls for about `time`: starts `open` together, and waits for all of them. Returns the number of replies.
    pub(crate) fn batches(&self, peer: &Peer, open: Open, time: Duration) -> anyhow::Result<u64> {
        (self.batches)(peer, self.bytes, open, time)
    }

    /// Sends one-way messages for about `time`. Returns their number.
    pub(crate) fn notes(&self, peer: &Peer, time: Duration) -> anyhow::Result<u64> {
        (self.notes)(peer, self.bytes, time)
    }

    /// Returns the receiver's counts since the last query, including all messages of this size that this thread sent before.
    pub(crate) fn counted(&self, peer: &Peer) -> anyhow::Result<Counted> {
        (self.counted)(peer)
    }
}

/// Makes calls for about `time` with `open` of them open, and returns the number of replies. It waits for the oldest call before it
/// starts the next, so that with several open calls both sides always have work.
pub(crate) fn calls<M: Request>(peer: &Peer, request: &M, open: Open, time: Duration) -> anyhow::Result<u64> {
    let started = clock::now();
    let mut pending: VecDeque<Pending<M>> = VecDeque::with_capacity(open.0);
    let mut replies = 0;
    let finish = |oldest: Pending<M>| oldest.wait().map(|reply| drop(black_box(reply))).context("a call");
    while replies % PER_READING != 0 || pending.is_empty() || started.elapsed() < time {
        if pending.len() == open.0 {
            let oldest = pending.pop_front().context("the window is empty")?;
            finish(oldest)?;
            replies += 1;
        }
        pending.push_back(start(peer, request)?);
    }
    replies += pending.len() as u64;
    pending.into_iter().try_for_each(finish)?;
    Ok(replies)
}

/// Makes calls of 32 bytes like [`calls`], with a handler that runs on a worker of the receiver.
pub(crate) fn pooled(peer: &Peer, open: Open, time: Duration) -> anyhow::Result<u64> {
    calls(peer, &Pooled32 { bytes: [7; 32] }, open, time)
}

fn batches<M: Request>(peer: &Peer, request: &M, open: Open, time: Duration) -> anyhow::Result<u64> {
    let started = clock::now();
    let mut pending: Vec<Pending<M>> = Vec::with_capacity(open.0);
    let mut replies = 0;
    while started.elapsed() < time {
        let together = peer.together();
        for _ in 0..open.0 {
            pending.push(start(peer, request)?);
        }
        drop(together);
        replies += pending.len() as u64;
        for call in pending.drain(..) {
            drop(black_box(call.wait().context("a call")?));
        }
    }
    Ok(replies)
}

/// Starts a call, and waits for room if other threads have taken all of it. Only the path of an immediate start is inlined, because each
/// move of a pending call from one result into another stalls on its parts.
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
    while sent % PER_READING != 0 || sent == 0 || started.elapsed() < time {
        peer.notify_within(black_box(note), PATIENCE).context("a one-way message")?;
        sent += 1;
    }
    Ok(sent)
}

fn count(peer: &Peer) -> anyhow::Result<Counted> {
    peer.call(&Count {}).context("querying the receiver's counts")
}

fn count_bulk(peer: &Peer) -> anyhow::Result<Counted> {
    peer.call(&CountBulk {}).context("querying the receiver's counts")
}

/// Runs `send` in `threads` threads, or in the calling thread if there is only one. Returns the sum of the results.
pub(crate) fn together(threads: usize, send: impl Fn() -> anyhow::Result<u64> + Sync) -> anyhow::Result<u64> {
    if threads == 1 {
        return send();
    }
    workers::each(0..threads, |_| send()).into_iter().sum()
}

/// Number of messages between two clock readings, which take a fifth of the time of one message.
const PER_READING: u64 = 64;
/// Far longer than a receiver needs to make room.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::echo::Provider;
    use crate::traffic::receiver::connected;

    #[test]
    fn everything_sent_is_counted_by_the_receiver_on_both_transports() {
        for provider in Provider::ALL {
            let (_nodes, peer) = connected(provider, "-drive").unwrap();
            for size in SIZES {
                assert!(size.calls(&peer, Open(8), Duration::from_millis(1)).unwrap() > 0, "{}", size.name);
                assert!(size.batches(&peer, Open(8), Duration::from_millis(1)).unwrap() > 0, "{}", size.name);
                let sent = size.notes(&peer, Duration::from_millis(1)).unwrap();
                let counted = size.counted(&peer).unwrap();
                let received = size.bytes - if size.bytes > 224 { size_of::<u32>() } else { 0 };
                assert_eq!((counted.notes, counted.bytes), (sent, sent * received as u64), "{}", size.name);
            }
            peer.notify(&Note32 { bytes: [3; 32] }).unwrap();
            let counted = count(&peer).unwrap();
            assert_eq!((counted.notes, counted.bytes, counted.sum), (1, 32, 3));
            assert_eq!(count(&peer).unwrap().notes, 0, "a query resets the counts");
        }
    }
}
