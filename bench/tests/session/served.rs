//! While the serving thread spins, a waiter leaves its messages to the serving thread, and takes over when that goes to
//! sleep. A polling thread yields to waiters that are awake.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use pronto_bench::pair::{Callee, Ends, Nobody, POLL_BATCH, Still, shm_link, tcp_link};
use pronto_core::fabric::{HeapMemory, Region, Rights};
use pronto_core::session::{Access, CallSpec, OutgoingPayload, Session, WaitOutcome};
use pronto_core::wait::{ServingState, YieldTimer};
use pronto_core::{Channels, Clock, Executor, Nanos, WaitPolicy};
use pronto_fabric_shm::ShmQueuePair;
use pronto_fabric_tcp::TcpQueuePair;
use pronto_rpc::{Message, Route};
use pronto_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use pronto_wire::{CallId, Class, InlinePayload};

#[derive(Message)]
#[message(name = "served.ask", reply = Answer)]
struct Ask {}

#[derive(Message)]
#[message(name = "served.answer")]
struct Answer {}

/// Place where a thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bed {
    /// On its own wake word.
    Word,
    /// In the peer's channel.
    Channel,
}

/// Actions during each sleep, and true if the sleep lasts until its limit.
type Sleeps<'a> = VecDeque<(&'a (dyn Fn() + Sync), bool)>;

/// Executor of the calling thread, which sleeps immediately.
#[derive(Default)]
struct Calling<'a> {
    now: AtomicU64,
    sleeps: Mutex<Sleeps<'a>>,
    slept: Mutex<Vec<Bed>>,
    yields: AtomicU32,
    /// Action of another thread while this one has yielded.
    meanwhile: Option<&'a (dyn Fn() + Sync)>,
}

impl<'a> Calling<'a> {
    fn through(sleeps: impl IntoIterator<Item = (&'a (dyn Fn() + Sync), bool)>) -> Self {
        Self { sleeps: Mutex::new(sleeps.into_iter().collect()), ..Self::default() }
    }

    fn sleeps(&self, bed: Bed, until: Nanos) {
        self.slept.lock().expect("no holder panics").push(bed);
        let next = self.sleeps.lock().expect("no holder panics").pop_front();
        let (happens, to_its_limit) = next.expect("no further sleep");
        happens();
        if to_its_limit {
            self.now.store(until.0, Ordering::Relaxed);
        }
    }

    fn slept(&self) -> Vec<Bed> {
        self.slept.lock().expect("no holder panics").clone()
    }
}

impl Clock for Calling<'_> {
    fn now(&self) -> Nanos {
        Nanos(self.now.fetch_add(1, Ordering::Relaxed))
    }
}

impl Executor for Calling<'_> {
    fn circumstances(&self, _: WaitPolicy) -> pronto_core::executor::Circumstances {
        pronto_core::executor::ASLEEP
    }

    fn sleep(&self, _: &AtomicU32, until: Nanos) {
        self.sleeps(Bed::Word, until);
    }

    fn wake(&self, _: &AtomicU32) {}

    fn yield_now(&self) {
        self.yields.fetch_add(1, Ordering::Relaxed);
        if let Some(meanwhile) = self.meanwhile {
            meanwhile();
        }
    }

    fn back_off(&self, _: Nanos) {}

    fn sleep_on_channels(&self, _: &Channels, until: Nanos) -> [bool; 2] {
        self.sleeps(Bed::Channel, until);
        [true; 2]
    }
}

fn ends() -> (Arc<Session<ShmQueuePair>>, Callee<ShmQueuePair>, Still<ShmQueuePair>) {
    let routes = vec![Route::inline(|_, _: Ask| Answer {})];
    let Ends { caller, callee } = Ends::new(routes, shm_link).expect("two nodes over shared memory");
    (caller, callee, Still::alone())
}

fn call(caller: &Session<ShmQueuePair>, callee: &Callee<ShmQueuePair>, host: &impl Executor) -> CallId {
    let spec = CallSpec { key: callee.routes[0].key, class: Class::Control, timeout: Nanos::NEVER };
    caller.call(&spec, OutgoingPayload::Inline(InlinePayload::EMPTY), host).expect("the call is sent")
}

