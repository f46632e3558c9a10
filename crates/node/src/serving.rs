//! The serving thread: takes messages in, runs inline handlers, keeps time. Sleeps when nothing comes.
//!
//! It is the engine's thread of a [`Manager`]: each peer is a source, and what waiting callers leave to it is a tasklet.

use core::cell::Cell;
use core::panic::AssertUnwindSafe;
use core::task::Waker;
use core::time::Duration;
use std::collections::VecDeque;
use std::os::fd::AsRawFd as _;
use std::panic::catch_unwind;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::Wake;
use std::thread::JoinHandle;

use nix::errno::Errno;
use pronto_core::executor::{Channel, Channels, Polled};
use pronto_core::fabric::Interest;
use pronto_core::session::DownCause;
use pronto_core::wait::{Decision, SAFETY_NET, ServingState, Wait, YieldTimer};
use pronto_core::{Clock, Executor, Nanos};
use pronto_expedite::schedule::{CALLER, set_nice};
use pronto_progress::{
    AfterPanic, BusyPoll, BusyPollError, Cost, Engine, Keeper, Manager, Net, Place, Post, Priority,
    Registration, Sleep, Source, Spec, Tasklet, Trigger, Triggers, panic_message,
};
use pronto_sync::atomic::{AtomicUsize, Ordering};

use crate::admin::FIRST_VISITOR;
use crate::boost::Boosting;
use crate::calibrate;
use crate::flight;
use crate::guard;
use crate::host::{NodeClock, NodeHost, NodeSession};
use crate::sched_class;
use crate::sink::{Job, ServingSink, WaitingSink};

/// How often time passes while a call is open, or a send is not reaped.
const BUSY_TICK: Nanos = SAFETY_NET;
/// It passes at least so often, whatever is due.
const IDLE_TICK: Nanos = Nanos::from_secs(10);
/// A spare's. It runs while the processor it would have is anybody's; and holds what the serving thread wants back, so that it must
/// not starve.
const SPARE_NICE: i32 = 10;
/// A call that has blocked the serving thread has so long to end when the node stops.
const CALL_ENDS: Duration = Duration::from_millis(100);
/// Who polls peers, and runs what waiting callers left: never a waiting thread, which starts no handler.
const SERVES: [Trigger; 3] = [Trigger::Idle, Trigger::Timer, Trigger::Yield];

/// What others need of the serving thread.
#[derive(Debug)]
pub(crate) struct Serving {
    pub(crate) manager: Manager,
    /// Inline handlers' messages that waiting callers took in.
    queue: Mutex<VecDeque<Job>>,
    /// How many of them, with the one that is being handled; written under the queue's lock.
    queued: AtomicUsize,
    /// Runs them.
    handles: OnceLock<Tasklet>,
    /// What became of polling devices within sleeps, if it was asked for.
    devices: OnceLock<(BusyPoll, Result<(), BusyPollError>)>,
}

impl Serving {
    pub(crate) fn new(engine: Engine, clock: NodeClock, boosting: &Arc<Boosting>) -> Result<Self, Errno> {
        let boosting = Arc::clone(boosting);
        let manager = Manager::watched(engine, clock, Box::new(move |fd| boosting.watch(fd)))?;
        let (queue, queued) = (Mutex::default(), AtomicUsize::new(0));
        Ok(Self { manager, queue, queued, handles: OnceLock::new(), devices: OnceLock::new() })
    }

    /// Has the kernel poll devices before the serving thread sleeps, if that is asked for.
    pub(crate) fn poll_devices(&self, wanted: BusyPoll) {
        if wanted.micros == 0 {
            return;
        }
        let done = self.manager.busy_poll(wanted);
        if let Err(why) = done {
            tracing::warn!(%why, "devices are not polled when the serving thread sleeps");
        }
        let _once = self.devices.set((wanted, done));
    }

    /// Who polls, and whether devices are polled within sleeps.
    pub(crate) fn described(&self) -> String {
        let mut text = self.manager.to_string();
        match self.devices.get() {
            None => {}
            Some((how, Ok(()))) => {
                text.push_str(&format!("; before sleeps devices with NAPI are polled for {how}"))
            }
            Some((_, Err(why))) => text.push_str(&format!("; before sleeps no device is polled: {why}")),
        }
        text
    }

    /// Inline handlers may run from now on.
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

    /// Has it look at peers, links and the node's end.
    pub(crate) fn alert(&self) {
        self.manager.alert();
    }

    /// Somebody waits for an answer without polling: sleeps are short from now on.
    pub(crate) fn keep_time(&self) {
        self.manager.keep_time();
    }

