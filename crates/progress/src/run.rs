//! What the engine's thread does: polls, passes the time, and sleeps on all sources at once. Who does it, `post` says.

use pronto_core::Nanos;
use pronto_core::executor::{Channel, Polled};
use pronto_core::wait::{
    BackOff, Decision, LATE, Next, PollWatch, Recheck, SAFETY_NET, Sleeper, Wait, Woken as Ended,
    arm_recheck_sleep,
};
use pronto_sync::TryLockGuard;
use pronto_sync::atomic::Ordering;

use crate::manager::{Manager, Shared};
use crate::poller::{Burst, Poller};
use crate::post::{Post, Who};
use crate::sleep_set::Woken;
use crate::source::Trigger;

/// Idle looks at a single source between two readings of the clock, which takes as long as a few of them. Shared among
/// sources where there are more.
pub(crate) const LOOKS: u32 = 64;
/// Looks that found something between two readings of the clock.
const BUSY_LOOKS_PER_CLOCK: u32 = 16;
/// Looks in a row by a timer's engine, as long as there is something.
pub(crate) const TIMER_LOOKS: u32 = 1_024;
/// Between two looks of a timer's engine at what is on its way.
pub(crate) const NAP: Nanos = Nanos::from_micros(50);
/// Such looks in a row that found nothing, after which it goes back to its period.
pub(crate) const NAPS: u32 = 20;
/// Between two looks: longer than looks in memory take, whatever there is to take in.
const LONG: Nanos = Nanos::from_micros(100);

/// What an engine's thread does beside polling, and how it may wait. Called by the thread on duty alone.
pub trait Keeper {
    /// Whether the thread shall end.
    fn is_stopping(&self) -> bool;

    /// Returns how the thread waits at present.
    fn decide(&self) -> Decision;

    /// It has polled for a bounded time, and is about to sleep, or has been between two looks for longer than looks take: it
    /// worked, or it was taken off its processor.
    fn polled(&mut self, polled: Polled) {
        let _ = polled;
    }

    /// Something has come `now`, and has ended a wait.
    fn idle_ended(&mut self, wait: &mut Wait, now: Nanos) {
        let _ = (wait, now);
    }

    /// Looks around: sources may be registered and removed here. Comes before every look.
    fn refresh(&mut self) {}

    /// Grows when channels may belong to something else than before.
    fn version(&self) -> u64 {
        0
    }

    /// Whether nothing has changed since [`Self::refresh`] that it should see before a sleep.
    fn may_sleep(&self) -> bool {
        true
    }

    /// Time passes.
    fn tick(&mut self, now: Nanos);

    /// When it is to pass next.
    fn next_tick(&self) -> Nanos;

    /// A sleep is about to begin, perhaps a long one.
    fn before_rest(&mut self, now: Nanos) {
        let _ = now;
    }

    /// A channel that ends its sleeps beside those of sources.
    fn channel(&self) -> Option<Channel> {
        None
    }

    /// It has ended one. Comes before sources are polled.
    fn woken(&mut self) {}

    /// Whether something is on its way that a timer should look after closely, and not only when its next period is over.
    fn is_expecting(&self) -> bool {
        false
    }

    /// The thread gives its processor away now.
    fn before_sleep(&self) {}

    /// The thread has slept, or waited for the one before it: what it does next it does now.
    fn after_sleep(&self) {}

    /// Some work is done.
    fn worked(&self) {}
}

impl Manager {
    /// Runs as the engine of this manager, until the keeper says that it is over. One thread at a time. Without spares: see
    /// [`Post`] for those.
    pub fn run(&self, keeper: impl Keeper) {
        Post::new(self.clone(), keeper).serve();
    }
}

/// What the thread on duty needs, and hands on.
pub(crate) struct Role<K> {
    pub(crate) keeper: K,
    /// How often the engine's own thread has come back to it.
    pub(crate) turns: u64,
    /// The present wait, while nothing comes.
    idle: Option<Wait>,
    /// How the thread on duty polls for a limited time, since it last slept.
    watch: PollWatch,
    watched: Who,
    /// A channel has ended the last sleep, and nobody has looked since.
    woken: bool,
    /// When a timer's engine looks next; none before its first time.
    pub(crate) next: Option<Nanos>,
    /// Looks in a row of a timer's engine that found nothing.
    pub(crate) naps: u32,
}

