//! The server with tables instead of a scheduler.

use core::cell::RefCell;
use std::collections::BTreeMap;

use nix::unistd::gettid;
use pronto_expedite::process::thread_descriptor;
use pronto_expedite::scx::Refused;

use super::*;

/// Flags and weights in tables, by the numbers of the threads; and predictions.
#[derive(Debug, Default)]
struct Table(
    RefCell<BTreeMap<i32, u32>>,
    RefCell<BTreeMap<i32, Weight>>,
    RefCell<BTreeMap<u32, PredictionTerms>>,
);

impl Table {
    fn is_empty(&self) -> bool {
        self.0.borrow().is_empty() && self.1.borrow().is_empty() && self.2.borrow().is_empty()
    }
}

impl Flags for Table {
    fn flag(&self, thread: BorrowedFd<'_>, payer: u32) -> Result<(), Errno> {
        self.0.borrow_mut().insert(number_of(thread)?, payer);
        Ok(())
    }

    fn unflag(&self, thread: BorrowedFd<'_>) -> Result<(), Errno> {
        self.0.borrow_mut().remove(&number_of(thread)?).map(drop).ok_or(Errno::ENOENT)
    }

    fn weigh(&self, main_thread: BorrowedFd<'_>, weight: Weight) -> Result<(), Errno> {
        let pid = number_of(main_thread)?;
        if weight == Weight::ORDINARY {
            return self.1.borrow_mut().remove(&pid).map(drop).ok_or(Errno::ENOENT);
        }
        self.1.borrow_mut().insert(pid, weight);
        Ok(())
    }

    fn predict(&self, pid: u32, terms: &PredictionTerms) -> Result<(), Errno> {
        self.2.borrow_mut().insert(pid, *terms);
        Ok(())
    }

    fn forget(&self, pid: u32) -> Result<(), Errno> {
        self.2.borrow_mut().remove(&pid).map(drop).ok_or(Errno::ENOENT)
    }

    fn prediction(&self, pid: u32) -> Result<Prediction, Errno> {
        let terms = *self.2.borrow().get(&pid).ok_or(Errno::ENOENT)?;
        let mut values = [0; Prediction::NUMBER];
        values[2] = terms.most.as_hundredths().into();
        Ok(Prediction::from_values(values))
    }

    fn counters(&self) -> Counters {
        let mut values = [0; Counters::NUMBER];
        values[0] = u64::try_from(self.0.borrow().len()).unwrap();
        values[1] = self.1.borrow().values().map(|weight| u64::from(weight.as_hundredths())).sum();
        Counters::from_values(values)
    }
}

/// Serves while `use_it` runs in another thread. Returns its result, and the tables after all connections have ended.
fn with_server<T: Send>(name: &str, use_it: impl FnOnce(&Path) -> T + Send) -> (T, Table) {
    let path = std::env::temp_dir().join(format!("pronto-scx-{name}-{}.sock", std::process::id()));
    let (table, mut server) = (Table::default(), Server::listen(&path, None).unwrap());
    let result = std::thread::scope(|scope| {
        let user = scope.spawn(|| use_it(&path));
        while !user.is_finished() || !server.clients.is_empty() {
            server.turn(Duration::from_millis(1), &table).unwrap();
        }
        user.join().unwrap()
    });
    drop(server);
    assert!(!path.exists(), "the socket outlives the server");
    (result, table)
}

/// Shows: operations.scx-flags
#[test]
fn flags_end_with_their_connection() {
    // The thread that serves, which outlives the connections.
    let tid = gettid().as_raw();
    let ((), after) = with_server("ends", |path| {
        let scheduler = Scheduler::connect_to(path).unwrap();
        scheduler.flag(tid).unwrap();
        scheduler.flag(tid).unwrap();
        assert_eq!(scheduler.counters().unwrap().boosts, 1, "one flag for one thread");
        let other = Scheduler::connect_to(path).unwrap();
        assert_eq!(other.unflag(tid), Err(Refused::System(Errno::ENOENT)));
        scheduler.unflag(tid).unwrap();
        assert_eq!(scheduler.counters().unwrap().boosts, 0);
        scheduler.flag(tid).unwrap();
    });
    assert!(after.is_empty(), "{after:?}");
}

/// A turn serves a bounded number of requests of a connection, which then goes on.
#[test]
fn a_connection_with_many_requests_stays() {
    let (count, _) = with_server("many", |path| {
        let scheduler = Scheduler::connect_to(path).unwrap();
        scheduler.flag_this_thread().unwrap();
        (0..100 * REQUESTS)
            .filter(|_| scheduler.counters().is_ok_and(|counters| counters.boosts == 1))
            .count()
    });
    assert_eq!(count, 100 * REQUESTS);
}

