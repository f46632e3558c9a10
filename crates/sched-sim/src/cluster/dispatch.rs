//! Dispatch: the current task of each CPU, and its activity there.

use pronto_sched_policy::policy::contention::Verdict;
use pronto_sched_policy::policy::spin;
use pronto_sched_policy::policy::time::Nanos;

use super::{Cluster, Knows};
use crate::event::Event;
use crate::id::{Core, CpuId, NodeId, TaskId};
use crate::policy::Cause;
use crate::program::{Op, Step};
use crate::scheduler::{Last, Reschedule, Then, Waker, When};
use crate::task::{Disk, Doing, State};

/// Most operations without duration that a program may request in a row; beyond it, the program makes no progress.
const MAX_STEPS: u32 = 100_000;

/// The fate of a CPU after its task did all it could.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The task continues, computing or polling.
    Goes,
    /// The task gives the CPU up.
    Gives(Then),
}

impl Cluster {
    /// Handles a scheduler's request; `taken_by` is the CPU that handles an interrupt at this moment, if one does.
    pub(super) fn wish(&mut self, node: NodeId, wish: Option<Reschedule>, taken_by: Option<Core>) {
        if let Some(Reschedule { core, when }) = wish {
            let cpu = self.cpu_of(node, core);
            let at_once = when == When::Now || taken_by == Some(core);
            self.ask(cpu, if at_once { When::Now } else { When::AtInterrupt });
        }
        if let Some(core) = taken_by {
            self.interrupted(self.cpu_of(node, core));
        }
    }

    /// Requests that a CPU reschedule.
    pub(super) fn ask(&mut self, cpu: CpuId, when: When) {
        let at = &mut self.cpus[cpu.index()];
        let before = at.reschedule;
        at.reschedule = before.max(Some(when));
        if when == When::Now && before != Some(When::Now) {
            self.look_up.push_back(cpu);
        }
    }

    /// Handles an interrupt of a CPU: executes a request that waited for it.
    fn interrupted(&mut self, cpu: CpuId) {
        if self.cpus[cpu.index()].reschedule == Some(When::AtInterrupt) {
            self.ask(cpu, When::Now);
        }
    }

    pub(super) fn cpu_of(&self, node: NodeId, core: Core) -> CpuId {
        CpuId(self.nodes[node.index()].first_cpu.0 + core.0)
    }

    /// Reschedules every CPU for which it was requested.
    pub(super) fn look_up(&mut self) {
        while let Some(cpu) = self.look_up.pop_front() {
            if self.cpus[cpu.index()].reschedule == Some(When::Now) {
                self.schedule(cpu, Then::Ready);
            }
        }
    }

    /// Implements `schedule()`: picks, switches, and lets the picked task continue, until one stays.
    fn schedule(&mut self, cpu: CpuId, mut then: Then) {
        loop {
            self.charge(cpu);
            let at = &mut self.cpus[cpu.index()];
            at.reschedule = None;
            let (node, core, last) = (at.node, at.core, at.current);
            let held = last.is_some_and(|task| self.tasks[task.index()].held);
            let leaves = if held && matches!(then, Then::Ready | Then::Yields) { Then::Sleeps } else { then };
            let last_slot = last.map(|task| Last { slot: self.tasks[task.index()].slot, then: leaves });
            let (scheduler, mut scene) = self.scheduling(node);
            let picked = scheduler.pick(core, last_slot, &mut scene);
            let next = picked.map(|slot| self.nodes[node.index()].tasks[slot.index()]);
            let stays = next.is_some() && next == last;
            if !stays {
                self.switch(cpu, last, next, then);
                if let Some(Last { slot, then: Then::Ready }) = last_slot {
                    let (scheduler, mut scene) = self.scheduling(node);
                    let wish = scheduler.displaced(slot, &mut scene);
                    self.wish(node, wish, None);
                }
            }
            self.arm_slice(cpu);
            let Some(task) = next else { return };
            if stays && then == Then::Ready {
                return;
            }
            match self.advance(cpu, task) {
                Progress::Goes => return,
                Progress::Gives(gives) => then = gives,
            }
        }
    }

