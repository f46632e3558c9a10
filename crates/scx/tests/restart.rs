//! Threads that are flagged at a loader are flagged again at the next one.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue should stop")]

use core::cell::Cell;
use core::time::Duration;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{Pid, gettid};
use pronto_core::Tier;
use pronto_core::boost::Booster as _;
use pronto_expedite::scx::{Counters, FlaggedThreads, Prediction, PredictionTerms, Refused, Renewal};
use pronto_sched_policy::policy::weight::Weight;
use pronto_scx::{Flags, Server};

/// Number of flags and weights that were set, and the result of setting a flag.
struct Table {
    set: Cell<u64>,
    result: Result<(), Errno>,
}

impl Flags for Table {
    fn flag(&self, _: BorrowedFd<'_>, _: u32) -> Result<(), Errno> {
        self.set.set(self.set.get() + 1);
        self.result
    }

    fn unflag(&self, _: BorrowedFd<'_>) -> Result<(), Errno> {
        Ok(())
    }

    fn weigh(&self, _: BorrowedFd<'_>, _: Weight) -> Result<(), Errno> {
        self.set.set(self.set.get() + 1);
        Ok(())
    }

    fn predict(&self, _: u32, _: &PredictionTerms) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn forget(&self, _: u32) -> Result<(), Errno> {
        Err(Errno::ENOENT)
    }

    fn prediction(&self, _: u32) -> Result<Prediction, Errno> {
        Err(Errno::ENOENT)
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("pronto-scx-restart-{name}-{}.sock", std::process::id()))
}

/// Waits until the kernel has ended a thread that was joined.
fn until_it_has_ended(tid: Pid) {
    let thread = PathBuf::from(format!("/proc/self/task/{tid}"));
    while thread.exists() {
        std::thread::yield_now();
    }
}

/// Serves at `path`, with this result for each thread, while `use_it` runs. Returns its result, and the number of threads that were
/// flagged. The server has ended then.
fn served<T: Send>(path: &Path, result: Result<(), Errno>, use_it: impl FnOnce() -> T + Send) -> (T, u64) {
    let table = Table { set: Cell::new(0), result };
    let mut server = Server::listen(path, None).unwrap();
    let result = std::thread::scope(|scope| {
        let user = scope.spawn(|| (use_it(), gettid()));
        while !user.is_finished() {
            server.turn(Duration::from_millis(1), &table).unwrap();
        }
        let (result, tid) = user.join().unwrap();
        until_it_has_ended(tid);
        result
    });
    (result, table.set.get())
}

/// Shows: operations.scx-restart
#[test]
fn threads_are_flagged_again_at_the_next_loader() {
    let path = path("again");
    let (threads, flagged) = served(&path, Ok(()), || {
        let threads = FlaggedThreads::connect_to(&path);
        threads.adopt().unwrap();
        // A thread that ends is forgotten.
        let adopt = || {
            threads.adopt().unwrap();
            gettid()
        };
        until_it_has_ended(std::thread::scope(|scope| scope.spawn(adopt).join().unwrap()));
        assert_eq!((threads.check(), threads.tier(), threads.renew()), (Ok(()), Tier::Scx, Renewal::Kept));
        threads
    });
    assert_eq!(flagged, 2);
    assert_eq!((threads.check(), threads.tier()), (Err(Refused::Ended), Tier::None));
    assert_eq!(threads.renew(), Renewal::Missing(Refused::Ended), "no loader runs");
    // This thread has a flag only at the next loader.
    threads.adopt().unwrap();
    let (renewal, flagged) = served(&path, Ok(()), || threads.renew());
    assert_eq!((renewal, flagged), (Renewal::Renewed { refused: 0, why: None }, 1));
}

#[test]
fn a_loader_that_starts_later_is_used() {
    if !Path::new(pronto_expedite::scx::KERNEL).exists() {
        // The reason for no loader is another one, and is as final as the kernel.
        let threads = FlaggedThreads::connect_to(&path("none"));
        assert_eq!(threads.check(), Err(Refused::NoSchedExt));
    }
    let path = path("later");
    let threads = FlaggedThreads::connect_to(&path);
    threads.adopt().unwrap();
    let (renewal, flagged) = served(&path, Ok(()), || threads.renew());
    assert_eq!((renewal, flagged), (Renewal::Renewed { refused: 0, why: None }, 1));
}

#[test]
fn threads_that_the_next_loader_refuses_are_counted() {
    let path = path("refused");
    let threads = FlaggedThreads::connect_to(&path);
    threads.adopt().unwrap();
    let (renewal, flagged) = served(&path, Err(Errno::ENOSPC), || threads.renew());
    assert_eq!((renewal, flagged), (Renewal::Renewed { refused: 1, why: Some(Refused::Full) }, 1));
    assert_eq!(threads.renew(), Renewal::Missing(Refused::Ended));
}

#[test]
fn a_loader_that_does_not_reply_is_not_waited_for() {
    let path = path("silent");
    let threads = FlaggedThreads::connect_to(&path);
    threads.adopt().unwrap();
    // It listens, and serves nothing.
    let server = Server::listen(&path, None).unwrap();
    assert_eq!(threads.renew(), Renewal::Missing(Refused::Silent));
    assert_eq!(threads.check(), Err(Refused::Silent));
    drop(server);
}
