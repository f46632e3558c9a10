//! A caller sleeps in the channel for its reply: arming for the serving thread must not make it miss the reply.

use core::cell::Cell;
use core::ops::Range;
use core::time::Duration;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier, Mutex};

use pronto_bench::pair::{Ends, Nobody, Still, shm_link};
use pronto_core::fabric::{
    Armed, Capabilities, Completion, CompletionChannel, DoorbellEvent, FabricError, Grant, GrantError,
    GrantId, MessageSlot, PollOutcome, PostError, QueuePair, Region, Rights, SendMemory, SendWork,
};
use pronto_core::session::{CallSpec, OutgoingPayload, WaitOutcome};
use pronto_core::wait::ServingState;
use pronto_core::{Channels, Clock, Executor, Nanos, WaitPolicy};
use pronto_fabric_shm::{ShmLease, ShmQueuePair};
use pronto_rpc::{Message, Route};
use pronto_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use pronto_wire::{Class, InlinePayload};

#[derive(Message)]
#[message(name = "asleep.ask", reply = Answer)]
struct Ask {}

#[derive(Message)]
#[message(name = "asleep.answer")]
struct Answer {}

const PATIENCE: Duration = Duration::from_secs(20);

/// Shared memory that records how it was armed.
#[derive(Debug)]
struct Watched {
    inner: ShmQueuePair,
    /// Last argument of `arm`.
    asked: Arc<Mutex<Armed>>,
    /// Number of calls of `notify_woken`.
    told: Arc<AtomicU32>,
}

impl QueuePair for Watched {
    type Lease = ShmLease;

    fn poll(&mut self, slot: MessageSlot<'_>) -> Result<PollOutcome<ShmLease>, FabricError> {
        self.inner.poll(slot)
    }

    fn arm(&mut self, events: Armed) -> Result<(), FabricError> {
        *self.asked.lock().expect("no holder panics") = events;
        self.inner.arm(events)
    }

    fn notify_woken(&mut self) {
        self.told.fetch_add(1, Ordering::Relaxed);
        self.inner.notify_woken();
    }

    the_rest_is_inner!();
}

/// Executor of the serving thread, which finds the engine held and continues when the caller sleeps.
struct Serving {
    waits: Sender<()>,
    caller_sleeps: Mutex<Receiver<()>>,
}

/// Executor of the calling thread; while it sleeps, the serving thread arms.
struct Calling<'a> {
    sleeps: Sender<()>,
    armed: &'a Barrier,
    asked: &'a Mutex<Armed>,
    /// Receives how the queue pair was armed when the reply came.
    asked_for: Sender<Armed>,
    answer: &'a (dyn Fn() + Sync),
}

macro_rules! stands_still {
    ($name:ty) => {
        impl Clock for $name {
            fn now(&self) -> Nanos {
                Nanos(1)
            }
        }
    };
}
stands_still!(Serving);
stands_still!(Calling<'_>);

impl Executor for Serving {
    fn circumstances(&self, _: WaitPolicy) -> pronto_core::executor::Circumstances {
        pronto_core::executor::ASLEEP
    }

    fn sleep(&self, _: &AtomicU32, _: Nanos) {}

    fn wake(&self, _: &AtomicU32) {}

    fn yield_now(&self) {
        self.waits.send(()).expect("the caller listens");
        self.caller_sleeps
            .lock()
            .expect("no holder panics")
            .recv_timeout(PATIENCE)
            .expect("the caller goes to sleep");
    }

    fn back_off(&self, _: Nanos) {
        std::thread::yield_now();
    }

    fn sleep_on_channels(&self, _: &Channels, _: Nanos) -> [bool; 2] {
        unreachable!("the serving thread makes no call")
    }
}

impl Executor for Calling<'_> {
    fn circumstances(&self, _: WaitPolicy) -> pronto_core::executor::Circumstances {
        pronto_core::executor::ASLEEP
    }

    fn sleep(&self, _: &AtomicU32, _: Nanos) {
        unreachable!("this is the only caller")
    }

    fn wake(&self, _: &AtomicU32) {}

    fn yield_now(&self) {
        std::thread::yield_now();
    }

    fn back_off(&self, _: Nanos) {
        std::thread::yield_now();
    }

    fn sleep_on_channels(&self, _: &Channels, _: Nanos) -> [bool; 2] {
        self.sleeps.send(()).expect("the serving thread listens");
        self.armed.wait();
        self.asked_for.send(*self.asked.lock().expect("no holder panics")).expect("the test listens");
        (self.answer)();
        [true, false]
    }
}

