//! The serving thread: receives messages, runs inline handlers, does the periodic work, and sleeps when there are no events.
//!
//! It is the engine thread of a [`Manager`]. Each peer is a source, and a tasklet runs the inline handlers of messages that waiting
//! callers received.

pub(crate) mod futures;
pub(crate) mod guard;
pub(crate) mod pool;
pub(crate) mod sink;
pub(crate) mod worker_future;

use core::cell::Cell;
use core::panic::AssertUnwindSafe;
use core::task::Waker;
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::os::fd::AsRawFd as _;
use std::panic::catch_unwind;
use std::sync::{Arc, Mutex, OnceLock, RwLock, RwLockWriteGuard, Weak};
use std::task::Wake;
use std::thread::JoinHandle;

use nix::errno::Errno;
use pronto_core::executor::{Channel, Channels, Polled};
use pronto_core::fabric::Interest;
use pronto_core::session::DownCause;
use pronto_core::wait::{BackOff, Decision, SAFETY_NET, ServingState, Wait, YieldTimer};
use pronto_core::{Clock, Executor, Nanos};
use pronto_expedite::schedule::{CALLER, set_nice};
use pronto_progress::{
    AfterPanic, BusyPoll, BusyPollError, Cost, Engine, EngineDriver, EngineThreads, Manager, Place, Priority,
    Registration, Rouse, Sleep, Source, Spec, Tasklet, TimeoutFinding, Trigger, Triggers, panic_message,
};
use pronto_sync::atomic::{AtomicUsize, Ordering};
use pronto_wire::NodeId;

use crate::host::{NodeClock, NodeHost, NodeSession};
use crate::measure::calibrate;
use crate::recorder::flight;
use crate::serving::sink::{Job, ServingSink, WaitingSink};
use crate::status::admin::FIRST_VISITOR;
use crate::threads::boost::Boosting;
use crate::threads::sched_class;

/// Interval between ticks while a call is open, a work request is outstanding, or a task waits for room.
pub(crate) const BUSY_TICK: Nanos = SAFETY_NET;
/// Longest interval between ticks.
const IDLE_TICK: Nanos = Nanos::from_secs(10);
/// Time after a payload for which each tick looks for memory that its session no longer needs.
const FREES: Nanos = Nanos::from_secs(1);
/// Nice value of a spare thread. It is low enough to leave the CPU to other threads, and not so low that the spare starves, because
/// the spare holds a role that the serving thread takes back.
const SPARE_NICE: i32 = 10;
/// Time that a call which has blocked the serving thread has to end when the node stops.
const CALL_ENDS: Duration = Duration::from_millis(100);
/// Triggers that poll peers and run queued inline handlers. A waiting thread does neither, because it starts no handlers.
const SERVES: [Trigger; 3] = [Trigger::Idle, Trigger::Timer, Trigger::Yield];

/// The part of the serving thread that other threads use.
#[derive(Debug)]
pub(crate) struct Serving {
    pub(crate) manager: Manager,
    /// Messages for inline handlers that waiting callers received.
    queue: Mutex<VecDeque<Job>>,
    /// Number of queued messages, including the one that is being handled; written under the queue's lock.
    queued: AtomicUsize,
    /// Runs the queued messages.
    handles: OnceLock<Tasklet>,
    /// Handles of the peers' sources.
    rouses: RwLock<HashMap<NodeId, Rouse>>,
    /// Busy polling of devices during sleeps, if it is configured, and the result of setting it.
    devices: OnceLock<(BusyPoll, Result<(), BusyPollError>)>,
}

impl Serving {
    pub(crate) fn new(engine: Engine, clock: NodeClock, boosting: &Arc<Boosting>) -> Result<Self, Errno> {
        let boosting = Arc::clone(boosting);
        let manager = Manager::watched(engine, clock, Box::new(move |fd| boosting.watch(fd)))?;
        let (queue, queued) = (Mutex::default(), AtomicUsize::new(0));
        Ok(Self {
            manager,
            queue,
            queued,
            handles: OnceLock::new(),
            rouses: RwLock::default(),
            devices: OnceLock::new(),
        })
    }

