//! Weights of processes in the BPF scheduler (`kernel/scx`), through its loader.
//!
//! The scheduler forgets them when a process ends, when this connection does, and when the loader does. So there is nothing to restore
//! after a crash, and no entry in the journal.

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use pronto_expedite::process::thread_descriptor;
use pronto_expedite::scx::{Refused, SOCKET, Scheduler};
use pronto_sched_policy::policy::weight::Weight;

use super::{ActuateError, Restored};
use crate::process::Identity;

#[derive(Debug)]
pub(super) struct SchedulerWeights {
    loader: PathBuf,
    connection: Scheduler,
    /// Weights other than the ordinary one, also those that wait for a loader.
    weights: BTreeMap<Identity, Weight>,
}

impl SchedulerWeights {
    /// Connects to the loader, and checks that it accepts weights from this process.
    pub(super) fn connect() -> Result<Self, ActuateError> {
        Self::connect_to(Path::new(SOCKET))
    }

    fn connect_to(loader: &Path) -> Result<Self, ActuateError> {
        let connection = Scheduler::connect_to(loader)?;
        let own = thread_descriptor(std::process::id().cast_signed()).map_err(Refused::System)?;
        // This connection has given it no weight, so nothing changes.
        connection.weigh(own.as_fd(), Self::hundredths(Weight::ORDINARY))?;
        Ok(Self { loader: loader.into(), connection, weights: BTreeMap::new() })
    }

    /// Gives a process its weight; if the loader has ended, when another one runs.
    pub(super) fn set(&mut self, process: Identity, weight: Weight) -> Result<bool, ActuateError> {
        if self.weight(process) == weight {
            return Ok(false);
        }
        match self.send(process, weight) {
            Ok(()) | Err(Refused::Ended) => {}
            Err(refused) => return Err(refused.into()),
        }
        if weight == Weight::ORDINARY {
            self.weights.remove(&process);
        } else {
            self.weights.insert(process, weight);
        }
        Ok(true)
    }

    /// Forgets processes that have ended. Connects again if the loader has ended, and gives the processes their weights again.
    pub(super) fn adopt(&mut self, processes: &BTreeMap<Identity, u32>) -> Result<(), ActuateError> {
        self.weights.retain(|process, _| processes.contains_key(process));
        if !self.connection.is_closed() {
            return Ok(());
        }
        let again = Self::connect_to(&self.loader);
        let connection = again.map_err(|error| match error {
            ActuateError::Scheduler(Refused::NotRunning) => Refused::Ended.into(),
            error => error,
        })?;
        self.connection = connection.connection;
        self.weights.iter().try_for_each(|(process, weight)| self.send(*process, *weight))?;
        Ok(())
    }

    /// Returns the weight of a process. Its children do not inherit it.
    pub(super) fn weight(&self, process: Identity) -> Weight {
        self.weights.get(&process).copied().unwrap_or(Weight::ORDINARY)
    }

    /// Removes all weights.
    pub(super) fn restore(&mut self) -> Restored {
        let mut result = Restored::default();
        for process in core::mem::take(&mut self.weights).into_keys() {
            match self.send(process, Weight::ORDINARY) {
                Ok(()) if process.exists() => result.restored += 1,
                // With the loader, its scheduler and all weights have ended.
                Ok(()) | Err(Refused::Ended) => result.gone += 1,
                Err(_) => result.left += 1,
            }
        }
        result
    }

    /// Sends a weight to the loader. A process that has ended meanwhile is no error.
    fn send(&self, process: Identity, weight: Weight) -> Result<(), Refused> {
        let main_thread = match thread_descriptor(process.id.cast_signed()) {
            Ok(main_thread) => main_thread,
            Err(Errno::ESRCH) => return Ok(()),
            Err(errno) => return Err(Refused::System(errno)),
        };
        // If the process still exists, no other one had its number when the descriptor was made.
        if !process.exists() {
            return Ok(());
        }
        match self.connection.weigh(main_thread.as_fd(), Self::hundredths(weight)) {
            Err(Refused::System(Errno::ESRCH | Errno::ENOENT)) => Ok(()),
            result => result,
        }
    }

    fn hundredths(weight: Weight) -> u16 {
        u16::try_from(weight.as_hundredths()).unwrap_or(u16::MAX)
    }
}

#[cfg(test)]
mod tests {
    use core::cell::RefCell;
    use core::time::Duration;
    use std::os::fd::{AsRawFd as _, BorrowedFd};
    use std::process::{Child, Command};

    use pronto_expedite::scx::Counters;
    use pronto_scx::{Flags, Server};

    use super::*;
    use crate::process::Stat;

