//! The work of the role holder: it polls, calls the driver's ticks, and sleeps on all sources. `engine_threads` selects the thread.

use pronto_core::Nanos;
use pronto_core::executor::{Channel, Polled};
use pronto_core::wait::{
    BackOff, Decision, LATE, Next, PollWatch, Recheck, SAFETY_NET, Sleeper, Wait, Woken as Ended,
    arm_recheck_sleep,
};
use pronto_sync::TryLockGuard;
use pronto_sync::atomic::Ordering;

use crate::engine_threads::{EngineThreads, Holder};
use crate::manager::{Manager, Shared};
use crate::poller::{Burst, Poller};
use crate::sleep_set::Woken;
use crate::source::Trigger;

/// Idle polls of a single source between two clock readings. A reading takes as long as a few polls. Several sources share this
/// number.
pub(crate) const POLL_BATCH: u32 = 64;
/// Maximum number of poll batches with events between two clock readings.
const BUSY_BATCHES_PER_CLOCK: u32 = 16;
/// Maximum number of consecutive polls by a timer engine while there are events.
pub(crate) const TIMER_POLLS: u32 = 1_024;
/// Interval between polls of a timer engine while its driver expects an event.
pub(crate) const CLOSE_INTERVAL: Nanos = Nanos::from_micros(50);
/// Number of consecutive empty polls at that interval after which a timer engine returns to its period.
pub(crate) const CLOSE_POLLS: u32 = 20;
/// Gap between two clock readings that is longer than the polls between them take.
const LONG_GAP: Nanos = Nanos::from_micros(100);

/// Callbacks of the role holder: its work other than polling, and its wait policy. Only the role holder calls them.
pub trait EngineDriver {
    /// Returns whether the thread must end.
    fn is_stopping(&self) -> bool;

    /// Returns how the thread waits at present.
    fn decide(&self) -> Decision;

    /// Reports the end of a polling phase of bounded length: the thread is about to sleep, or the gap between two clock readings was
    /// suspiciously long because the thread did other work or was preempted.
    fn polled(&mut self, polled: Polled) {
        let _ = polled;
    }

    /// Reports that an event has ended a wait at `now`.
    fn idle_ended(&mut self, wait: &mut Wait, now: Nanos) {
        let _ = (wait, now);
    }

    /// Updates the driver's state. Called before every poll batch; may register and remove sources.
    fn refresh(&mut self) {}

    /// Returns a number that changes whenever a channel's descriptor may refer to a different file than before.
    fn version(&self) -> u64 {
        0
    }

    /// Returns whether nothing has changed since [`Self::refresh`] that the driver must see before a sleep.
    fn may_sleep(&self) -> bool {
        true
    }

    /// Does the periodic work.
    fn tick(&mut self, now: Nanos);

    /// Returns the time of the next [`Self::tick`].
    fn next_tick(&self) -> Nanos;

    /// Prepares for a sleep, possibly a long one. Called before the sources are armed.
    fn before_rest(&mut self, now: Nanos) {
        let _ = now;
    }

    /// Returns a channel that ends sleeps in addition to the channels of sources.
    fn channel(&self) -> Option<Channel> {
        None
    }

    /// Reports that [`Self::channel`] has ended a sleep. Called before sources are polled.
    fn woken(&mut self) {}

    /// Returns whether an event is expected for which a timer engine should poll more often than once per period.
    fn is_expecting(&self) -> bool {
        false
    }

    /// Called immediately before the thread sleeps.
    fn before_sleep(&self) {}

    /// Called when the thread has slept, or has waited for the previous holder of its role.
    fn after_sleep(&self) {}

    /// Called after each poll batch or timer sleep.
    fn worked(&self) {}
}

impl Manager {
    /// Runs as the engine of this manager until the driver stops, without spares. One thread at a time may call this. See [`EngineThreads`]
    /// for an engine with spares.
    pub fn run(&self, driver: impl EngineDriver) {
        EngineThreads::new(self.clone(), driver).serve();
    }
}

/// State of the engine role, which passes from one holder to the next.
pub(crate) struct Role<K> {
    pub(crate) driver: K,
    /// Number of times the engine thread has taken the role back after tasklets.
    pub(crate) turns: u64,
    /// Present wait, while there are no events.
    idle: Option<Wait>,
    /// Statistics of polling for a limited time by `watched`, since that thread slept last.
    watch: PollWatch,
    watched: Holder,
    /// A channel has ended the last sleep, and the sources have not been polled since.
    woken: bool,
    /// Time of a timer engine's next poll; `None` before its first round.
    pub(crate) next: Option<Nanos>,
    /// Consecutive rounds of a timer engine without an event.
    pub(crate) empty_rounds: u32,
}