    /// A message for an inline handler, from a caller that polls but starts no handler.
    pub(crate) fn queue(&self, job: Job) {
        let mut queue = self.queue.lock().expect("no holder panics");
        queue.push_back(job);
        self.queued.fetch_add(1, Ordering::Relaxed);
        drop(queue);
        self.handles.get().expect("there are no peers before the start").schedule();
    }

    /// Whether such messages wait. Asked under the engine's lock of a peer, it knows of all of that peer's: they were queued
    /// under that lock.
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
            // Until here whatever else came for an inline handler was queued behind it.
            self.queued.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Drops the messages that still wait when the node ends, which fails their calls: each of them holds the node.
    pub(crate) fn discard_jobs(&self) {
        let jobs = core::mem::take(&mut *self.queue.lock().expect("no holder panics"));
        self.queued.fetch_sub(jobs.len(), Ordering::Relaxed);
        drop(jobs);
    }

    /// A thread of the program is about to wait.
    pub(crate) fn before_wait(&self) {
        if self.manager.engine() != Engine::Idle {
            // Another thread that polls does as well.
            let _taken = self.manager.poll(Trigger::Wait);
        }
    }

    /// Sleeps on a peer's channels in place of the serving thread. Returns which have an event.
    pub(crate) fn sleep_instead(&self, channels: &Channels, limit: Duration) -> [bool; 2] {
        self.manager.sleep_instead(channels, limit)
    }
}

/// Wakes the serving thread of a node if it sleeps: for a channel that it should wait for otherwise than it does. Does not
/// keep the node.
pub(crate) fn waker(host: &Arc<NodeHost>) -> Waker {
    Waker::from(Arc::new(WakeServing(Arc::downgrade(host))))
}

#[derive(Debug)]
struct WakeServing(Weak<NodeHost>);

impl Wake for WakeServing {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(host) = self.0.upgrade() {
            host.serving.wake();
        }
    }
}

/// What a peer's source says of itself. Over TCP a look is a system call, too, but one that stands for a whole call: it has no
/// 20 us to wait. Of many peers few are talked with at a time.
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
}

impl Source for PeerSource {
    fn poll(&mut self) -> usize {
        self.poll_often(1)
    }

    #[inline]
    fn poll_often(&mut self, looks: u32) -> usize {
        let mut sink = ServingSink::new(&self.host, &self.session);
        let stop = || self.host.is_stopping();
        // An answer that a caller is about to look for has ended a sleep for nothing, as if the caller had taken it.
        let progress = self.session.turn(looks, stop, &mut sink, &*self.host);
        if progress.is_none() && self.session.has_failed() {
            drop(sink);
            recover(&self.host, &self.session);
            return 1;
        }
        if progress.is_none_or(|progress| progress.moved != 0 && self.session.is_awaited()) {
            let now = self.host.now();
            self.session.yield_to_waiters(&mut self.yields, progress.is_some(), now, &*self.host);
        }
        progress.map_or(0, |progress| progress.moved.saturating_sub(progress.responses))
    }

    fn arm(&mut self) {
        self.session.set_serving(ServingState::Sleeping, &*self.host);
    }

    fn disarm(&mut self) {
        self.session.set_serving(ServingState::Working, &*self.host);
        self.session.disarm();
    }

    fn channels(&mut self) -> [Option<Channel>; 2] {
        self.session.channels(&*self.host)
    }

    fn is_attended(&mut self) -> bool {
        !self.session.is_servers()
    }

    /// Ends the session and goes on with the next one.
    fn panicked(&mut self, why: &str) -> AfterPanic {
        guard::caught(|| tracing::error!(peer = %self.session.peer(), why, "the service of a peer panicked"));
        recover(&self.host, &self.session);
        AfterPanic::Keep
    }

    fn after_net(&mut self, woken: &mut dyn FnMut() -> bool) -> Net {
        if self.session.is_servers() {
            let mut sink = ServingSink::new(&self.host, &self.session);
            self.session.check_safety_net(&mut sink, &*self.host, woken);
        }
        // Sessions count rescues by themselves, callers' included.
        Net::Nothing
    }
}

/// A peer that is served, until dropped.
#[derive(Debug)]
struct Served {
    session: Arc<NodeSession>,
    _source: Registration,
}

/// Ends the session of a peer if the engine's holder panicked, so that the peer can be linked again. Ends the process if that panics, too.
#[cold]
fn recover(host: &Arc<NodeHost>, session: &Arc<NodeSession>) {
    let mut failed = false;
    serve_or_abort(|| failed = session.fail(&mut WaitingSink { host, session }, &**host));
    if failed {
        // Where the session was over, no event has said so.
        host.wake_keeper();
        let why = DownCause::Panicked;
        guard::caught(|| tracing::error!(peer = %session.peer(), %why, "a session was ended"));
    }
}