    /// Configures the kernel to poll devices before the serving thread sleeps, unless `wanted.micros` is 0.
    pub(crate) fn poll_devices(&self, wanted: BusyPoll) {
        if wanted.micros == 0 {
            return;
        }
        let done = self.manager.busy_poll(wanted);
        if let Err(why) = done {
            tracing::warn!(%why, "no busy polling of devices before sleeps of the serving thread");
        }
        let _once = self.devices.set((wanted, done));
    }

    /// Describes the engine, its sources, and busy polling of devices, if that is configured.
    pub(crate) fn described(&self) -> String {
        let mut text = self.manager.to_string();
        match self.devices.get() {
            None => {}
            Some((how, Ok(()))) => {
                text.push_str(&format!("; before sleeps, NAPI devices are polled for {how}"))
            }
            Some((_, Err(why))) => text.push_str(&format!("; before sleeps, no device is polled: {why}")),
        }
        text
    }

    /// Creates the tasklet that runs queued inline handlers.
    pub(crate) fn start(&self, host: &Arc<NodeHost>) {
        let kind = self.manager.kind("inline handlers", &SERVES).expect("it is the first one");
        let weak = Arc::downgrade(host);
        let handles = kind.tasklet(Place::Anywhere, move || {
            if let Some(host) = weak.upgrade() {
                host.serving.handle_jobs(&host);
            }
        });
        self.handles.set(handles).expect("started once");
    }

    /// Wakes the thread if it sleeps.
    pub(crate) fn wake(&self) {
        self.manager.wake();
    }

    /// Makes the thread poll this peer, for work that no event reports, and wakes it if it sleeps.
    pub(crate) fn wake_for(&self, peer: NodeId) {
        self.rouse(peer);
        self.wake();
    }

    fn rouses(&self) -> RwLockWriteGuard<'_, HashMap<NodeId, Rouse>> {
        self.rouses.write().expect("no holder panics")
    }

    /// Ends the rest of this peer's source, if it rests.
    pub(crate) fn rouse(&self, peer: NodeId) {
        if let Some(rouse) = self.rouses.read().expect("no holder panics").get(&peer) {
            rouse.rouse();
        }
    }

    /// Makes the thread check peers, links and whether the node stops.
    pub(crate) fn alert(&self) {
        self.manager.alert();
    }

    /// Wakes the thread from a long sleep, because a caller begins to wait for a reply without polling.
    pub(crate) fn keep_time(&self) {
        self.manager.keep_time();
    }

    /// Queues a message for an inline handler, received by a caller, which polls but starts no handlers.
    pub(crate) fn queue(&self, job: Job) {
        let mut queue = self.queue.lock().expect("no holder panics");
        queue.push_back(job);
        self.queued.fetch_add(1, Ordering::Relaxed);
        drop(queue);
        self.handles.get().expect("peers are served only after the start").schedule();
    }

    /// Returns whether messages for inline handlers are queued. Under the engine lock of a peer the result is exact for that peer's
    /// messages, because they are queued under that lock.
    pub(crate) fn has_jobs(&self) -> bool {
        self.queued.load(Ordering::Relaxed) != 0
    }

    fn handle_jobs(&self, host: &Arc<NodeHost>) {
        loop {
            let next = self.queue.lock().expect("no holder panics").pop_front();
            let Some(job) = next else { break };
            let peer = job.token.callee().session.peer();
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job.run_inline(host))) {
                tracing::error!(%peer, why = panic_message(&*panic), "a queued message panicked its engine");
            }
            let _queue = self.queue.lock().expect("no holder panics");
            // Until here, other messages for inline handlers were queued behind this one.
            self.queued.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Drops the messages that are still queued when the node ends, which fails their calls. Each of them holds a reference to the node.
    pub(crate) fn discard_jobs(&self) {
        let jobs = core::mem::take(&mut *self.queue.lock().expect("no holder panics"));
        self.queued.fetch_sub(jobs.len(), Ordering::Relaxed);
        drop(jobs);
    }

    /// Polls once before a thread of the program waits, unless the engine polls by itself.
    pub(crate) fn before_wait(&self) {
        if self.manager.engine() != Engine::Idle {
            // If another thread polls now, that is as good.
            let _taken = self.manager.poll(Trigger::Wait);
        }
    }

    /// Sleeps on a peer's channels in place of the serving thread. Returns which have an event.
    pub(crate) fn sleep_instead(&self, channels: &Channels, limit: Duration) -> [bool; 2] {
        let peer = u16::try_from(channels.owner).map(NodeId);
        self.manager.sleep_instead(channels, limit, || _ = peer.map(|peer| self.rouse(peer)))
    }
}

