//! The state of a node that its threads share: clock, waits, routes, peers.

use core::cell::Cell;
use core::panic::AssertUnwindSafe;
use core::time::Duration;
use std::collections::{BTreeMap, HashMap};
use std::panic::catch_unwind;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::PollTimeout;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::unistd::geteuid;
use pronto_core::executor::{Channels, Circumstances, Polled, alone};
use pronto_core::session::{DownCause, Event, Evidence, Identity, Limits, LinkInfo, Session, Sink};
use pronto_core::wait::{ServingWaits, WaitOverride};
use pronto_core::{Clock, Executor, Nanos, Note, WaitPolicy};
use pronto_fabric_tcp::ReceivePool;
use pronto_progress::{Engine, panic_message};
use pronto_rpc::host::MayWait;
use pronto_rpc::{Host, Route};
use pronto_sched_policy::policy::spin::{CpuSupply, SchedClass};
use pronto_sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use pronto_trust::{Source, TrustError};
use pronto_wire::NodeId;

use crate::access::{Rules, Subjects};
use crate::config::address::Address;
use crate::links::refusals::Refusals;
use crate::measure::calibrate;
use crate::measure::threshold;
use crate::node::Down;
use crate::queue_pair::{AnyLease, AnyQueuePair};
use crate::recorder;
use crate::recorder::audit::Audit;
use crate::recorder::flight::{self, Alarm, Flight};
use crate::serving::futures::Futures;
use crate::serving::guard::Panics;
use crate::serving::pool::Pool;
use crate::serving::sink::WaitingSink;
use crate::serving::{BUSY_TICK, Serving};
use crate::status::awaiting::UntilState;
use crate::status::events::EventLog;
use crate::system;
use crate::threads::boost::{Boost, Boosting};
use crate::threads::placement::Placement;
use crate::threads::sched_class;
use crate::trust::Trust;
use crate::waits::contention::ContentionEvidence;

/// The session type of this node.
pub(crate) type NodeSession = Session<AnyQueuePair>;

/// State of a node that its threads share.
pub struct NodeHost {
    pub(crate) identity: Identity,
    pub(crate) limits: Limits,
    pub(crate) policy: WaitPolicy,
    pub(crate) boosting: Arc<Boosting>,
    pub(crate) max_peers: usize,
    pub(crate) routes: OnceLock<Vec<Route<Self>>>,
    /// Rules of which peers may use which of them. A link is installed under a read lock, so that its peer is under the present rules.
    pub(crate) rules: RwLock<Rules>,
    pub(crate) peers: RwLock<BTreeMap<NodeId, Arc<NodeSession>>>,
    /// Grows when `peers` or a link of one changes.
    pub(crate) version: AtomicU64,
    pub(crate) serving: Serving,
    pub(crate) pool: Pool,
    /// Futures of async handlers.
    pub(crate) futures: Futures,
    /// Memory for messages that arrive over TCP.
    pub(crate) receive_pool: Arc<ReceivePool>,
    /// Credentials, if connections over TCP are encrypted.
    pub(crate) trust: Option<Trust>,
    /// Wakes the links thread.
    pub(crate) links_event: EventFd,
    pub(crate) events: EventLog,
    pub(crate) panics: Panics,
    pub(crate) flight: Flight,
    pub(crate) audit: Audit,
    /// Placement of the node on its machine, set at the start.
    pub(crate) placement: OnceLock<Placement>,
    /// Users of the peers that are configured with one, set at the start.
    pub(crate) users: OnceLock<HashMap<NodeId, u32>>,
    /// Addresses at which the node listens, set at the start.
    pub(crate) listening: OnceLock<Vec<Address>>,
    /// Accepted connections that did not become links.
    pub(crate) refusals: Refusals,
    /// Dialled connections that did not become links.
    pub(crate) failed_dials: Refusals,
    /// Reasons of recent failed attempts to reach a configured peer, by peer, while the peer is not linked. The last failure is last.
    failures: Mutex<BTreeMap<NodeId, Vec<String>>>,
    /// Cause and time of the end of the last session with a peer that is down.
    downs: Mutex<BTreeMap<NodeId, (DownCause, Nanos)>>,
    /// Sessions as of their last events, for threads that must not wait for an engine.
    sessions_seen: Mutex<BTreeMap<NodeId, SessionSeen>>,
    /// Reasons for the transport of each peer's link.
    choices: Mutex<BTreeMap<NodeId, String>>,
    /// Pressure of this node, which headers to its peers carry.
    pub(crate) pressure: AtomicU8,
    pub(crate) stopping: AtomicBool,
    pub(crate) draining: AtomicBool,
    /// Contention state, which decides whether adaptive waits may poll.
    pub(crate) waits: ContentionEvidence,
    /// Wait state of the serving thread.
    pub(crate) serving_waits: ServingWaits,
    clock: NodeClock,
}

