//! One wake-up at a time: a sender writes to an eventfd, a blocked receiver reads it, and between the two lies what is
//! measured. Beside the receiver another thread may want its CPU.

use core::time::Duration;
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, anyhow};
use hdrhistogram::Histogram;
use nix::sys::eventfd::{EfdFlags, EventFd};
use pronto_expedite::schedule::{CALLER, Class, schedule};
use pronto_sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::clock;
use crate::placement::{Cpu, pin};

/// What the sender does until its next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// It sleeps.
    Idle,
    /// It computes, or polls, which is the same to the machine.
    Busy,
}

/// Who sends to whom, and what else runs.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    /// Where the sender runs.
    pub sender_cpu: Cpu,
    /// Where the receiver runs; may be the same.
    pub receiver_cpu: Cpu,
    /// How the receiver is scheduled.
    pub receiver: Class,
    /// What the sender does between messages.
    pub sender: Sender,
    /// A thread that computes without end where the receiver runs, and how it is scheduled.
    pub hog: Option<Class>,
}

/// Times from the write to the end of the read, nanoseconds.
#[derive(Debug)]
pub struct Delays(Histogram<u64>);

impl Default for Delays {
    fn default() -> Self {
        Self(
            Histogram::new_with_max(HIGHEST_NS, SIGNIFICANT_DIGITS)
                .expect("the bounds are constants that fit"),
        )
    }
}

impl Delays {
    /// One more, nanoseconds.
    pub fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// All of another one's as well.
    pub fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("all have the same bounds");
    }

    /// How many messages there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The shortest.
    #[must_use]
    pub fn min_ns(&self) -> u64 {
        self.0.min()
    }

    /// The longest.
    #[must_use]
    pub fn max_ns(&self) -> u64 {
        self.0.max()
    }

    /// That share of the messages took no longer.
    #[must_use]
    pub fn quantile_ns(&self, share: f64) -> u64 {
        self.0.value_at_quantile(share)
    }

    /// The share of messages that took longer than this.
    #[must_use]
    pub fn share_above(&self, bound: Duration) -> f64 {
        let bound = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
        1.0 - self.0.percentile_below(bound) / 100.0
    }

    /// How many messages took longer than this.
    #[must_use]
    pub fn count_above(&self, bound: Duration) -> u64 {
        let bound = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
        self.0.len() - self.0.count_between(0, bound)
    }
}

/// What sender and receiver share.
#[derive(Debug, Default)]
struct Shared {
    /// When the last message was sent, nanoseconds after the start.
    sent: AtomicU64,
    /// How many messages were received.
    received: AtomicU64,
    /// Nothing more is sent.
    end: AtomicBool,
}

/// Sends `messages` messages in that scene, and adds what they took to `into`.
///
/// # Errors
/// A thread cannot be pinned or scheduled as the scene wants it.
///
/// # Panics
/// If a thread of the scene does.
pub fn play(scene: &Scene, messages: u32, into: &mut Delays) -> anyhow::Result<()> {
    let new = || EventFd::from_flags(EfdFlags::EFD_CLOEXEC).context("making an eventfd");
    let (message, answer) = (&new()?, &new()?);
    let (shared, start) = (&Shared::default(), clock::now());
    thread::scope(|scope| {
        let hog = scene.hog.map(|class| {
            scope.spawn(move || {
                pin(scene.receiver_cpu)?;
                schedule(CALLER, class).context("scheduling the thread that competes")?;
                // SYNC: pairs with the store at the end of `play`; nothing else is published by it.
                while !shared.end.load(Ordering::Acquire) {
                    core::hint::spin_loop();
                }
                anyhow::Ok(())
            })
        });
        let receiver = scope.spawn(move || {
            let prepared = pin(scene.receiver_cpu)
                .and_then(|()| schedule(CALLER, scene.receiver).context("scheduling the receiver"));
            receive(message, answer, shared, start, into).and(prepared)
        });
        let sender = scope.spawn(move || {
            pin(scene.sender_cpu)?;
            send(scene.sender, messages, message, answer, shared, start)
        });
        let sent = sender.join().map_err(|_| anyhow!("the sender panicked"))?;
        message.write(END)?;
        // SYNC: pairs with the load of the hog.
        shared.end.store(true, Ordering::Release);
        let received = receiver.join().map_err(|_| anyhow!("the receiver panicked"))?;
        let competed = hog.map_or(Ok(Ok(())), thread::ScopedJoinHandle::join);
        sent.and(received).and(competed.map_err(|_| anyhow!("the thread that competes panicked"))?)
    })
}