#[test]
fn a_waiter_leaves_its_reply_to_a_spinning_serving_thread() {
    let (caller, callee, serving) = ends();
    let answers_and_serves = || {
        assert_eq!(callee.serve(1), 1, "the handler runs");
        caller.turn(1, || false, &mut Nobody, &serving).expect("no other thread holds the engine");
    };
    let calling = Calling::through([(&answers_and_serves as _, false)]);
    caller.set_serving(ServingState::Spinning, &serving);
    let slot = call(&caller, &callee, &calling);
    let waited = caller.wait(slot, Nanos::NEVER, WaitPolicy::Block, &mut Nobody, &calling);
    assert!(matches!(waited, WaitOutcome::Ended(_)));
    assert_eq!(calling.slept(), [Bed::Word]);
    assert_eq!(caller.stats().lost_wake_ups.count(), 0);
}

#[test]
fn a_waiter_sleeps_in_the_channel_once_the_serving_thread_sleeps() {
    let (caller, callee, serving) = ends();
    let handovers = || caller.stats().handovers.count();
    let goes_to_sleep = || {
        let before = handovers();
        caller.set_serving(ServingState::Sleeping, &serving);
        assert_eq!(handovers() - before, 1, "the caller is woken");
    };
    let answers = || assert_eq!(callee.serve(1), 1, "the handler runs");
    let calling = Calling::through([(&goes_to_sleep as _, false), (&answers as _, false)]);
    caller.set_serving(ServingState::Spinning, &serving);
    let slot = call(&caller, &callee, &calling);
    let waited = caller.wait(slot, Nanos::NEVER, WaitPolicy::Block, &mut Nobody, &calling);
    assert!(matches!(waited, WaitOutcome::Ended(_)));
    assert_eq!(calling.slept(), [Bed::Word, Bed::Channel]);
}

/// As with a handler that takes too long, or a contended CPU.
#[test]
fn an_answer_that_the_serving_thread_does_not_find_is_found_by_its_caller() {
    let (caller, callee, serving) = ends();
    let answers = || assert_eq!(callee.serve(1), 1, "the handler runs");
    let calling = Calling::through([(&answers as _, true)]);
    caller.set_serving(ServingState::Spinning, &serving);
    let slot = call(&caller, &callee, &calling);
    let waited = caller.wait(slot, Nanos::NEVER, WaitPolicy::Block, &mut Nobody, &calling);
    assert!(matches!(waited, WaitOutcome::Ended(_)));
    assert_eq!((calling.slept().len(), caller.stats().lost_wake_ups.count()), (1, 0));
}

#[test]
fn a_wait_times_out_while_the_serving_thread_spins() {
    let (caller, callee, serving) = ends();
    let nothing = || ();
    let calling = Calling::through([(&nothing as _, true)]);
    caller.set_serving(ServingState::Spinning, &serving);
    let slot = call(&caller, &callee, &calling);
    let waited = caller.wait(slot, Nanos(1_000), WaitPolicy::Block, &mut Nobody, &calling);
    assert!(matches!(waited, WaitOutcome::TimedOut));
    while callee.serve(1) == 1 {}
    let waited = caller.wait(slot, Nanos::ZERO, WaitPolicy::Block, &mut Nobody, &calling);
    assert!(matches!(waited, WaitOutcome::Ended(_)), "a wait with zero time polls itself");
}

#[test]
fn a_poller_yields_only_to_others_and_only_after_a_time() {
    let (caller, ..) = ends();
    let calling = Calling::default();
    let mut yields = YieldTimer::default();
    let mut looks = |found_free, times: u64| {
        let before = calling.yields.load(Ordering::Relaxed);
        for _ in 0..times {
            calling.now.fetch_add(1_000, Ordering::Relaxed);
            caller.yield_to_waiters(&mut yields, found_free, calling.now(), &calling);
        }
        calling.yields.load(Ordering::Relaxed) - before
    };
    assert_eq!(looks(true, 1_000), 0, "no other thread waits");
    assert_eq!(looks(false, 19), 0, "another thread holds the engine for a moment");
    assert_eq!(looks(true, 1), 0);
    assert_eq!(looks(false, 210), 10, "every twenty microseconds, and one more poll");
}