/// The node's clock, which is monotonic and starts with the node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeClock(Instant);

impl NodeClock {
    /// Returns a clock that starts now.
    pub(crate) fn start() -> Self {
        #[expect(clippy::disallowed_methods, reason = "the node is where the clock is read")]
        let now = Instant::now();
        Self(now)
    }
}

/// State of a session as of its last event.
#[derive(Clone, Copy, Debug)]
struct SessionSeen {
    info: LinkInfo,
    linked: bool,
}

/// Number of reasons kept for a peer that cannot be reached, so that each is logged once.
const REASONS: usize = 16;

/// Number of references that the node itself holds to a session: the list of peers, the serving thread, and the peer's source.
const HELD_BY_NODE: usize = 3;

thread_local! {
    static ROLE: Cell<MayWait> = const { Cell::new(MayWait::Freely) };
}

/// Runs a function with `may` as the permission of the calling thread to wait. A panic restores the previous permission as well.
pub(crate) fn as_handler<R>(may: MayWait, run: impl FnOnce() -> R) -> R {
    let _restore = RestoreRole(ROLE.replace(may));
    run()
}

/// Restores the previous permission to wait when dropped.
struct RestoreRole(MayWait);

impl Drop for RestoreRole {
    fn drop(&mut self) {
        ROLE.set(self.0);
    }
}

impl NodeHost {
    pub(crate) fn new(
        identity: Identity,
        limits: Limits,
        (waiting, boost, engine): (WaitOverride, Boost, Engine),
        pool: Pool,
        max_peers: usize,
        receive_pool: Arc<ReceivePool>,
        trust: Option<Trust>,
    ) -> Result<Self, Errno> {
        let boosting = Arc::new(Boosting::new(boost));
        let clock = NodeClock::start();
        let serving = Serving::new(engine, clock, &boosting)?;
        Ok(Self {
            identity,
            limits,
            policy: waiting.policy,
            boosting,
            max_peers,
            routes: OnceLock::new(),
            rules: RwLock::default(),
            peers: RwLock::default(),
            version: AtomicU64::new(0),
            serving,
            pool,
            futures: Futures::default(),
            receive_pool,
            trust,
            links_event: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
            events: EventLog::default(),
            panics: Panics::default(),
            flight: Flight::default(),
            audit: Audit::default(),
            placement: OnceLock::new(),
            users: OnceLock::new(),
            listening: OnceLock::new(),
            refusals: Refusals::default(),
            failed_dials: Refusals::default(),
            failures: Mutex::default(),
            downs: Mutex::default(),
            sessions_seen: Mutex::default(),
            choices: Mutex::default(),
            pressure: AtomicU8::new(0),
            stopping: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            waits: ContentionEvidence::new(),
            serving_waits: ServingWaits::new(waiting.bound),
            clock,
        })
    }

    /// Binds the calling thread, which serves peers from now on, to the decided CPUs.
    pub(crate) fn adopt_placement(&self) {
        if let Some(placement) = self.placement.get() {
            placement.adopt();
        }
    }