    /// Weights by process, instead of those of the kernel.
    #[derive(Debug, Default)]
    struct Table(RefCell<BTreeMap<i32, Weight>>);

    impl Flags for Table {
        fn flag(&self, _: BorrowedFd<'_>, _: u32) -> Result<(), Errno> {
            Ok(())
        }

        fn unflag(&self, _: BorrowedFd<'_>) -> Result<(), Errno> {
            Ok(())
        }

        fn weigh(&self, main_thread: BorrowedFd<'_>, weight: Weight) -> Result<(), Errno> {
            let info =
                std::fs::read_to_string(format!("/proc/self/fdinfo/{}", main_thread.as_raw_fd())).unwrap();
            let pid =
                info.lines().find_map(|line| line.strip_prefix("Pid:")).unwrap().trim().parse().unwrap();
            if weight == Weight::ORDINARY {
                return self.0.borrow_mut().remove(&pid).map(drop).ok_or(Errno::ENOENT);
            }
            self.0.borrow_mut().insert(pid, weight);
            Ok(())
        }

        fn counters(&self) -> Counters {
            Counters::default()
        }
    }

    struct Sleeper(Child);

    impl Sleeper {
        fn start() -> Self {
            Self(Command::new("sleep").arg("1000").spawn().unwrap())
        }

        fn identity(&self) -> Identity {
            Stat::of(self.0.id()).unwrap().identity
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    fn loader(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("pronto-coschedule-{name}-{}.sock", std::process::id()))
    }

    /// Serves while `use_it` runs in another thread. Returns its result, and the weights when it has ended.
    fn served<T: Send>(loader: &Path, use_it: impl FnOnce() -> T + Send) -> (T, BTreeMap<i32, Weight>) {
        let (table, mut server) = (Table::default(), Server::listen(loader, None).unwrap());
        std::thread::scope(|scope| {
            let user = scope.spawn(use_it);
            while !user.is_finished() {
                server.turn(Duration::from_millis(1), &table).unwrap();
            }
            (user.join().unwrap(), table.0.take())
        })
    }

    /// Shows: operations.coschedule-scx-again
    #[test]
    fn weights_are_given_again_to_the_next_loader() {
        if !nix::unistd::geteuid().is_root() {
            return pronto_skip::because("needs root");
        }
        let (loader, sleepers) = (loader("again"), [Sleeper::start(), Sleeper::start()]);
        let [first, second] = sleepers.each_ref().map(Sleeper::identity);
        let all = BTreeMap::from([(first, 1), (second, 1)]);
        let (double, triple) = (Weight::hundredths(200), Weight::hundredths(300));
        let (mut weights, after) = served(&loader, || {
            let mut weights = SchedulerWeights::connect_to(&loader).unwrap();
            assert!(weights.set(first, double).unwrap() && !weights.set(first, double).unwrap());
            assert_eq!((weights.weight(first), weights.weight(second)), (double, Weight::ORDINARY));
            weights
        });
        assert_eq!(after, BTreeMap::from([(first.id.cast_signed(), double)]));
        // Without a loader they wait for one.
        assert!(weights.set(second, triple).unwrap());
        let error = weights.adopt(&all).unwrap_err();
        assert!(matches!(error, ActuateError::Scheduler(Refused::Ended | Refused::NoSchedExt)), "{error}");
        let (weights, after) = served(&loader, || {
            weights.adopt(&all).unwrap();
            weights
        });
        let expected = [(first.id.cast_signed(), double), (second.id.cast_signed(), triple)];
        assert_eq!(after, BTreeMap::from(expected));
        drop(weights);
    }

    #[test]
    fn weights_are_removed_and_those_of_ended_processes_forgotten() {
        if !nix::unistd::geteuid().is_root() {
            return pronto_skip::because("needs root");
        }
        let (loader, stays, ends) = (loader("removed"), Sleeper::start(), Sleeper::start());
        let ((), after) = served(&loader, || {
            let mut weights = SchedulerWeights::connect_to(&loader).unwrap();
            let (stays, ended) = (stays.identity(), ends.identity());
            weights.set(stays, Weight::LIMIT).unwrap();
            drop(ends);
            // The number may belong to another process by now.
            weights.set(ended, Weight::LIMIT).unwrap();
            weights.adopt(&BTreeMap::from([(stays, 1)])).unwrap();
            assert_eq!((weights.weight(stays), weights.weight(ended)), (Weight::LIMIT, Weight::ORDINARY));
            assert_eq!(weights.restore(), Restored { restored: 1, gone: 0, left: 0 });
        });
        assert!(after.is_empty(), "{after:?}");
    }
}
