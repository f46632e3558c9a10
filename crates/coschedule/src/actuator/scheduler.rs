//! Weights of processes in the BPF scheduler (`kernel/scx`), through its loader.
//!
//! The scheduler forgets them when a process ends, when this connection does, and when the loader does. So there is nothing to restore
//! after a crash, and no entry in the journal.

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use pronto_expedite::process::thread_descriptor;
use pronto_expedite::scx::{Prediction, PredictionTerms, Refused, SOCKET, Scheduler};
use pronto_sched_policy::policy::weight::Weight;

use super::{ActuateError, Restored};
use crate::process::Identity;

#[derive(Debug)]
pub(super) struct SchedulerWeights {
    loader: PathBuf,
    connection: Scheduler,
    /// The sources of weights other than the ordinary one, also those that wait for a loader.
    sources: BTreeMap<Identity, Source>,
}

/// The source of the weight of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// This process.
    Given(Weight),
    /// Its queues, which the scheduler reads.
    Queues(PredictionTerms),
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
        Ok(Self { loader: loader.into(), connection, sources: BTreeMap::new() })
    }

    /// Gives a process its weight; if the loader has ended or does not reply, when one does.
    pub(super) fn set(&mut self, process: Identity, weight: Weight) -> Result<bool, ActuateError> {
        if self.weight(process) == weight {
            return Ok(false);
        }
        self.send_or_keep(process, Source::Given(weight))?;
        if weight == Weight::ORDINARY {
            self.sources.remove(&process);
        }
        Ok(true)
    }

    /// Lets the weight of a process follow its queues; if the loader has ended or does not reply, when one does.
    pub(super) fn predict(&mut self, process: Identity, terms: PredictionTerms) -> Result<(), ActuateError> {
        self.send_or_keep(process, Source::Queues(terms))
    }

    /// Returns what the scheduler has predicted for a process; `None` if it does not, or the process or the loader has ended.
    pub(super) fn prediction(&self, process: Identity) -> Option<Prediction> {
        let main_thread = thread_descriptor(process.id.cast_signed()).ok()?;
        self.connection.prediction(main_thread.as_fd()).ok()
    }

    /// Returns whether the loader has ended, or did not reply. [`Self::adopt`] connects again.
    pub(super) fn is_without_loader(&self) -> bool {
        self.connection.is_closed()
    }

    fn send_or_keep(&mut self, process: Identity, source: Source) -> Result<(), ActuateError> {
        match self.send(process, source) {
            // After any error of the connection, the next one gets all sources.
            Err(refused) if !is_later(refused) && !self.is_without_loader() => return Err(refused.into()),
            _ => {}
        }
        self.sources.insert(process, source);
        Ok(())
    }

    /// Removes the weights of processes that do not belong to a group any more, and forgets those that have ended. Connects again if the
    /// loader has ended or did not reply, and gives the processes their weights again. One that is refused is forgotten; returns the first
    /// reason.
    pub(super) fn adopt(&mut self, processes: &BTreeMap<Identity, u32>) -> Result<(), ActuateError> {
        let gone: Vec<_> =
            self.sources.keys().filter(|process| !processes.contains_key(process)).copied().collect();
        for process in gone {
            self.sources.remove(&process);
            // The loader has ended, or removes it with the connection.
            let _ended = self.send(process, Source::Given(Weight::ORDINARY));
        }
        if !self.is_without_loader() {
            return Ok(());
        }
        let again = Self::connect_to(&self.loader);
        let connection = again.map_err(|error| match error {
            ActuateError::Scheduler(Refused::NotRunning) => Refused::Ended.into(),
            error => error,
        })?;
        self.connection = connection.connection;
        let mut result = Ok(());
        for (process, source) in core::mem::take(&mut self.sources) {
            match self.send(process, source) {
                Err(refused) if !is_later(refused) => result = result.and_then(|()| Err(refused.into())),
                _ => drop(self.sources.insert(process, source)),
            }
        }
        result
    }

    /// Returns the weight that a process was given. Its children do not inherit it.
    pub(super) fn weight(&self, process: Identity) -> Weight {
        match self.sources.get(&process) {
            Some(Source::Given(weight)) => *weight,
            Some(Source::Queues(_)) | None => Weight::ORDINARY,
        }
    }

    /// Removes all weights.
    pub(super) fn restore(&mut self) -> Restored {
        let mut result = Restored::default();
        for process in core::mem::take(&mut self.sources).into_keys() {
            match self.send(process, Source::Given(Weight::ORDINARY)) {
                Ok(()) if process.exists() => result.restored += 1,
                // With the loader, its scheduler and all weights have ended.
                Ok(()) | Err(Refused::Ended) => result.gone += 1,
                Err(_) => result.left += 1,
            }
        }
        result
    }

    /// Sends the source of a weight to the loader. A process that has ended meanwhile is no error.
    fn send(&self, process: Identity, source: Source) -> Result<(), Refused> {
        let main_thread = match thread_descriptor(process.id.cast_signed()) {
            Ok(main_thread) => main_thread,
            Err(Errno::ESRCH) => return Ok(()),
            Err(errno) => return Err(Refused::System(errno)),
        };
        // If the process still exists, no other one had its number when the descriptor was made.
        if !process.exists() {
            return Ok(());
        }
        let sent = match source {
            Source::Given(weight) => self.connection.weigh(main_thread.as_fd(), Self::hundredths(weight)),
            Source::Queues(terms) => self.connection.predict(main_thread.as_fd(), terms),
        };
        match sent {
            Err(Refused::System(Errno::ESRCH | Errno::ENOENT)) => Ok(()),
            result => result,
        }
    }

    fn hundredths(weight: Weight) -> u16 {
        u16::try_from(weight.as_hundredths()).unwrap_or(u16::MAX)
    }
}