    /// Lets the calling thread run on any CPU, even if a thread that serves peers started it.
    pub(crate) fn release_placement(&self) {
        if let Some(placement) = self.placement.get() {
            placement.release();
        }
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    pub(crate) fn routes(&self) -> &[Route<Self>] {
        self.routes.get().map_or(&[], Vec::as_slice)
    }

    /// Returns the session with a node, if there is one.
    pub(crate) fn known_session(&self, peer: NodeId) -> Option<Arc<NodeSession>> {
        self.peers.read().expect("no holder panics").get(&peer).cloned()
    }

    /// Returns the session with a node. Creates it if there is none, and returns `None` if all slots are taken.
    pub(crate) fn session(&self, peer: NodeId) -> Option<Arc<NodeSession>> {
        if let Some(session) = self.known_session(peer) {
            return Some(session);
        }
        let mut peers = self.peers.write().expect("no holder panics");
        if peers.len() >= self.max_peers && !peers.contains_key(&peer) {
            return None;
        }
        let begin = || {
            let session = Session::new(peer, self.limits);
            self.begin_pressure(&session);
            Arc::new(session)
        };
        let session = peers.entry(peer).or_insert_with(begin);
        let session = Arc::clone(session);
        drop(peers);
        self.changed();
        Some(session)
    }

    /// Removes a disconnected peer and frees its slot, its source and its memory. Sessions that can resume are kept, as are peers with
    /// live handles (the links thread has one for each configured peer) and peers with a wait override. A peer that violated the
    /// protocol is kept for its counters until its slot is needed. To be called by the serving thread for a session that it serves.
    pub(crate) fn forget_if_gone(&self, session: &Arc<NodeSession>) {
        let has_gone = || {
            let is_held = Arc::strong_count(session) != HELD_BY_NODE;
            // SYNC: a thread that installed a link did so before it dropped its handle; pairs with the release in `Arc`'s drop.
            fence(Ordering::Acquire);
            !is_held && session.wait_override().is_none() && session.is_over(self)
        };
        if !has_gone() {
            return;
        }
        let mut peers = self.peers.write().expect("no holder panics");
        let tells = session.stats().corrupt_peers.count() != 0 && peers.len() < self.max_peers;
        // While this thread has the lock, no other thread can find the session; a thread that found it before holds a handle.
        if !tells && has_gone() {
            let peer = session.peer();
            peers.remove(&peer);
            self.forget_failure(peer);
            self.choices.lock().expect("no holder panics").remove(&peer);
            self.downs.lock().expect("no holder panics").remove(&peer);
            self.sessions_seen.lock().expect("no holder panics").remove(&peer);
            if let Some(trust) = &self.trust {
                trust.forget(peer);
            }
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    pub(crate) fn sessions(&self) -> Vec<Arc<NodeSession>> {
        self.peers.read().expect("no holder panics").values().cloned().collect()
    }

    /// Ends the session with a peer, and its link.
    pub(crate) fn take_down(self: &Arc<Self>, session: &Arc<NodeSession>, cause: DownCause) {
        let mut sink = WaitingSink { host: self, session };
        session.take_down(cause, &mut sink, &**self);
    }

    /// Returns the identity that a peer has proved for its last link, such as `operator alice (admin)`.
    pub(crate) fn identity_of(&self, peer: NodeId) -> Option<String> {
        Some(self.trust.as_ref()?.identity(peer)?.to_string())
    }

    /// Returns a peer with this evidence, as rules name it.
    pub(crate) fn subjects<'a>(
        &self,
        peer: NodeId,
        evidence: Evidence,
        identity: Option<&'a pronto_trust::Identity>,
    ) -> Subjects<'a> {
        let user = match evidence {
            Evidence::SameUser => Some(geteuid().as_raw()),
            Evidence::User => self.users.get().and_then(|users| users.get(&peer)).copied(),
            Evidence::Certificate | Evidence::Key | Evidence::Claim => None,
        };
        Subjects { node: self.identity.node, peer, evidence, user, identity }
    }

    /// Replaces the rules of which peers may use which message types, also for peers that are linked.
    pub(crate) fn set_rules(&self, rules: Rules) {
        let mut present = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        *present = rules;
        for session in self.sessions() {
            let Some(info) = session.info(self) else { continue };
            let peer = session.peer();
            let identity = self.trust.as_ref().and_then(|trust| trust.identity(peer));
            let subjects = self.subjects(peer, info.evidence, identity.as_ref());
            present.apply(&session, &subjects, self.routes());
        }
    }

    /// Reads the credentials again, from `source` if there is one, and ends the links of peers that this node no longer trusts. Returns their
    /// number.
    pub(crate) fn reload_trust(self: &Arc<Self>, source: Option<Source>) -> Result<usize, TrustError> {
        let Some(trust) = &self.trust else { return Ok(0) };
        let mut ended = 0;
        for (peer, reason) in &trust.reload(source)? {
            let Some(session) = self.known_session(*peer) else { continue };
            // The peer may have another link by now, over shared memory.
            let is_meant = |info: LinkInfo| matches!(info.evidence, Evidence::Certificate | Evidence::Key);
            if session.info(&**self).is_some_and(is_meant) {
                tracing::warn!(node = %peer, %reason, "ended the link of a peer that this node no longer trusts");
                self.take_down(&session, DownCause::Untrusted);
                ended += 1;
            }
        }
        Ok(ended)
    }

    /// Records a failed attempt to reach a peer. Returns whether the reason is new: a peer with several addresses can have several
    /// reasons, each of which is logged once.
    pub(crate) fn note_failure(&self, peer: NodeId, why: String) -> bool {
        let mut failures = self.failures.lock().expect("no holder panics");
        let reasons = failures.entry(peer).or_default();
        let known = reasons.iter().position(|reason| *reason == why);
        match known {
            Some(at) => drop(reasons.remove(at)),
            None if reasons.len() >= REASONS => drop(reasons.remove(0)),
            None => {}
        }
        // A repeated reason moves to the end, because the last one is reported.
        reasons.push(why);
        known.is_none()
    }

    /// Records the transport of a link to a peer and the reason for it.
    pub(crate) fn note_choice(&self, peer: NodeId, why: String) {
        self.choices.lock().expect("no holder panics").insert(peer, why);
    }

    /// Returns the transport of the present or last link to a peer, and the reason for it.
    pub(crate) fn choice(&self, peer: NodeId) -> Option<String> {
        self.choices.lock().expect("no holder panics").get(&peer).cloned()
    }

    /// Discards the failures of a peer that was reached.
    pub(crate) fn forget_failure(&self, peer: NodeId) {
        self.failures.lock().expect("no holder panics").remove(&peer);
    }

    /// Returns the reason why the last attempt to reach a peer failed, or `None` if it succeeded or there was none.
    pub(crate) fn last_failure(&self, peer: NodeId) -> Option<String> {
        self.failures.lock().expect("no holder panics").get(&peer)?.last().cloned()
    }

    /// Returns the cause and time of a peer's failure or departure, if the peer is down.
    pub(crate) fn down(&self, peer: NodeId) -> Option<Down> {
        let (cause, since) = self.downs.lock().expect("no holder panics").get(&peer).copied()?;
        Some(Down { cause, ago: Duration::from_nanos(self.now().since(since).0) })
    }

    /// Returns the session with a peer, if there is one, and whether a link carries it. In an inline handler, which must not wait for
    /// the engine lock, the result is as of the session's last event, and its `provider` is that of the session's first link.
    pub(crate) fn link_of(&self, session: &NodeSession) -> (Option<LinkInfo>, bool) {
        if self.may_block() {
            return (session.info(self), session.is_linked(self));
        }
        let seen = self.sessions_seen.lock().expect("no holder panics");
        let seen = seen.get(&session.peer());
        (seen.map(|seen| seen.info), seen.is_some_and(|seen| seen.linked))
    }

    fn note_session(&self, event: &Event) {
        let mut seen = self.sessions_seen.lock().expect("no holder panics");
        let mut links = |peer, linked| {
            if let Some(seen) = seen.get_mut(&peer) {
                seen.linked = linked;
            }
        };
        match *event {
            Event::LinkLost { peer, .. } | Event::LinkPaused { peer } => links(peer, false),
            Event::LinkResumed { peer, .. } | Event::PauseEnded { peer } => links(peer, true),
            Event::PeerUp(info) => drop(seen.insert(info.peer, SessionSeen { info, linked: true })),
            Event::PeerDown { peer, .. } => drop(seen.remove(&peer)),
        }
    }

    fn note_down(&self, event: &Event) {
        let mut downs = self.downs.lock().expect("no holder panics");
        match *event {
            Event::PeerUp(info) => drop(downs.remove(&info.peer)),
            Event::PeerDown { peer, cause, .. } => drop(downs.insert(peer, (cause, self.now()))),
            Event::LinkLost { .. }
            | Event::LinkResumed { .. }
            | Event::LinkPaused { .. }
            | Event::PauseEnded { .. } => {}
        }
    }

    /// Records a change of peers or links, and wakes the serving thread to check them.
    pub(crate) fn changed(&self) {
        self.version.fetch_add(1, Ordering::Release);
        self.serving.alert();
    }

    pub(crate) fn on_event(&self, event: Event) {
        // The serving thread removes the source of a peer that is gone, and counts the nodes of this host again.
        self.changed();
        // The calling thread may not have read the clock for long, and the note needs the time.
        flight::awake(self);
        let note = flight::of_event(&event);
        self.note(note);
        // Its channels may be others now.
        self.serving.rouse(note.peer);
        self.note_down(&event);
        if let Event::PeerDown { peer, .. } = event {
            self.futures.peer_down(peer, self);
        }
        self.note_session(&event);
        for waker in self.events.publish(event) {
            self.foreign(|| waker.wake());
        }
        self.wake_links_thread();
        // Last, so that a log subscriber that panics does not suppress the event.
        tracing::debug!(node = %self.identity.node, ?event, "peer event");
    }

    /// Makes the threads and tasks that wait for a state look at it again.
    pub(crate) fn look_again(&self) {
        for waker in self.events.look_again() {
            self.foreign(|| waker.wake());
        }
    }

    /// Requests that the links thread logs the flight recorder. The calling thread may hold an engine lock, so it does not log itself.
    #[cold]
    fn alarm(&self, alarm: Alarm) {
        self.flight.raise(alarm);
        self.wake_links_thread();
    }

    /// Prepares for a sleep of the calling thread. Returns the time until `until`.
    fn before_sleep(&self, until: Nanos) -> Duration {
        self.serving.before_wait();
        self.boosting.before_wait();
        let now = self.now();
        sched_class::before_sleep(now);
        flight::note_sleep();
        Duration::from_nanos(until.since(now).0)
    }

    pub(crate) fn wake_links_thread(&self) {
        // If the counter is full, the write fails and the descriptor is readable anyway.
        let _full = self.links_event.write(1);
    }
}

impl Clock for NodeClock {
    fn now(&self) -> Nanos {
        let now = Nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX));
        recorder::time(now.0);
        now
    }
}

