//! Calls that may block, on the serving thread of a node: the cost of an empty one, and the delay of an event that arrives as one blocks.
//!
//! Serving thread, spares and the measuring thread share one CPU, as the threads of the paper's Fig. 2 do.

use core::time::Duration;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use anyhow::Context as _;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use pronto::progress::{BLOCKS_AFTER, Place, Sleep, Source, Spec, Trigger};
use pronto::{Node, WaitPolicy};
use pronto_sync::atomic::{AtomicU64, Ordering};

use super::polls::{INNER, in_a_row};
use crate::clock;
use crate::sample::{approximate, median};

/// Way in which a tasklet makes its blocking call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// Within `Manager::may_block`, so that a spare takes over.
    Announced,
    /// Directly, so that no thread serves meanwhile.
    Bare,
}

/// Returns the time of a call that may block and does nothing.
pub(super) fn empty(budget: Duration) -> anyhow::Result<f64> {
    let node = serving()?;
    let manager = node.manager().clone();
    let (result, results) = channel();
    let tasklet = node.manager().kind("empty call", &[Trigger::Idle])?.tasklet(Place::Anywhere, move || {
        let ns = in_a_row(budget, || (0..INNER).for_each(|_| manager.may_block(|| ())));
        // Fails only if the measurement has failed.
        let _ = result.send(ns);
    });
    tasklet.schedule();
    results.recv_timeout(LIMIT).context("the tasklet did not end")?
}

/// Returns the median time from an event, which arrives as a call begins to block, until it is served. The call ends when the event is
/// served, or after [`BLOCKED`].
pub(super) fn delay(call: Call, budget: Duration) -> anyhow::Result<f64> {
    let node = serving()?;
    let manager = node.manager().clone();
    let published = Arc::new(AtomicU64::new(NONE));
    let ((served, is_served), (delay, delays)) = (channel(), channel());
    let source = Event { published: Arc::clone(&published), served, delay };
    let registered = node.manager().register(Spec::memory("event", Sleep::Notified), source)?;
    let notifier = registered.notifier();
    let is_served = Mutex::new(is_served);
    let tasklet =
        node.manager().kind("blocking call", &[Trigger::Idle])?.tasklet(Place::Anywhere, move || {
            let block = || {
                let is_served: &Receiver<()> = &is_served.lock().expect("no holder panics");
                // The end of the last call may have been its time limit.
                while is_served.try_recv().is_ok() {}
                published.store(clock::shared_ns(), Ordering::Release);
                notifier.notify();
                let _served_or_over = is_served.recv_timeout(BLOCKED);
            };
            match call {
                Call::Announced => manager.may_block(block),
                Call::Bare => block(),
            }
        });
    let until = clock::now() + budget;
    let mut all = Vec::new();
    while all.is_empty() || clock::now() < until {
        tasklet.schedule();
        all.push(delays.recv_timeout(LIMIT).context("an event was not served")?);
    }
    Ok(median(all))
}

/// Returns the median time until a timer, set for the time after which a call counts as blocked, wakes the thread that waits for it:
/// the floor of a spare.
pub(super) fn timer(budget: Duration) -> anyhow::Result<f64> {
    let timer =
        TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC).context("creating a timer")?;
    let after = Expiration::OneShot(TimeSpec::from_duration(BLOCKS_AFTER));
    let until = clock::now() + budget;
    let mut all = Vec::new();
    while all.is_empty() || clock::now() < until {
        let since = clock::now();
        timer.set(after, TimerSetTimeFlags::empty()).context("setting a timer")?;
        timer.wait().context("waiting for a timer")?;
        all.push(approximate(clock::nanos(since.elapsed())));
    }
    Ok(median(all))
}

/// Starts a node without peers, whose threads inherit the affinity of the calling thread.
fn serving() -> anyhow::Result<Node> {
    Node::builder(1).wait(WaitPolicy::Block).start().context("starting a node")
}

/// A source with one event at a time, which reports how long its event waited.
struct Event {
    /// Time of the event, or [`NONE`].
    published: Arc<AtomicU64>,
    served: Sender<()>,
    delay: Sender<f64>,
}

impl Source for Event {
    fn poll(&mut self) -> usize {
        let since = self.published.swap(NONE, Ordering::Acquire);
        if since == NONE {
            return 0;
        }
        // Both fail only if the measurement has ended.
        let _ = self.delay.send(approximate(clock::shared_ns() - since));
        let _ = self.served.send(());
        1
    }
}

/// Length of a call that nothing ends: the computation of the paper's Fig. 3.
pub(super) const BLOCKED: Duration = Duration::from_millis(50);
/// No event is due.
const NONE: u64 = 0;
/// Longest wait for a result.
const LIMIT: Duration = Duration::from_secs(20);