impl Shared {
    /// As many looks as are made between two readings of the clock, under one lock: as often as there is something, or once in
    /// vain.
    #[inline]
    pub(crate) fn look(&self, looks: u32) -> Looked {
        let may_go_on = || !self.is_changed() && !self.may_have_tasklets();
        let (Burst { taken, dry }, grouped) = match self.enter() {
            Some(mut poller) => {
                let burst = poller.burst(Trigger::Idle, looks, BUSY_LOOKS_PER_CLOCK, may_go_on);
                (burst, !poller.group.is_empty())
            }
            // Another thread looks, and finds what there is.
            None => (Burst { taken: 0, dry: true }, false),
        };
        Looked { taken, dry, grouped }
    }

    /// One look of a timer's engine at everything; none if another thread looks.
    pub(crate) fn look_on_time(&self) -> Option<usize> {
        let mut poller = self.enter()?;
        let taken = poller.look(Trigger::Timer, 1);
        Some(taken + self.look_at_group_now(&mut poller, Trigger::Timer, self.clock.now()))
    }
}

impl<K: Keeper> Role<K> {
    pub(crate) const fn new(keeper: K) -> Self {
        Self {
            keeper,
            turns: 0,
            idle: None,
            watch: PollWatch::UNUSED,
            watched: Who::Own,
            woken: false,
            next: None,
            naps: 0,
        }
    }

    /// What follows from a look: time passes, and who found nothing rests.
    #[inline]
    pub(crate) fn looked(&mut self, shared: &Shared, looked: Looked, decision: Decision, who: Who) {
        let Looked { taken, dry, grouped } = looked;
        if core::mem::take(&mut self.woken) {
            // Who else looks at the sources now may be the one.
            let mut poller = shared.enter();
            let is_attended = |fd| poller.as_mut().is_none_or(|poller| poller.is_attended(fd));
            let muted = shared.set.found(taken, shared.clock.now(), is_attended);
            drop(poller);
            shared.reports.muted.add(muted);
        }
        self.keeper.worked();
        let now = shared.clock.now();
        if taken != 0 {
            self.found(now);
        }
        self.watch(decision, now, who);
        if now >= self.keeper.next_tick() {
            self.keeper.tick(now);
        }
        let of_group = if grouped { self.look_at_group(shared, now) } else { 0 };
        if dry && of_group == 0 {
            self.rest(shared, decision, now, who);
        }
    }

    fn look_at_group(&mut self, shared: &Shared, now: Nanos) -> usize {
        let Some(mut poller) = shared.enter() else { return 0 };
        let taken = shared.look_at_group(&mut poller, Trigger::Idle, now);
        if taken != 0 {
            self.found(now);
        }
        taken
    }

    /// Something has come.
    #[inline]
    fn found(&mut self, now: Nanos) {
        if let Some(mut wait) = self.idle.take() {
            self.keeper.idle_ended(&mut wait, now);
        }
    }

    /// Watches how the thread polls.
    #[inline]
    fn watch(&mut self, decision: Decision, now: Nanos, who: Who) {
        // How another thread polled is no evidence of how this one does.
        if !decision.is_bounded() || self.watched != who {
            self.watch.stop();
            self.watched = who;
        }
        if decision.is_bounded() && self.watch.clock_was_read(now) >= LONG {
            self.report();
        }
    }

    #[cold]
    fn report(&mut self) {
        if let Some(polled) = self.watch.stop() {
            self.keeper.polled(polled);
        }
    }

    /// Polls on or sleeps, as the keeper has decided.
    fn rest(&mut self, shared: &Shared, decision: Decision, now: Nanos, who: Who) {
        let wait = self.idle.get_or_insert_with(|| Wait::new(decision, Nanos::NEVER));
        wait.decide_again(decision);
        if wait.next(now) == Next::Poll {
            return;
        }
        self.report();
        self.keeper.before_rest(now);
        let Some(poller) = shared.enter() else { return };
        let keeper = &mut self.keeper;
        let mut everything =
            Everything { shared, keeper, poller: Some(poller), taken: 0, woken: false, slept: false, who };
        arm_recheck_sleep(&mut everything);
        let (taken, woken, slept) = (everything.taken, everything.woken, everything.slept);
        drop(everything);
        self.woken = woken;
        if slept && let Some(wait) = &mut self.idle {
            wait.sleeps();
        }
        if taken != 0 {
            self.found(shared.clock.now());
        }
    }

    /// When a timer's engine looks next.
    pub(crate) fn due(&mut self, now: Nanos, period: Nanos) -> Nanos {
        *self.next.get_or_insert(now + period)
    }

