//! The run cycle of tasks: they start, move from node to node, and end.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use pronto::NodeId;
use pronto_sync::atomic::{AtomicU32, Ordering};

use super::addresses::{ORIGIN, PROCESS};
use super::{Event, Os, OsError, lock};
use crate::account::Cause;
use crate::messages::{
    ExitOrigin, ExitRemote, Migrate, MigrateBack, Pairing, Path, Registers, Signal, Stamp, TaskId,
};
use crate::network::RESPONSE_LIMIT;

/// Memory map of a process: twelve numbers that travel with its tasks.
pub(crate) type MemoryMap = [u64; 12];

/// Program of the tasks. It runs one step, until the task moves or ends.
pub(crate) type Program = fn(&Arc<Os>, TaskId, &MemoryMap, Registers) -> Result<Step, OsError>;

/// Reason why a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The task continues on another node.
    Move(Registers),
    /// The task ended with this exit code.
    End(i32),
}

/// The tasks that this node knows.
#[derive(Debug)]
pub(super) struct Tasks {
    program: Program,
    /// At the origin: channels to the threads that wait for tasks on other nodes.
    away: Mutex<HashMap<TaskId, Sender<Step>>>,
    /// Pending signals of tasks that run here, one bit each.
    signals: Mutex<HashMap<TaskId, u32>>,
    next_remote: AtomicU32,
}

impl Tasks {
    pub(super) fn new(program: Program) -> Self {
        Self { program, away: Mutex::default(), signals: Mutex::default(), next_remote: AtomicU32::new(1) }
    }
}

/// A process, at its origin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    /// Human-readable name of the program.
    pub(crate) name: &'static str,
    /// Memory map of the process.
    pub(crate) memory_map: MemoryMap,
    /// Number of tasks.
    pub(crate) tasks: u32,
}

impl Process {
    /// Runs all tasks from start to end. Task `n` starts on node `n` and moves to the next node whenever its program
    /// returns [`Step::Move`].
    pub(crate) fn run(self, os: &Arc<Os>) -> Result<(), OsError> {
        let threads: Vec<_> = (1..=self.tasks)
            .map(TaskId)
            .map(|task| {
                let os = Arc::clone(os);
                let run = move || self.run_task(&os, task);
                let thread = std::thread::Builder::new().name(format!("task-{task}"));
                thread.spawn(run).map_err(|source| OsError::Thread { task, source })
            })
            .collect::<Result<_, _>>()?;
        for (task, thread) in (1..).map(TaskId).zip(threads) {
            thread.join().unwrap_or(Err(OsError::TaskFailed { task, code: PANICKED }))?;
        }
        Ok(())
    }

    /// Runs one task. It runs its steps here; while the task is away, this thread waits for it, as in DEX.
    fn run_task(&self, os: &Arc<Os>, task: TaskId) -> Result<(), OsError> {
        let mut registers = Registers::default();
        for hop in 0.. {
            let node = self.place(task, hop, os.network.nodes());
            let step = if node == ORIGIN {
                (os.tasks.program)(os, task, &self.memory_map, registers)
            } else {
                self.migrate_to(os, task, hop, node, registers)
            };
            match step {
                Ok(Step::Move(next)) => registers = next,
                Ok(Step::End(0)) => return Ok(()),
                Ok(Step::End(code)) => return Err(self.abort(os, OsError::TaskFailed { task, code })),
                Err(error) => return Err(self.abort(os, error)),
            }
        }
        Ok(())
    }

    fn migrate_to(
        &self,
        os: &Arc<Os>,
        task: TaskId,
        hop: u32,
        node: NodeId,
        registers: Registers,
    ) -> Result<Step, OsError> {
        let returned = os.expect_back(task);
        os.causes.count(Cause::HandedOver);
        let (process, memory_map, program) = (PROCESS, self.memory_map, Path::new(self.name));
        os.network.call(
            node,
            Migrate { stamp: Stamp::default(), process, task, hop, memory_map, program, registers },
        )?;
        returned.recv_timeout(RESPONSE_LIMIT).map_err(|_| OsError::TaskLate { task })
    }

    /// Ends the process because of one task: kills the other tasks, wherever they run.
    fn abort(&self, os: &Arc<Os>, error: OsError) -> OsError {
        for task in (1..=self.tasks).map(TaskId) {
            os.raise(task, SIGKILL);
        }
        error
    }