    /// Replaces the current task of a CPU.
    fn switch(&mut self, cpu: CpuId, before: Option<TaskId>, after: Option<TaskId>, then: Then) {
        let now = self.now;
        let at = &mut self.cpus[cpu.index()];
        let (node, core, since) = (at.node, at.core, at.since);
        (at.current, at.charged, at.since) = (after, now, now);
        at.done = at.done.wrapping_add(1);
        self.nodes[node.index()].current[core.index()] = after.map(|task| self.tasks[task.index()].slot);
        if let Some(task) = before {
            if let Some(trace) = &mut self.trace {
                trace.ran(cpu, task, since, now);
            }
            let task = &mut self.tasks[task.index()];
            if matches!(then, Then::Ready | Then::Yields) {
                task.state = State::Ready;
                task.ready_since = now;
            }
        }
        if let Some(task) = after {
            let task = &mut self.tasks[task.index()];
            task.state = State::Running(cpu);
            if let Some(paging) = &mut task.paging {
                paging.disk = Disk::Idle;
            }
            task.usage.delayed = task.usage.delayed.after(now.since(task.ready_since));
            task.usage.dispatches += 1;
            task.work.busy = task.work.busy.after(self.options.switch);
            self.start_ticks(cpu);
        }
        self.tell(|policy, context| policy.switched(context, cpu, before, after));
    }

    /// Starts the ticks of a CPU; they continue while it has a task, and once more.
    fn start_ticks(&mut self, cpu: CpuId) {
        let at = &mut self.cpus[cpu.index()];
        if !at.ticks {
            at.ticks = true;
            let next = self.nodes[at.node.index()].clock.next(self.now);
            self.queue.enter(next, Event::Tick { cpu });
        }
    }

    /// Charges the current task for the time up to now.
    pub(super) fn charge(&mut self, cpu: CpuId) {
        let at = &mut self.cpus[cpu.index()];
        let ran = self.now.since(at.charged);
        at.charged = self.now;
        let (Some(task), node, core) = (at.current, at.node, at.core) else { return };
        if ran == Nanos::ZERO {
            return;
        }
        let task = &mut self.tasks[task.index()];
        task.usage.ran = task.usage.ran.after(ran);
        task.work.busy = task.work.busy.since(ran);
        if let Some(paging) = &mut task.paging {
            paging.left = paging.left.since(ran);
        }
        self.schedulers[node.index()].charge(core, task.slot, ran);
    }

    /// Charges all current tasks of a node: their usage must be known before they are compared with others.
    pub(super) fn charge_node(&mut self, node: NodeId) {
        for core in 0..self.nodes[node.index()].current.len() {
            self.charge(self.cpu_of(node, Core::at(core)));
        }
    }

    /// Sets the scheduler's own timer for the current task, unless it is set already.
    fn arm_slice(&mut self, cpu: CpuId) {
        let at = &self.cpus[cpu.index()];
        let slot = at.current.map(|task| self.tasks[task.index()].slot);
        let timer = slot.and_then(|slot| self.schedulers[at.node.index()].timer_in(at.core, slot));
        let until = timer.map(|span| self.now.after(span));
        let at = &mut self.cpus[cpu.index()];
        if until == at.slice_until {
            return;
        }
        at.slice_until = until;
        at.slice = at.slice.wrapping_add(1);
        if let Some(until) = until {
            self.queue.enter(until, Event::Slice { cpu, generation: at.slice });
        }
    }

    /// Sets the end of the current task's activity, unless something comes between.
    pub(super) fn arm_done(&mut self, cpu: CpuId, until: Nanos) {
        let at = &mut self.cpus[cpu.index()];
        at.done = at.done.wrapping_add(1);
        self.queue.enter(until, Event::Done { cpu, generation: at.done });
    }

    /// Removes the end of the current task's activity.
    fn disarm(&mut self, cpu: CpuId) {
        let at = &mut self.cpus[cpu.index()];
        at.done = at.done.wrapping_add(1);
    }

