//! The serving thread: takes messages in, runs inline handlers, keeps time. Sleeps when nothing comes.

use core::task::Waker;
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::sync::{Arc, Mutex, Weak};
use std::task::Wake;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use pronto_core::completion::Server as State;
use pronto_core::executor::Channel;
use pronto_core::fabric::Interest;
use pronto_core::session::LATE;
use pronto_core::{Clock, Executor, Nanos};
use pronto_sync::WakeWord;
use pronto_sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::boost::Boosting;
use crate::calibrate::Use;
use crate::flight;
use crate::host::{NodeHost, NodeSession, poll_timeout};
use crate::sink::{Job, ServingSink};
use crate::{calibrate, system};

/// Idle looks at all peers between two readings of the clock, which takes as long as a few of them.
const SPINS_PER_LOOK: u32 = 64;
/// Looks that found something between two readings of the clock: inline handlers are short.
const BUSY_LOOKS_PER_CLOCK: u32 = 16;
/// How often time passes while a call is open, or a send is not reaped.
const BUSY_TICK: Nanos = Nanos::from_millis(4);
/// It passes at least so often, whatever is due.
const IDLE_TICK: Nanos = Nanos::from_secs(10);
/// Who woke the epoll: the node itself, or anybody else.
const SELF: u64 = u64::MAX;

/// What others need of the serving thread.
#[derive(Debug)]
pub(crate) struct Serving {
    epoll: Epoll,
    registered: Mutex<Registered>,
    wake: EventFd,
    sleeping: WakeWord,
    /// Its present sleep is a long one.
    drowsy: AtomicBool,
    /// Inline handlers' messages that waiting callers took in.
    queue: Mutex<VecDeque<Job>>,
    /// How many of them; written under the queue's lock.
    queued: AtomicUsize,
}

/// Descriptors that the epoll knows, and what it waits for on each.
#[derive(Debug, Default)]
struct Registered {
    now: HashMap<i32, Interest>,
    /// What they were before, kept so that going to sleep allocates nothing.
    before: HashMap<i32, Interest>,
    /// Of the node's peers and links, when the epoll was last told of all of them.
    version: u64,
}

/// Nobody is woken.
const NOTHING: Interest = Interest { readable: false, writable: false };

