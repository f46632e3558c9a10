//! Synchronous sends, in the comm-layer paper's sense: from the loan of a buffer to the moment at which it may be used again.
//!
//! Two designs of the paper's section 3.2. *Sender-polled*: the sender polls the completion queue itself; this is what the library
//! does. *Dedicated*: the sender is blocked while a thread of its own, which sleeps in the completion channel, pumps the completion queue
//! and wakes who waits; this is what the paper did before, and it exists here only. The thread takes send completions in and nothing
//! else, as that queue is one of its own in the paper.

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

/// How a waiting thread waits where the design leaves it the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Idle {
    /// Looks again and again, giving the processor away in between: there may be more threads than processors.
    Spins,
    /// Sleeps until it is woken.
    Sleeps,
}

/// Sends of payloads of `bytes`, each polled for by its sender, for about `time`.
///
/// # Errors
/// If one fails.
pub(crate) fn polled(peer: &Peer, bytes: usize, time: Duration, into: &mut Recorder) -> anyhow::Result<()> {
    let message = OneWay { bytes: vec![7; bytes - size_of::<u32>()] };
    into.round(time, || peer.notify_sync(black_box(&message), PATIENCE)).context("a synchronous send")
}

/// The same, only counted: how many sends.
///
/// # Errors
/// If one fails.
pub(crate) fn polled_counted(peer: &Peer, bytes: usize, time: Duration) -> anyhow::Result<u64> {
    let message = OneWay { bytes: vec![7; bytes - size_of::<u32>()] };
    let started = clock::now();
    let mut sent = 0;
    while sent % LOOKS != 0 || sent == 0 || started.elapsed() < time {
        peer.notify_sync(black_box(&message), PATIENCE).context("a synchronous send")?;
        sent += 1;
    }
    Ok(sent)
}

/// The dedicated design: what senders and the completing thread share.
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
    /// The send that is waited for; 0 for none, which is set when it has completed.
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
    /// For so many senders.
    ///
    /// # Errors
    /// If the system has no descriptor.
    pub(crate) fn new(senders: usize, idle: Idle) -> anyhow::Result<Self> {
        let flags = (0..senders).map(|_| Flag::default()).collect();
        let channel = EventFd::from_flags(EfdFlags::EFD_CLOEXEC).context("a completion channel")?;
        Ok(Self { idle, flags, channel, over: AtomicBool::new(false) })
    }

    /// Sends of payloads of `bytes` by sender number `sender`, each completed by the dedicated thread, for about `time`.
    ///
    /// # Errors
    /// If one fails.
    pub(crate) fn send(
        &self,
        peer: &Peer,
        (sender, bytes): (usize, usize),
        time: Duration,
        into: &mut Recorder,
    ) -> anyhow::Result<()> {
        let flag = &self.flags[sender];
        flag.thread.get_or_init(thread::current);
        let message = OneWay { bytes: vec![7; bytes - size_of::<u32>()] };
        into.round(time, || {
            let slot = post(peer, black_box(&message))?;
            // SYNC: publishes that the slot is posted; pairs with the load in `complete`.
            flag.send.store(word_of(slot), Ordering::Release);
            // Stands in for the hardware, which raises an event in the channel of a completion queue.
            self.raise();
            // SYNC: the completer has taken the end before it cleared the word; pairs with the store in `complete`.
            while flag.send.load(Ordering::Acquire) != 0 {
                match self.idle {
                    Idle::Spins => thread::yield_now(),
                    // Bounded, for a thread that was not known yet when it should have been woken.
                    Idle::Sleeps => thread::park_timeout(UNKNOWN),
                }
            }
            Ok(())
        })
    }

    /// The dedicated thread: takes completions in until [`end`](Self::end), and sets the flag of every sender whose send has
    /// completed.
    ///
    /// # Errors
    /// If its channel fails.
    pub(crate) fn complete(&self, peer: &Peer) -> anyhow::Result<()> {
        let (session, host) = (peer.session(), peer.host());
        while !self.over.load(Ordering::Relaxed) {
            let mut posted = false;
            for flag in &self.flags {
                // SYNC: pairs with the store in `send`.
                let Some(slot) = call_of(flag.send.load(Ordering::Acquire)) else { continue };
                posted = true;
                let mut sink = host.waiting_sink(session);
                let looked = session.wait_for_send(slot, Nanos::ZERO, WaitPolicy::Block, &mut sink, &**host);
                if let WaitOutcome::Ended(_) = looked {
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
        if self.idle == Idle::Sleeps {
            // Refused only where nobody has read four thousand million million events.
            let _raised = self.channel.write(1);
        }
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

/// How long a sender sleeps at most before it looks at its flag.
const UNKNOWN: Duration = Duration::from_millis(20);

/// Sends between two looks at the clock.
const LOOKS: u64 = 8;

/// In the word of a send that is under way: a slot and generation of 0 are a send too.
const POSTED: u64 = 1 << 63;

#[cfg(test)]
mod tests {
    use pronto::Node;

    use super::*;
    use crate::echo::{Provider, Wait};
    use crate::traffic::receiver::receive;
    use pronto_core::session::Doorbells;

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
            let receiver =
                receive(provider, Wait(WaitPolicy::Adaptive), "-sends", Doorbells::Shared).unwrap();
            let address = receiver.listening()[0].to_string();
            let sender = Node::builder(2).peer(1, &address).start().unwrap();
            let peer = sender.wait_for_peer(1, PATIENCE).unwrap();
            for (bytes, idle) in [(64, Idle::Spins), (5_000, Idle::Sleeps)] {
                let time = Duration::from_millis(2);
                let mut recorder = Recorder::new();
                polled(&peer, bytes, time, &mut recorder).unwrap();
                let polled = recorder.sample().count;
                let dedicated = Dedicated::new(1, idle).unwrap();
                thread::scope(|scope| {
                    let completer = scope.spawn(|| dedicated.complete(&peer));
                    let sent = dedicated.send(&peer, (0, bytes), time, &mut recorder);
                    dedicated.end();
                    sent.unwrap();
                    completer.join().unwrap().unwrap();
                });
                assert!(polled > 0 && recorder.sample().count > polled);
            }
        }
    }
}
