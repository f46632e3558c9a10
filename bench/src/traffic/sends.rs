//! Synchronous sends in the comm-layer paper's sense: from the loan of a buffer to the moment at which it may be used again.
//!
//! Two designs of the paper's section 3.2. *Sender-polled*: the sender polls the completion queue itself, as in the library.
//! *Dedicated*: the sender is blocked while a dedicated thread sleeps in the completion channel, processes the completion queue and
//! wakes the sender. The paper used this design before; here it exists only for the comparison. The thread processes only send
//! completions, because they have a separate queue in the paper.

use core::hint::black_box;
use core::time::Duration;
use std::sync::OnceLock;
use std::thread::{self, Thread};

use anyhow::Context as _;
use nix::sys::eventfd::{EfdFlags, EventFd};
use pronto::rpc::{Host as _, encode_message};
use pronto::{Message, Nanos, Peer, WaitPolicy};
use pronto_core::session::{OutgoingPayload, TypeKey, WaitOutcome};
use pronto_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pronto_wire::CallId;

use super::drive::PATIENCE;
use super::messages::OneWay;
use crate::clock;
use crate::sample::Recorder;

/// Waiting policy of threads for which the design allows both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Idle {
    /// Polls, and yields between polls, because there may be more threads than CPUs.
    Spins,
    /// Sleeps until the thread is woken.
    Sleeps,
}

/// Sends payloads of `bytes` for about `time`. The sender polls for each completion.
pub(crate) fn polled(peer: &Peer, bytes: usize, time: Duration, into: &mut Recorder) -> anyhow::Result<()> {
    let message = OneWay { bytes: vec![7; bytes - size_of::<u32>()] };
    into.round(time, || peer.notify_sync(black_box(&message), PATIENCE)).context("a synchronous send")
}

/// Sends payloads of `bytes` for about `time`, without timing each. Returns the number of sends.
pub(crate) fn polled_counted(peer: &Peer, bytes: usize, time: Duration) -> anyhow::Result<u64> {
    let message = OneWay { bytes: vec![7; bytes - size_of::<u32>()] };
    let started = clock::now();
    let mut sent = 0;
    while sent % PER_READING != 0 || sent == 0 || started.elapsed() < time {
        peer.notify_sync(black_box(&message), PATIENCE).context("a synchronous send")?;
        sent += 1;
    }
    Ok(sent)
}

/// The dedicated design: the shared state of senders and completing thread.
#[derive(Debug)]
pub(crate) struct Dedicated {
    idle: Idle,
    flags: Vec<Flag>,
    /// The completion channel.
    channel: EventFd,
    over: AtomicBool,
}

/// A sender's flag.
#[derive(Debug, Default)]
struct Flag {
    /// The awaited send; 0 if there is none, or if it has completed.
    send: AtomicU64,
    thread: OnceLock<Thread>,
}

const fn word_of(call: CallId) -> u64 {
    (call.slot as u64) << 32 | call.generation as u64 | POSTED
}

fn call_of(word: u64) -> Option<CallId> {
    let [a, b, c, d, slot @ .., _, _] = word.to_le_bytes();
    let call = CallId { slot: u16::from_le_bytes(slot), generation: u32::from_le_bytes([a, b, c, d]) };
    (word != 0).then_some(call)
}

impl Dedicated {
    /// Creates the state for `senders` senders.
    pub(crate) fn new(senders: usize, idle: Idle) -> anyhow::Result<Self> {
        let flags = (0..senders).map(|_| Flag::default()).collect();
        let channel = EventFd::from_flags(EfdFlags::EFD_CLOEXEC).context("a completion channel")?;
        Ok(Self { idle, flags, channel, over: AtomicBool::new(false) })
    }

    /// Sends payloads of `bytes` as sender number `sender` for about `time`. The dedicated thread completes each send. `events` gets the
    /// durations of raising the events, which are a part of the sends.
    pub(crate) fn send(
        &self,
        peer: &Peer,
        (sender, bytes): (usize, usize),
        time: Duration,
        [into, events]: [&mut Recorder; 2],
    ) -> anyhow::Result<()> {
        let flag = &self.flags[sender];
        flag.thread.get_or_init(thread::current);
        let message = OneWay { bytes: vec![7; bytes - size_of::<u32>()] };
        into.round(time, || {
            let slot = post(peer, black_box(&message))?;
            // SYNC: publishes that the slot is posted; pairs with the load in `complete`.
            flag.send.store(word_of(slot), Ordering::Release);
            // Replaces the hardware, which raises an event in the channel of a completion queue.
            if self.idle == Idle::Sleeps {
                let before = clock::now();
                self.raise();
                events.record_single(before.elapsed());
            }
            // SYNC: the completer has taken the end before it cleared the word; pairs with the store in `complete`.
            while flag.send.load(Ordering::Acquire) != 0 {
                match self.idle {
                    Idle::Spins => thread::yield_now(),
                    // Bounded, because this thread may not have been registered yet when it should have been woken.
                    Idle::Sleeps => thread::park_timeout(UNKNOWN),
                }
            }
            Ok(())
        })
    }

