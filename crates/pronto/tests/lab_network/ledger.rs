//! The ledger of the fault tests, whose calls of every kind are compared with what the server executed.

#[path = "../faults/ledger/books.rs"]
mod books;
#[path = "../faults/ledger/caller.rs"]
mod caller;
#[path = "../faults/ledger/server.rs"]
mod server;

use core::time::Duration;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use nix::sys::memfd::{MFdFlags, memfd_create};
use pronto::{Builder, Peer};
use pronto_sync::atomic::Ordering;

use self::books::{Line, Totals, compare};
use self::caller::{Caller, LONGEST_CALL, Progress, Random};
use crate::rig::Watch;

pub(crate) use self::books::{RECORD, append, id};
pub(crate) use self::caller::Mix;
pub(crate) use self::server::fill;

const THREADS: usize = 3;
/// Pause of a thread after a call that was refused. Its refusals must not take the CPUs from the nodes, which are emulated.
pub(crate) const AFTER_REFUSAL: Duration = Duration::from_millis(20);

/// A file in memory to which a server appends records, and which outlives it.
pub(crate) struct Log(File);

impl Log {
    pub(crate) fn new() -> Self {
        Self(File::from(memfd_create("pronto-network", MFdFlags::MFD_CLOEXEC).unwrap()))
    }

    /// Returns a path of the file for [`Log::open`] in another process.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    pub(crate) fn open(path: &str) -> File {
        OpenOptions::new().append(true).open(path).unwrap()
    }

    /// Returns the ids of all records.
    pub(crate) fn ids(&self) -> Vec<u64> {
        let bytes = std::fs::read(self.path()).unwrap();
        assert_eq!(bytes.len() % RECORD, 0, "the log ends with an incomplete record");
        let id = |record: &[u8]| u64::from_le_bytes(record[..8].try_into().unwrap());
        bytes.chunks_exact(RECORD).map(id).collect()
    }
}

/// Threads that make calls.
pub(crate) struct Ledger {
    callers: Vec<Arc<Progress>>,
    lines: Receiver<(usize, Vec<Line>)>,
}

impl Ledger {
    pub(crate) fn start(peer: &Peer, mix: Mix) -> Self {
        let clock = Arc::new(Watch::start());
        let (send, lines) = channel();
        let start = |thread: usize| {
            let progress = Arc::<Progress>::default();
            let random = Random(thread as u64);
            let caller = Caller::new(thread, peer, mix, random, &clock, &progress, AFTER_REFUSAL);
            let send = send.clone();
            // Not scoped: a hanging thread must not prevent the test from failing.
            std::thread::spawn(move || {
                let _driver_failed = send.send((thread, caller.run()));
            });
            progress
        };
        Self { callers: (0..THREADS).map(start).collect(), lines }
    }

    pub(crate) fn replies(&self) -> u64 {
        self.callers.iter().map(|caller| caller.replies.load(Ordering::Relaxed)).sum()
    }

    /// Stops the callers, and returns their lines.
    ///
    /// # Panics
    /// If a caller hangs or has panicked, or a call has not ended exactly once.
    pub(crate) fn stop(&self) -> Vec<Vec<Line>> {
        self.callers.iter().for_each(|caller| caller.stop.store(true, Ordering::Relaxed));
        let mut books = vec![Vec::new(); THREADS];
        for _ in 0..THREADS {
            let received = self.lines.recv_timeout(LONGEST_CALL);
            let (thread, lines) = received.unwrap_or_else(|error| panic!("{error}: {:?}", self.callers));
            let [begun, ended] = [&self.callers[thread].begun, &self.callers[thread].ended]
                .map(|count| count.load(Ordering::Relaxed));
            assert_eq!((begun, ended), (lines.len() as u64, lines.len() as u64), "each call must end once");
            books[thread] = lines;
        }
        books
    }
}

impl Drop for Ledger {
    /// After a failure, the calls must not disturb the next story.
    fn drop(&mut self) {
        self.callers.iter().for_each(|caller| caller.stop.store(true, Ordering::Relaxed));
    }
}

/// Compares the ends of the calls with the log of a server that has ended. Returns the calls by their ends, and how many ended because
/// the peer was down.
pub(crate) fn assert_equals_log(books: &[Vec<Line>], log: &mut Log) -> (Totals, usize) {
    let (totals, mismatches) = compare(books, &mut log.0);
    mismatches.iter().take(20).for_each(|mismatch| eprintln!("network: mismatch: {mismatch}"));
    assert_eq!(mismatches.len(), 0, "some outcomes do not match the log");
    (totals, books.iter().flatten().filter(|line| line.end == "peer down").count())
}

/// Adds the ledger's handlers to a node.
pub(crate) fn handled(node: Builder, log: &str) -> Builder {
    server::handlers(node, Log::open(log))
}