impl Clock for NodeHost {
    fn now(&self) -> Nanos {
        self.clock.now()
    }
}

impl Executor for NodeHost {
    #[inline]
    fn circumstances(&self, policy: WaitPolicy) -> Circumstances {
        let real_time = self.boosting.must_sleep() || sched_class::is_real_time();
        let sched_class = if real_time { SchedClass::RealTime } else { SchedClass::Ordinary };
        // The remaining inputs affect only adaptive waits of ordinary threads.
        if real_time || policy != WaitPolicy::Adaptive {
            return Circumstances { sched_class, ..alone(Nanos::ZERO) };
        }
        let contention = !self.waits.may_poll(&self.clock);
        let cpus = if contention { CpuSupply::Oversubscribed } else { CpuSupply::Enough };
        Circumstances { cpus, ..alone(calibrate::wake_up_cost()) }
    }

    fn polled(&self, polled: Polled) {
        self.waits.polled(polled, &self.clock);
    }

    fn sleep(&self, word: &AtomicU32, until: Nanos) {
        let span = self.before_sleep(until);
        system::futex_wait_armed(word, span);
        flight::awake(self);
    }

    fn wake(&self, word: &AtomicU32) {
        system::futex_wake(word);
    }

    fn yield_now(&self) {
        std::thread::yield_now();
    }

