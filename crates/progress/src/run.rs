//! The engine's thread: polls, passes the time, and sleeps on all sources at once.

use pronto_core::Nanos;
use pronto_core::executor::Channel;
use pronto_sync::TryLockGuard;
use pronto_sync::atomic::Ordering;

use crate::manager::{Engine, Manager, NET, Shared};
use crate::poller::{Burst, Poller};
use crate::rest::{Sleepers, arm_recheck_sleep};
use crate::sleep_set::Woken;
use crate::source::Trigger;

/// Idle looks at a single source between two readings of the clock, which takes as long as a few of them. Shared among
/// sources where there are more.
const LOOKS: u32 = 64;
/// Looks that found something between two readings of the clock.
const BUSY_LOOKS_PER_CLOCK: u32 = 16;
/// Looks in a row by a timer's engine, as long as there is something.
const TIMER_LOOKS: u32 = 1_024;
/// Between two looks of a timer's engine at what is on its way.
const NAP: Nanos = Nanos::from_micros(50);
/// Such looks in a row that found nothing, after which it goes back to its period.
const NAPS: u32 = 20;
/// A wake-up that comes within this time after the net has caught the sleeper was late, not lost.
const LATE: Nanos = Nanos::from_millis(20);

/// What an engine's thread does beside polling, and how it may wait. Called by that thread alone.
pub trait Keeper {
    /// Whether the thread shall end.
    fn is_stopping(&self) -> bool;

    /// How long it polls without result before it sleeps; `NEVER` if it never does.
    fn spin_time(&self) -> Nanos;

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

    /// Some work is done.
    fn worked(&self) {}
}

impl Manager {
    /// Runs as the engine of this manager, until the keeper says that it is over. One thread at a time.
    pub fn run(&self, keeper: &mut impl Keeper) {
        match self.0.engine {
            Engine::Idle => Idle { shared: &self.0, keeper, idle_since: None, woken: false }.run(),
            Engine::Timer(period) => self.0.run_on_time(period, Polls::Yes, keeper),
            Engine::None => self.0.run_on_time(Nanos::NEVER, Polls::No, keeper),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Polls {
    Yes,
    No,
}

impl Shared {
    /// Wakes for the time alone.
    fn run_on_time(&self, period: Nanos, polls: Polls, keeper: &mut impl Keeper) {
        let mut next = self.clock.now() + period;
        let mut naps = 0;
        while !keeper.is_stopping() {
            keeper.refresh();
            let now = self.clock.now();
            if now >= next && polls == Polls::Yes {
                naps = if self.poll_while_busy() == 0 { naps + 1 } else { 0 };
                let close = naps < NAPS && keeper.is_expecting();
                // Of a clock that has jumped, or a thread that was late, nothing is caught up on.
                next = now + if close { NAP.min(period) } else { period };
            }
            if now >= keeper.next_tick() {
                keeper.tick(now);
            }
            keeper.before_sleep();
            self.reports.sleeps.add(1);
            let limit = next.min(keeper.next_tick()).since(self.clock.now());
            self.drowsy.store(limit > NET, Ordering::Relaxed);
            self.set.sleep_deaf(limit);
            self.drowsy.store(false, Ordering::Relaxed);
            keeper.worked();
        }
    }

    /// Says how much was taken in.
    fn poll_while_busy(&self) -> usize {
        let mut all = 0;
        for _ in 0..TIMER_LOOKS {
            let Some(mut poller) = self.enter() else { break };
            let mut taken = poller.look(Trigger::Timer, 1);
            taken += self.look_at_group_now(&mut poller, Trigger::Timer, self.clock.now());
            drop(poller);
            taken += self.run_tasklets(Trigger::Timer);
            if taken == 0 {
                break;
            }
            all += taken;
        }
        all
    }
}

/// The thread of [`Engine::Idle`].
struct Idle<'a, K> {
    shared: &'a Shared,
    keeper: &'a mut K,
    idle_since: Option<Nanos>,
    /// A channel has ended the last sleep, and nobody has looked since.
    woken: bool,
}

impl<K: Keeper> Idle<'_, K> {
    fn run(&mut self) {
        while !self.keeper.is_stopping() {
            self.keeper.refresh();
            let spin = self.keeper.spin_time();
            // Who is about to sleep looks once: each look may be a system call, and a boost is paid for by the time.
            let Looked { taken, dry, grouped } = self.look(if spin == Nanos::ZERO { 1 } else { LOOKS });
            if core::mem::take(&mut self.woken) {
                let muted = self.shared.set.found(taken, self.shared.clock.now());
                self.shared.reports.muted.add(muted);
            }
            if taken != 0 {
                self.idle_since = None;
            }
            self.keeper.worked();
            let now = self.shared.clock.now();
            if now >= self.keeper.next_tick() {
                self.keeper.tick(now);
            }
            let of_group = if grouped { self.look_at_group(now) } else { 0 };
            if dry && of_group == 0 {
                self.rest(spin, now);
            }
        }
    }

    /// As many looks as are made between two readings of the clock, under one lock: as often as there is something, or once in
    /// vain.
    #[inline]
    fn look(&self, looks: u32) -> Looked {
        let shared = self.shared;
        let may_go_on = || !shared.is_changed() && !shared.may_have_tasklets();
        let (burst, grouped) = match shared.enter() {
            Some(mut poller) => {
                let burst = poller.burst(Trigger::Idle, looks, BUSY_LOOKS_PER_CLOCK, may_go_on);
                (burst, !poller.group.is_empty())
            }
            // Another thread looks, and finds what there is.
            None => (Burst { taken: 0, dry: true }, false),
        };
        let ran = shared.run_tasklets(Trigger::Idle);
        Looked { taken: burst.taken + ran, dry: burst.dry && ran == 0, grouped }
    }

    fn look_at_group(&mut self, now: Nanos) -> usize {
        let Some(mut poller) = self.shared.enter() else { return 0 };
        let taken = self.shared.look_at_group(&mut poller, Trigger::Idle, now);
        if taken != 0 {
            self.idle_since = None;
        }
        taken
    }

    /// Polls on or sleeps, as the keeper says.
    fn rest(&mut self, spin: Nanos, now: Nanos) {
        let idle_since = *self.idle_since.get_or_insert(now);
        if spin == Nanos::NEVER || now.since(idle_since) < spin {
            return;
        }
        self.keeper.before_rest(now);
        let Some(poller) = self.shared.enter() else { return };
        let mut everything = Everything {
            shared: self.shared,
            keeper: &mut *self.keeper,
            poller: Some(poller),
            taken: 0,
            woken: false,
        };
        arm_recheck_sleep(&self.shared.word, &mut everything);
        self.woken = everything.woken;
        if everything.taken != 0 {
            self.idle_since = None;
        }
    }
}

/// What was found between two readings of the clock.
struct Looked {
    taken: usize,
    /// The last look found nothing.
    dry: bool,
    /// There are sources behind the epoll.
    grouped: bool,
}

/// Every source of a manager, and what else its engine looks at before a sleep.
struct Everything<'a, K> {
    shared: &'a Shared,
    keeper: &'a mut K,
    /// Given up while the thread sleeps: others may poll meanwhile.
    poller: Option<TryLockGuard<'a, Poller>>,
    taken: usize,
    /// See [`Idle`].
    woken: bool,
}

