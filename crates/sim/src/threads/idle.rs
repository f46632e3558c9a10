//! Detection of lost wake-ups: a node whose threads all sleep must have nothing to do.

use std::sync::Arc;

use pronto_wire::{CallId, Class};

use super::thread::{Asleep, Run, SleepOn, Thread};
use crate::scenario::SimSession;
use crate::world::{SimNode, SimWorld};

/// The condition for which a thread waits.
#[derive(Clone)]
pub(super) struct Waits {
    pub(super) session: Arc<SimSession>,
    /// The peer's place.
    pub(super) to: SimNode,
    pub(super) what: Awaited,
}

impl core::fmt::Debug for Waits {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:?} of {:?}", self.what, self.to)
    }
}

/// The awaited event.
#[derive(Clone, Copy, Debug)]
pub(super) enum Awaited {
    /// The end of a call, by a thread that polls for it or lets another thread poll.
    End(CallId),
    /// The end of a call with a deadline, which ticks end without a wake-up of a thread that sleeps in the channels.
    Deadline(CallId),
    /// The end of a call, by a future: no thread of the program polls.
    Wake(CallId),
    /// A credit.
    Room(Class),
    /// Room for a call, by a task: the thread that frees it wakes the task.
    Queue(Class),
    /// The next tick, by a task that found no memory.
    Tick,
}

/// Returns the first sign of a lost wake-up: all threads of a node sleep although one of them should have been woken.
pub(super) fn violation(threads: &[Thread], world: &SimWorld) -> Option<String> {
    let asleep = |thread: &&Thread| matches!(&thread.run, Run::Asleep(Asleep { on, .. }) if !matches!(on, SleepOn::BackOff));
    let sleepers = threads.iter().filter(asleep);
    sleepers.filter(|thread| is_idle(threads, thread.node, world)).find_map(|thread| {
        let why =
            oversleeps(thread, world).or_else(|| has_room(threads, thread)).or_else(|| has_work(thread))?;
        Some(format!(
            "lost wake-up: thread {:?} sleeps, as do all threads of its node, although {why}",
            thread.name
        ))
    })
}

/// Returns whether every thread of a node sleeps, and none is about to wake up. A thread of no node makes and ends links of all nodes.
fn is_idle(threads: &[Thread], node: Option<SimNode>, world: &SimWorld) -> bool {
    let mut own = threads.iter().filter(|thread| thread.node == node || thread.node.is_none());
    node.is_some()
        && own.all(|thread| match &thread.run {
            Run::Ended => true,
            Run::Ready | Run::Held { .. } => false,
            Run::Asleep(Asleep { on: SleepOn::BackOff, .. }) => false,
            // It polls again soon.
            Run::Asleep(Asleep { on: SleepOn::Serving { muted: true, .. }, .. }) => false,
            // It has slept since before the link, which does not wake it, and polls again after the safety-net timeout.
            Run::Asleep(Asleep { on: SleepOn::Channels(channels), .. }) if world.are_closed(channels) => {
                false
            }
            Run::Asleep(_) => !thread.is_alerted,
        })
}

/// Returns the reason why a thread should be awake.
fn oversleeps(thread: &Thread, world: &SimWorld) -> Option<String> {
    let Run::Asleep(Asleep { on, .. }) = &thread.run else { return None };
    let found = |channels: &[i32], solicited| {
        channels.iter().find(|channel| world.has_anything(**channel, solicited)).copied()
    };
    let in_channel = match on {
        SleepOn::Channels(channels) => found(channels, false),
        SleepOn::Serving { channels, .. } => found(channels, true),
        SleepOn::Pause | SleepOn::BackOff | SleepOn::Word(_) => None,
    };
    if let Some(channel) = in_channel {
        return Some(format!("a poll of channel {channel} would find something"));
    }
    let Waits { session, to, what } = thread.waits.as_ref()?;
    let is_follower = matches!(on, SleepOn::Word(_));
    match *what {
        Awaited::Deadline(_) if !is_follower => None,
        Awaited::End(call) | Awaited::Deadline(call) | Awaited::Wake(call) if session.has_ended(call) => {
            Some(format!("{call:?} has ended"))
        }
        Awaited::End(call) | Awaited::Deadline(call) if is_follower && session.is_servers() => {
            Some(format!("no thread polls for {call:?}"))
        }
        Awaited::Wake(call) if world.has_response(thread.node?, *to, call) => {
            Some(format!("the response to {call:?} has arrived"))
        }
        Awaited::Room(class)
            if !is_follower && !matches!(on, SleepOn::Pause) && session.credits(class) != 0 =>
        {
            Some(format!("there is a credit of class {class:?}"))
        }
        Awaited::Queue(_) if !session.is_up() => Some("the peer is down".into()),
        _ => None,
    }
}

/// Returns the reason why a serving thread should be awake, for which no channel has an event.
fn has_work(thread: &Thread) -> Option<String> {
    let mut left = thread.serves.iter().filter(|session| session.has_work_left());
    left.next().map(|session| format!("work is left in the session with {}", session.peer()))
}

/// Returns the reason why a task that waits in the queue should be awake. It may wait behind one that waits for the next tick.
fn has_room(threads: &[Thread], thread: &Thread) -> Option<String> {
    let Waits { session, what: Awaited::Queue(class), .. } = thread.waits.as_ref()? else { return None };
    let waits_for_tick = |other: &Thread| {
        let waits = other.waits.as_ref();
        other.node == thread.node && waits.is_some_and(|waits| matches!(waits.what, Awaited::Tick))
    };
    let is_free = session.credits(*class) != 0 && session.open_calls() < session.limits().calls;
    (is_free && !threads.iter().any(waits_for_tick))
        .then(|| format!("there is room for a call of class {class:?}"))
}
