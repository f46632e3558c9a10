//! Execution of the policy's commands.

use pronto_sched_policy::policy::time::Nanos;

use super::Cluster;
use crate::event::Event;
use crate::id::{Core, CpuId, NodeId, TaskId};
use crate::policy::{Command, Control};
use crate::scheduler::{Class, Waker, When};
use crate::task::State;

/// Bytes of a control message without headers: ids and a word.
const CONTROL_BYTES: u32 = 64;

impl Cluster {
    /// Carries out all commands, in order.
    pub(super) fn carry_out(&mut self) {
        for command in core::mem::take(&mut self.commands) {
            match command {
                Command::Classify { task, class } => self.classify(task, class),
                Command::Hold { task } => self.hold(task),
                Command::Release { task } => self.release(task),
                Command::Renice { task, nice } => self.renice(task, nice),
                Command::Reschedule { cpu } => self.ask(cpu, When::Now),
                Command::Timer { at, key } => self.queue.enter(at.max(self.now), Event::Policy { key }),
                Command::Control { from, to, word } => self.send_control(from, to, word),
                Command::Steal { cpu, time } => self.steal(cpu, time),
            }
        }
    }

    fn classify(&mut self, id: TaskId, class: Class) {
        let task = &self.tasks[id.index()];
        let (node, slot) = (task.node, task.slot);
        self.charge_node(node);
        let (scheduler, mut scene) = self.scheduling(node);
        let wish = scheduler.classify(slot, class, &mut scene);
        self.wish(node, wish, None);
    }

    fn renice(&mut self, id: TaskId, nice: i8) {
        let task = &self.tasks[id.index()];
        let (node, slot) = (task.node, task.slot);
        self.charge_node(node);
        let (scheduler, mut scene) = self.scheduling(node);
        scheduler.renice(slot, nice, &mut scene);
    }

    fn hold(&mut self, id: TaskId) {
        let task = &mut self.tasks[id.index()];
        if core::mem::replace(&mut task.held, true) {
            return;
        }
        let (node, slot, state) = (task.node, task.slot, task.state);
        match state {
            State::Running(cpu) => self.ask(cpu, When::Now),
            State::Ready => {
                let (scheduler, mut scene) = self.scheduling(node);
                scheduler.withdraw(slot, &mut scene);
            }
            State::Asleep | State::Exited => {}
        }
    }

    fn release(&mut self, id: TaskId) {
        let task = &mut self.tasks[id.index()];
        if core::mem::replace(&mut task.held, false) && task.state == State::Ready {
            self.enqueue(id, Waker::Interrupt(Core(0)));
        }
    }

    fn send_control(&mut self, from: NodeId, to: NodeId, word: u64) {
        let at = self.carried(from, to, CONTROL_BYTES, self.now);
        let letter = self.letters.put(Control { from, to, word });
        self.queue.enter(at, Event::Control { letter });
    }

    /// Prolongs the current task's work by `time`; an idle CPU loses nothing.
    fn steal(&mut self, cpu: CpuId, time: Nanos) {
        self.charge(cpu);
        if let Some(task) = self.cpus[cpu.index()].current {
            let busy = &mut self.tasks[task.index()].work.busy;
            *busy = busy.after(time);
            let until = self.now.after(*busy);
            self.arm_done(cpu, until);
        }
    }
}