/// Returns a waker for the serving thread of a node. A connection of this peer uses it when its channel must be watched for other events
/// than before. Does not keep the node alive.
pub(crate) fn waker(host: &Arc<NodeHost>, peer: NodeId) -> Waker {
    Waker::from(Arc::new(WakeServing(Arc::downgrade(host), peer)))
}

#[derive(Debug)]
struct WakeServing(Weak<NodeHost>, NodeId);

impl Wake for WakeServing {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(host) = self.0.upgrade() {
            host.serving.wake_for(self.1);
        }
    }
}

/// Returns the description of a peer's source. A poll over TCP is a system call, but a peer cannot wait for the 20 us between two
/// checks of the group, so the source is polled directly. Few of many peers are active at a time.
fn spec() -> Spec {
    Spec {
        name: "peer",
        cost: Cost::MemoryOfMany,
        priority: Priority::High,
        triggers: Triggers::of(&SERVES),
        sleep: Sleep::Asked,
    }
}

/// A peer as a source.
struct PeerSource {
    host: Arc<NodeHost>,
    session: Arc<NodeSession>,
    yields: YieldTimer,
    /// True from [`Source::arm`] to [`Source::disarm`].
    is_armed: bool,
    /// Pauses of successive polls that found the engine locked, after which the thread must poll again.
    back_off: BackOff,
}

/// Lets the holder of the engine run, which may be of a lower scheduling class.
#[cold]
fn let_holder_run(back_off: &mut BackOff) {
    #[expect(clippy::disallowed_methods, reason = "the wait is for a lock, whose release reports nothing")]
    back_off.pause_by(std::thread::yield_now, std::thread::sleep);
}

impl Source for PeerSource {
    fn poll(&mut self) -> usize {
        self.poll_often(1)
    }

    #[inline]
    fn poll_often(&mut self, polls: u32) -> usize {
        let mut sink = ServingSink::new(&self.host, &self.session);
        let stop = || self.host.is_stopping();
        // Replies are not counted as events below: a reply that its caller was about to poll for ended a sleep unnecessarily.
        let progress = self.session.turn(polls, stop, &mut sink, &*self.host);
        if progress.is_none() && self.session.has_failed() {
            drop(sink);
            recover(&self.host, &self.session);
            return 1;
        }
        if progress.is_none_or(|progress| progress.moved != 0 && self.session.is_awaited()) {
            let now = self.host.now();
            self.session.yield_to_waiters(&mut self.yields, progress.is_some(), now, &*self.host);
        }
        if self.is_armed {
            if self.session.must_poll_again(progress) {
                let_holder_run(&mut self.back_off);
                // Counted as an event, so that the thread does not sleep.
                return 1;
            }
            self.back_off = BackOff::default();
        }
        progress.map_or(0, |progress| progress.moved.saturating_sub(progress.responses))
    }

    fn arm(&mut self) {
        self.is_armed = true;
        self.session.set_serving(ServingState::Sleeping, &*self.host);
    }

    fn disarm(&mut self) {
        self.is_armed = false;
        self.session.set_serving(ServingState::Working, &*self.host);
        self.session.disarm();
    }

    fn may_rest(&mut self) -> bool {
        // The module boosts the thread that waits in the epoll of a channel itself.
        !self.host.boosting.needs_descriptors() && self.session.may_rest()
    }

