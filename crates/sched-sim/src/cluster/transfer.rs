//! Messages: from a program into its socket, over the line, into the receiver's socket and program.

use pronto_sched_policy::policy::time::Nanos;
use pronto_sched_policy::policy::{contention, spin};

use super::Cluster;
use crate::event::Event;
use crate::id::{Core, Endpoint, NodeId, PortId, TaskId};
use crate::link::Line;
use crate::message::{Fragment, Message};
use crate::policy::{Cause, Departure};
use crate::program::{From, Op, WaitRequest};
use crate::scheduler::{Then, Waker};
use crate::task::{Doing, State, Waiting};

/// A sender that waits for room is woken once half of its buffer is free (`sock_writeable`, `include/net/sock.h`).
const ROOM: u64 = 2;

impl Cluster {
    /// Continues a send: fragments go into the socket as long as there is room. If there is none, the task gives the
    /// CPU up.
    pub(super) fn hand_over(&mut self, id: TaskId, mut doing: Doing) -> Option<Then> {
        let Op::Send { port, bytes, tag } = doing.op else { unreachable!("only sends are handed over") };
        let bytes = bytes.max(1);
        let from = Endpoint { task: id, port };
        let to = self.port_mut(from).peer;
        let buffer = u64::from(self.options.link.buffer);
        let new = Message { from, to, bytes, tag, sent_at: self.now, pressure: Default::default() };
        let mut message = doing.message.unwrap_or(new);
        while doing.sent < bytes {
            let part = (bytes - doing.sent).min(self.options.link.fragment);
            let in_socket = self.tasks[id.index()].occupancy[port.index()].sent.bytes;
            if in_socket > 0 && in_socket + u64::from(part) > buffer {
                doing.message = Some(message);
                self.tasks[id.index()].work.doing = Some(doing);
                self.sleep_until_woken(id);
                return Some(Then::Sleeps);
            }
            let departure = self.tell(|policy, context| policy.sending(context, &mut message));
            doing.sent += part;
            self.depart(Fragment { message, bytes: part, last: doing.sent == bytes, arrival: 0 }, departure);
        }
        self.finish(id);
        None
    }

    /// Sends a fragment.
    fn depart(&mut self, fragment: Fragment, departure: Departure) {
        let Fragment { message, bytes, last, .. } = fragment;
        let sent = &mut self.tasks[message.from.task.index()].occupancy[message.from.port.index()].sent;
        sent.bytes += u64::from(bytes);
        sent.messages += u64::from(last);
        let at = match departure {
            Departure::Now => self.now,
            Departure::At(time) => time.max(self.now),
        };
        let (from, to) = (self.node_of(message.from), self.node_of(message.to));
        let arrives = self.carried(from, to, bytes, at);
        let fragment = self.fragments.put(fragment);
        self.queue.enter(arrives, Event::Arrive { fragment });
    }

    fn node_of(&self, end: Endpoint) -> NodeId {
        self.tasks[end.task.index()].node
    }

    /// Returns when bytes that leave at `at` arrive.
    pub(super) fn carried(&mut self, from: NodeId, to: NodeId, bytes: u32, at: Nanos) -> Nanos {
        match self.nodes.get_disjoint_mut([from.index(), to.index()]) {
            Ok([a, b]) => Line::carry(&mut a.line, &mut b.line, &self.options.link, bytes, at),
            // On one node, through memory.
            Err(_) => at,
        }
    }

    /// Handles a fragment at its receiver's node: it goes into the socket if there is room, otherwise it stays the
    /// sender's.
    pub(super) fn arrive(&mut self, place: u32) {
        let mut fragment = self.fragments.take(place);
        fragment.arrival = self.arrivals;
        self.arrivals += 1;
        let to = fragment.message.to;
        let interrupted = self.cpu_of(self.node_of(to), Core(0));
        if let Some(trace) = &mut self.trace {
            trace.arrived(interrupted, to.task, self.now);
        }
        if self.tasks[to.task.index()].state == State::Exited {
            return self.acknowledge(fragment);
        }
        let buffer = u64::from(self.options.link.buffer);
        let held = self.tasks[to.task.index()].occupancy[to.port.index()].received.bytes;
        if held > 0 && held + u64::from(fragment.bytes) > buffer {
            self.port_mut(to).refused.push_back(fragment);
            return;
        }
        self.accept(fragment);
        self.notice(fragment.message);
    }

