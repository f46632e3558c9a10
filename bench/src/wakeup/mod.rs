//! One wake-up at a time: a sender writes to an eventfd, and a blocked receiver reads it. The time between the two is measured. Another
//! thread may compete for the receiver's CPU.

use core::time::Duration;
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, anyhow};
use minidos::random::Random;
use nix::sys::eventfd::{EfdFlags, EventFd};
use pronto_expedite::schedule::{CALLER, Class, schedule};
use pronto_sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::clock::{self, nanos};
use crate::params::choices;
use crate::placement::{Cpu, pin};
use crate::sample::Recorder;

choices! {
    /// Activity of the sender until its next message.
    pub(crate) enum Sender {
        /// It sleeps.
        Idle = "idle",
        /// It computes or polls, which makes no difference to the machine.
        Busy = "busy",
    }
}

/// Sender, receiver, and competition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene {
    /// CPU of the sender.
    pub(crate) sender_cpu: Cpu,
    /// CPU of the receiver; may be the same.
    pub(crate) receiver_cpu: Cpu,
    /// Class of the receiver.
    pub(crate) receiver: Class,
    /// Activity of the sender between messages.
    pub(crate) sender: Sender,
    /// Class of a thread that computes on the receiver's CPU, if there is one.
    pub(crate) hog: Option<Class>,
}

/// Shared state of sender and receiver.
#[derive(Debug, Default)]
struct Shared {
    /// Time of the last send, in nanoseconds after the start.
    sent: AtomicU64,
    /// Number of received messages.
    received: AtomicU64,
    /// Whether the sender has ended.
    end: AtomicBool,
}

/// Sends `messages` messages in that scene, and adds the times from the write to the end of the read to `into`.
pub(crate) fn play(scene: &Scene, messages: u32, into: &mut Recorder) -> anyhow::Result<()> {
    let new = || EventFd::from_flags(EfdFlags::EFD_CLOEXEC).context("creating an eventfd");
    let (message, reply) = (&new()?, &new()?);
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
            receive(message, reply, shared, start, into).and(prepared)
        });
        let sender = scope.spawn(move || {
            pin(scene.sender_cpu)?;
            send(scene.sender, messages, message, reply, shared, start)
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
    reply: &EventFd,
    shared: &Shared,
    start: Instant,
) -> anyhow::Result<()> {
    let mut random = Random::new(SEED);
    for number in 0..=messages {
        let next = clock::now() + pause(&mut random);
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
            Sender::Idle => drop(reply.read()?),
            // SYNC: pairs with the receiver's store.
            Sender::Busy => while shared.received.load(Ordering::Acquire) <= u64::from(number) {},
        }
    }
    Ok(())
}

/// Receives messages until the end. The first one is a warm-up.
fn receive(
    message: &EventFd,
    reply: &EventFd,
    shared: &Shared,
    start: Instant,
    into: &mut Recorder,
) -> anyhow::Result<()> {
    for number in 0.. {
        if message.read()? >= END {
            return Ok(());
        }
        let now = nanos(start.elapsed());
        // SYNC: pairs with the sender's store.
        let sent = shared.sent.load(Ordering::Acquire);
        if number > 0 {
            into.record_single(Duration::from_nanos(now.saturating_sub(sent)));
        }
        // SYNC: pairs with the load of a busy sender.
        shared.received.store(number + 1, Ordering::Release);
        reply.write(MESSAGE)?;
    }
    Ok(())
}

/// Returns a pause of 1 to 4 ms. Pauses are equal in every run, and not in step with any timer.
fn pause(random: &mut Random) -> Duration {
    MIN_PAUSE + Duration::from_nanos(random.bits() % SPREAD_NS)
}

const SEED: u64 = 1;
const MIN_PAUSE: Duration = Duration::from_millis(1);
const SPREAD_NS: u64 = 3_000_000;

/// Value that a message adds to the eventfd; the end adds more than messages can.
const MESSAGE: u64 = 1;
const END: u64 = 1 << 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Placement;

    #[test]
    fn every_message_is_counted() {
        let cpu = Placement::choose().unwrap().caller();
        for (sender, hog) in [(Sender::Idle, None), (Sender::Busy, None), (Sender::Idle, Some(Class::Normal))]
        {
            let scene = Scene { sender_cpu: cpu, receiver_cpu: cpu, receiver: Class::Normal, sender, hog };
            let mut delays = Recorder::new();
            play(&scene, 20, &mut delays).unwrap();
            let sample = delays.sample();
            assert_eq!(sample.count, 20);
            assert!(sample.min_ns <= sample.p50_ns && sample.p50_ns <= delays.max_ns());
        }
    }

    #[test]
    fn pauses_are_spread() {
        let mut random = Random::new(SEED);
        let mut sorted: Vec<_> = (0..100).map(|_| pause(&mut random)).collect();
        sorted.sort();
        assert!(
            sorted[0] >= MIN_PAUSE && sorted[99] < 4 * MIN_PAUSE && sorted[99] - sorted[0] > 2 * MIN_PAUSE
        );
    }
}
