//! The scheduler of simulated threads: one of them runs at a time, and passes control on at switch points.
//!
//! # Invariants
//! 1. Exactly one thread runs: a simulated one, or the one that called [`Threads::run`]. The others sleep on their bells.
//! 2. The seed decides which thread runs next. The world's time advances with each operation of the running thread, and jumps only if
//!    no thread can run.
//! 3. After a failure no simulated thread runs any more. Their stacks are abandoned, as unwinding them would run the code under test.

use core::any::Any;
use core::cell::RefCell;
use core::fmt::Write as _;
use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use pronto_core::Nanos;

use super::bell::Bell;
use super::idle::{Waits, violation};
use super::pace::Pace;
use super::points;
use super::thread::{Asleep, Run, SleepOn, Thread, Woken};
use crate::random::{Random, Span};
use crate::scenario::SimSession;
use crate::world::{SimNode, SimWorld};

/// Number of operations after which a story has spun without bound.
const MOST_OPERATIONS: u64 = 400_000_000;
/// Factor by which time passes faster while one thread runs and all others sleep.
const ALONE: u64 = 10;
/// Time from an event until the thread that it wakes can run.
const WAKE: Span = Span { min: Nanos(50), max: Nanos::from_micros(40) };

thread_local! {
    static CURRENT: RefCell<Option<(Arc<Inner>, usize)>> = const { RefCell::new(None) };
}

/// The reason for a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The thread has made the operations of its count.
    Point,
    /// The thread spins, or yields its CPU.
    Yield,
}

/// The simulated threads of one world.
#[derive(Clone)]
pub(super) struct Threads(Arc<Inner>);

struct Inner {
    world: SimWorld,
    state: Mutex<State>,
    /// Rung when all threads have ended, or one has failed.
    end: Bell,
}

struct State {
    threads: Vec<Thread>,
    random: Random,
    pace: Pace,
    operations: u64,
    /// Time by which every thread must have ended.
    limit: Nanos,
    lost_wake_ups: LostWakeUps,
    failure: Option<String>,
}

/// Whether a thread that sleeps although something is there for it is a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LostWakeUps {
    Fail,
    /// The world loses events. The safety-net timeout ends the sleep.
    Occur,
}

impl Threads {
    pub(super) fn new(
        world: SimWorld,
        seed: u64,
        operation: Option<Nanos>,
        limit: Nanos,
        lost_wake_ups: LostWakeUps,
    ) -> Self {
        let mut random = Random::new(seed ^ 0x7124_ead5);
        let pace = Pace::random(&mut random);
        let pace = Pace { operation: operation.unwrap_or(pace.operation), ..pace };
        let state =
            State { threads: Vec::new(), random, pace, operations: 0, limit, lost_wake_ups, failure: None };
        Self(Arc::new(Inner { world, state: Mutex::new(state), end: Bell::default() }))
    }

    /// Adds a thread of a node, or of none, which begins with [`Self::run`].
    pub(super) fn spawn(&self, node: Option<SimNode>, name: String, body: impl FnOnce() + Send + 'static) {
        let inner = Arc::clone(&self.0);
        let bell = Arc::new(Bell::default());
        let mut state = self.0.lock();
        let index = state.threads.len();
        state.threads.push(Thread::new(node, name.clone(), Arc::clone(&bell)));
        drop(state);
        let run = move || {
            bell.wait();
            CURRENT.set(Some((Arc::clone(&inner), index)));
            points::join(index);
            points::give(1);
            let ended = catch_unwind(AssertUnwindSafe(body));
            points::stop();
            points::leave();
            CURRENT.set(None);
            inner.ended(index, ended);
        };
        // Not joined: after a failure it never ends.
        thread::Builder::new().name(name).spawn(run).expect("the system has room for a thread");
    }

    /// Runs the threads until all have ended.
    ///
    /// # Panics
    /// A thread has panicked, no thread can ever run again, an awaited event wakes nobody, or the threads do not end in time.
    pub(super) fn run(&self) {
        let _quiet = points::Quiet::new();
        self.0.pass_on(self.0.lock());
        self.0.end.wait();
        let state = self.0.lock();
        if let Some(failure) = &state.failure {
            panic!("{failure}\n{}\n{}", state.described(), self.0.world.trace());
        }
    }