#[test]
fn a_poller_yields_to_a_thread_that_has_yielded_to_it() {
    let (caller, ..) = ends();
    let poller = Calling::default();
    // Two polls, 20 us apart, each of which has found the engine free.
    let polls = || {
        assert!(caller.is_awaited());
        let mut yields = YieldTimer::default();
        for us in [0, 20] {
            caller.yield_to_waiters(&mut yields, true, Nanos::from_micros(us), &poller);
        }
    };
    let waits = Calling { meanwhile: Some(&polls), ..Calling::default() };
    let mut yields = YieldTimer::default();
    for us in [0, 20] {
        caller.yield_to_waiters(&mut yields, false, Nanos::from_micros(us), &waits);
    }
    let yields = [&waits, &poller].map(|thread| thread.yields.load(Ordering::Relaxed));
    assert_eq!((yields, caller.is_awaited()), ([1, 1], false));
}

/// Executor of a thread that polls, and counts at each clock reading whether a thread waits for the engine.
struct Polling<'a> {
    session: &'a Session<ShmQueuePair>,
    now: AtomicU64,
    awaited: AtomicU32,
}

impl Clock for Polling<'_> {
    fn now(&self) -> Nanos {
        self.awaited.fetch_add(u32::from(self.session.is_awaited()), Ordering::Relaxed);
        Nanos(self.now.fetch_add(100, Ordering::Relaxed))
    }
}

impl Executor for Polling<'_> {
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

#[test]
fn a_thread_that_polls_while_another_is_the_poller_sets_the_wanted_flag() {
    let (caller, callee, _) = ends();
    let polling = Polling { session: &caller, now: AtomicU64::new(0), awaited: AtomicU32::new(0) };
    let second = call(&caller, &callee, &polling);
    let polls_then_answers = || {
        let waited = caller.wait(second, Nanos(1_000), WaitPolicy::Spin, &mut Nobody, &polling);
        assert!(matches!(waited, WaitOutcome::TimedOut), "no reply has come yet");
        while callee.serve(1) == 1 {}
    };
    let calling = Calling::through([(&polls_then_answers as _, false)]);
    let first = call(&caller, &callee, &calling);
    let waited = caller.wait(first, Nanos::NEVER, WaitPolicy::Block, &mut Nobody, &calling);
    assert!(matches!(waited, WaitOutcome::Ended(_)));
    assert_eq!(calling.slept(), [Bed::Channel]);
    assert!(polling.awaited.load(Ordering::Relaxed) > 1 && !caller.is_awaited());
}

/// Over TCP a poll executes reads itself: a poll batch that did so repeatedly would keep other threads out for
/// milliseconds.
#[test]
fn a_turn_that_answers_a_read_reports_progress() {
    const LEN: u64 = 64 << 10;
    let Ends { caller, callee } = Ends::new(Vec::new(), tcp_link).expect("two nodes over TCP");
    let host = Still::<TcpQueuePair>::alone();
    let [near, far] = [(); 2].map(|()| Region::new(Arc::new(HeapMemory::new(1 << 16))));
    let grant =
        callee.session.grant(&far, 0..LEN, Rights::READ, &*callee.host).expect("the grant is accepted");
    let read = Access::Read { local: near, offset: 0, remote: grant.remote };
    let slot = caller.access(read, &host).expect("the request is sent");
    let (mut moved, mut looks) = (0, 0);
    while !caller.has_ended(slot) {
        let progress = callee.session.turn(1, || false, &mut Nobody, &*callee.host);
        moved += progress.expect("no other thread holds the engine").moved;
        caller.turn(1, || false, &mut Nobody, &host);
        looks += 1;
        assert!(looks < POLL_BATCH, "the bytes arrive");
    }
    assert!(moved > 0, "the turn must report progress");
}