#[test]
fn weights_are_bounded_and_end_with_their_connection() {
    let process = thread_descriptor(getpid().as_raw()).unwrap();
    let weigh = |scheduler: &Scheduler, hundredths| scheduler.weigh(process.as_fd(), hundredths);
    let sum = |scheduler: &Scheduler| scheduler.counters().unwrap().idle;
    if !nix::unistd::geteuid().is_root() {
        let ((), _) = with_server("weights-of-users", |path| {
            assert_eq!(weigh(&Scheduler::connect_to(path).unwrap(), 200), Err(Refused::NotRoot));
        });
        return pronto_skip::because("needs root");
    }
    let ((), _) = with_server("weights", |path| {
        let first = Scheduler::connect_to(path).unwrap();
        weigh(&first, 200).unwrap();
        weigh(&first, 400).unwrap();
        assert_eq!(sum(&first), 400, "the last one counts");
        for out_of_bounds in [0, 99, 1_001, u16::MAX] {
            assert_eq!(weigh(&first, out_of_bounds), Err(Refused::System(Errno::ERANGE)));
        }
        let second = Scheduler::connect_to(path).unwrap();
        weigh(&second, 100).unwrap();
        assert_eq!(weigh(&second, 200), Err(Refused::Busy));
        assert_eq!(sum(&second), 400, "the weight of another connection stays");
        drop(first);
        while sum(&second) > 0 {}
        weigh(&second, 300).unwrap();
        weigh(&second, 100).unwrap();
        assert_eq!(sum(&second), 0);
    });
}

#[test]
fn predictions_replace_weights_and_end_with_their_connection() {
    let process = thread_descriptor(getpid().as_raw()).unwrap();
    let terms = |period| PredictionTerms {
        past: pronto_sched_policy::policy::share::Share::HALF,
        most: Weight::hundredths(400),
        counts_sent: true,
        period: Duration::from_micros(period),
    };
    let sum = |scheduler: &Scheduler| scheduler.counters().unwrap().idle;
    let predicted = |scheduler: &Scheduler| scheduler.prediction(process.as_fd()).map(|found| found.weight);
    if !nix::unistd::geteuid().is_root() {
        let ((), _) = with_server("predictions-of-users", |path| {
            let refused = Scheduler::connect_to(path).unwrap().predict(process.as_fd(), terms(10_000));
            assert_eq!(refused, Err(Refused::NotRoot));
        });
        return pronto_skip::because("needs root");
    }
    if fs::read_link("/proc/self/ns/pid").unwrap() != Path::new(FIRST_NAMESPACE) {
        let ((), _) = with_server("predictions-elsewhere", |path| {
            let refused = Scheduler::connect_to(path).unwrap().predict(process.as_fd(), terms(10_000));
            assert_eq!(refused, Err(Refused::OtherNamespace));
        });
        return pronto_skip::because("this is not the first namespace of processes");
    }
    let none = Err(Refused::System(Errno::ENOENT));
    let ((), after) = with_server("predictions", |path| {
        let first = Scheduler::connect_to(path).unwrap();
        for out_of_bounds in [0, 999, 10_000_001] {
            let refused = first.predict(process.as_fd(), terms(out_of_bounds));
            assert_eq!(refused, Err(Refused::System(Errno::ERANGE)));
        }
        assert_eq!(predicted(&first), none);
        first.weigh(process.as_fd(), 200).unwrap();
        first.predict(process.as_fd(), terms(10_000)).unwrap();
        assert_eq!((predicted(&first), sum(&first)), (Ok(400), 0), "the weight of before has ended");
        let second = Scheduler::connect_to(path).unwrap();
        assert_eq!(predicted(&second), none, "that of another connection");
        assert_eq!(second.predict(process.as_fd(), terms(10_000)), Err(Refused::Busy));
        first.weigh(process.as_fd(), 300).unwrap();
        assert_eq!((predicted(&first), sum(&first)), (none, 300));
        first.predict(process.as_fd(), terms(1_000)).unwrap();
        first.weigh(process.as_fd(), 100).unwrap();
        assert_eq!((predicted(&first), sum(&first)), (none, 0));
        first.predict(process.as_fd(), terms(10_000_000)).unwrap();
        drop(first);
        // The loader learns of it in its next turn.
        while second.predict(process.as_fd(), terms(10_000)) == Err(Refused::Busy) {}
        assert_eq!(predicted(&second), Ok(400));
    });
    assert!(after.is_empty(), "{after:?}");
}