    /// Returns the number of operations of all threads.
    pub(super) fn operations(&self) -> u64 {
        self.0.lock().operations
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes control to the next thread. Returns it, or none if the world has ended.
    fn pass_on(&self, mut state: MutexGuard<'_, State>) -> Option<usize> {
        let next = state.next(&self.world);
        match next {
            Some(next) => state.threads[next].bell.ring(),
            None => self.end.ring(),
        }
        next
    }

    /// Passes control to the next thread, which may be the calling one. Returns when the calling thread has control again.
    fn switch(&self, mut state: MutexGuard<'_, State>, me: usize) {
        let bell = Arc::clone(&state.threads[me].bell);
        let next = state.next(&self.world);
        if next == Some(me) {
            return;
        }
        match next {
            Some(next) => state.threads[next].bell.ring(),
            None => self.end.ring(),
        }
        drop(state);
        bell.wait();
    }

    fn ended(&self, me: usize, ended: Result<(), Box<dyn Any + Send>>) {
        let _quiet = points::Quiet::new();
        let mut state = self.lock();
        state.threads[me].run = Run::Ended;
        if let Err(panic) = ended {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
            state.failure = Some(format!("thread {:?} panicked: {text}", state.threads[me].name));
        }
        self.pass_on(state);
    }
}

impl State {
    /// Lets time pass for the operations of the running thread: faster if all others sleep, so that a long spin is short to simulate.
    fn charge(&mut self, world: &SimWorld, operations: u32) {
        self.operations += u64::from(operations);
        let busy =
            self.threads.iter().filter(|thread| matches!(thread.run, Run::Ready | Run::Held { .. })).count();
        let factor = if busy > 1 { 1 } else { ALONE };
        world.pass(Nanos(self.pace.operation.0 * u64::from(operations) * factor));
    }

    /// Returns the number of operations until the next decision.
    fn count(&mut self) -> u32 {
        1 + u32::try_from(self.random.below(self.pace.gap.into())).expect("a small number")
    }

    /// Chooses the next thread, and lets time pass until there is one. Returns none if all have ended, or on a failure.
    fn next(&mut self, world: &SimWorld) -> Option<usize> {
        loop {
            self.wake_due(world);
            self.failure = self.failure.take().or_else(|| self.overdue(world));
            if self.failure.is_some() {
                return None;
            }
            let ready = |thread: &Thread| matches!(thread.run, Run::Ready);
            let count = self.threads.iter().filter(|thread| ready(thread)).count();
            if count != 0 {
                let which = usize::try_from(self.random.below(count as u64)).expect("below a count");
                let mut all = (0..self.threads.len()).filter(|index| ready(&self.threads[*index]));
                return all.nth(which);
            }
            if self.threads.iter().all(|thread| matches!(thread.run, Run::Ended)) {
                return None;
            }
            let timers = self.threads.iter().map(|thread| thread.run.until());
            let timer = timers.min().filter(|until| *until != Nanos::NEVER);
            let Some(at) = [timer, world.next_event()].into_iter().flatten().min() else {
                self.failure = Some("deadlock: every thread sleeps, and nothing will ever wake one".into());
                return None;
            };
            world.run_until(at);
        }
    }

    /// Returns the reason why the threads do not go on as they must.
    fn overdue(&self, world: &SimWorld) -> Option<String> {
        if world.now() > self.limit {
            return Some("the threads have not ended in time".into());
        }
        if self.operations > MOST_OPERATIONS {
            return Some("the threads spin without bound".into());
        }
        match self.lost_wake_ups {
            LostWakeUps::Fail => violation(&self.threads, world),
            LostWakeUps::Occur => None,
        }
    }

    /// Makes the threads ready whose time or event has come.
    fn wake_due(&mut self, world: &SimWorld) {
        for channel in world.take_rung() {
            self.ring(world, channel);
        }
        let now = world.now();
        for thread in &mut self.threads {
            if thread.run.until() <= now {
                thread.run = Run::Ready;
            }
        }
    }

    /// Wakes a thread that sleeps in a channel: a caller before a serving thread, which is seldom woken as well.
    fn ring(&mut self, world: &SimWorld, channel: i32) {
        let sleeps = |thread: &Thread, serving: bool| match &thread.run {
            Run::Asleep(Asleep { on: SleepOn::Channels(channels), .. }) => {
                !serving && channels.contains(&channel)
            }
            Run::Asleep(Asleep { on: SleepOn::Serving { channels, .. }, .. }) => {
                serving && channels.contains(&channel)
            }
            _ => false,
        };
        let caller = self.threads.iter().position(|thread| sleeps(thread, false));
        let serving = self.threads.iter().position(|thread| sleeps(thread, true));
        let both = caller.is_none() || self.random.one_in(8);
        for index in caller.into_iter().chain(serving.filter(|_| both)) {
            self.threads[index].woken.ready.push(channel);
            self.wake(world, index);
        }
    }

    /// Wakes a sleeping thread, which runs a little later.
    fn wake(&mut self, world: &SimWorld, index: usize) {
        let until = world.now() + self.random.within(WAKE);
        world.note("wake", [index as u64, until.0, 0]);
        self.threads[index].woken.by_event = true;
        self.threads[index].run = Run::Held { until };
    }