/// Starts the serving thread. It serves until the node stops, and so do the spares that stand in for it where a program's tasklets
/// block it ([`Manager::may_block`]).
pub(crate) fn start(host: &Arc<NodeHost>) -> std::io::Result<JoinHandle<()>> {
    let manager = host.serving.manager.clone();
    let post = Arc::new(Post::new(manager, Server::new(Arc::clone(host))));
    let spares = Arc::downgrade(&post);
    let placed = Arc::downgrade(host);
    host.serving.manager.spares(Box::new(move || {
        let (Some(post), Some(host)) = (spares.upgrade(), placed.upgrade()) else { return false };
        let stands_in = move || {
            // Refused, it has the priority of others.
            let _lower = set_nice(CALLER, SPARE_NICE);
            host.take_seat();
            drop(host);
            serve_or_abort(|| post.stand_in());
        };
        let started = std::thread::Builder::new().name("pronto-spare".into()).spawn(stands_in);
        if let Err(error) = &started {
            tracing::warn!(%error, "no spare for the serving thread");
        }
        started.is_ok()
    }));
    let boosted = Arc::clone(host);
    std::thread::Builder::new().name("pronto-serve".into()).spawn(move || {
        // Before a boost whose threads may not be bound to processors any more.
        boosted.take_seat();
        boosted.boosting.adopt();
        drop(boosted);
        serve_or_abort(|| post.serve());
    })
}

/// Runs a thread that serves peers. If it panics, ends the process: a node that accepts links and serves none of them would look alive
/// to its peers, and to nobody else.
fn serve_or_abort(serve: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(serve)) {
        let why = panic_message(&*panic);
        // Straight to the standard error: a subscriber may be what has panicked.
        eprintln!(
            "pronto: the serving thread panicked: {why}; the process ends, as its node would not serve its peers any more"
        );
        std::process::abort();
    }
}

/// Ends the serving thread and its spares, when the node is stopping. One that is in a call which does not come back is left
/// there.
pub(crate) fn end(manager: &Manager, server: JoinHandle<()>) {
    manager.dismiss_spares();
    while manager.is_blocked() && !server.is_finished() {
        let waited = manager.counters().blocking;
        std::thread::park_timeout(CALL_ENDS);
        if manager.is_blocked() && manager.counters().blocking == waited {
            tracing::warn!("the serving thread is left in a call that does not come back");
            return;
        }
    }
    if server.join().is_err() {
        tracing::error!("the serving thread panicked");
    }
}

/// What the serving thread does beside polling.
#[derive(Debug)]
pub(crate) struct Server {
    host: Arc<NodeHost>,
    served: Vec<Served>,
    /// Nodes that this one knows of on this host, itself included. Not visitors: they are gone again before anybody is in their way,
    /// and would have all waits sleep just when somebody looks.
    nodes_here: usize,
    /// An operator has configured a wait override for some peer.
    has_overrides: bool,
    /// Whether it polls for good, as all of `served` have been told.
    told: Cell<Option<bool>>,
    version: u64,
    last_tick: Nanos,
    /// The next tick is due so long after the last one.
    tick_after: Nanos,
    /// Something has made the next tick due sooner than it was.
    hurried: bool,
}

impl Server {
    fn new(host: Arc<NodeHost>) -> Self {
        Self {
            served: Vec::new(),
            nodes_here: 1,
            has_overrides: false,
            told: Cell::new(None),
            version: u64::MAX,
            last_tick: host.now(),
            host,
            tick_after: IDLE_TICK,
            hurried: false,
        }
    }

    /// Those that came are sources from now on, those that went are none.
    fn serve(&mut self, sessions: Vec<Arc<NodeSession>>) {
        let mut served = core::mem::take(&mut self.served);
        for session in sessions {
            if let Some(known) = served.iter().position(|served| Arc::ptr_eq(&served.session, &session)) {
                self.served.push(served.swap_remove(known));
                continue;
            }
            let source = PeerSource {
                host: Arc::clone(&self.host),
                session: Arc::clone(&session),
                yields: YieldTimer::default(),
            };
            match self.host.serving.manager.register(spec(), source) {
                Ok(registration) => self.served.push(Served { session, _source: registration }),
                Err(error) => tracing::error!(peer = %session.peer(), %error, "a peer is not served"),
            }
        }
    }