impl<K: Keeper> Everything<'_, K> {
    fn poller(&mut self) -> &mut Poller {
        let shared = self.shared;
        self.poller.get_or_insert_with(|| {
            loop {
                if let Some(poller) = shared.enter() {
                    break poller;
                }
                // Another thread looks at the sources, which takes moments.
                std::thread::yield_now();
            }
        })
    }

    fn limit(&mut self, now: Nanos) -> Nanos {
        let trial = self.shared.set.next_trial().min(self.poller().group.next_trial());
        let due = self.keeper.next_tick().min(trial);
        due.since(now).min(self.poller().interval())
    }

    /// The sleep ended by its limit: what is there now should have ended it.
    fn look_after_net(&mut self) {
        let set = &self.shared.set;
        let word = &self.shared.word;
        let (late, lost) = self.poller().after_net(|| !word.should_sleep() || set.has_event(LATE));
        self.shared.reports.late.add(late);
        self.shared.reports.rescues.add(lost);
    }
}

impl<K: Keeper> Sleepers for Everything<'_, K> {
    fn arm(&mut self) {
        self.poller().arm();
    }

    fn recheck(&mut self) -> bool {
        self.taken = self.poller().look(Trigger::Idle, 1);
        self.taken != 0
            || self.shared.is_changed()
            || self.shared.has_tasklets(Trigger::Idle)
            || !self.keeper.may_sleep()
            || self.keeper.is_stopping()
    }

    fn sleep(&mut self) {
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
        shared.drowsy.store(limit > NET, Ordering::Relaxed);
        self.poller = None;
        self.keeper.before_sleep();
        shared.reports.sleeps.add(1);
        let woken = shared.set.sleep(limit);
        shared.drowsy.store(false, Ordering::Relaxed);
        match woken {
            Woken::Limit => self.look_after_net(),
            Woken::Event { group, channel } => {
                self.woken = channel;
                if channel && own.is_some_and(|own| shared.set.has_fired(own.fd)) {
                    self.keeper.woken();
                }
                if group {
                    let now = shared.clock.now();
                    self.taken += shared.look_at_group_now(self.poller(), Trigger::Idle, now);
                }
            }
        }
    }

    fn disarm(&mut self) {
        self.poller().disarm();
    }
}