    /// Sleeps until the next look of a timer's engine, or until time is to pass.
    pub(crate) fn until(&mut self, shared: &Shared, period: Nanos, who: Who) {
        let now = shared.clock.now();
        if now >= self.keeper.next_tick() {
            self.keeper.tick(now);
        }
        self.keeper.before_sleep();
        shared.reports.sleeps.add(1);
        let limit = self.due(now, period).min(self.keeper.next_tick()).since(shared.clock.now());
        shared.drowsy.store(limit > SAFETY_NET, Ordering::Relaxed);
        if !(who == Who::Spare && shared.spares.handover.is_wanted()) {
            shared.set.sleep_deaf(limit);
            self.keeper.after_sleep();
        }
        shared.drowsy.store(false, Ordering::Relaxed);
        self.keeper.worked();
    }
}

/// What was found between two readings of the clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looked {
    taken: usize,
    /// The last look found nothing.
    dry: bool,
    /// There are sources behind the epoll.
    grouped: bool,
}

impl Looked {
    /// So many tasklets ran after it.
    pub(crate) const fn add(&mut self, ran: usize) {
        self.taken += ran;
        self.dry &= ran == 0;
    }
}

/// Every source of a manager, and what else its engine looks at before a sleep.
struct Everything<'a, K> {
    shared: &'a Shared,
    keeper: &'a mut K,
    /// Given up while the thread sleeps: others may poll meanwhile.
    poller: Option<TryLockGuard<'a, Poller>>,
    taken: usize,
    /// See [`Role`].
    woken: bool,
    slept: bool,
    who: Who,
}

impl<K: Keeper> Everything<'_, K> {
    fn poller(&mut self) -> &mut Poller {
        let shared = self.shared;
        self.poller.get_or_insert_with(|| {
            let mut back_off = BackOff::default();
            loop {
                if let Some(poller) = shared.enter() {
                    break poller;
                }
                // Another thread polls the sources, which takes moments unless this thread keeps it from its CPU.
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
        self.keeper.next_tick().min(trial).since(now)
    }
}

impl<K: Keeper> Sleeper for Everything<'_, K> {
    fn arm(&mut self) -> bool {
        self.shared.word.arm();
        self.poller().arm();
        true
    }

    fn recheck(&mut self) -> Recheck {
        self.taken = self.poller().look(Trigger::Idle, 1);
        let found = self.taken != 0
            || self.shared.is_changed()
            || self.shared.has_tasklets(Trigger::Idle)
            || !self.keeper.may_sleep()
            || self.keeper.is_stopping()
            || (self.who == Who::Spare && self.shared.spares.handover.is_wanted())
            || !self.shared.word.should_sleep();
        if found { Recheck::Found } else { Recheck::Empty }
    }

    fn sleep(&mut self) -> Ended {
        let shared = self.shared;
        let now = shared.clock.now();
        let version = self.keeper.version().wrapping_add(shared.generation.load(Ordering::Relaxed));
        let own = self.keeper.channel();
        let poller = self.poller();
        shared.set.register(version, now, |wanted| {
            poller.collect(wanted);
            wanted.extend(own.map(|own| (own.fd, own.interest)));
        });
        let limit = self.limit(shared.clock.now());
        shared.drowsy.store(limit > SAFETY_NET, Ordering::Relaxed);
        self.poller = None;
        self.keeper.before_sleep();
        shared.reports.sleeps.add(1);
        self.slept = true;
        let woken = shared.set.sleep(limit);
        self.keeper.after_sleep();
        shared.drowsy.store(false, Ordering::Relaxed);
        let Woken::Event { group, channel } = woken else { return Ended::Limit };
        self.woken = channel;
        if channel && own.is_some_and(|own| shared.set.has_fired(own.fd)) {
            self.keeper.woken();
        }
        if group {
            let now = shared.clock.now();
            self.taken += shared.look_at_group_now(self.poller(), Trigger::Idle, now);
        }
        Ended::Early
    }

    fn check_safety_net(&mut self) {
        let set = &self.shared.set;
        let word = &self.shared.word;
        let woken = || !word.should_sleep() || set.has_event(LATE);
        let (late, lost) = self.poller().after_net(woken, |fd| set.leaves_out(fd));
        self.shared.reports.late.add(late);
        self.shared.reports.lost_wake_ups.add(lost);
    }

    fn disarm(&mut self) {
        self.shared.word.disarm();
        self.poller().disarm();
    }
}
