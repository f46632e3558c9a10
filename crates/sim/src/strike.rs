//! Effects of faults on the world.

use pronto_core::Nanos;
use pronto_core::fabric::{ConnectionLimits, DoorbellEvent};
use pronto_sync::atomic::Ordering;

use crate::fault::Fault;
use crate::link::Link;
use crate::state::{Event, State};
use crate::world::{LinkId, SimNode};

impl State {
    pub(crate) fn inflict(&mut self, fault: Fault) {
        match fault {
            Fault::Cut(link) => self.cut(link),
            Fault::CutBetween(a, b) => {
                for index in 0..self.links.len() {
                    let nodes = self.links[index].ends.each_ref().map(|end| end.node);
                    if nodes == [a, b] || nodes == [b, a] {
                        self.cut(LinkId(index));
                    }
                }
            }
            Fault::BlockOneWay { from, to } => self.block(from, to),
            Fault::Partition(a, b) => {
                self.block(a, b);
                self.block(b, a);
            }
            Fault::Heal(a, b) => {
                for way in [(a, b), (b, a)] {
                    self.fired.heals += u64::from(self.blocked.remove(&way));
                    self.damaging.remove(&way);
                }
                self.note("heal", [a.0 as u64, b.0 as u64, 0]);
                self.release_stalled();
            }
            Fault::CrashProcess(node) => self.crash(node, false),
            Fault::CrashMachine(node) => self.crash(node, true),
            Fault::Restart(node) => self.restart(node),
            Fault::Pause { node, span } => {
                self.fired.pauses += 1;
                self.note("pause", [node.0 as u64, span.0, 0]);
                self.stop(node, span);
            }
            Fault::Suspend { node, span } => self.suspend(node, span),
            Fault::Full { from, to, span } => {
                self.fired.fulls += 1;
                self.note("full", [from.0 as u64, to.0 as u64, span.0]);
                let until = self.now + span;
                let full = self.full_until.entry((from, to)).or_default();
                *full = (*full).max(until);
                self.schedule(until, Event::Room { from, to });
            }
            Fault::Damage { from, to } => {
                self.note("damage", [from.0 as u64, to.0 as u64, 0]);
                self.damaging.insert((from, to));
            }
            Fault::Exhaust { node, span } => {
                self.fired.exhaustions += 1;
                self.note("exhaust", [node.0 as u64, span.0, 0]);
                let until = self.now + span;
                let exhausted = &mut self.node(node).exhausted_until;
                *exhausted = (*exhausted).max(until);
            }
            Fault::Leap { node, by } => {
                self.fired.leaps += 1;
                self.note("leap", [node.0 as u64, by.0, 0]);
                self.node(node).shift.ahead.fetch_add(by.0, Ordering::Relaxed);
                // Its timers may be due.
                self.wake(node);
            }
            Fault::Slow { node, by } => {
                self.fired.slowdowns += 1;
                self.note("slow", [node.0 as u64, by.0, 0]);
                self.node(node).slow_by = by;
            }
        }
    }

    /// Suspends a node's machine for `span`.
    fn suspend(&mut self, node: SimNode, span: Nanos) {
        self.fired.suspends += 1;
        self.note("suspend", [node.0 as u64, span.0, 0]);
        let (now, until) = (self.now.0, (self.now + span).0);
        let shift = &self.node(node).shift;
        // A suspended machine stays suspended for longer.
        let before = shift.until.load(Ordering::Relaxed).max(now);
        shift.until.store(before.max(until), Ordering::Relaxed);
        shift.behind.fetch_add(until.saturating_sub(before), Ordering::Relaxed);
        self.stop(node, span);
    }

    /// Stops a node's turns for `span`.
    fn stop(&mut self, node: SimNode, span: Nanos) {
        let until = self.now + span;
        let node = self.node(node);
        node.paused_until = node.paused_until.max(until);
        node.wake = node.wake.map(|wake| wake.max(until));
    }

    fn cut(&mut self, id: LinkId) {
        let link = self.link(id);
        if link.cut || link.ends.iter().all(|end| end.is_gone()) {
            return;
        }
        link.cut = true;
        for line in &mut link.lines {
            line.in_flight.clear();
            line.stalled.clear();
        }
        self.fired.cuts += 1;
        self.note("cut", [id.0 as u64, 0, 0]);
        for end in [0, 1] {
            let at = self.now + self.random.within(self.options.loss_notice);
            self.schedule(at, Event::Notice { link: id, end });
        }
    }

    /// Reports room to the senders of connections that take messages again, as a completion does elsewhere.
    pub(crate) fn room(&mut self, from: SimNode, to: SimNode) {
        if self.is_full(from, to) {
            return;
        }
        self.full_until.remove(&(from, to));
        for index in 0..self.links.len() {
            for end in [0, 1] {
                let ends = &self.links[index].ends;
                if ends[end].node == from && ends[1 - end].node == to && !ends[end].is_gone() {
                    self.touch(LinkId(index), end, DoorbellEvent::Unsolicited);
                }
            }
        }
    }

    fn block(&mut self, from: SimNode, to: SimNode) {
        self.fired.blocks += u64::from(self.blocked.insert((from, to)));
        self.note("block", [from.0 as u64, to.0 as u64, 0]);
    }

    fn crash(&mut self, node: SimNode, silent: bool) {
        if !self.node(node).alive {
            return;
        }
        self.fired.crashes += 1;
        self.note("crash", [node.0 as u64, silent.into(), 0]);
        let state = self.node(node);
        state.alive = false;
        state.dark = silent;
        state.wake = None;
        state.incoming.clear();
        state.dialled.clear();
        for index in 0..self.links.len() {
            for end in [0, 1] {
                if self.links[index].ends[end].node == node {
                    self.close(LinkId(index), end);
                    if silent {
                        // The close that was waiting is never sent.
                        self.links[index].lines[end].stalled.clear();
                    }
                }
            }
        }
    }

    fn restart(&mut self, node: SimNode) {
        if self.node(node).alive {
            return;
        }
        self.fired.restarts += 1;
        self.note("restart", [node.0 as u64, 0, 0]);
        let state = self.node(node);
        state.alive = true;
        state.dark = false;
        state.incarnation += 1;
        self.release_stalled();
        self.wake(node);
    }

    pub(crate) fn connect(&mut self, nodes: [SimNode; 2], limits: [ConnectionLimits; 2]) -> LinkId {
        let id = LinkId(self.links.len());
        self.note("connect", [id.0 as u64, nodes[0].0 as u64, nodes[1].0 as u64]);
        self.links.push(Link::new(nodes, limits));
        id
    }
}