    fn channels(&mut self) -> [Option<Channel>; 2] {
        self.session.channels(&*self.host)
    }

    fn is_attended(&mut self) -> bool {
        !self.session.is_servers()
    }

    /// Ends the session and keeps the source for the next one.
    fn panicked(&mut self, why: &str) -> AfterPanic {
        guard::caught(|| tracing::error!(peer = %self.session.peer(), why, "the service of a peer panicked"));
        recover(&self.host, &self.session);
        AfterPanic::Keep
    }

    fn after_timeout(&mut self, woken: &mut dyn FnMut() -> bool) -> TimeoutFinding {
        if self.session.is_servers() {
            let mut sink = ServingSink::new(&self.host, &self.session);
            self.session.check_safety_net(&mut sink, &*self.host, woken);
        }
        // Sessions count lost wake-ups themselves, including those of callers.
        TimeoutFinding::Nothing
    }
}

/// A registered peer, which is served until this is dropped.
#[derive(Debug)]
struct Served {
    session: Arc<NodeSession>,
    _source: Registration,
    rouse: Rouse,
    /// Time of the session's last tick, and of the next one if nothing happens before.
    last_tick: Nanos,
    next_due: Nanos,
    /// Payload bytes sent and received as of the last tick, and time until which the session frees the memory that they took.
    bytes: u64,
    frees_until: Nanos,
}

/// Ends the session of a peer if a holder of its engine lock panicked, so that the peer can be linked again. Aborts the process if this
/// panics, too.
#[cold]
fn recover(host: &Arc<NodeHost>, session: &Arc<NodeSession>) {
    let mut failed = false;
    serve_or_abort(|| failed = session.fail(&mut WaitingSink { host, session }, &**host));
    if failed {
        // If the session was already over, there was no event that woke the links thread.
        host.wake_links_thread();
        let why = DownCause::Panicked;
        guard::caught(|| tracing::error!(peer = %session.peer(), %why, "session ended"));
    }
}

/// Starts the serving thread, which serves until the node stops. Spare threads take over while a tasklet of the program blocks it
/// ([`Manager::may_block`]).
pub(crate) fn start(host: &Arc<NodeHost>) -> std::io::Result<JoinHandle<()>> {
    let manager = host.serving.manager.clone();
    let threads = Arc::new(EngineThreads::new(manager, ServingDriver::new(Arc::clone(host))));
    let spares = Arc::downgrade(&threads);
    let placed = Arc::downgrade(host);
    host.serving.manager.spares(Box::new(move || {
        let (Some(threads), Some(host)) = (spares.upgrade(), placed.upgrade()) else { return false };
        let stands_in = move || {
            // If this is refused, the spare keeps the normal priority.
            let _lower = set_nice(CALLER, SPARE_NICE);
            host.adopt_placement();
            drop(host);
            serve_or_abort(|| threads.run_spare());
        };
        let started = std::thread::Builder::new().name("pronto-spare".into()).spawn(stands_in);
        if let Err(error) = &started {
            tracing::warn!(%error, "cannot start a spare thread for the serving thread");
        }
        started.is_ok()
    }));
    let boosted = Arc::clone(host);
    std::thread::Builder::new().name("pronto-serve".into()).spawn(move || {
        // Before the boost, because the affinity of threads with some boosts cannot be changed.
        boosted.adopt_placement();
        boosted.boosting.adopt();
        drop(boosted);
        serve_or_abort(|| threads.serve());
    })
}

/// Runs a thread that serves peers. If it panics, aborts the process, because a node that accepts links and does not serve them would
/// look alive to its peers.
fn serve_or_abort(serve: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(serve)) {
        let why = panic_message(&*panic);
        // Not through `tracing`, because its subscriber may have caused the panic.
        eprintln!(
            "pronto: the serving thread panicked: {why}; aborting the process, because its node cannot serve its peers"
        );
        std::process::abort();
    }
}