fn send(
    sender: Sender,
    messages: u32,
    message: &EventFd,
    answer: &EventFd,
    shared: &Shared,
    start: Instant,
) -> anyhow::Result<()> {
    let mut pauses = Pauses::default();
    for number in 0..=messages {
        let next = clock::now() + pauses.next();
        while let Some(left) = next.checked_duration_since(clock::now()).filter(|left| !left.is_zero()) {
            match sender {
                Sender::Idle => thread::park_timeout(left),
                Sender::Busy => core::hint::spin_loop(),
            }
        }
        // SYNC: publishes the time; the eventfd orders it before the receiver's load.
        shared.sent.store(nanos(start.elapsed()), Ordering::Release);
        message.write(MESSAGE)?;
        match sender {
            Sender::Idle => drop(answer.read()?),
            // SYNC: pairs with the receiver's store.
            Sender::Busy => while shared.received.load(Ordering::Acquire) <= u64::from(number) {},
        }
    }
    Ok(())
}

/// Takes messages until the end; the first one warms up.
fn receive(
    message: &EventFd,
    answer: &EventFd,
    shared: &Shared,
    start: Instant,
    into: &mut Delays,
) -> anyhow::Result<()> {
    for number in 0.. {
        if message.read()? >= END {
            return Ok(());
        }
        let now = nanos(start.elapsed());
        // SYNC: pairs with the sender's store.
        let sent = shared.sent.load(Ordering::Acquire);
        if number > 0 {
            into.0.saturating_record(now.saturating_sub(sent));
        }
        // SYNC: pairs with the load of a busy sender.
        shared.received.store(number + 1, Ordering::Release);
        answer.write(MESSAGE)?;
    }
    Ok(())
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Pauses of 1 to 4 ms, the same in every run, that keep step with no timer.
#[derive(Debug)]
struct Pauses(u64);

impl Default for Pauses {
    fn default() -> Self {
        Self(SEED)
    }
}

impl Pauses {
    fn next(&mut self) -> Duration {
        // Knuth's generator for 64 bits (MMIX); its high bits are the good ones.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        MIN_PAUSE + Duration::from_nanos((self.0 >> 33) % SPREAD_NS)
    }
}

const SEED: u64 = 1;
const MIN_PAUSE: Duration = Duration::from_millis(1);
const SPREAD_NS: u64 = 3_000_000;

/// What a message adds to the eventfd; the end adds more than messages can.
const MESSAGE: u64 = 1;
const END: u64 = 1 << 32;

/// A minute; longer delays are recorded as this.
const HIGHEST_NS: u64 = 60_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Placement;

    #[test]
    fn every_message_is_counted_whatever_else_runs() {
        let cpu = Placement::choose().unwrap().caller();
        for (sender, hog) in [(Sender::Idle, None), (Sender::Busy, None), (Sender::Idle, Some(Class::Normal))]
        {
            let scene = Scene { sender_cpu: cpu, receiver_cpu: cpu, receiver: Class::Normal, sender, hog };
            let mut delays = Delays::default();
            play(&scene, 20, &mut delays).unwrap();
            assert_eq!(delays.count(), 20);
            assert!(delays.min_ns() <= delays.quantile_ns(0.5) && delays.quantile_ns(0.5) <= delays.max_ns());
        }
    }

    #[test]
    fn pauses_are_the_same_in_every_run_and_spread() {
        let pauses = || {
            let mut pauses = Pauses::default();
            (0..100).map(|_| pauses.next()).collect::<Vec<_>>()
        };
        assert_eq!(pauses(), pauses());
        let mut sorted = pauses();
        sorted.sort();
        assert!(
            sorted[0] >= MIN_PAUSE && sorted[99] < 4 * MIN_PAUSE && sorted[99] - sorted[0] > 2 * MIN_PAUSE
        );
    }

    #[test]
    fn a_share_counts_what_is_above() {
        let mut delays = Delays::default();
        for ns in [10, 20, 2_000_000, 3_000_000] {
            delays.0.record(ns).unwrap();
        }
        assert!((delays.share_above(Duration::from_millis(1)) - 0.5).abs() < 1e-9);
        assert_eq!(delays.count_above(Duration::from_millis(1)), 2);
    }
}