    /// Puts a fragment into its receiver's socket, and acknowledges it.
    fn accept(&mut self, fragment: Fragment) {
        let to = fragment.message.to;
        let received = &mut self.tasks[to.task.index()].occupancy[to.port.index()].received;
        received.bytes += u64::from(fragment.bytes);
        received.messages += u64::from(fragment.last);
        self.port_mut(to).received.push_back(fragment);
        self.acknowledge(fragment);
        self.tell(|policy, context| policy.arrived(context, &fragment.message));
    }

    /// Schedules the acknowledgement one latency later. Until then the bytes count as the sender's (`wmem_alloc`, freed
    /// by the acknowledgement).
    fn acknowledge(&mut self, fragment: Fragment) {
        let (from, to) = (self.node_of(fragment.message.from), self.node_of(fragment.message.to));
        let later = if from == to { Nanos::ZERO } else { self.options.link.latency };
        let place = self.fragments.put(fragment);
        self.queue.enter(self.now.after(later), Event::Acknowledged { fragment: place });
    }

    /// Notifies the receiver, if it waits for this message.
    fn notice(&mut self, message: Message) {
        let to = message.to.task;
        let task = &self.tasks[to.index()];
        let waits = match task.work.doing {
            Some(Doing { op: Op::Receive { from, .. }, waiting: Some(_), reading, .. }) => {
                let wanted = reading.map_or(from, From::Port);
                wanted == From::Any || wanted == From::Port(message.to.port)
            }
            _ => false,
        };
        let from = &self.tasks[message.from.task.index()];
        let waker = match from.state {
            State::Running(cpu) if from.node == task.node => Waker::Task(self.cpus[cpu.index()].core),
            _ => Waker::Interrupt(Core(0)),
        };
        let node = task.node;
        match task.state {
            State::Asleep if waits && !task.waits_for_pages() => self.wake(to, Cause::Message, waker),
            State::Running(cpu) if waits => {
                self.proceed(cpu);
                self.interrupt(node, waker);
            }
            _ => self.interrupt(node, waker),
        }
    }

    /// Handles the interrupt of an arrival that wakes no task.
    fn interrupt(&mut self, node: NodeId, waker: Waker) {
        if let Waker::Interrupt(core) = waker {
            self.wish(node, None, Some(core));
        }
    }

    /// Frees a fragment's bytes at the sender.
    pub(super) fn acknowledged(&mut self, place: u32) {
        let fragment = self.fragments.take(place);
        let Endpoint { task: id, port } = fragment.message.from;
        let task = &mut self.tasks[id.index()];
        let sent = &mut task.occupancy[port.index()].sent;
        sent.bytes -= u64::from(fragment.bytes);
        sent.messages -= u64::from(fragment.last);
        let roomy = sent.bytes <= u64::from(self.options.link.buffer) / ROOM;
        let waits = matches!(task.work.doing, Some(Doing { op: Op::Send { port: through, .. }, .. }) if through == port);
        if roomy && waits && task.state == State::Asleep && !task.waits_for_pages() {
            self.wake(id, Cause::Room, Waker::Interrupt(Core(0)));
        }
    }