    /// Carries out the operations of a CPU's task that take no time, up to one that does.
    fn advance(&mut self, cpu: CpuId, id: TaskId) -> Progress {
        for _ in 0..MAX_STEPS {
            let task = &mut self.tasks[id.index()];
            if task.work.busy > Nanos::ZERO {
                let until_fault = task.paging.map_or(Nanos::NEVER, |paging| paging.left);
                if until_fault == Nanos::ZERO {
                    self.read_pages(id);
                    return Progress::Gives(Then::Sleeps);
                }
                let until = self.now.after(task.work.busy.min(until_fault));
                self.arm_done(cpu, until);
                return Progress::Goes;
            }
            let Some(doing) = task.work.doing else {
                self.next_operation(id);
                continue;
            };
            let gives = match doing.op {
                Op::Compute(_) => unreachable!("computing is done as the task is busy"),
                Op::Sleep(span) => {
                    self.finish(id);
                    self.sleep(id, span);
                    Some(Then::Sleeps)
                }
                Op::Send { .. } => self.hand_over(id, doing),
                Op::Receive { .. } => match self.take_or_wait(id, doing) {
                    Ok(gives) => gives,
                    Err(polling) => {
                        match polling {
                            Some(until) => self.arm_done(cpu, until),
                            None => self.disarm(cpu),
                        }
                        return Progress::Goes;
                    }
                },
                Op::Yield => {
                    self.finish(id);
                    Some(Then::Yields)
                }
                Op::Exit => {
                    self.exit(id);
                    Some(Then::Exits)
                }
            };
            if let Some(then) = gives {
                return Progress::Gives(then);
            }
        }
        panic!(
            "the program of {id:?} asks for ever for operations that take no time: {:?}",
            self.programs[id.index()]
        );
    }

    /// Gets the next operation from the program.
    fn next_operation(&mut self, id: TaskId) {
        let task = &mut self.tasks[id.index()];
        let received = task.work.received.take();
        let records = &mut self.records;
        let mut step = Step { now: self.now, me: id, received, random: &mut task.random, records };
        match self.programs[id.index()].next(&mut step) {
            Op::Compute(time) => task.work.busy = time,
            op => {
                if matches!(op, Op::Send { .. } | Op::Receive { .. }) {
                    task.work.busy = self.options.call;
                }
                task.work.doing = Some(Doing::new(op));
            }
        }
    }

    /// Completes the current operation.
    pub(super) fn finish(&mut self, id: TaskId) {
        self.tasks[id.index()].work.doing = None;
    }

    fn sleep(&mut self, id: TaskId, span: Nanos) {
        let task = &mut self.tasks[id.index()];
        task.state = State::Asleep;
        let node = task.node.index();
        let until = self.schedulers[node].sleep_ends(&self.nodes[node].clock, self.now, span);
        self.queue.enter(until, Event::Wake { task: id, generation: task.generation });
        self.count_ready(id, Readiness::Lost);
    }

    /// Puts the task to sleep until the disk of its node has read its pages, after those of other tasks.
    fn read_pages(&mut self, id: TaskId) {
        let task = &mut self.tasks[id.index()];
        let paging = task.paging.as_mut().expect("only a task with page faults gets here");
        (paging.left, paging.disk) = (paging.faults.every, Disk::Reads);
        task.usage.faults += 1;
        task.state = State::Asleep;
        let node = &mut self.nodes[task.node.index()];
        node.disk_until = node.disk_until.max(self.now).after(paging.faults.takes);
        self.queue.enter(node.disk_until, Event::Wake { task: id, generation: task.generation });
        self.count_ready(id, Readiness::Lost);
    }

    /// Puts the task to sleep until another event wakes it.
    pub(super) fn sleep_until_woken(&mut self, id: TaskId) {
        self.tasks[id.index()].state = State::Asleep;
        self.count_ready(id, Readiness::Lost);
    }

    fn exit(&mut self, id: TaskId) {
        let task = &mut self.tasks[id.index()];
        task.state = State::Exited;
        task.usage.ended = Some(self.now);
        self.alive -= 1;
        self.count_ready(id, Readiness::Lost);
        self.tell(|policy, context| policy.exited(context, id));
    }

    fn count_ready(&mut self, id: TaskId, readiness: Readiness) {
        let node = &mut self.nodes[self.tasks[id.index()].node.index()];
        match readiness {
            Readiness::Won => node.ready += 1,
            Readiness::Lost => node.ready -= 1,
        }
    }

