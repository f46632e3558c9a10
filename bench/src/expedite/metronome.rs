//! A thread on the senders' CPU that wakes at short intervals, to keep the quantum of virtual time short.
//!
//! A computing CPU has its turn until the machine's next timer, divided by the number of CPUs (docs/measuring.md). With this timer, a turn
//! lasts for at most half of its interval, so it cannot cause delays of a millisecond.

use core::time::Duration;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use anyhow::Context as _;
use pronto_expedite::schedule::{CALLER, Class, schedule};
use pronto_sync::atomic::{AtomicBool, Ordering};

/// Interval of the timer.
pub(super) const BEAT: Duration = Duration::from_micros(200);

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Metronome {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Metronome {
    pub(super) fn start() -> anyhow::Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = thread::Builder::new().name("metronome".into()).spawn(move || {
            let scheduled = schedule(CALLER, Class::Fifo(1));
            let is_real_time = scheduled.is_ok();
            let _ = sender.send(scheduled);
            while is_real_time && !ended.load(Ordering::Relaxed) {
                thread::park_timeout(BEAT);
            }
        });
        let thread = Some(thread.context("starting a thread")?);
        let metronome = Self { over, thread };
        receiver.recv().context("a thread ended early")?.context("scheduling a thread")?;
        Ok(metronome)
    }
}

impl Drop for Metronome {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread does not panic.
            let _ended = thread.join();
        }
    }
}