    /// Notifies the other nodes that the process has ended.
    pub(crate) fn end_process(self, os: &Arc<Os>) -> Result<(), OsError> {
        for peer in os.network.peers() {
            os.causes.count(Cause::ProcessEnded);
            let tasks = self.tasks;
            os.network
                .notify(peer, ExitOrigin { stamp: Stamp::default(), process: PROCESS, tasks, code: 0 })?;
        }
        os.process_ended()
    }

    fn place(&self, task: TaskId, hop: u32, nodes: u16) -> NodeId {
        let turn = (task.0 - 1 + hop) % u32::from(nodes);
        NodeId(u16::try_from(turn).expect("less than the number of nodes") + 1)
    }
}

impl Os {
    fn expect_back(&self, task: TaskId) -> Receiver<Step> {
        let (sender, receiver) = channel();
        lock(&self.tasks.away).insert(task, sender);
        receiver
    }

    /// Handles a task that came back or ended on another node.
    pub(super) fn task_returned(&self, task: TaskId, step: Step) {
        if let Some(waiting) = lock(&self.tasks.away).remove(&task) {
            // Fails if the thread has stopped waiting; it has reported that.
            let _ = waiting.send(step);
        }
    }

    /// Starts a thread for a task that the origin migrated to this node.
    pub(super) fn start_migrated(self: &Arc<Self>, migrate: &Migrate) -> Result<Pairing, OsError> {
        let (task, map, registers) = (migrate.task, migrate.memory_map, migrate.registers);
        // SYNC: the counter only needs to yield distinct numbers.
        let remote = TaskId(self.tasks.next_remote.fetch_add(1, Ordering::Relaxed));
        let os = Arc::clone(self);
        let stay = move || {
            let step = (os.tasks.program)(&os, task, &map, registers);
            let left = step.and_then(|step| os.leave(task, remote, step));
            os.report_failure(left);
        };
        let thread = std::thread::Builder::new().name(format!("task-{task}"));
        thread.spawn(stay).map_err(|source| OsError::Thread { task, source })?;
        self.causes.count(Cause::Started);
        Ok(Pairing { stamp: Stamp::default(), process: migrate.process, task, remote })
    }

    fn leave(&self, task: TaskId, remote: TaskId, step: Step) -> Result<(), OsError> {
        let (stamp, process) = (Stamp::default(), PROCESS);
        match step {
            Step::Move(registers) => {
                self.causes.count(Cause::MigratedBack);
                self.network.notify(ORIGIN, MigrateBack { stamp, process, task, remote, registers })?;
            }
            Step::End(code) => {
                self.causes.count(Cause::EndedRemotely);
                self.network.notify(ORIGIN, ExitRemote { stamp, process, task, code })?;
            }
        }
        Ok(())
    }

    /// Returns the pages that this node modified to their homes, because the process has ended.
    pub(super) fn process_ended(self: &Arc<Self>) -> Result<(), OsError> {
        self.return_modified_pages()?;
        self.emit(Event::ProcessEnded);
        Ok(())
    }

    /// Signals a task, wherever it runs. Has no effect on a task that has ended.
    fn raise(&self, task: TaskId, number: u32) {
        self.signalled(task, number);
        for peer in self.network.peers() {
            self.causes.count(Cause::Signalled);
            let signal = Signal { stamp: Stamp::default(), process: PROCESS, task, number };
            // The process already ends with an error; an unreachable node does not change that.
            let _ = self.network.notify(peer, signal);
        }
    }

    /// Records a signal for a task.
    pub(super) fn signalled(&self, task: TaskId, number: u32) {
        *lock(&self.tasks.signals).entry(task).or_default() |= 1_u32.checked_shl(number).unwrap_or(0);
    }

    /// Takes the pending signals of a task and returns the lowest.
    pub(crate) fn take_signal(&self, task: TaskId) -> Option<u32> {
        let pending = lock(&self.tasks.signals).remove(&task)?;
        (pending != 0).then(|| pending.trailing_zeros())
    }
}

/// Exit code that a shell shows for a process killed by signal 6 (abort).
const PANICKED: i32 = 134;

const SIGKILL: u32 = 9;