/// The serving thread has seen that no thread polls, and must wait for the engine. Before it gets the engine, a caller
/// arrives and goes to sleep.
#[test]
fn a_caller_that_fell_asleep_meanwhile_is_woken_by_its_answer() {
    let routes = vec![Route::inline(|_, _: Ask| Answer {})];
    let asked = Arc::new(Mutex::new(Armed::Nothing));
    let told: [Arc<AtomicU32>; 2] = Default::default();
    let ends = Ends::new(routes, |limits| {
        let ([control, bulk], far) = shm_link(limits)?;
        let watched = |inner, asked: &Arc<Mutex<Armed>>, told: &Arc<AtomicU32>| Watched {
            inner,
            asked: Arc::clone(asked),
            told: Arc::clone(told),
        };
        let others = Arc::new(Mutex::new(Armed::Nothing));
        let [of_control, of_bulk] = &told;
        let near = [watched(control, &asked, of_control), watched(bulk, &others, of_bulk)];
        Ok((near, far.map(|inner| watched(inner, &others, &Arc::default()))))
    });
    let Ends { caller, callee } = ends.expect("two nodes over shared memory");
    let ((waits, server_waits), (sleeps, caller_sleeps)) = (channel(), channel());
    let (asked_for, was_asked_for) = channel();
    let armed = Barrier::new(2);
    let answer = || assert_eq!(callee.serve(1), 1, "the handler runs");
    let serving = Serving { waits, caller_sleeps: Mutex::new(caller_sleeps) };
    let calling = Calling { sleeps, armed: &armed, asked: &asked, asked_for, answer: &answer };
    std::thread::scope(|threads| {
        let spec = CallSpec { key: callee.routes[0].key, class: Class::Control, timeout: Nanos::NEVER };
        let payload = OutgoingPayload::Inline(InlinePayload::EMPTY);
        let call = caller.call(&spec, payload, &calling).expect("the call is sent");
        let engine_is_taken = Cell::new(false);
        // Armed under the engine's lock.
        let done = || {
            if !engine_is_taken.replace(true) {
                threads.spawn(|| {
                    caller.set_serving(ServingState::Sleeping, &serving);
                    armed.wait();
                });
                server_waits.recv_timeout(PATIENCE).expect("the serving thread finds the engine held");
            }
            true
        };
        caller.turn(1, done, &mut Nobody, &calling);
        let waited = caller.wait(call, Nanos::NEVER, WaitPolicy::Block, &mut Nobody, &calling);
        assert!(matches!(waited, WaitOutcome::Ended(_)));
    });
    let asked_for: Vec<_> = was_asked_for.try_iter().collect();
    assert_eq!(asked_for, [Armed::All], "any message wakes the caller");
    let told = told.map(|told| told.load(Ordering::Relaxed));
    assert_eq!(told, [1, 0], "the caller's event notified no other thread, so the caller reports it");
}