impl Serving {
    pub(crate) fn new(boosting: &Boosting) -> Result<Self, Errno> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let wake = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        epoll.add(&wake, EpollEvent::new(EpollFlags::EPOLLIN, SELF))?;
        boosting.watch(wake.as_fd().as_raw_fd());
        let registered = Mutex::default();
        let (sleeping, drowsy, queue) = (WakeWord::new(), AtomicBool::new(false), Mutex::default());
        Ok(Self { epoll, registered, wake, sleeping, drowsy, queue, queued: AtomicUsize::new(0) })
    }

    /// Wakes the thread if it sleeps.
    pub(crate) fn wake(&self) {
        if self.sleeping.needs_wake() {
            self.ring();
        }
    }

    fn ring(&self) {
        // A full counter is as good as a write: the descriptor is readable.
        let _full = self.wake.write(1);
    }

    /// Somebody waits for an answer without polling: sleeps are short from now on.
    pub(crate) fn keep_time(&self) {
        if self.drowsy.load(Ordering::Relaxed) && self.drowsy.swap(false, Ordering::Relaxed) {
            self.ring();
        }
    }

    /// A message for an inline handler, from a caller that polls but starts no handler.
    pub(crate) fn queue(&self, job: Job) {
        let mut queue = self.queue.lock().expect("no holder panics");
        queue.push_back(job);
        self.queued.store(queue.len(), Ordering::Relaxed);
        drop(queue);
        self.wake();
    }

    /// Whether such messages wait. Asked under the engine's lock of a peer, it knows of all of that peer's: they were queued
    /// under that lock.
    pub(crate) fn has_jobs(&self) -> bool {
        self.queued.load(Ordering::Relaxed) != 0
    }

    fn next_job(&self) -> Option<Job> {
        // A count that was stored before the sleeper armed its word is seen here, after it did; one that comes later wakes it.
        if self.queued.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut queue = self.queue.lock().expect("no holder panics");
        let job = queue.pop_front();
        self.queued.store(queue.len(), Ordering::Relaxed);
        job
    }

    /// Sleeps on a peer's channels in place of the serving thread, which is not woken by them until they are given back.
    pub(crate) fn sleep_instead(&self, channels: [Option<Channel>; 2], limit: Duration) {
        for channel in channels.iter().flatten() {
            self.watch(channel.fd, NOTHING);
        }
        let watched =
            |channel: Channel| PollFd::new(system::borrow(channel.fd), poll_flags(channel.interest));
        let limit = Some(TimeSpec::from_duration(limit));
        // Woken early, by a signal or not at all: the caller looks again in any case.
        let _ready = match channels.map(|channel| channel.map(watched)) {
            [Some(control), Some(bulk)] => ppoll(&mut [control, bulk], limit, None),
            [Some(only), None] | [None, Some(only)] => ppoll(&mut [only], limit, None),
            [None, None] => ppoll(&mut [], limit, None),
        };
    }

    /// The serving thread is woken by these channels again.
    pub(crate) fn give_back(&self, channels: [Option<Channel>; 2]) {
        for channel in channels.iter().flatten() {
            self.watch(channel.fd, channel.interest);
        }
    }

    /// Changes what the epoll waits for on a descriptor that it knows.
    fn watch(&self, fd: i32, interest: Interest) {
        let mut registered = self.registered.lock().expect("no holder panics");
        let Some(now) = registered.now.get_mut(&fd).filter(|now| **now != interest) else { return };
        let mut event = EpollEvent::new(epoll_flags(interest), u64::from(fd.unsigned_abs()));
        // Refused if the descriptor was closed: then nobody is woken by it.
        if self.epoll.modify(system::borrow(fd), &mut event).is_ok() {
            *now = interest;
        }
    }

    /// Brings the epoll up to what the peers' channels are now. `version` is that of peers and links: as long as it stays, a
    /// descriptor is the one that it was.
    fn register(
        &self,
        sessions: &[Arc<NodeSession>],
        extra: Option<BorrowedFd<'_>>,
        version: u64,
        host: &NodeHost,
    ) {
        // Under the lock that muting takes: a channel that a caller sleeps on stays the caller's. Were it not, this thread
        // would be woken by what only the caller takes, again and again, on the processor that the caller needs.
        let mut registered = self.registered.lock().expect("no holder panics");
        let Registered { now: wanted, before, version: known } = &mut *registered;
        let same = core::mem::replace(known, version) == version;
        core::mem::swap(wanted, before);
        wanted.clear();
        for session in sessions {
            for channel in session.channels(host).into_iter().flatten() {
                wanted.insert(channel.fd, if session.is_slept_on() { NOTHING } else { channel.interest });
            }
        }
        if let Some(fd) = extra {
            wanted.insert(fd.as_raw_fd(), Interest::READABLE);
        }
        for fd in before.keys().filter(|fd| !wanted.contains_key(*fd)) {
            // A closed descriptor has left the epoll by itself.
            let _gone = self.epoll.delete(system::borrow(*fd));
        }
        for (fd, interest) in wanted.iter().filter(|(fd, interest)| !same || before.get(fd) != Some(interest))
        {
            let mut event = EpollEvent::new(epoll_flags(*interest), u64::from(fd.unsigned_abs()));
            let modified = self.epoll.modify(system::borrow(*fd), &mut event);
            if modified == Err(Errno::ENOENT) {
                // Newly open, also if another one had this number before.
                if extra.is_none_or(|extra| extra.as_raw_fd() != *fd) {
                    host.boosting.watch(*fd);
                }
                if let Err(errno) = self.epoll.add(system::borrow(*fd), event) {
                    tracing::warn!(fd, %errno, "a channel cannot be watched; it is polled at every tick");
                }
            }
        }
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

fn epoll_flags(interest: Interest) -> EpollFlags {
    let mut flags = EpollFlags::empty();
    flags.set(EpollFlags::EPOLLIN, interest.readable);
    flags.set(EpollFlags::EPOLLOUT, interest.writable);
    flags
}

fn poll_flags(interest: Interest) -> PollFlags {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::POLLIN, interest.readable);
    flags.set(PollFlags::POLLOUT, interest.writable);
    flags
}