    /// Continues a receive. Returns `Ok` if it is complete or gives its CPU up, and `Err` if it polls, with the end of
    /// the polling if there is one.
    pub(super) fn take_or_wait(
        &mut self,
        id: TaskId,
        mut doing: Doing,
    ) -> Result<Option<Then>, Option<Nanos>> {
        let Op::Receive { from, wait } = doing.op else { unreachable!("only receives are taken") };
        if let Some(message) = self.take(id, &mut doing, from) {
            self.wait_ended(id, doing);
            let work = &mut self.tasks[id.index()].work;
            (work.received, work.doing) = (Some(message), None);
            return Ok(None);
        }
        let waiting = match doing.waiting {
            Some(waiting) => waiting,
            None => self.begin_wait(id, from, wait),
        };
        doing.waiting = Some(waiting);
        self.tasks[id.index()].work.doing = Some(doing);
        match waiting.wait {
            spin::Wait::Poll => Err(None),
            spin::Wait::PollFor(bound) if self.now < waiting.since.after(bound) => {
                Err(Some(waiting.since.after(bound)))
            }
            spin::Wait::PollFor(_) | spin::Wait::Sleep(_) => {
                if !waiting.slept {
                    self.polls_no_more(id, waiting);
                }
                doing.waiting = Some(Waiting { slept: true, ..waiting });
                self.tasks[id.index()].work.doing = Some(doing);
                let flagged = self.waits_flagged(id, from);
                let port = match from {
                    From::Port(port) => Some(port),
                    From::Any => None,
                };
                self.tell(|policy, context| policy.waiting(context, id, port, flagged));
                self.sleep_until_woken(id);
                Ok(Some(Then::Sleeps))
            }
        }
    }

    fn begin_wait(&mut self, id: TaskId, from: From, asked: WaitRequest) -> Waiting {
        let sched_class = if self.waits_flagged(id, from) {
            spin::SchedClass::RealTime
        } else {
            spin::SchedClass::Ordinary
        };
        let cpus = self.cpus(id);
        let bound = self.polling_pays();
        let task = &self.tasks[id.index()];
        let wait = task.spin.wait(asked, spin::Circumstances { sched_class, cpus, bound });
        Waiting { wait, since: self.now, slept: false, delayed: task.usage.delayed }
    }

    /// Reports a poll with a bound as evidence. Of several times without a CPU, their sum counts as the longest.
    fn polls_no_more(&mut self, id: TaskId, waiting: Waiting) {
        if matches!(waiting.wait, spin::Wait::PollFor(_)) {
            let now = self.now;
            let task = &mut self.tasks[id.index()];
            let away = task.usage.delayed.since(waiting.delayed);
            let poll = contention::Poll { lasted: now.since(waiting.since).since(away), away };
            task.contention = task.contention.polled(&poll, now);
        }
    }

    /// Records the wait in the wait history.
    fn wait_ended(&mut self, id: TaskId, doing: Doing) {
        let bound = self.polling_pays();
        if let Some(waiting @ Waiting { wait, since, slept, .. }) = doing.waiting {
            if !slept {
                self.polls_no_more(id, waiting);
            }
            let took = self.now.since(since);
            let end = if slept { spin::End::Slept(took) } else { spin::End::Polled(took) };
            let hinted = matches!(doing.op, Op::Receive { wait, .. } if wait.expected().is_some());
            if !hinted {
                let task = &mut self.tasks[id.index()];
                task.spin = task.spin.ended(wait, end, bound);
            }
        }
    }

    /// Returns the polling time that pays: the assumed cost of a wake-up.
    fn polling_pays(&self) -> Nanos {
        spin::believed(self.options.wake_up)
    }

    fn waits_flagged(&self, id: TaskId, from: From) -> bool {
        let ports = &self.tasks[id.index()].ports;
        match from {
            From::Port(port) => ports[port.index()].flagged,
            From::Any => ports.iter().any(|port| port.flagged),
        }
    }

    /// Takes fragments out of the socket; returns the message if its last fragment is among them.
    fn take(&mut self, id: TaskId, doing: &mut Doing, from: From) -> Option<Message> {
        let port = doing.reading.or_else(|| self.readable(id, from))?;
        let end = Endpoint { task: id, port };
        while let Some(fragment) = self.port_mut(end).received.pop_front() {
            doing.reading = Some(port);
            let received = &mut self.tasks[id.index()].occupancy[port.index()].received;
            received.bytes -= u64::from(fragment.bytes);
            received.messages -= u64::from(fragment.last);
            self.accept_refused(end);
            if fragment.last {
                return Some(fragment.message);
            }
        }
        None
    }

    /// Moves refused fragments into the socket when there is room again.
    fn accept_refused(&mut self, end: Endpoint) {
        let buffer = u64::from(self.options.link.buffer);
        while let Some(next) = self.port_mut(end).refused.front() {
            let bytes = u64::from(next.bytes);
            let held = self.tasks[end.task.index()].occupancy[end.port.index()].received.bytes;
            if held > 0 && held + bytes > buffer {
                return;
            }
            if let Some(fragment) = self.port_mut(end).refused.pop_front() {
                self.accept(fragment);
            }
        }
    }