    #[expect(clippy::disallowed_methods, reason = "the wait is for a thread that reports nothing")]
    fn back_off(&self, span: Nanos) {
        std::thread::sleep(Duration::from_nanos(span.0));
    }

    fn may_block(&self) -> bool {
        ROLE.get() != MayWait::Never
    }

    fn foreign(&self, run: impl FnOnce()) {
        let run = || as_handler(MayWait::Never, run);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
            tracing::error!(node = %self.identity.node, why = panic_message(&*panic), "a waker panicked");
        }
    }

    fn sleep_on_channels(&self, channels: &Channels, until: Nanos) -> [bool; 2] {
        let span = self.before_sleep(until);
        let woken = self.serving.sleep_instead(channels, span);
        flight::awake(self);
        woken
    }

    fn wake_serving_thread(&self, peer: NodeId) {
        self.serving.wake_for(peer);
    }

    fn wants_link(&self, _: NodeId) {
        self.wake_links_thread();
    }

    fn ring_soon(&self, peer: NodeId) -> bool {
        let serves = self.serving.manager.engine() == Engine::Idle;
        if serves {
            self.serving.wake_for(peer);
        }
        serves
    }

    fn engine_failed(&self) {
        // The serving thread checks its sessions before it sleeps.
        self.changed();
    }

    #[inline]
    fn note(&self, note: Note) {
        flight::note(note);
        if let Some(alarm) = Alarm::of(&note) {
            self.alarm(alarm);
        }
    }
}