impl Shared {
    /// Polls as often as fits between two clock readings, under one lock acquisition: up to [`BUSY_BATCHES_PER_CLOCK`] batches of up to
    /// `polls` polls, stopping after the first batch without an event.
    #[inline]
    pub(crate) fn poll_batch(&self, polls: u32) -> Batch {
        let may_go_on = || !self.is_changed() && !self.may_have_tasklets();
        let (Burst { taken, dry }, grouped) = match self.enter() {
            Some(mut poller) => {
                let burst = poller.burst(Trigger::Idle, polls, BUSY_BATCHES_PER_CLOCK, may_go_on);
                (burst, poller.has_epolls())
            }
            // Another thread polls, and finds any event.
            None => (Burst { taken: 0, dry: true }, false),
        };
        Batch { taken, dry, grouped }
    }

    /// Polls every source and the group once for a timer engine. Returns `None` if another thread polls.
    pub(crate) fn poll_on_time(&self) -> Option<usize> {
        let mut poller = self.enter()?;
        let taken = poller.poll(Trigger::Timer, 1);
        Some(taken + self.poll_group_now(&mut poller, Trigger::Timer, self.clock.now()))
    }
}

impl<K: EngineDriver> Role<K> {
    pub(crate) const fn new(driver: K) -> Self {
        Self {
            driver,
            turns: 0,
            idle: None,
            watch: PollWatch::UNUSED,
            watched: Holder::Own,
            woken: false,
            next: None,
            empty_rounds: 0,
        }
    }

    /// Completes a round after a poll batch: reports the result, ticks, and polls on or sleeps if there was no event.
    #[inline]
    pub(crate) fn after_batch(&mut self, shared: &Shared, batch: Batch, decision: Decision, holder: Holder) {
        let Batch { taken, dry, grouped } = batch;
        if core::mem::take(&mut self.woken) {
            // If another thread polls now, it may process the events that ended the sleep.
            let mut poller = shared.enter();
            let is_attended = |fd| poller.as_mut().is_none_or(|poller| poller.is_attended(fd));
            let muted = shared.set.found(taken, shared.clock.now(), is_attended);
            drop(poller);
            shared.reports.muted.add(muted);
        }
        self.driver.worked();
        let now = shared.clock.now();
        if taken != 0 {
            self.found(now);
        }
        self.watch(decision, now, holder);
        if now >= self.driver.next_tick() {
            self.driver.tick(now);
        }
        let of_group = if grouped { self.poll_group(shared, now) } else { 0 };
        if dry && of_group == 0 {
            self.poll_or_sleep(shared, decision, now, holder);
        }
    }

    fn poll_group(&mut self, shared: &Shared, now: Nanos) -> usize {
        let Some(mut poller) = shared.enter() else { return 0 };
        let taken = shared.poll_group(&mut poller, Trigger::Idle, now);
        if taken != 0 {
            self.found(now);
        }
        taken
    }

    /// Ends the present wait because of an event.
    #[inline]
    fn found(&mut self, now: Nanos) {
        if let Some(mut wait) = self.idle.take() {
            self.driver.idle_ended(&mut wait, now);
        }
    }

    /// Updates the statistics of polling.
    #[inline]
    fn watch(&mut self, decision: Decision, now: Nanos, holder: Holder) {
        // Statistics of one thread say nothing about another.
        if !decision.is_bounded() || self.watched != holder {
            self.watch.stop();
            self.watched = holder;
        }
        if decision.is_bounded() && self.watch.clock_was_read(now) >= LONG_GAP {
            self.report();
        }
    }

    #[cold]
    fn report(&mut self) {
        if let Some(polled) = self.watch.stop() {
            self.driver.polled(polled);
        }
    }

    /// Polls on or sleeps, by the driver's decision.
    fn poll_or_sleep(&mut self, shared: &Shared, decision: Decision, now: Nanos, holder: Holder) {
        let wait = self.idle.get_or_insert_with(|| Wait::new(decision, Nanos::NEVER));
        wait.decide_again(decision);
        if wait.next(now) == Next::Poll {
            return;
        }
        self.report();
        self.driver.before_rest(now);
        let Some(poller) = shared.enter() else { return };
        let driver = &mut self.driver;
        let mut all =
            AllSources { shared, driver, poller: Some(poller), taken: 0, woken: false, slept: false, holder };
        arm_recheck_sleep(&mut all);
        let (taken, woken, slept) = (all.taken, all.woken, all.slept);
        drop(all);
        self.woken = woken;
        if slept && let Some(wait) = &mut self.idle {
            wait.sleeps();
        }
        if taken != 0 {
            self.found(shared.clock.now());
        }
    }

    /// Returns the time of a timer engine's next poll.
    pub(crate) fn due(&mut self, now: Nanos, period: Nanos) -> Nanos {
        *self.next.get_or_insert(now + period)
    }