    /// Returns the port to read from: the requested one, or the one whose first fragment came first.
    fn readable(&self, id: TaskId, from: From) -> Option<PortId> {
        let ports = &self.tasks[id.index()].ports;
        match from {
            From::Port(port) => (!ports[port.index()].received.is_empty()).then_some(port),
            From::Any => {
                let first = |(index, port): (usize, &crate::task::Port)| {
                    port.received.front().map(|fragment| (fragment.arrival, PortId::at(index)))
                };
                ports.iter().enumerate().filter_map(first).min().map(|(_, port)| port)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Options;
    use crate::link::Link;
    use crate::program::{Program, Step, Wait};
    use crate::record::Record;
    use crate::scheduler::linux2::{Linux2, Version};
    use crate::task::TaskOptions;

    /// Performs operations in order, and records when each was complete; its index is the series.
    #[derive(Debug)]
    struct Script {
        ops: Vec<Op>,
        next: u32,
    }

    impl Program for Script {
        fn next(&mut self, step: &mut Step<'_>) -> Op {
            let value = step.received.map_or(0, |message| u64::from(message.bytes));
            step.records.add(Record { at: step.now, task: step.me, series: self.next, value });
            self.next += 1;
            self.ops.get(self.next as usize - 1).copied().unwrap_or(Op::Exit)
        }
    }

    /// Returns when a sender's only send was complete, and when and what its peer received, in microseconds and bytes.
    fn send(bytes: u32, peer: &[Op]) -> (u64, u64, u64) {
        let mut cluster = Cluster::new(Options::standard(1));
        let nodes = [0, 1].map(|_| cluster.add_node(1, Box::new(Linux2::new(Version::V2_4))));
        let script = |ops: &[Op]| Box::new(Script { ops: ops.to_vec(), next: 0 });
        let send = [Op::Send { port: PortId(0), bytes, tag: 0 }];
        let a = cluster.spawn(nodes[0], TaskOptions::default(), script(&send));
        let b = cluster.spawn(nodes[1], TaskOptions::default(), script(peer));
        cluster.connect(a, b);
        assert!(cluster.run_to_end(Nanos::from_millis(60_000)).is_some(), "both end");
        let at = |task, series: usize| {
            let found = cluster.records().all().iter();
            let series = u32::try_from(series).unwrap();
            let record =
                found.copied().find(|record| record.task == task && record.series == series).unwrap();
            (record.at.0 / 1_000, record.value)
        };
        let (received, bytes) = at(b, peer.len());
        (at(a, 1).0, received, bytes)
    }

    const BLOCK: WaitRequest = WaitRequest::unlike_others(Wait::Block);
    const RECEIVE: Op = Op::Receive { from: From::Any, wait: BLOCK };

    #[test]
    fn a_short_message_is_in_the_socket_immediately() {
        let busy = Nanos::from_millis(5_000);
        assert_eq!(send(10_000, &[Op::Compute(busy), RECEIVE]), (0, 5_000_000, 10_000));
    }

    #[test]
    fn a_long_message_needs_its_receiver_on_a_cpu() {
        let bytes = 1_000_000;
        let at_once = send(bytes, &[RECEIVE]);
        let wire = u64::from(bytes) * 1_000_000 / Link::ETHERNET_100.bandwidth;
        assert_eq!(at_once.2, 1_000_000, "whole");
        assert!((wire..wire * 11 / 10).contains(&at_once.1), "the line's time and headers: {at_once:?}");
        assert!(at_once.0 < at_once.1 && at_once.0 > wire * 8 / 10, "the last of it may stay in the socket");
        let busy = Nanos::from_millis(5_000);
        let late = send(bytes, &[Op::Compute(busy), RECEIVE]);
        assert!(late.0 > 5_000_000, "both sockets are full until the receiver reads: {late:?}");
        assert!(late.1 - 5_000_000 > (wire - 2 * 65_536 / 12) * 9 / 10, "{late:?}");
    }
}