/// The serving thread's sleep has ended by its limit: a reply is there, but its event did not come.
///
/// Shows: operations.lost-wake-ups
#[test]
fn an_event_is_lost_unless_another_thread_may_have_taken_it() {
    let routes = vec![Route::inline(|_, _: Ask| Answer {})];
    let Ends { caller, callee } = Ends::new(routes, shm_link).expect("two nodes over shared memory");
    let host = Still::<ShmQueuePair>::alone();
    let lost_after = |woken: &dyn Fn() -> bool| {
        let spec = CallSpec { key: callee.routes[0].key, class: Class::Control, timeout: Nanos::NEVER };
        let payload = OutgoingPayload::Inline(InlinePayload::EMPTY);
        let call = caller.call(&spec, payload, &host).expect("the call is sent");
        caller.arm();
        assert_eq!(callee.serve(1), 1, "the handler runs");
        let before = caller.stats().lost_wake_ups.count();
        caller.check_safety_net(&mut Nobody, &host, woken);
        assert!(matches!(
            caller.wait(call, Nanos::NEVER, WaitPolicy::Block, &mut Nobody, &host),
            WaitOutcome::Ended(_)
        ));
        caller.stats().lost_wake_ups.count() - before
    };
    assert_eq!(lost_after(&|| true), 0, "the event came late");
    assert_eq!(lost_after(&|| false), 1);
    let taken_over = || {
        caller.disarm();
        false
    };
    assert_eq!(lost_after(&taken_over), 0, "a caller has disarmed and received the messages");
}

/// Executor of a thread that is preempted during every sleep: its clock is far ahead when it runs again.
struct Preempted<'a> {
    now: AtomicU64,
    /// True if sleeps end by an event, except the first one, which ends by its limit.
    has_event: bool,
    answer: &'a (dyn Fn() + Sync),
}

impl Clock for Preempted<'_> {
    fn now(&self) -> Nanos {
        Nanos(self.now.load(Ordering::Relaxed))
    }
}

impl Executor for Preempted<'_> {
    fn circumstances(&self, _: WaitPolicy) -> pronto_core::executor::Circumstances {
        pronto_core::executor::ASLEEP
    }

    fn sleep(&self, _: &AtomicU32, _: Nanos) {
        unreachable!("this is the only caller")
    }

    fn wake(&self, _: &AtomicU32) {}

    fn yield_now(&self) {}

    fn back_off(&self, _: Nanos) {}

    fn sleep_on_channels(&self, _: &Channels, _: Nanos) -> [bool; 2] {
        let first = self.now.fetch_add(1_000_000_000, Ordering::Relaxed) == 0;
        if first {
            (self.answer)();
        }
        [!first && self.has_event; 2]
    }
}

#[test]
fn an_event_that_came_while_its_sleeper_was_preempted_is_not_lost() {
    for (has_event, lost) in [(true, 0), (false, 1)] {
        let routes = vec![Route::inline(|_, _: Ask| Answer {})];
        let Ends { caller, callee } = Ends::new(routes, shm_link).expect("two nodes over shared memory");
        let answer = || assert_eq!(callee.serve(1), 1, "the handler runs");
        let executor = Preempted { now: AtomicU64::new(0), has_event, answer: &answer };
        let spec = CallSpec { key: callee.routes[0].key, class: Class::Control, timeout: Nanos::NEVER };
        let payload = OutgoingPayload::Inline(InlinePayload::EMPTY);
        let call = caller.call(&spec, payload, &executor).expect("the call is sent");
        let waited = caller.wait(call, Nanos::NEVER, WaitPolicy::Block, &mut Nobody, &executor);
        assert!(matches!(waited, WaitOutcome::Ended(_)));
        assert_eq!(caller.stats().lost_wake_ups.count(), lost, "with an event: {has_event}");
    }
}

/// Executor of a thread that calls and polls. Its time is the number of clock readings.
struct Spinning(AtomicU64);