    /// Returns whether more tasks want to run on a task's node than it has CPUs, as far as the task knows.
    pub(super) fn cpus(&mut self, id: TaskId) -> spin::CpuSupply {
        let task = &mut self.tasks[id.index()];
        let crowded = match self.options.knows {
            Knows::Load => {
                let node = &self.nodes[task.node.index()];
                node.ready as usize > node.current.len()
            }
            Knows::Polls => {
                task.contention = task.contention.before_wait(self.now);
                task.contention.verdict() == Verdict::Sleeps
            }
            Knows::Nothing => false,
        };
        if crowded { spin::CpuSupply::Oversubscribed } else { spin::CpuSupply::Enough }
    }

    /// Makes a sleeping task ready.
    pub(super) fn wake(&mut self, id: TaskId, cause: Cause, waker: Waker) {
        let task = &mut self.tasks[id.index()];
        task.state = State::Ready;
        task.ready_since = self.now;
        task.generation = task.generation.wrapping_add(1);
        self.count_ready(id, Readiness::Won);
        self.tell(|policy, context| policy.woken(context, id, cause));
        self.enqueue(id, waker);
    }

    /// Adds a ready task to its scheduler's queue, unless it is held.
    pub(super) fn enqueue(&mut self, id: TaskId, waker: Waker) {
        let task = &self.tasks[id.index()];
        let (node, slot, held) = (task.node, task.slot, task.held);
        let interrupted = match waker {
            Waker::Interrupt(core) => Some(core),
            Waker::Task(_) => None,
        };
        if held {
            return self.wish(node, None, interrupted);
        }
        self.charge_node(node);
        let (scheduler, mut scene) = self.scheduling(node);
        let wish = scheduler.wake(slot, waker, &mut scene);
        self.wish(node, wish, interrupted);
        for core in 0..self.nodes[node.index()].current.len() {
            self.arm_slice(self.cpu_of(node, Core::at(core)));
        }
    }

    pub(super) fn sleep_over(&mut self, id: TaskId, generation: u32) {
        let task = &mut self.tasks[id.index()];
        if task.generation == generation && task.state == State::Asleep {
            let begins = task.usage.dispatches == 0;
            let cause = match &mut task.paging {
                Some(paging) if paging.disk == Disk::Reads => {
                    paging.disk = Disk::Done;
                    Cause::Pages
                }
                _ if begins => Cause::Start,
                _ => Cause::Timer,
            };
            self.wake(id, cause, Waker::Interrupt(Core(0)));
        }
    }

    pub(super) fn tick(&mut self, cpu: CpuId) {
        let at = &mut self.cpus[cpu.index()];
        let (node, core) = (at.node, at.core);
        let Some(task) = at.current else {
            at.ticks = false;
            return;
        };
        let next = self.nodes[node.index()].clock.next(self.now);
        self.queue.enter(next, Event::Tick { cpu });
        self.charge(cpu);
        let slot = self.tasks[task.index()].slot;
        let (scheduler, mut scene) = self.scheduling(node);
        let wish = scheduler.tick(core, slot, &mut scene);
        self.wish(node, wish, Some(core));
        self.tell(|policy, context| policy.ticked(context, cpu, task));
    }

    pub(super) fn slice_over(&mut self, cpu: CpuId, generation: u32) {
        let at = &mut self.cpus[cpu.index()];
        if at.slice != generation {
            return;
        }
        at.slice_until = None;
        let (node, core, Some(task)) = (at.node, at.core, at.current) else { return };
        self.charge(cpu);
        let slot = self.tasks[task.index()].slot;
        let (scheduler, mut scene) = self.scheduling(node);
        let wish = scheduler.timer(core, slot, &mut scene);
        self.wish(node, wish, Some(core));
    }

    pub(super) fn done(&mut self, cpu: CpuId, generation: u32) {
        if self.cpus[cpu.index()].done == generation {
            self.proceed(cpu);
        }
    }

    /// Continues the current task of a CPU.
    pub(super) fn proceed(&mut self, cpu: CpuId) {
        self.charge(cpu);
        if let Some(task) = self.cpus[cpu.index()].current
            && let Progress::Gives(then) = self.advance(cpu, task)
        {
            self.schedule(cpu, then);
        }
    }
}

/// A change of a task: it has become ready, or is no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Readiness {
    Won,
    Lost,
}