#[test]
fn another_process_with_the_number_of_an_ended_one_is_left_alone() {
    let ended = std::process::Command::new("true").spawn().unwrap();
    let main_thread = thread_descriptor(ended.id().cast_signed()).unwrap();
    let pid = ended.id().cast_signed();
    drop(ended.wait_with_output());
    let table = Table::default();
    // The prediction of the process that has the number now.
    let terms = PredictionTerms {
        past: pronto_sched_policy::policy::share::Share::HALF,
        most: Weight::LIMIT,
        counts_sent: true,
        period: Duration::from_millis(10),
    };
    table.2.borrow_mut().insert(pid.cast_unsigned(), terms);
    let weighed = Weighed { client: 0, pid, source: Source::Queues(terms), main_thread };
    assert_eq!(weighed.begin(&table), Err(Errno::ESRCH));
    let _none = weighed.end(&table);
    assert_eq!(table.2.borrow().len(), 1);
}

#[test]
fn the_owner_of_a_thread_pays() {
    let (table, path) =
        (Table::default(), std::env::temp_dir().join(format!("pronto-scx-pays-{}", std::process::id())));
    let mut server = Server::listen(&path, None).unwrap();
    std::thread::scope(|scope| {
        let user = scope.spawn(|| {
            let scheduler = Scheduler::connect_to(&path).unwrap();
            scheduler.flag_this_thread().unwrap();
            (scheduler, gettid().as_raw())
        });
        while !user.is_finished() {
            server.turn(Duration::from_millis(1), &table).unwrap();
        }
        let (_scheduler, tid) = user.join().unwrap();
        assert_eq!(table.0.borrow()[&tid], nix::unistd::getuid().as_raw());
        assert_eq!(server.threads(), 1);
    });
}

#[test]
fn other_files_are_no_threads() {
    let file = fs::File::open("/proc/self/status").unwrap();
    assert_eq!(number_of(file.as_fd()), Err(Errno::EINVAL));
}

#[test]
fn the_socket_of_another_program_is_not_replaced() {
    let path = std::env::temp_dir().join(format!("pronto-scx-other-{}", std::process::id()));
    let _other = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let errno = Errno::EPROTOTYPE;
    assert_eq!(Server::listen(&path, None).unwrap_err(), ListenError::System { path: path.clone(), errno });
    std::os::unix::net::UnixStream::connect(&path).unwrap();
    fs::remove_file(path).unwrap();
}

/// A scheduler without memory for flags.
struct Exhausted(Table);

impl Flags for Exhausted {
    fn flag(&self, _: BorrowedFd<'_>, _: u32) -> Result<(), Errno> {
        Err(Errno::ENOMEM)
    }

    fn unflag(&self, thread: BorrowedFd<'_>) -> Result<(), Errno> {
        self.0.unflag(thread)
    }

    fn weigh(&self, main_thread: BorrowedFd<'_>, weight: Weight) -> Result<(), Errno> {
        self.0.weigh(main_thread, weight)
    }

    fn predict(&self, pid: u32, terms: &PredictionTerms) -> Result<(), Errno> {
        self.0.predict(pid, terms)
    }

    fn forget(&self, pid: u32) -> Result<(), Errno> {
        self.0.forget(pid)
    }

    fn prediction(&self, pid: u32) -> Result<Prediction, Errno> {
        self.0.prediction(pid)
    }

    fn counters(&self) -> Counters {
        self.0.counters()
    }
}

#[test]
fn a_client_whose_flag_is_lost_in_a_new_start_learns_of_it() {
    let path = std::env::temp_dir().join(format!("pronto-scx-lost-{}", std::process::id()));
    let (table, mut server) = (Table::default(), Server::listen(&path, None).unwrap());
    let tid = gettid().as_raw();
    let scheduler = std::thread::scope(|scope| {
        let user = scope.spawn(|| {
            let scheduler = Scheduler::connect_to(&path).unwrap();
            scheduler.flag(tid).unwrap();
            scheduler
        });
        while !user.is_finished() {
            server.turn(Duration::from_millis(1), &table).unwrap();
        }
        user.join().unwrap()
    });
    server.flag_again(&table);
    assert!(!scheduler.is_closed() && server.threads() == 1);
    server.flag_again(&Exhausted(table));
    assert!(scheduler.is_closed() && server.threads() == 0, "it connects again, and flags all threads");
}

#[test]
fn a_second_server_is_refused() {
    let path = std::env::temp_dir().join(format!("pronto-scx-second-{}", std::process::id()));
    let _server = Server::listen(&path, None).unwrap();
    assert_eq!(Server::listen(&path, None).unwrap_err(), ListenError::Occupied(path));
}