/// Returns a timeout for the kernel, rounded up to milliseconds.
pub(crate) fn poll_timeout(span: Duration) -> PollTimeout {
    let millis = span.as_nanos().div_ceil(1_000_000);
    PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
}

impl Host for NodeHost {
    type Qp = AnyQueuePair;

    fn waiting_sink<'a>(self: &'a Arc<Self>, session: &'a Arc<NodeSession>) -> impl Sink<AnyLease> + use<'a> {
        WaitingSink { host: self, session }
    }

    fn wait_policy(&self) -> WaitPolicy {
        self.policy
    }

    fn may_wait(&self) -> MayWait {
        if system::is_forked_child() { MayWait::Forked } else { ROLE.get() }
    }

    fn while_waiting<R>(&self, wait: impl FnOnce() -> R) -> Option<R> {
        let place = self.pool.leave_place()?;
        let result = as_handler(MayWait::Freely, wait);
        drop(place);
        Some(result)
    }

    fn expects_responses(&self) {
        self.serving.keep_time();
    }

    fn eager_limit(&self, session: &NodeSession) -> u64 {
        threshold::measure_soon();
        session.info(self).map_or(0, |link| threshold::of(link.provider).bytes())
    }

    fn pause(&self) {
        // The caller may only need more send memory, which ticks of the serving thread provide.
        self.serving.keep_time();
        #[expect(
            clippy::disallowed_methods,
            reason = "back-pressure is a wait, and this is the node's clock"
        )]
        std::thread::sleep(Duration::from_micros(50));
    }

    fn pause_for_link(&self) {
        #[expect(
            clippy::disallowed_methods,
            reason = "a handshake takes longer, and wakes no thread that waits"
        )]
        std::thread::sleep(Duration::from_micros(200));
    }

    async fn pause_async(self: &Arc<Self>) {
        // Memory is freed by ticks, so it is not tried again before the next one.
        UntilState::new(self, self.now() + BUSY_TICK, || None::<()>).await;
    }
}

impl core::fmt::Debug for NodeHost {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("NodeHost").field("node", &self.identity.node).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::Node;

    /// Shows: operations.forgotten
    #[test]
    fn peers_without_handles_are_forgotten_unless_they_have_a_wait_override() {
        let node = Node::builder(1).start().expect("it listens nowhere");
        let host = &node.host;
        let [two, three, four] = [2, 3, 4].map(|peer| host.session(NodeId(peer)).expect("there is room"));
        two.set_wait_override(Some(WaitOverride { policy: WaitPolicy::Block, bound: None }));
        drop((two, four));
        #[expect(clippy::disallowed_methods, reason = "the wait for the serving thread is bounded")]
        let begun = Instant::now();
        while host.known_session(NodeId(4)).is_some() {
            assert!(begun.elapsed() < Duration::from_secs(20), "peer 4 is still known");
            std::thread::yield_now();
        }
        let known: Vec<_> = host.sessions().iter().map(|session| session.peer().0).collect();
        assert_eq!(known, [2, 3]);
        drop(three);
    }

    /// The serving thread checks its sessions when the version changes.
    #[test]
    fn a_failed_engine_makes_the_serving_thread_check_its_sessions() {
        let node = Node::builder(1).start().expect("it listens nowhere");
        let version = || node.host.version.load(Ordering::Acquire);
        let before = version();
        node.host.engine_failed();
        assert_ne!(version(), before);
    }
}
