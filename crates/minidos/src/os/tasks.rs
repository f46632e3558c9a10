//! Tasks: they begin at their origin, move from node to node, and end.

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
use crate::network::PATIENCE;

/// Where a process has what, in the twelve numbers that travel with its tasks.
pub(crate) type MemoryMap = [u64; 12];

/// What the tasks of this system run: one step, until the task wants to move or ends.
pub(crate) type Program = fn(&Arc<Os>, TaskId, &MemoryMap, Registers) -> Result<Step, OsError>;

/// Why a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The task goes on elsewhere.
    Move(Registers),
    /// It ended with this code.
    End(i32),
}

/// The tasks that this node knows.
#[derive(Debug)]
pub(super) struct Tasks {
    program: Program,
    /// At the origin: where the threads of tasks that are away wait for them.
    away: Mutex<HashMap<TaskId, Sender<Step>>>,
    /// Signals that tasks running here have not looked at, by task, one bit each.
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
    /// The program's name, for people.
    pub(crate) name: &'static str,
    /// Where it has what.
    pub(crate) memory_map: MemoryMap,
    /// How many tasks.
    pub(crate) tasks: u32,
}

impl Process {
    /// Runs all tasks from their beginning to their end. Task `n` begins on node `n`, and each moves on to the next
    /// node whenever its program wants to move.
    pub(crate) fn run(self, os: &Arc<Os>) -> Result<(), OsError> {
        let lives: Vec<_> = (1..=self.tasks)
            .map(TaskId)
            .map(|task| {
                let os = Arc::clone(os);
                let life = move || self.live(&os, task);
                let thread = std::thread::Builder::new().name(format!("task-{task}"));
                thread.spawn(life).map_err(|source| OsError::Thread { task, source })
            })
            .collect::<Result<_, _>>()?;
        for (task, life) in (1..).map(TaskId).zip(lives) {
            life.join().unwrap_or(Err(OsError::TaskFailed { task, code: PANICKED }))?;
        }
        Ok(())
    }

    /// One task's life: steps here, or away while a thread here waits for it, as DEX has it.
    fn live(&self, os: &Arc<Os>, task: TaskId) -> Result<(), OsError> {
        let mut registers = Registers::default();
        for hop in 0.. {
            let node = self.place(task, hop, os.network.nodes());
            let step = if node == ORIGIN {
                (os.tasks.program)(os, task, &self.memory_map, registers)
            } else {
                self.hand_over(os, task, hop, node, registers)
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

    fn hand_over(
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
        returned.recv_timeout(PATIENCE).map_err(|_| OsError::TaskLate { task })
    }

    /// Ends the process because of one task: the others are killed, wherever they are.
    fn abort(&self, os: &Arc<Os>, error: OsError) -> OsError {
        for task in (1..=self.tasks).map(TaskId) {
            os.raise(task, SIGKILL);
        }
        error
    }

    /// Tells the others that the process has ended.
    pub(crate) fn take_apart(self, os: &Arc<Os>) -> Result<(), OsError> {
        for peer in os.network.peers() {
            os.causes.count(Cause::TakenApart);
            let tasks = self.tasks;
            os.network
                .notify(peer, ExitOrigin { stamp: Stamp::default(), process: PROCESS, tasks, code: 0 })?;
        }
        os.taken_apart()
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

    /// A task came back, or ended away.
    pub(super) fn came_back(&self, task: TaskId, step: Step) {
        if let Some(waiting) = lock(&self.tasks.away).remove(&task) {
            // Its thread has given up waiting, and reported that.
            let _ = waiting.send(step);
        }
    }

    /// The origin hands a task over: it gets a thread here.
    pub(super) fn take_over(self: &Arc<Self>, migrate: &Migrate) -> Result<Pairing, OsError> {
        let (task, map, registers) = (migrate.task, migrate.memory_map, migrate.registers);
        // SYNC: only distinct numbers are wanted.
        let remote = TaskId(self.tasks.next_remote.fetch_add(1, Ordering::Relaxed));
        let os = Arc::clone(self);
        let stay = move || {
            let step = (os.tasks.program)(&os, task, &map, registers);
            let left = step.and_then(|step| os.leave(task, remote, step));
            os.concluded(left);
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
                self.causes.count(Cause::WentBack);
                self.network.notify(ORIGIN, MigrateBack { stamp, process, task, remote, registers })?;
            }
            Step::End(code) => {
                self.causes.count(Cause::EndedAway);
                self.network.notify(ORIGIN, ExitRemote { stamp, process, task, code })?;
            }
        }
        Ok(())
    }

    /// The process has ended: what this node wrote goes home.
    pub(super) fn taken_apart(self: &Arc<Self>) -> Result<(), OsError> {
        self.send_written_home()?;
        self.tell(Event::TakenApart);
        Ok(())
    }

    /// Signals a task, wherever it is; to one that has ended nothing happens.
    fn raise(&self, task: TaskId, number: u32) {
        self.signalled(task, number);
        for peer in self.network.peers() {
            self.causes.count(Cause::Signalled);
            let signal = Signal { stamp: Stamp::default(), process: PROCESS, task, number };
            // The process ends with an error already; a node that cannot be told is part of that.
            let _ = self.network.notify(peer, signal);
        }
    }

    /// A signal for a task.
    pub(super) fn signalled(&self, task: TaskId, number: u32) {
        *lock(&self.tasks.signals).entry(task).or_default() |= 1_u32.checked_shl(number).unwrap_or(0);
    }

    /// The lowest signal that a task has not looked at.
    pub(crate) fn take_signal(&self, task: TaskId) -> Option<u32> {
        let pending = lock(&self.tasks.signals).remove(&task)?;
        (pending != 0).then(|| pending.trailing_zeros())
    }
}

/// What a shell shows for a task that was killed by signal 6 (abort).
const PANICKED: i32 = 134;

const SIGKILL: u32 = 9;
