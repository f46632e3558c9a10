//! Threads of this process, as the kernel reports them: how often each has gone to sleep, and whether it sleeps now.
#![expect(dead_code, reason = "no test needs all of it")]

use core::time::Duration;
use std::fs;
use std::time::Instant;

use pronto::{Builder, Message, Peer};

/// Longest wait of a test for a state of a thread.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time for which a thread must have slept to count as quiet: several ticks of a serving thread with an open call.
const QUIET: Duration = Duration::from_millis(15);

/// A thread of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thread(pub(crate) u64);

impl Thread {
    /// Returns the calling thread.
    pub(crate) fn current() -> Self {
        Self(u64::from(nix::unistd::gettid().as_raw().unsigned_abs()))
    }

    /// Returns the serving thread of the node whose handle this is, and which was built with [`report_thread`].
    pub(crate) fn serving(peer: &Peer) -> Self {
        let reports = peer.call(&Which {}).expect("a reply");
        assert_eq!(reports.name, "pronto-serve", "no caller may run the inline handler");
        Self(reports.thread)
    }

    /// Returns the number of sleeps of a thread that sleeps now. If it is the same later, the thread has slept all the time.
    pub(crate) fn sleeps_now(self) -> Option<u64> {
        let (count, sleeps) = self.state();
        sleeps.then_some(count)
    }

    /// Returns how often the thread has gone to sleep.
    pub(crate) fn sleeps(self) -> u64 {
        self.state().0
    }

    /// Waits until the thread has gone to sleep after its count was `before`, and sleeps.
    pub(crate) fn wait_for_sleep(self, before: u64) {
        wait_until("the thread sleeps", || matches!(self.state(), (count, true) if count > before));
    }

    /// Waits until the thread has slept without a break for longer than the interval of ticks with an open call.
    pub(crate) fn wait_until_quiet(self) {
        wait_until("the thread sleeps for long", || {
            let before = self.state();
            std::thread::park_timeout(QUIET);
            before.1 && self.state() == before
        });
    }

    /// Returns the number of sleeps, and whether the thread sleeps now.
    fn state(self) -> (u64, bool) {
        let status = self.read("status").expect("the thread runs");
        let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).expect("a field").trim();
        let count = field("voluntary_ctxt_switches:").parse().expect("a number");
        (count, field("State:").starts_with('S'))
    }

    fn read(self, file: &str) -> Option<String> {
        fs::read_to_string(format!("/proc/self/task/{}/{file}", self.0)).ok()
    }
}

#[derive(Message, Debug)]
#[message(name = "threads.here")]
struct Here {
    thread: u64,
    name: String,
}

/// A request for the thread that runs inline handlers.
#[derive(Message, Debug)]
#[message(name = "threads.which", reply = Here)]
struct Which {}

/// Lets peers of a node ask for its serving thread.
pub(crate) fn report_thread(builder: Builder) -> Builder {
    builder.handle_inline(|_, _: Which| {
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        Here { thread: Thread::current().0, name }
    })
}

#[expect(clippy::disallowed_methods, reason = "the wait is bounded")]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "timed out waiting until {what}");
        std::thread::park_timeout(Duration::from_micros(100));
    }
}