    /// Makes the next tick due soon. What has passed since the last one was meant to pass, and is no lateness.
    fn hurry(&mut self) {
        let soon = self.host.now().since(self.last_tick) + BUSY_TICK;
        self.tick_after = self.tick_after.min(soon);
        self.hurried = true;
    }

    fn any_open(&self) -> bool {
        self.served.iter().any(|served| served.session.open_calls() != 0)
    }
}

impl Keeper for Server {
    fn is_stopping(&self) -> bool {
        self.host.is_stopping()
    }

    fn decide(&self) -> Decision {
        let host = &*self.host;
        let overridden = if self.has_overrides { self.served.as_slice() } else { &[] };
        let overrides = overridden.iter().map(|served| served.session.wait_override());
        let decision = host.serving_waits.decide(host.policy, overrides, host);
        let spins = decision.polls_for() == Nanos::NEVER;
        if self.told.replace(Some(spins)) != Some(spins) {
            let state = if spins { ServingState::Spinning } else { ServingState::Working };
            self.served.iter().for_each(|served| served.session.set_serving(state, host));
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
            // Nothing below works with a session whose engine's holder panicked.
            self.host.sessions().iter().for_each(|session| recover(&self.host, session));
            self.serve(self.host.sessions());
            // Those that came are told with the others.
            self.told.set(None);
            self.has_overrides = self.served.iter().any(|served| served.session.wait_override().is_some());
            // A link that came since the last tick has its heartbeats and its limit, of which that tick knew nothing.
            self.hurry();
            let links = self.served.iter().filter_map(|served| served.session.info(&*self.host));
            self.nodes_here = 1 + links.filter(|link| link.local && link.peer < FIRST_VISITOR).count();
        }
        if self.tick_after > BUSY_TICK
            && !self.hurried
            && !self.host.serving.manager.is_drowsy()
            && self.any_open()
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

    /// Deadlines, heartbeats, liveness, nodes against processors.
    fn tick(&mut self, now: Nanos) {
        let mut busy = false;
        let mut due = now + IDLE_TICK;
        for Served { session, .. } in &self.served {
            let mut sink = ServingSink::new(&self.host, session);
            let tick = || session.tick(now, self.tick_after, &mut sink, &*self.host);
            // The time of other peers passes all the same.
            let ticked = catch_unwind(AssertUnwindSafe(tick)).unwrap_or_else(|panic| {
                tracing::error!(peer = %session.peer(), why = panic_message(&*panic), "a tick panicked");
                None
            });
            match ticked {
                Some(ticked) => {
                    busy |= session.open_calls() != 0 || ticked.work_in_flight != 0;
                    due = due.min(ticked.next_due);
                }
                // A caller polls: there is another tick soon.
                None => {
                    recover(&self.host, session);
                    busy = true;
                }
            }
        }
        // What this forgets is no source from the next look on.
        self.served.iter().for_each(|served| self.host.forget_if_gone(&served.session));
        self.last_tick = now;
        self.hurried = false;
        self.tick_after = if busy { BUSY_TICK } else { due.since(now).max(BUSY_TICK) };
        self.host.waits.count(self.nodes_here, calibrate::cpus());
    }

    fn next_tick(&self) -> Nanos {
        self.last_tick + self.tick_after
    }

    fn before_rest(&mut self, now: Nanos) {
        sched_class::before_sleep(now);
        if now.since(self.last_tick) >= BUSY_TICK {
            // A sleep may be long: it begins with the knowledge of when each peer was heard last.
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
        flight::sleeps();
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

    use super::serve_or_abort;

    const ROLE: &str = "PRONTO_NODE_SERVE_OR_ABORT";

    /// The child's part; the parent has nothing to do here.
    #[test]
    fn serves_and_panics() {
        if std::env::var_os(ROLE).is_some() {
            let thread = std::thread::spawn(|| serve_or_abort(|| panic!("meant for {}", "the test")));
            let _ended = thread.join();
            panic!("the process outlived its serving thread");
        }
    }

    #[test]
    fn a_serving_thread_that_panics_ends_its_process_and_says_why() {
        let child = Command::new(std::env::current_exe().expect("it runs"))
            .args(["--exact", "serving::tests::serves_and_panics", "--nocapture", "--test-threads=1"])
            .env(ROLE, "1")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .output()
            .expect("it is this program");
        let said = String::from_utf8_lossy(&child.stderr);
        assert_eq!(child.status.signal(), Some(libc::SIGABRT), "{said}");
        assert!(said.contains("the serving thread panicked: meant for the test"), "{said}");
    }
}