/// The serving thread itself.
#[derive(Debug)]
pub(crate) struct Server<'a> {
    host: &'a Arc<NodeHost>,
    sessions: Vec<Arc<NodeSession>>,
    /// Nodes that this one knows of on this host, itself included.
    processes_here: usize,
    version: u64,
    last_tick: Nanos,
    /// The next tick is due so long after the last one.
    tick_after: Nanos,
    /// Something has made the next tick due sooner than it was.
    hurried: bool,
    idle_since: Option<Nanos>,
    oversubscription: calibrate::Oversubscription,
}

impl<'a> Server<'a> {
    pub(crate) fn new(host: &'a Arc<NodeHost>) -> Self {
        Self {
            host,
            sessions: Vec::new(),
            processes_here: 1,
            version: u64::MAX,
            last_tick: host.now(),
            tick_after: IDLE_TICK,
            hurried: false,
            idle_since: None,
            oversubscription: calibrate::Oversubscription::default(),
        }
    }

    /// Serves until the node stops.
    pub(crate) fn run(mut self) {
        self.host.boosting.adopt();
        let mut busy_looks = 0;
        while !self.host.is_stopping() {
            self.refresh();
            // Who is about to sleep looks once: over TCP each look is a system call, and a boost is paid for by the time.
            let sleeps_at_once = self.host.spin_time(self.host.policy) == Nanos::ZERO;
            let looks = if sleeps_at_once { 1 } else { SPINS_PER_LOOK };
            let spins = if self.sessions.len() == 1 { looks } else { 1 };
            let mut moved = 0;
            for _ in 0..looks / spins {
                moved = self.look(spins);
                if moved != 0 {
                    break;
                }
            }
            if moved != 0 {
                self.idle_since = None;
                busy_looks += 1;
                if busy_looks < BUSY_LOOKS_PER_CLOCK {
                    continue;
                }
            }
            busy_looks = 0;
            self.host.boosting.worked();
            let now = self.host.now();
            if now.since(self.last_tick) >= self.tick_after {
                self.tick(now);
            }
            if moved == 0 {
                self.rest(now);
            }
        }
    }

    /// One look at every peer, and at what waiting callers queued.
    fn look(&self, spins: u32) -> usize {
        let mut moved = 0;
        for session in &self.sessions {
            let mut sink = ServingSink { host: self.host, session };
            let stop = || self.host.is_stopping();
            if let Some(progress) = session.turn(spins, stop, &mut sink, &**self.host) {
                moved += progress.moved;
            }
        }
        while let Some(job) = self.host.serving.next_job() {
            job.run_inline(self.host);
            moved += 1;
        }
        moved
    }

    /// Spins or sleeps, as the policy says.
    fn rest(&mut self, now: Nanos) {
        let spin = self.host.spin_time(self.host.policy);
        let idle_since = *self.idle_since.get_or_insert(now);
        if spin == Nanos::NEVER || now.since(idle_since) < spin {
            return;
        }
        if now.since(self.last_tick) >= BUSY_TICK {
            // A sleep may be long: it begins with the knowledge of when each peer was heard last.
            self.tick(now);
        }
        let serving = &self.host.serving;
        serving.sleeping.arm();
        for session in &self.sessions {
            session.server(State::Sleeps, &**self.host);
        }
        let version = self.host.version.load(Ordering::Acquire);
        if self.look(1) == 0
            && version == self.version
            && serving.sleeping.should_sleep()
            && !self.host.is_stopping()
        {
            self.sleep();
        }
        let _token = serving.sleeping.disarm();
        for session in &self.sessions {
            session.server(State::Awake, &**self.host);
            session.disarm();
        }
    }

