//! The node as its threads share it: clock, waits, routes, peers.

use core::cell::Cell;
use core::panic::AssertUnwindSafe;
use core::time::Duration;
use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::PollTimeout;
use nix::sys::eventfd::{EfdFlags, EventFd};
use pronto_core::executor::{Channels, Circumstances, Polled, alone};
use pronto_core::session::{DownCause, Event, Identity, Limits, LinkInfo, Session, Sink};
use pronto_core::wait::{ServingWaits, WaitOverride};
use pronto_core::{Clock, Executor, Nanos, Note, WaitPolicy};
use pronto_fabric_tcp::ReceivePool;
use pronto_progress::{Engine, panic_message};
use pronto_rpc::host::MayWait;
use pronto_rpc::{Host, Route};
use pronto_sched_policy::policy::spin::{CpuSupply, SchedClass};
use pronto_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use pronto_wire::NodeId;

use crate::address::Address;
use crate::boost::{Boost, Boosting};
use crate::events::EventLog;
use crate::flight::{self, Alarm, Flight};
use crate::guard::Panics;
use crate::node::Down;
use crate::placement::Placement;
use crate::pool::Pool;
use crate::queue_pair::{AnyLease, AnyQueuePair};
use crate::refusals::Refusals;
use crate::serving::Serving;
use crate::sink::WaitingSink;
use crate::waits::ContentionEvidence;
use crate::{calibrate, sched_class, system, threshold};

/// The session type of this node.
pub(crate) type NodeSession = Session<AnyQueuePair>;

/// The node as its threads share it.
pub struct NodeHost {
    pub(crate) identity: Identity,
    pub(crate) limits: Limits,
    pub(crate) policy: WaitPolicy,
    pub(crate) boosting: Arc<Boosting>,
    pub(crate) max_peers: usize,
    pub(crate) routes: OnceLock<Vec<Route<Self>>>,
    pub(crate) peers: RwLock<BTreeMap<NodeId, Arc<NodeSession>>>,
    /// Grows when `peers` or a link of one changes.
    pub(crate) version: AtomicU64,
    pub(crate) serving: Serving,
    pub(crate) pool: Pool,
    /// Memory for what arrives by TCP.
    pub(crate) receive_pool: Arc<ReceivePool>,
    /// The keeper of links should look again.
    pub(crate) keeper: EventFd,
    pub(crate) events: EventLog,
    pub(crate) panics: Panics,
    pub(crate) flight: Flight,
    /// Where on its machine the node is, once it is put together.
    pub(crate) placement: OnceLock<Placement>,
    /// Where the node listens, once it does.
    pub(crate) listening: OnceLock<Vec<Address>>,
    /// Connections accepted that did not become links.
    pub(crate) refusals: Refusals,
    /// Attempts to dial that did not become links.
    pub(crate) failed_dials: Refusals,
    /// The last of them, by peer, while it is not linked. As many as peers are configured.
    failures: Mutex<BTreeMap<NodeId, Vec<String>>>,
    /// Why and when a peer went down that was up, and is not again.
    downs: Mutex<BTreeMap<NodeId, (DownCause, Nanos)>>,
    /// Sessions as their events tell of them, for threads that must not wait for an engine.
    sessions_seen: Mutex<BTreeMap<NodeId, SessionSeen>>,
    /// Why a link goes over what it goes over, by peer.
    choices: Mutex<BTreeMap<NodeId, String>>,
    pub(crate) stopping: AtomicBool,
    pub(crate) draining: AtomicBool,
    /// Whether adaptive waits may poll.
    pub(crate) waits: ContentionEvidence,
    /// How the serving thread waits.
    pub(crate) serving_waits: ServingWaits,
    clock: NodeClock,
}

/// The node's clock: the monotonic one, from the node's start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeClock(Instant);

impl NodeClock {
    /// From now on.
    pub(crate) fn start() -> Self {
        #[expect(clippy::disallowed_methods, reason = "the node is where the clock is read")]
        let now = Instant::now();
        Self(now)
    }
}

/// A session, as its last event said.
#[derive(Clone, Copy, Debug)]
struct SessionSeen {
    info: LinkInfo,
    linked: bool,
}

/// Reasons why a peer is not reached that are remembered, so that each is told once.
const REASONS: usize = 16;

/// Who holds a session that nobody uses: the list of peers, the serving thread, and the source that it polls.
const HELD_BY_NODE: usize = 3;

thread_local! {
    static ROLE: Cell<MayWait> = const { Cell::new(MayWait::Freely) };
}

/// Runs something as a handler of some kind: what it may wait for depends on it. A panic in it leaves no trace here.
pub(crate) fn as_handler<R>(may: MayWait, run: impl FnOnce() -> R) -> R {
    let _before = Before(ROLE.replace(may));
    run()
}

/// What the calling thread might wait for before; it may again when this is dropped.
struct Before(MayWait);