/// Returns whether a refusal is one of the connection, after which the next one gets all sources.
fn is_later(refused: Refused) -> bool {
    matches!(refused, Refused::Ended | Refused::Silent)
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

    /// Weights by process, instead of those of the kernel; and predictions.
    #[derive(Debug, Default)]
    struct Table(RefCell<BTreeMap<i32, Weight>>, RefCell<BTreeMap<u32, PredictionTerms>>);

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

        fn predict(&self, pid: u32, terms: &PredictionTerms) -> Result<(), Errno> {
            self.1.borrow_mut().insert(pid, *terms);
            Ok(())
        }

        fn forget(&self, pid: u32) -> Result<(), Errno> {
            self.1.borrow_mut().remove(&pid).map(drop).ok_or(Errno::ENOENT)
        }

        fn prediction(&self, pid: u32) -> Result<Prediction, Errno> {
            let terms = *self.1.borrow().get(&pid).ok_or(Errno::ENOENT)?;
            let mut values = [0; Prediction::NUMBER];
            values[2] = terms.most.as_hundredths().into();
            Ok(Prediction::from_values(values))
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

    /// Shows: operations.coschedule-scx-silent
    #[test]
    fn weights_are_given_when_a_silent_loader_replies_again() {
        if !nix::unistd::geteuid().is_root() {
            return pronto_skip::because("needs root");
        }
        let (loader, sleeper) = (loader("silent"), Sleeper::start());
        let (process, double) = (sleeper.identity(), Weight::hundredths(200));
        let (table, mut server) = (Table::default(), Server::listen(&loader, None).unwrap());
        let mut turn = || server.turn(Duration::from_millis(1), &table).unwrap();
        let mut weights = std::thread::scope(|scope| {
            let user = scope.spawn(|| SchedulerWeights::connect_to(&loader).unwrap());
            while !user.is_finished() {
                turn();
            }
            user.join().unwrap()
        });
        // A loader that loads the scheduler again replies to nobody meanwhile.
        weights.connection.limit_replies(Duration::from_millis(20)).unwrap();
        assert!(weights.set(process, double).unwrap());
        assert!(weights.is_without_loader());
        assert_eq!(weights.weight(process), double);
        std::thread::scope(|scope| {
            let user = scope.spawn(|| weights.adopt(&BTreeMap::from([(process, 1)])).unwrap());
            while !user.is_finished() {
                turn();
            }
        });
        assert_eq!(table.0.take(), BTreeMap::from([(process.id.cast_signed(), double)]));
        assert!(!weights.is_without_loader());
    }

    #[test]
    fn predictions_go_on_at_the_next_loader_and_end() {
        let in_first = std::fs::read_link("/proc/self/ns/pid").unwrap() == Path::new("pid:[4026531836]");
        if !nix::unistd::geteuid().is_root() || !in_first {
            return pronto_skip::because("needs root in the first namespace of processes");
        }
        let (loader, sleeper) = (loader("predictions"), Sleeper::start());
        let process = sleeper.identity();
        let terms = PredictionTerms {
            past: pronto_sched_policy::policy::share::Share::HALF,
            most: Weight::hundredths(300),
            counts_sent: true,
            period: Duration::from_millis(10),
        };
        let predicted =
            |weights: &SchedulerWeights| weights.prediction(process).map(|prediction| prediction.weight);
        let (mut weights, _) = served(&loader, || {
            let mut weights = SchedulerWeights::connect_to(&loader).unwrap();
            weights.predict(process, terms).unwrap();
            assert_eq!(predicted(&weights), Some(300));
            weights
        });
        assert_eq!(predicted(&weights), None, "the loader has ended");
        let ((), _) = served(&loader, || {
            weights.adopt(&BTreeMap::from([(process, 1)])).unwrap();
            assert_eq!(predicted(&weights), Some(300));
            assert_eq!(weights.restore(), Restored { restored: 1, gone: 0, left: 0, refused: 0 });
            assert_eq!(predicted(&weights), None);
        });
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
            assert_eq!(weights.restore(), Restored { restored: 1, gone: 0, left: 0, refused: 0 });
        });
        assert!(after.is_empty(), "{after:?}");
    }
}