    fn sleep(&mut self) {
        let serving = &self.host.serving;
        serving.register(&self.sessions, Some(self.host.receive_pool.channel()), self.version, self.host);
        let since_tick = self.host.now().since(self.last_tick);
        let left = self.tick_after.since(since_tick);
        serving.drowsy.store(left > BUSY_TICK, Ordering::Relaxed);
        self.host.boosting.before_wait();
        let mut events = [EpollEvent::empty(); 16];
        let timeout =
            EpollTimeout::try_from(poll_timeout(Duration::from_nanos(left.0)).as_millis().unwrap_or(1_000));
        // Woken early or interrupted: the loop looks again in any case.
        let timeout = timeout.unwrap_or(EpollTimeout::ZERO);
        flight::sleeps();
        let ready = serving.epoll.wait(&mut events, timeout);
        if ready == Ok(0) {
            self.look_after_net();
        }
        serving.drowsy.store(false, Ordering::Relaxed);
        // What is not heard now ends the next sleep.
        let pool = u64::from(self.host.receive_pool.channel().as_raw_fd().unsigned_abs());
        for event in &events[..ready.unwrap_or(0)] {
            match event.data() {
                SELF => drop(serving.wake.read()),
                who if who == pool => self.host.receive_pool.clear(),
                _ => {}
            }
        }
    }

    /// The sleep ended by its timer: what is there now should have woken the thread.
    fn look_after_net(&self) {
        for session in self.sessions.iter().filter(|session| session.is_servers()) {
            let mut sink = ServingSink { host: self.host, session };
            session.look_after_net(&mut sink, &**self.host, || {
                let late = EpollTimeout::try_from(Duration::from_nanos(LATE.0)).expect("milliseconds");
                let ready = self.host.serving.epoll.wait(&mut [EpollEvent::empty()], late);
                // A caller that waits by now has taken the event over.
                ready != Ok(0) || !session.is_servers()
            });
        }
    }

    /// Time passes: deadlines, heartbeats, liveness, evidence of oversubscription.
    fn tick(&mut self, now: Nanos) {
        let mut busy = false;
        let mut due = now + IDLE_TICK;
        for session in &self.sessions {
            let mut sink = ServingSink { host: self.host, session };
            match session.tick(now, self.tick_after, &mut sink, &**self.host) {
                Some(ticked) => {
                    busy |= session.open_calls() != 0 || ticked.work_in_flight != 0;
                    due = due.min(ticked.next_due);
                }
                // A caller polls: there is another tick soon.
                None => busy = true,
            }
        }
        self.last_tick = now;
        self.hurried = false;
        self.tick_after = if busy { BUSY_TICK } else { due.since(now).max(BUSY_TICK) };
        // SYNC: whether somebody asks; orders nothing.
        let of_use =
            if self.host.adaptive.swap(false, Ordering::Relaxed) { Use::Adaptive } else { Use::Nobody };
        let oversubscribed = self.oversubscription.sample(now, self.processes_here, of_use);
        self.host.oversubscribed.store(oversubscribed, Ordering::Relaxed);
    }

    fn refresh(&mut self) {
        let version = self.host.version.load(Ordering::Acquire);
        if version != self.version {
            self.version = version;
            self.sessions = self.host.sessions();
            // A link that came since the last tick has its heartbeats and its limit, of which that tick knew nothing.
            self.hurry();
            let links = self.sessions.iter().filter_map(|session| session.info(&**self.host));
            self.processes_here = 1 + links.filter(|link| link.local).count();
        }
        if self.tick_after > BUSY_TICK
            && !self.hurried
            && !self.host.serving.drowsy.load(Ordering::Relaxed)
            && self.any_open()
        {
            self.hurry();
        }
    }

    /// Makes the next tick due soon. What has passed since the last one was meant to pass, and is no lateness.
    fn hurry(&mut self) {
        let soon = self.host.now().since(self.last_tick) + BUSY_TICK;
        self.tick_after = self.tick_after.min(soon);
        self.hurried = true;
    }

    fn any_open(&self) -> bool {
        self.sessions.iter().any(|session| session.open_calls() != 0)
    }
}
