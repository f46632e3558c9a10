//! The serving thread of a node: polls every peer, runs inline handlers, ticks, and sleeps in all channels, as that of a real node.

use std::sync::Arc;

use pronto_core::executor::WaitPolicy;
use pronto_core::wait::{
    Decision, LATE, Next, Outcome, Recheck, SAFETY_NET, ServingState, ServingWaits, Sleeper, Wait, Woken,
    YieldTimer, arm_recheck_sleep,
};
use pronto_core::{Clock as _, Nanos};

use super::node::{Node, Thread};
use super::panics::survived;
use super::resting::Announcements;
use super::scheduler;
use super::thread::{Asleep, SleepOn};
use crate::scenario::SimSession;

/// Interval between ticks while a call is open.
const BUSY_TICK: Nanos = SAFETY_NET;
/// Longest interval between ticks.
const IDLE_TICK: Nanos = Nanos::from_secs(10);
/// Time for which a sleep leaves out a channel whose events another thread takes.
const MUTED: Nanos = Nanos::from_millis(1);
/// Number of polls of each peer between two readings of the clock.
const POLLS: u32 = 4;
/// Number of rounds without an event after which a peer may rest.
const REST_AFTER: u32 = 2;

/// The serving thread of a node.
pub(super) struct Serving {
    node: Arc<Node>,
    policy: WaitPolicy,
    waits: ServingWaits,
    idle: Option<Wait>,
    spins: Option<bool>,
    peers: Vec<Peer>,
    /// Channels that have ended the last sleep.
    fired: Vec<i32>,
    last_tick: Nanos,
    tick_after: Nanos,
}

struct Peer {
    session: Arc<SimSession>,
    yields: YieldTimer,
    muted: Vec<(i32, Nanos)>,
    /// Consecutive rounds of polls without an event.
    empty_polls: u32,
    /// The peer is armed, and neither polled nor disarmed until its channel has an event.
    rests: bool,
}

impl Serving {
    pub(super) fn new(node: Arc<Node>, policy: WaitPolicy, spin_down: Option<Nanos>) -> Self {
        let peer = |session: &Arc<SimSession>| Peer {
            session: Arc::clone(session),
            yields: YieldTimer::default(),
            muted: Vec::new(),
            empty_polls: 0,
            rests: false,
        };
        Self {
            peers: node.peers.values().map(peer).collect(),
            node,
            policy,
            waits: ServingWaits::new(spin_down),
            idle: None,
            spins: None,
            fired: Vec::new(),
            last_tick: Nanos::ZERO,
            tick_after: BUSY_TICK,
        }
    }

    /// Serves until the node stops.
    pub(super) fn run(&mut self) {
        scheduler::serves(self.peers.iter().map(|peer| Arc::clone(&peer.session)).collect());
        let node = Arc::clone(&self.node);
        while !node.is_stopping() {
            self.recover();
            self.rouse();
            let decision = self.decide();
            let taken = self.poll(false) + node.handle_jobs();
            self.found(taken);
            let now = node.executor.now();
            if taken != 0 {
                self.end_idle(now);
            }
            if now >= self.last_tick + self.tick_after {
                self.tick(now);
            }
            if taken == 0 {
                self.poll_or_sleep(decision, now);
            }
        }
        self.peers.iter_mut().for_each(|peer| peer.rests = false);
        self.report(ServingState::Working);
    }

    /// Recovers the sessions in which a thread has panicked.
    fn recover(&mut self) {
        if self.node.executor.takes_failure() {
            for Peer { session, .. } in &self.peers {
                session.fail(&mut self.node.sink(session, Thread::Waiting), &self.node.executor);
            }
        }
    }

    fn decide(&mut self) -> Decision {
        let overrides = self.peers.iter().map(|peer| peer.session.wait_override());
        let decision = self.waits.decide(self.policy, overrides, &self.node.executor);
        let spins = decision.polls_for() == Nanos::NEVER;
        if self.spins.replace(spins) != Some(spins) {
            self.report(if spins { ServingState::Spinning } else { ServingState::Working });
        }
        decision
    }

    fn report(&self, state: ServingState) {
        for Peer { session, .. } in self.peers.iter().filter(|peer| !peer.rests) {
            session.set_serving(state, &self.node.executor);
        }
    }

    /// Polls every peer that does not rest, while it is `armed` for a sleep or not. Returns the number of events.
    fn poll(&mut self, armed: bool) -> usize {
        let node = &self.node;
        self.peers.iter_mut().filter(|peer| !peer.rests).map(|peer| peer.poll(node, armed)).sum()
    }