    fn described(&self) -> String {
        let mut text = format!("{:?}, {} operations; the threads:", self.pace, self.operations);
        for Thread { name, run, waits, .. } in &self.threads {
            let _ = write!(text, "\n  {name}: {run:?}, waits for {waits:?}");
        }
        text
    }
}

/// Returns the index of the calling thread in its world; 0 for an ordinary one.
pub(crate) fn current() -> usize {
    CURRENT.with_borrow(|current| current.as_ref().map_or(0, |(_, me)| *me))
}

/// Runs `with` on the scheduler's state and the index of the calling thread, without a switch. Returns none if the thread is not a
/// simulated one.
fn here<R>(with: impl FnOnce(&Arc<Inner>, MutexGuard<'_, State>, usize) -> R) -> Option<R> {
    let (inner, me) = CURRENT.with_borrow(Clone::clone)?;
    let operations = points::stop();
    let _quiet = points::Quiet::new();
    let mut state = inner.lock();
    state.charge(&inner.world, operations);
    Some(with(&inner, state, me))
}

/// Gives the calling thread its next count.
fn go_on() -> u32 {
    let count = CURRENT.with_borrow(|current| current.as_ref().map_or(0, |(inner, _)| inner.lock().count()));
    points::give(count);
    count
}

/// Lets another thread run, or the calling one go on. Returns its next count.
pub(super) fn switch(why: Why) -> u32 {
    if points::is_quiet() {
        return 1;
    }
    let switched = here(|inner, mut state, me| {
        let State { random, pace, .. } = &mut *state;
        match why {
            Why::Point if random.one_in(pace.hold_one_in) => {
                let until = inner.world.now() + random.within(pace.hold);
                state.threads[me].run = Run::Held { until };
            }
            Why::Point if random.one_in(2) => return,
            Why::Point => {}
            // The scheduler of a real system also returns to the thread sometimes.
            Why::Yield if random.one_in(8) => {}
            Why::Yield => state.threads[me].run = Run::Held { until: inner.world.now() + Nanos(1) },
        }
        inner.switch(state, me);
    });
    if switched.is_some() { go_on() } else { 0 }
}

/// Makes the calling thread sleep, unless `may_sleep` returns false. Returns what has woken it.
pub(super) fn sleep(asleep: Asleep, may_sleep: impl FnOnce(&SimWorld) -> bool) -> Woken {
    let woken = here(|inner, mut state, me| {
        state.threads[me].woken = Woken::default();
        let channels = match &asleep.on {
            SleepOn::Channels(channels) | SleepOn::Serving { channels, .. } => channels.as_slice(),
            _ => &[],
        };
        // Events that are pending end a sleep immediately.
        let ready: Vec<_> =
            channels.iter().copied().filter(|channel| inner.world.is_readable(*channel)).collect();
        let is_alerted = matches!(asleep.on, SleepOn::Serving { .. }) && state.threads[me].is_alerted;
        if !ready.is_empty() || is_alerted {
            state.threads[me].woken = Woken { by_event: true, ready };
        } else if may_sleep(&inner.world) {
            inner.world.note("sleep", [me as u64, asleep.until.0, 0]);
            // A sleep may end early, for example by a signal.
            let early = asleep.is_long() && state.random.one_in(32);
            let span =
                Span { min: Nanos(1), max: asleep.until.since(inner.world.now()).min(Nanos::from_millis(4)) };
            let until = if early { inner.world.now() + state.random.within(span) } else { asleep.until };
            state.threads[me].run = Run::Asleep(Asleep { until, ..asleep });
        }
        inner.switch(state, me);
        let mut state = inner.lock();
        state.threads[me].is_alerted = false;
        core::mem::take(&mut state.threads[me].woken)
    });
    go_on();
    woken.expect("only simulated threads sleep")
}

/// Wakes the threads that sleep on a word.
pub(super) fn wake_word(word: usize) {
    here(|inner, mut state, _| {
        let sleeps = |thread: &Thread| matches!(thread.run, Run::Asleep(Asleep { on: SleepOn::Word(on), .. }) if on == word);
        let sleepers: Vec<_> =
            (0..state.threads.len()).filter(|index| sleeps(&state.threads[*index])).collect();
        sleepers.into_iter().for_each(|index| state.wake(&inner.world, index));
    });
    go_on();
}

/// Wakes the serving thread of a node, or ends its next sleep.
pub(super) fn alert(node: SimNode) {
    here(|inner, mut state, _| {
        for index in 0..state.threads.len() {
            let thread = &mut state.threads[index];
            if thread.is_serving && thread.node == Some(node) {
                thread.is_alerted = true;
                if matches!(thread.run, Run::Asleep(_)) {
                    state.wake(&inner.world, index);
                }
            }
        }
    });
    go_on();
}

/// Declares that the calling thread is its node's serving thread, and serves these sessions.
pub(super) fn serves(sessions: Vec<Arc<SimSession>>) {
    here(|_, mut state, me| {
        state.threads[me].is_serving = true;
        state.threads[me].serves = sessions;
    });
    go_on();
}

/// Runs `wait` while the scheduler knows what the calling thread waits for.
pub(super) fn waiting<R>(waits: Waits, wait: impl FnOnce() -> R) -> R {
    struct Over;
    impl Drop for Over {
        fn drop(&mut self) {
            here(|_, mut state, me| state.threads[me].waits = None);
            go_on();
        }
    }
    here(|_, mut state, me| state.threads[me].waits = Some(waits));
    go_on();
    let _over = Over;
    wait()
}