impl Drop for Before {
    fn drop(&mut self) {
        ROLE.set(self.0);
    }
}

impl NodeHost {
    pub(crate) fn new(
        identity: Identity,
        limits: Limits,
        (waiting, boost, engine): (WaitOverride, Boost, Engine),
        workers: usize,
        max_peers: usize,
        receive_pool: Arc<ReceivePool>,
    ) -> Result<Self, Errno> {
        let boosting = Arc::new(Boosting::new(boost));
        let pool = Pool::new(workers);
        let clock = NodeClock::start();
        let serving = Serving::new(engine, clock, &boosting)?;
        Ok(Self {
            identity,
            limits,
            policy: waiting.policy,
            boosting,
            max_peers,
            routes: OnceLock::new(),
            peers: RwLock::default(),
            version: AtomicU64::new(0),
            serving,
            pool,
            receive_pool,
            keeper: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
            events: EventLog::default(),
            panics: Panics::default(),
            flight: Flight::default(),
            placement: OnceLock::new(),
            listening: OnceLock::new(),
            refusals: Refusals::default(),
            failed_dials: Refusals::default(),
            failures: Mutex::default(),
            downs: Mutex::default(),
            sessions_seen: Mutex::default(),
            choices: Mutex::default(),
            stopping: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            waits: ContentionEvidence::new(),
            serving_waits: ServingWaits::new(waiting.bound),
            clock,
        })
    }

    /// The calling thread serves peers from now on, where it was decided.
    pub(crate) fn take_seat(&self) {
        if let Some(placement) = self.placement.get() {
            placement.adopt();
        }
    }