    /// Ends the rest of the peers for which another thread has left work, or whose channels have an event.
    fn rouse(&mut self) {
        let Some(resting) = self.node.executor.resting() else { return };
        let left = resting.take_roused();
        let channels = self.peers.iter().filter(|peer| peer.rests).flat_map(|peer| peer.channels(&self.node));
        let channels = channels.collect::<Vec<_>>();
        let ready = if channels.is_empty() { Vec::new() } else { ready(channels) };
        let is_due = |peer: &Peer| {
            left.contains(&peer.session.peer())
                || peer.channels(&self.node).any(|channel| ready.contains(&channel))
        };
        for peer in self.peers.iter_mut().filter(|peer| peer.rests) {
            if is_due(peer) {
                peer.rests = false;
                resting.withdraw(peer.session.peer());
                peer.disarm(&self.node);
            }
        }
    }

    /// Lets the peers rest that may, before a sleep and after the recheck. Returns the number of events that their last polls found: if it
    /// is not 0, none of them rests.
    fn rest(&mut self) -> usize {
        let Some(resting) = self.node.executor.resting() else { return 0 };
        let (mut taken, mut begun) = (0, Vec::new());
        for (index, peer) in self.peers.iter_mut().enumerate() {
            if peer.rests || peer.empty_polls < REST_AFTER || !peer.session.may_rest() {
                continue;
            }
            resting.make(peer.session.peer());
            let found = peer.poll(&self.node, true);
            peer.rests = found == 0;
            if peer.rests {
                begun.push(index);
                resting.has_begun();
            } else {
                resting.withdraw(peer.session.peer());
            }
            taken += found;
        }
        for index in begun.into_iter().filter(|_| taken != 0) {
            self.peers[index].rests = false;
            resting.withdraw(self.peers[index].session.peer());
        }
        taken
    }

    /// Records that `taken` events were found after channels had ended a sleep. A channel whose events another thread takes is left
    /// out of sleeps for a while.
    fn found(&mut self, taken: usize) {
        let now = self.node.executor.now();
        let fired = core::mem::take(&mut self.fired);
        for Peer { session, muted, rests, .. } in &mut self.peers {
            muted.retain(|(_, until)| *until > now);
            let own = session.channels(&self.node.executor).into_iter().flatten().map(|channel| channel.fd);
            let own = own.filter(|channel| fired.contains(channel));
            if !*rests && taken == 0 && !session.is_servers() {
                muted.extend(own.map(|channel| (channel, now + MUTED)));
            }
        }
    }

    fn end_idle(&mut self, now: Nanos) {
        if let Some(mut wait) = self.idle.take() {
            wait.ended(now, self.waits.history());
        }
    }

    /// Checks deadlines, heartbeats and liveness.
    fn tick(&mut self, now: Nanos) {
        let (mut busy, mut due) = (false, now + IDLE_TICK);
        for Peer { session, .. } in &self.peers {
            let mut sink = self.node.sink(session, Thread::Serving);
            let tick = || session.tick(now, self.tick_after, &mut sink, &self.node.executor);
            match survived(tick).flatten() {
                Some(ticked) => {
                    busy |= session.open_calls() != 0 || ticked.work_in_flight != 0;
                    busy |= session.is_room_awaited();
                    due = due.min(ticked.next_due);
                }
                None => busy = true,
            }
        }
        self.last_tick = now;
        self.tick_after = if busy { BUSY_TICK } else { due.since(now).clamp(BUSY_TICK, IDLE_TICK) };
    }

    fn poll_or_sleep(&mut self, decision: Decision, now: Nanos) {
        let wait = self.idle.get_or_insert_with(|| Wait::new(decision, Nanos::NEVER));
        wait.decide_again(decision);
        if wait.next(now) == Next::Poll {
            return;
        }
        wait.sleeps();
        if now.since(self.last_tick) >= BUSY_TICK {
            // A sleep may be long, so the time of each peer's last message is updated first.
            self.tick(now);
        }
        let mut all = AllPeers { serving: self, taken: 0 };
        let _: Outcome = arm_recheck_sleep(&mut all);
        if all.taken != 0 {
            let now = self.node.executor.now();
            self.end_idle(now);
        }
    }
}

/// The serving thread as a sleeper: all peers of its node.
struct AllPeers<'a> {
    serving: &'a mut Serving,
    taken: usize,
}

impl Peer {
    /// Polls the peer, while it is `armed` for a sleep or not. Returns the number of events.
    fn poll(&mut self, node: &Node, armed: bool) -> usize {
        let found = self.poll_once(node, armed);
        self.empty_polls = if found == 0 { self.empty_polls.saturating_add(1) } else { 0 };
        found
    }