/// Ends the serving thread and its spares when the node stops. A thread in a call that does not return is left running.
pub(crate) fn end(manager: &Manager, server: JoinHandle<()>) {
    manager.dismiss_spares();
    while manager.is_blocked() && !server.is_finished() {
        let waited = manager.counters().blocking;
        std::thread::park_timeout(CALL_ENDS);
        if manager.is_blocked() && manager.counters().blocking == waited {
            tracing::warn!(
                "the serving thread is blocked in a call that does not return; it is left running"
            );
            return;
        }
    }
    if server.join().is_err() {
        tracing::error!("the serving thread panicked");
    }
}

/// The driver of the serving thread: its work other than polling.
#[derive(Debug)]
pub(crate) struct ServingDriver {
    host: Arc<NodeHost>,
    served: Vec<Served>,
    /// Number of known nodes on this host, including this one. Visitors are not counted: they are short-lived, and would make all waits
    /// sleep just when an operator inspects the node.
    nodes_here: usize,
    /// An operator has configured a wait override for some peer.
    has_overrides: bool,
    /// Whether the thread spins, as last reported to all of `served`.
    reported_spinning: Cell<Option<bool>>,
    version: u64,
    last_tick: Nanos,
    /// Time from the last tick to the next one.
    tick_after: Nanos,
    /// The next tick was brought forward.
    hurried: bool,
}

impl ServingDriver {
    fn new(host: Arc<NodeHost>) -> Self {
        Self {
            served: Vec::new(),
            nodes_here: 1,
            has_overrides: false,
            reported_spinning: Cell::new(None),
            version: u64::MAX,
            last_tick: host.now(),
            host,
            tick_after: IDLE_TICK,
            hurried: false,
        }
    }

    /// Registers new peers as sources, and removes those that are gone.
    fn serve(&mut self, sessions: Vec<Arc<NodeSession>>) {
        let mut served = core::mem::take(&mut self.served).into_iter().peekable();
        let mut has_gone = false;
        // Both are in the order of the peers' ids.
        for session in sessions {
            while served.next_if(|known| known.session.peer() < session.peer()).is_some() {
                has_gone = true;
            }
            if let Some(known) = served.next_if(|known| Arc::ptr_eq(&known.session, &session)) {
                self.served.push(known);
                continue;
            }
            let source = PeerSource {
                host: Arc::clone(&self.host),
                session: Arc::clone(&session),
                yields: YieldTimer::default(),
                is_armed: false,
                back_off: BackOff::default(),
            };
            match self.host.serving.manager.register(spec(), source) {
                Ok(registration) => {
                    let rouse = registration.rouse();
                    let last_tick = self.host.now();
                    self.host.serving.rouses().insert(session.peer(), rouse.clone());
                    self.served.push(Served {
                        session,
                        _source: registration,
                        rouse,
                        last_tick,
                        next_due: Nanos::ZERO,
                        bytes: 0,
                        frees_until: Nanos::ZERO,
                    });
                }
                Err(error) => tracing::error!(peer = %session.peer(), %error, "cannot serve a peer"),
            }
        }
        if has_gone || served.next().is_some() {
            let present = self.served.iter().map(|served| (served.session.peer(), served.rouse.clone()));
            *self.host.serving.rouses() = present.collect();
        }
    }

    /// Brings the next tick forward. The interval still includes the time since the last tick, so that this time does not count as
    /// lateness.
    fn hurry(&mut self) {
        let soon = self.host.now().since(self.last_tick) + BUSY_TICK;
        self.tick_after = self.tick_after.min(soon);
        self.hurried = true;
    }

    /// Returns whether a call is open or a task waits for room, so that a deadline may pass soon.
    fn any_open(&self) -> bool {
        self.served
            .iter()
            .any(|Served { session, .. }| session.open_calls() != 0 || session.is_room_awaited())
    }
}

impl EngineDriver for ServingDriver {
    fn is_stopping(&self) -> bool {
        self.host.is_stopping()
    }