    /// The calling thread, which one that serves peers may have started, runs where it likes.
    pub(crate) fn leave_seat(&self) {
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

    /// The session with a node, if there is one.
    pub(crate) fn known_session(&self, peer: NodeId) -> Option<Arc<NodeSession>> {
        self.peers.read().expect("no holder panics").get(&peer).cloned()
    }

    /// The session with a node, made if there is none and room for one more.
    pub(crate) fn session(&self, peer: NodeId) -> Option<Arc<NodeSession>> {
        if let Some(session) = self.known_session(peer) {
            return Some(session);
        }
        let mut peers = self.peers.write().expect("no holder panics");
        if peers.len() >= self.max_peers && !peers.contains_key(&peer) {
            return None;
        }
        let session = peers.entry(peer).or_insert_with(|| Arc::new(Session::new(peer, self.limits)));
        let session = Arc::clone(session);
        drop(peers);
        self.changed();
        Some(session)
    }

    /// Forgets a peer that has gone: its place, its source and its memory are free again. Not one whose session waits for another
    /// link, nor one that somebody holds, as the node itself holds peers that it was told of, or has said how to wait for; one that
    /// broke the protocol only where all places are taken, as its counters tell of that. For the serving thread, of what it serves.
    pub(crate) fn forget_if_gone(&self, session: &Arc<NodeSession>) {
        let has_gone = || {
            let is_held = Arc::strong_count(session) != HELD_BY_NODE;
            // SYNC: who made a link and let go of the session did so in this order; pairs with the release in `Arc`'s drop.
            fence(Ordering::Acquire);
            !is_held && session.wait_override().is_none() && session.is_over(self)
        };
        if !has_gone() {
            return;
        }
        let mut peers = self.peers.write().expect("no holder panics");
        let tells = session.stats().corrupt_peers.count() != 0 && peers.len() < self.max_peers;
        // Nobody finds it in the list while this thread has that: who had found it before holds it.
        if !tells && has_gone() {
            let peer = session.peer();
            peers.remove(&peer);
            self.forget_failure(peer);
            self.choices.lock().expect("no holder panics").remove(&peer);
            self.downs.lock().expect("no holder panics").remove(&peer);
            self.sessions_seen.lock().expect("no holder panics").remove(&peer);
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    pub(crate) fn sessions(&self) -> Vec<Arc<NodeSession>> {
        self.peers.read().expect("no holder panics").values().cloned().collect()
    }

    /// An attempt to reach a peer failed. Returns whether that is news: a peer with several addresses has several reasons, of
    /// which each is told once.
    pub(crate) fn note_failure(&self, peer: NodeId, why: String) -> bool {
        let mut failures = self.failures.lock().expect("no holder panics");
        let reasons = failures.entry(peer).or_default();
        let known = reasons.iter().position(|reason| *reason == why);
        match known {
            Some(at) => drop(reasons.remove(at)),
            None if reasons.len() >= REASONS => drop(reasons.remove(0)),
            None => {}
        }
        // The last one comes last.
        reasons.push(why);
        known.is_none()
    }

    /// A link to a peer goes over this transport, for this reason.
    pub(crate) fn note_choice(&self, peer: NodeId, why: String) {
        self.choices.lock().expect("no holder panics").insert(peer, why);
    }

    /// Why the last link to a peer goes, or went, over what it does.
    pub(crate) fn choice(&self, peer: NodeId) -> Option<String> {
        self.choices.lock().expect("no holder panics").get(&peer).cloned()
    }

    /// A peer was reached.
    pub(crate) fn forget_failure(&self, peer: NodeId) {
        self.failures.lock().expect("no holder panics").remove(&peer);
    }

    /// Why the last attempt to reach a peer failed; none if it was reached, or nobody tried.
    pub(crate) fn last_failure(&self, peer: NodeId) -> Option<String> {
        self.failures.lock().expect("no holder panics").get(&peer)?.last().cloned()
    }

    /// How a peer went down, if it is.
    pub(crate) fn down(&self, peer: NodeId) -> Option<Down> {
        let (cause, since) = self.downs.lock().expect("no holder panics").get(&peer).copied()?;
        Some(Down { cause, ago: Duration::from_nanos(self.now().since(since).0) })
    }

    /// Returns the session with a peer, if there is one, and whether a link carries it. An inline handler, which must not wait for the
    /// engine, gets what the last event of the session said: its `provider` is that of the session's first link.
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
            Event::LinkLost { peer, .. } => links(peer, false),
            Event::LinkResumed { peer, .. } => links(peer, true),
            Event::PeerUp(info) => drop(seen.insert(info.peer, SessionSeen { info, linked: true })),
            Event::PeerDown { peer, .. } => drop(seen.remove(&peer)),
        }
    }

    fn note_down(&self, event: &Event) {
        let mut downs = self.downs.lock().expect("no holder panics");
        match *event {
            Event::PeerUp(info) => drop(downs.remove(&info.peer)),
            Event::PeerDown { peer, cause, .. } => drop(downs.insert(peer, (cause, self.now()))),
            Event::LinkLost { .. } | Event::LinkResumed { .. } => {}
        }
    }

    /// Peers or links changed: the serving thread looks again.
    pub(crate) fn changed(&self) {
        self.version.fetch_add(1, Ordering::Release);
        self.serving.alert();
    }

    pub(crate) fn on_event(&self, event: Event) {
        // Who has gone is no source any more, and no node of this host.
        self.changed();
        // In a thread that may have read no clock for long.
        flight::awake(self);
        self.note(flight::of_event(&event));
        self.note_down(&event);
        self.note_session(&event);
        self.events.publish(event);
        self.wake_keeper();
        // Last: a subscriber that panics keeps nobody from the event.
        tracing::debug!(node = %self.identity.node, ?event, "peer event");
    }

    /// The flight recorder is to be read, by the thread that keeps links: this one may hold an engine.
    #[cold]
    fn alarm(&self, alarm: Alarm) {
        self.flight.ring(alarm);
        self.wake_keeper();
    }

    /// The calling thread is about to sleep until then at most. Gives for how long that is.
    fn before_sleep(&self, until: Nanos) -> Duration {
        self.serving.before_wait();
        self.boosting.before_wait();
        let now = self.now();
        sched_class::before_sleep(now);
        flight::sleeps();
        Duration::from_nanos(until.since(now).0)
    }

    pub(crate) fn wake_keeper(&self) {
        // A full counter is as good as a write: the descriptor is readable.
        let _full = self.keeper.write(1);
    }
}

impl Clock for NodeClock {
    fn now(&self) -> Nanos {
        let now = Nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX));
        pronto_recorder::time(now.0);
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
        // What nobody needs is not asked for.
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

    fn wake_serving_thread(&self) {
        self.serving.wake();
    }

    fn engine_failed(&self) {
        // The serving thread looks at its sessions before it sleeps.
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

/// A timeout for the kernel, rounded up to milliseconds.
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
        // More send memory may be all that is missing, and the serving thread makes it.
        self.serving.keep_time();
        #[expect(
            clippy::disallowed_methods,
            reason = "back-pressure is a wait, and this is the node's clock"
        )]
        std::thread::sleep(Duration::from_micros(50));
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

    #[test]
    fn peers_that_nobody_holds_are_forgotten_but_for_those_of_which_something_was_said() {
        let node = Node::builder(1).start().expect("it listens nowhere");
        let host = &node.host;
        let [two, three, four] = [2, 3, 4].map(|peer| host.session(NodeId(peer)).expect("there is room"));
        two.set_wait_override(Some(WaitOverride { policy: WaitPolicy::Block, bound: None }));
        drop((two, four));
        #[expect(clippy::disallowed_methods, reason = "the serving thread is waited for, and not for ever")]
        let begun = Instant::now();
        while host.known_session(NodeId(4)).is_some() {
            assert!(begun.elapsed() < Duration::from_secs(20), "it is still known");
            std::thread::yield_now();
        }
        let known: Vec<_> = host.sessions().iter().map(|session| session.peer().0).collect();
        assert_eq!(known, [2, 3]);
        drop(three);
    }
}