    /// Sleeps until a timer engine's next poll, or until the driver's next tick.
    pub(crate) fn sleep_until_due(&mut self, shared: &Shared, period: Nanos, holder: Holder) {
        let now = shared.clock.now();
        if now >= self.driver.next_tick() {
            self.driver.tick(now);
        }
        self.driver.before_sleep();
        shared.reports.sleeps.add(1);
        let limit = self.due(now, period).min(self.driver.next_tick()).since(shared.clock.now());
        shared.drowsy.store(limit > SAFETY_NET, Ordering::Relaxed);
        if !(holder == Holder::Spare && shared.spares.handover.is_wanted()) {
            let was_rung = shared.set.sleep_until_rung(limit);
            shared.reports.timeouts.add(u64::from(!was_rung));
            self.driver.after_sleep();
        }
        shared.drowsy.store(false, Ordering::Relaxed);
        self.driver.worked();
    }
}

/// Result of the polls between two clock readings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    taken: usize,
    /// The last poll found no event.
    dry: bool,
    /// There are sources behind an epoll.
    grouped: bool,
}

impl Batch {
    /// Adds `ran` tasklets that ran after the polls.
    pub(crate) const fn add(&mut self, ran: usize) {
        self.taken += ran;
        self.dry &= ran == 0;
    }
}

/// The engine as a sleeper: every source of a manager, and the other conditions that the engine checks before a sleep.
struct AllSources<'a, K> {
    shared: &'a Shared,
    driver: &'a mut K,
    /// Released while the thread sleeps, so that other threads may poll meanwhile.
    poller: Option<TryLockGuard<'a, Poller>>,
    taken: usize,
    /// A channel ended the sleep.
    woken: bool,
    slept: bool,
    holder: Holder,
}

impl<K: EngineDriver> AllSources<'_, K> {
    fn poller(&mut self) -> &mut Poller {
        let shared = self.shared;
        self.poller.get_or_insert_with(|| {
            let mut back_off = BackOff::default();
            loop {
                if let Some(poller) = shared.enter() {
                    break poller;
                }
                // Another thread polls the sources, which takes microseconds unless this thread keeps it from its CPU.
                #[expect(
                    clippy::disallowed_methods,
                    reason = "the wait is for a lock, whose holder may be of a lower scheduling class"
                )]
                back_off.pause_by(std::thread::yield_now, std::thread::sleep);
            }
        })
    }

    fn limit(&mut self, now: Nanos) -> Nanos {
        let trial = self.shared.set.next_trial().min(self.poller().group.next_trial());
        self.driver.next_tick().min(trial).since(now)
    }
}

impl<K: EngineDriver> Sleeper for AllSources<'_, K> {
    fn arm(&mut self) -> bool {
        self.shared.word.arm();
        self.poller().arm();
        true
    }

    fn recheck(&mut self) -> Recheck {
        self.taken = self.poller().recheck();
        let found = self.taken != 0
            || self.shared.is_changed()
            || self.shared.has_tasklets(Trigger::Idle)
            || !self.driver.may_sleep()
            || self.driver.is_stopping()
            || (self.holder == Holder::Spare && self.shared.spares.handover.is_wanted())
            || !self.shared.word.should_sleep();
        if found { Recheck::Found } else { Recheck::Empty }
    }

    fn sleep(&mut self) -> Ended {
        let shared = self.shared;
        let now = shared.clock.now();
        let version = self.driver.version().wrapping_add(shared.generation.load(Ordering::Relaxed));
        let own = self.driver.channel();
        let found = self.poller().rest(version, |fd| shared.set.is_shared(fd));
        self.taken += found;
        if found != 0 || !self.driver.may_sleep() {
            // A poll leaves what is behind a full batch to the next one. And a descriptor may refer to another file than a moment ago.
            self.poller().end_last_rest();
            return Ended::Early;
        }
        let poller = self.poller();
        shared.set.register(version, now, |wanted| {
            poller.collect(wanted);
            wanted.extend(own.map(|own| (own.fd, own.interest)));
        });
        let limit = self.limit(shared.clock.now());
        shared.drowsy.store(limit > SAFETY_NET, Ordering::Relaxed);
        self.poller = None;
        self.driver.before_sleep();
        shared.reports.sleeps.add(1);
        self.slept = true;
        let woken = shared.set.sleep(limit);
        self.driver.after_sleep();
        shared.drowsy.store(false, Ordering::Relaxed);
        let Woken::Event { group, resting, channel } = woken else {
            shared.reports.timeouts.add(1);
            return Ended::Limit;
        };
        self.woken = channel;
        if channel && own.is_some_and(|own| shared.set.has_fired(own.fd)) {
            self.driver.woken();
        }
        if resting {
            self.poller().rouse_ready();
        }
        if group {
            let now = shared.clock.now();
            self.taken += shared.poll_group_now(self.poller(), Trigger::Idle, now);
        }
        Ended::Early
    }

    fn check_safety_net(&mut self) {
        let set = &self.shared.set;
        let word = &self.shared.word;
        let woken = || !word.should_sleep() || set.has_event(LATE);
        let (late, lost) = self.poller().after_timeout(woken, |fd| set.leaves_out(fd));
        self.shared.reports.late.add(late);
        self.shared.reports.lost_wake_ups.add(lost);
    }

    fn disarm(&mut self) {
        self.shared.word.disarm();
        self.poller().disarm();
    }
}
