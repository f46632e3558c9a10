//! A thread that wakes all the time, on the senders' processor: it keeps the quantum of virtual time short.
//!
//! A processor that computes has its turn until the machine's next timer, divided by the number of processors
//! (docs/measuring.md). With a timer this often a turn is at most half of this, and no delay of a millisecond comes from it.

use core::time::Duration;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use anyhow::Context as _;
use pronto_expedite::schedule::{CALLER, Class, schedule};
use pronto_sync::atomic::{AtomicBool, Ordering};

/// Between two timers.
pub(super) const BEAT: Duration = Duration::from_micros(200);

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Metronome {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Metronome {
    /// # Errors
    /// If it cannot be real-time: timers of ordinary threads may be late by the kernel's leave.
    pub(super) fn start() -> anyhow::Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let (tell, told) = std::sync::mpsc::channel();
        let thread = thread::Builder::new().name("metronome".into()).spawn(move || {
            let scheduled = schedule(CALLER, Class::Fifo(1));
            let may_go_on = scheduled.is_ok();
            // Whoever asked is waiting for it.
            let _ = tell.send(scheduled);
            while may_go_on && !ended.load(Ordering::Relaxed) {
                thread::park_timeout(BEAT);
            }
        });
        let thread = Some(thread.context("starting a thread")?);
        let metronome = Self { over, thread };
        told.recv().context("a thread ended early")?.context("scheduling a thread")?;
        Ok(metronome)
    }
}

impl Drop for Metronome {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It cannot panic, and if it did there is nothing to do about it.
            let _ended = thread.join();
        }
    }
}