impl Clock for Spinning {
    fn now(&self) -> Nanos {
        Nanos(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

impl Executor for Spinning {
    fn circumstances(&self, _: WaitPolicy) -> pronto_core::executor::Circumstances {
        pronto_core::executor::alone(Nanos::NEVER)
    }

    fn sleep(&self, _: &AtomicU32, _: Nanos) {
        unreachable!("a polling thread does not sleep")
    }

    fn wake(&self, _: &AtomicU32) {}

    fn yield_now(&self) {}

    fn back_off(&self, _: Nanos) {}

    fn sleep_on_channels(&self, _: &Channels, _: Nanos) -> [bool; 2] {
        unreachable!("a polling thread does not sleep")
    }
}

/// Two replies arrive while the first caller sleeps in the channel and the second one polls, which receives both.
#[test]
fn a_caller_that_polls_does_not_wait_for_one_that_sleeps() {
    let routes = vec![Route::inline(|_, _: Ask| Answer {})];
    let asked = Arc::new(Mutex::new(Armed::Nothing));
    let ends = Ends::new(routes, |limits| {
        let (near, far) = shm_link(limits)?;
        let watched = |inner| Watched { inner, asked: Arc::clone(&asked), told: Arc::default() };
        let others = Arc::new(Mutex::new(Armed::Nothing));
        Ok((
            near.map(watched),
            far.map(|inner| Watched { inner, asked: Arc::clone(&others), told: Arc::default() }),
        ))
    });
    let Ends { caller, callee } = ends.expect("two nodes over shared memory");
    let spec = || CallSpec { key: callee.routes[0].key, class: Class::Control, timeout: Nanos::NEVER };
    let call = |executor: &Spinning| {
        let payload = OutgoingPayload::Inline(InlinePayload::EMPTY);
        caller.call(&spec(), payload, executor).expect("the call is sent")
    };
    let spinning = Spinning(AtomicU64::new(0));
    let first = call(&spinning);
    let (sleeps, slept) = channel();
    let (asked_for, was_asked_for) = channel();
    let beside = || {
        let second = call(&spinning);
        while callee.serve(1) == 1 {}
        let waited = caller.wait(second, Nanos(1_000), WaitPolicy::Spin, &mut Nobody, &spinning);
        assert!(matches!(waited, WaitOutcome::Ended(_)), "its reply is there");
    };
    let armed = Barrier::new(1);
    let sleeping = Calling { sleeps, armed: &armed, asked: &asked, asked_for, answer: &beside };
    let waited = caller.wait(first, Nanos::NEVER, WaitPolicy::Block, &mut Nobody, &sleeping);
    assert!(matches!(waited, WaitOutcome::Ended(_)), "the other caller has received the reply");
    assert_eq!(slept.try_iter().count(), 1);
    assert_eq!(was_asked_for.try_iter().collect::<Vec<_>>(), [Armed::All]);
    assert_eq!(caller.stats().lost_wake_ups.count(), 0);
}

/// Calls were started and no thread polls for them now: the serving thread goes to sleep.
#[test]
fn the_serving_thread_is_woken_by_answers_if_a_future_waits_for_one() {
    let routes = vec![Route::inline(|_, _: Ask| Answer {})];
    let asked = Arc::new(Mutex::new(Armed::Nothing));
    let ends = Ends::new(routes, |limits| {
        let (near, far) = shm_link(limits)?;
        let others = Arc::new(Mutex::new(Armed::Nothing));
        let watched = |inner, asked: &Arc<Mutex<Armed>>| Watched {
            inner,
            asked: Arc::clone(asked),
            told: Arc::default(),
        };
        Ok((near.map(|inner| watched(inner, &asked)), far.map(|inner| watched(inner, &others))))
    });
    let Ends { caller, callee } = ends.expect("two nodes over shared memory");
    let host = Still::<Watched>::alone();
    let start = || {
        let spec = CallSpec { key: callee.routes[0].key, class: Class::Control, timeout: Nanos::NEVER };
        caller.call(&spec, OutgoingPayload::Inline(InlinePayload::EMPTY), &host).expect("the call is sent")
    };
    let asked_asleep = || {
        caller.set_serving(ServingState::Sleeping, &host);
        let asked = *asked.lock().expect("no holder panics");
        caller.set_serving(ServingState::Working, &host);
        caller.disarm();
        asked
    };
    let calls = [start(), start()];
    assert_eq!(asked_asleep(), Armed::Solicited, "the calls are waited for later");
    caller.listen(&mut Nobody, &host);
    assert_eq!(asked_asleep(), Armed::All, "a future waits");
    while callee.serve(1) == 1 {}
    for call in calls {
        let waited = caller.wait(call, Nanos::NEVER, WaitPolicy::Block, &mut Nobody, &host);
        assert!(matches!(waited, WaitOutcome::Ended(_)));
    }
    assert_eq!(asked_asleep(), Armed::Solicited);
    let _open = start();
    assert_eq!(asked_asleep(), Armed::Solicited, "that future has its reply");
}