    /// Runs the dedicated thread: processes completions until [`end`](Self::end), and clears the flag of every sender whose send has
    /// completed.
    pub(crate) fn complete(&self, peer: &Peer) -> anyhow::Result<()> {
        let (session, host) = (peer.session(), peer.host());
        while !self.over.load(Ordering::Relaxed) {
            let mut posted = false;
            for flag in &self.flags {
                // SYNC: pairs with the store in `send`.
                let Some(slot) = call_of(flag.send.load(Ordering::Acquire)) else { continue };
                posted = true;
                let mut sink = host.waiting_sink(session);
                let outcome = session.wait_for_send(slot, Nanos::ZERO, WaitPolicy::Block, &mut sink, &**host);
                if let WaitOutcome::Ended(_) = outcome {
                    // SYNC: publishes that the send has ended; pairs with the load in `send`.
                    flag.send.store(0, Ordering::Release);
                    self.wake(flag.thread.get());
                }
            }
            match self.idle {
                Idle::Spins if !posted => thread::yield_now(),
                Idle::Sleeps if !posted => _ = self.channel.read().context("a completion channel")?,
                Idle::Spins | Idle::Sleeps => {}
            }
        }
        Ok(())
    }

    /// Ends the dedicated thread.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
        self.raise();
    }

    fn raise(&self) {
        // Fails only if the counter overflows.
        let _raised = self.channel.write(1);
    }

    fn wake(&self, thread: Option<&Thread>) {
        if self.idle == Idle::Sleeps
            && let Some(thread) = thread
        {
            thread.unpark();
        }
    }
}

/// Posts a message with a completion, waiting for room as the library does.
fn post(peer: &Peer, message: &OneWay) -> anyhow::Result<CallId> {
    let (session, host) = (peer.session(), peer.host());
    let (name, layout) = OneWay::type_key();
    let key = TypeKey { service: pronto::ServiceId(0), name, layout };
    let since = clock::now();
    loop {
        let len = message.bytes.len() + size_of::<u32>();
        let payload = session.loan_after_reaping(OneWay::CLASS, len, 0, &**host).map(|mut loan| {
            let written = encode_message(message, loan.as_mut_slice());
            written.map(|_| OutgoingPayload::Frame(loan.finish()))
        });
        let posted = match payload {
            Ok(payload) => {
                session.notify_sync(&key, OneWay::CLASS, payload.context("a loan of its length")?, &**host)
            }
            Err(refused) => Err(refused),
        };
        match posted {
            Ok(slot) => return Ok(slot),
            Err(refused) if refused.is_retryable() && since.elapsed() < PATIENCE => thread::yield_now(),
            Err(refused) => return Err(refused).context("a synchronous send"),
        }
    }
}

/// Longest sleep of a sender before it reads its flag.
const UNKNOWN: Duration = Duration::from_millis(20);

/// Number of sends between two clock readings.
const PER_READING: u64 = 8;

/// Mark in the word of a send that is under way, because slot and generation of a send may be 0.
const POSTED: u64 = 1 << 63;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::echo::Provider;
    use crate::traffic::receiver::connected;

    #[test]
    fn a_word_names_its_send() {
        for call in [CallId { slot: 0, generation: 0 }, CallId { slot: 1023, generation: u32::MAX }] {
            assert_eq!(call_of(word_of(call)), Some(call));
        }
        assert_eq!(call_of(0), None);
    }

    #[test]
    fn both_designs_complete_every_send_on_both_transports() {
        for provider in Provider::ALL {
            let (_nodes, peer) = connected(provider, "-sends").unwrap();
            for (bytes, idle) in [(64, Idle::Spins), (5_000, Idle::Sleeps)] {
                let time = Duration::from_millis(2);
                let [mut recorder, mut events] = [(); 2].map(|()| Recorder::new());
                polled(&peer, bytes, time, &mut recorder).unwrap();
                let polled = recorder.sample().count;
                let dedicated = Dedicated::new(1, idle).unwrap();
                thread::scope(|scope| {
                    let completer = scope.spawn(|| dedicated.complete(&peer));
                    let sent = dedicated.send(&peer, (0, bytes), time, [&mut recorder, &mut events]);
                    dedicated.end();
                    sent.unwrap();
                    completer.join().unwrap().unwrap();
                });
                assert!(polled > 0 && recorder.sample().count > polled);
                assert_eq!(events.sample().count > 0, idle == Idle::Sleeps);
            }
        }
    }
}