    fn poll_once(&mut self, node: &Node, armed: bool) -> usize {
        let (Self { session, yields, .. }, executor) = (self, &node.executor);
        let stop = || node.is_stopping();
        let turn = || session.turn(POLLS, stop, &mut node.sink(session, Thread::Serving), executor);
        let progress = survived(turn).flatten();
        if progress.is_none() && session.has_failed() {
            session.fail(&mut node.sink(session, Thread::Waiting), executor);
            return 1;
        }
        if progress.is_none_or(|progress| progress.moved != 0 && session.is_awaited()) {
            session.yield_to_waiters(yields, progress.is_some(), executor.now(), executor);
        }
        if armed && session.must_poll_again(progress) {
            return 1;
        }
        progress.map_or(0, |progress| progress.moved.saturating_sub(progress.responses))
    }

    fn channels(&self, node: &Node) -> impl Iterator<Item = i32> {
        self.session.channels(&node.executor).into_iter().flatten().map(|channel| channel.fd)
    }

    fn disarm(&self, node: &Node) {
        self.session.set_serving(ServingState::Working, &node.executor);
        self.session.disarm();
    }
}

/// Returns which of these channels have an event now.
fn ready(channels: Vec<i32>) -> Vec<i32> {
    let asleep = Asleep { on: SleepOn::Serving { channels, muted: false }, until: Nanos::ZERO };
    scheduler::sleep(asleep, |_| false).ready
}

impl AllPeers<'_> {
    /// Sleeps in all channels. Returns whether an event ended the sleep.
    fn sleep_until(&mut self, until: Nanos, fires: bool) -> bool {
        let Serving { node, peers, fired, .. } = &mut *self.serving;
        let watched = |peer: &Peer| {
            let is_muted = |channel: i32| peer.muted.iter().any(|(muted, _)| *muted == channel);
            peer.channels(node).filter(move |channel| !is_muted(*channel)).collect::<Vec<_>>()
        };
        let channels = peers.iter().flat_map(watched).collect();
        let word = node.executor.serving();
        let until = node.executor.in_world(until);
        let muted = peers.iter().any(|peer| !peer.muted.is_empty());
        let asleep = Asleep { on: SleepOn::Serving { channels, muted }, until };
        let woken = scheduler::sleep(asleep, |_| !fires || word.should_sleep());
        if fires {
            let rested = |channel: &i32| {
                peers.iter().any(|peer| peer.rests && peer.channels(node).any(|own| own == *channel))
            };
            fired.extend(woken.ready.into_iter().filter(|channel| !rested(channel)));
        }
        woken.by_event
    }
}

impl Sleeper for AllPeers<'_> {
    fn arm(&mut self) -> bool {
        self.serving.node.executor.serving().arm();
        self.serving.report(ServingState::Sleeping);
        self.serving.spins = None;
        true
    }

    fn recheck(&mut self) -> Recheck {
        self.taken = self.serving.poll(true);
        let Node { executor, .. } = &*self.serving.node;
        let found = self.taken != 0
            || self.serving.node.has_jobs()
            || self.serving.node.is_stopping()
            || executor.has_failure()
            || executor.resting().is_some_and(Announcements::has_roused)
            || !executor.serving().should_sleep();
        if found { Recheck::Found } else { Recheck::Empty }
    }

    fn sleep(&mut self) -> Woken {
        let found = self.serving.rest();
        if found != 0 {
            self.taken += found;
            return Woken::Early;
        }
        // A caller that begins to wait without polling needs ticks; here each sleep is short enough for that.
        let tick = self.serving.last_tick + self.serving.tick_after;
        let tick = tick.min(self.serving.node.executor.now() + BUSY_TICK);
        let trials = self.serving.peers.iter().flat_map(|peer| &peer.muted).map(|(_, until)| *until);
        let until = trials.fold(tick, Nanos::min);
        if self.sleep_until(until, true) { Woken::Early } else { Woken::Limit }
    }

    fn check_safety_net(&mut self) {
        for index in 0..self.serving.peers.len() {
            let Peer { session, muted, rests, .. } = &self.serving.peers[index];
            let (node, session) = (Arc::clone(&self.serving.node), Arc::clone(session));
            if *rests || !session.is_servers() || !muted.is_empty() {
                continue;
            }
            let until = node.executor.now() + LATE;
            let mut sink = node.sink(&session, Thread::Serving);
            let woken = || !node.executor.serving().should_sleep() || self.sleep_until(until, false);
            // A failed session is recovered before the next poll.
            let _ = survived(|| session.check_safety_net(&mut sink, &node.executor, woken));
        }
    }

    fn disarm(&mut self) {
        self.serving.node.executor.serving().disarm();
        let Serving { node, peers, .. } = &*self.serving;
        peers.iter().filter(|peer| !peer.rests).for_each(|peer| peer.disarm(node));
    }
}