    fn decide(&self) -> Decision {
        let host = &*self.host;
        let overridden = if self.has_overrides { self.served.as_slice() } else { &[] };
        let overrides = overridden.iter().map(|served| served.session.wait_override());
        let decision = host.serving_waits.decide(host.policy, overrides, host);
        let spins = decision.polls_for() == Nanos::NEVER;
        if self.reported_spinning.replace(Some(spins)) != Some(spins) {
            let state = if spins { ServingState::Spinning } else { ServingState::Working };
            // To a session that rests, the thread sleeps.
            let awake = self.served.iter().filter(|served| !served.rouse.rests());
            awake.for_each(|served| served.session.set_serving(state, host));
        }
        decision
    }

    fn idle_ended(&mut self, wait: &mut Wait, now: Nanos) {
        wait.ended(now, self.host.serving_waits.history());
    }

    fn polled(&mut self, polled: Polled) {
        self.host.polled(polled);
    }

    fn refresh(&mut self) {
        let version = self.host.version.load(Ordering::Acquire);
        if version != self.version {
            self.version = version;
            // First, because a session in whose engine a thread panicked cannot be used.
            self.host.sessions().iter().for_each(|session| recover(&self.host, session));
            self.serve(self.host.sessions());
            // A session that has another link, or needs one, has other times than at its last tick.
            self.served.iter_mut().for_each(|served| served.next_due = Nanos::ZERO);
            // New sessions get the state of the thread with the next decision.
            self.reported_spinning.set(None);
            self.has_overrides = self.served.iter().any(|served| served.session.wait_override().is_some());
            // The last tick did not consider the heartbeats and the liveness limit of a new link.
            self.hurry();
            let links = self.served.iter().filter_map(|served| served.session.info(&*self.host));
            self.nodes_here = 1 + links.filter(|link| link.local && link.peer < FIRST_VISITOR).count();
        }
        if self.tick_after > BUSY_TICK
            && !self.hurried
            && !self.host.serving.manager.is_drowsy()
            && (self.any_open() || self.host.events.tasks.next_due() < self.next_tick())
        {
            self.hurry();
        }
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn is_expecting(&self) -> bool {
        self.served.iter().any(|served| served.session.transfers(&*self.host)[2] != 0)
    }

    fn may_sleep(&self) -> bool {
        self.host.version.load(Ordering::Acquire) == self.version
    }

    /// Checks deadlines, heartbeats and liveness, and compares the number of nodes with the number of CPUs.
    fn tick(&mut self, now: Nanos) {
        let mut busy = false;
        let mut due = now + IDLE_TICK;
        let late = now.since(self.next_tick());
        for served in &mut self.served {
            let session = &served.session;
            // At rest nothing is received and no call is open, so nothing but the time is due. The memory of what was moved since the last tick is
            // freed at the next one.
            if served.rouse.rests()
                && now < served.next_due
                && now >= served.frees_until
                && session.open_calls() == 0
                && !session.is_room_awaited()
            {
                due = due.min(served.next_due);
                continue;
            }
            let stats = session.stats();
            let bytes = stats.bytes_sent.count().wrapping_add(stats.bytes_received.count());
            if bytes != core::mem::replace(&mut served.bytes, bytes) {
                served.frees_until = now + FREES;
            }
            let frees = now < served.frees_until;
            let slept = now.since(served.last_tick).since(late);
            let mut sink = ServingSink::new(&self.host, session);
            let tick = || session.tick(now, slept, &mut sink, &*self.host);
            // A panic must not prevent the ticks of other peers.
            let ticked = catch_unwind(AssertUnwindSafe(tick)).unwrap_or_else(|panic| {
                tracing::error!(peer = %session.peer(), why = panic_message(&*panic), "a tick panicked");
                None
            });
            match ticked {
                Some(ticked) => {
                    busy |= session.open_calls() != 0 || ticked.work_in_flight != 0;
                    busy |= session.is_room_awaited();
                    due = due.min(ticked.next_due).min(if frees { now + FREES } else { Nanos::NEVER });
                    (served.last_tick, served.next_due) = (now, ticked.next_due);
                }
                // A caller holds the engine lock, so the tick is repeated soon.
                None => {
                    recover(&self.host, session);
                    busy = true;
                }
            }
        }
        for waker in self.host.events.tasks.overdue(now) {
            self.host.foreign(|| waker.wake());
        }
        due = due.min(self.host.events.tasks.next_due());
        // The next `refresh` removes the sources of forgotten peers.
        let may_be_gone = self.served.iter().filter(|served| !served.rouse.rests());
        may_be_gone.for_each(|served| self.host.forget_if_gone(&served.session));
        self.last_tick = now;
        self.hurried = false;
        self.tick_after = if busy { BUSY_TICK } else { due.since(now).max(BUSY_TICK) };
        self.host.waits.count(self.nodes_here, calibrate::available_cpus());
    }

    fn next_tick(&self) -> Nanos {
        self.last_tick + self.tick_after
    }

    fn before_rest(&mut self, now: Nanos) {
        sched_class::before_sleep(now);
        if now.since(self.last_tick) >= BUSY_TICK {
            // A sleep may be long, so the time of each peer's last message is updated first.
            self.tick(now);
        }
    }

    fn channel(&self) -> Option<Channel> {
        let fd = self.host.receive_pool.channel().as_raw_fd();
        Some(Channel { fd, interest: Interest::READABLE })
    }

    fn woken(&mut self) {
        self.host.receive_pool.clear();
    }

    fn before_sleep(&self) {
        self.host.boosting.before_wait();
        flight::note_sleep();
    }

    fn after_sleep(&self) {
        flight::awake(&self.host);
    }

    fn worked(&self) {
        self.host.boosting.worked();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::Node;
    use crate::threads::sched_class::tests::ASKED;

    /// A sleep may be long, and an operator may have made the thread real-time.
    #[test]
    fn before_a_sleep_the_thread_queries_its_class_and_makes_a_tick_that_is_due() {
        let node = Node::builder(1).start().expect("it listens nowhere");
        let mut driver = ServingDriver::new(Arc::clone(&node.host));
        let (begun, asked) = (driver.last_tick, ASKED.get());
        driver.before_rest(begun + Nanos(BUSY_TICK.0 - 1));
        assert_eq!(ASKED.get(), asked + 1);
        assert_eq!(driver.last_tick, begun, "a tick so soon after another one");
        driver.before_rest(begun + BUSY_TICK);
        assert_eq!(driver.last_tick, begun + BUSY_TICK);
    }

    const ROLE: &str = "PRONTO_NODE_SERVE_OR_ABORT";

    /// Runs in the child process; does nothing in the parent.
    #[test]
    fn serves_and_panics() {
        if std::env::var_os(ROLE).is_some() {
            let thread = std::thread::spawn(|| serve_or_abort(|| panic!("meant for {}", "the test")));
            let _ended = thread.join();
            panic!("the process outlived its serving thread");
        }
    }

    #[test]
    fn a_serving_thread_that_panics_aborts_its_process_and_reports_why() {
        let child = Command::new(std::env::current_exe().expect("it runs"))
            .args(["--exact", "serving::tests::serves_and_panics", "--nocapture", "--test-threads=1"])
            .env(ROLE, "1")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .output()
            .expect("it is this program");
        let stderr = String::from_utf8_lossy(&child.stderr);
        assert_eq!(child.status.signal(), Some(libc::SIGABRT), "{stderr}");
        assert!(stderr.contains("the serving thread panicked: meant for the test"), "{stderr}");
    }

    #[test]
    fn an_idle_tick_is_not_brought_forward_if_no_call_is_open() {
        let node = Node::builder(1).start().expect("it listens nowhere");
        let mut driver = ServingDriver::new(Arc::clone(&node.host));
        // The first `refresh` sees the new version. Another one is seen if a thread of the node reports a change meanwhile.
        let after_tick = (0..100).find_map(|_| {
            driver.refresh();
            let now = node.host.now();
            driver.tick(now);
            let version = driver.version();
            driver.refresh();
            (driver.version() == version).then(|| driver.next_tick().since(now))
        });
        assert_eq!(after_tick, Some(IDLE_TICK));
    }
}
