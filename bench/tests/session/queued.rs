//! Tasks that wait for room, on a host without ticks: a thread that frees room wakes the next task.

use core::future::Future;
use core::ops::Range;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::sync::{Arc, Mutex};
use std::task::Wake;

use pronto_bench::pair::{Callee, Ends, Nobody, Pairs, Still, limits, shm_link};
use pronto_core::fabric::{
    Armed, Capabilities, Completion, CompletionChannel, ConnectionLimits, DoorbellEvent, FabricError, Grant,
    GrantError, GrantId, MessageSlot, PollOutcome, PostError, QueuePair, Region, Rights, SendMemory,
    SendWork,
};
use pronto_core::session::{DownCause, Session};
use pronto_core::wait::ServingState;
use pronto_fabric_shm::{ShmLease, ShmQueuePair};
use pronto_rpc::{Message, Peer, Pending, Route};
use pronto_sync::atomic::{AtomicU32, Ordering};
use pronto_wire::Class;

#[derive(Message)]
#[message(name = "queued.ask", reply = Answer)]
struct Ask {}

#[derive(Message, Debug)]
#[message(name = "queued.answer")]
struct Answer {}

#[derive(Message)]
#[message(name = "queued.news")]
struct News {}

/// Counts the wake-ups of one task.
#[derive(Default)]
struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A task that makes one attempt to send.
struct Task<'a, T> {
    future: Pin<Box<dyn Future<Output = T> + 'a>>,
    count: Arc<Count>,
}

impl<'a, T> Task<'a, T> {
    fn new(future: impl Future<Output = T> + 'a) -> Self {
        Self { future: Box::pin(future), count: Arc::default() }
    }

    fn poll(&mut self) -> Poll<T> {
        let waker = Waker::from(Arc::clone(&self.count));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// Polls the task, which must wait.
    fn waits(mut self) -> Self {
        assert!(self.poll().is_pending(), "the task must wait");
        self
    }

    fn wakes(&self) -> u32 {
        self.count.0.load(Ordering::Relaxed)
    }
}

/// Shared memory that records how it was armed.
#[derive(Debug)]
struct Watched {
    inner: ShmQueuePair,
    armed: Arc<Mutex<Armed>>,
}

impl QueuePair for Watched {
    type Lease = ShmLease;

    fn poll(&mut self, slot: MessageSlot<'_>) -> Result<PollOutcome<ShmLease>, FabricError> {
        self.inner.poll(slot)
    }

    fn arm(&mut self, events: Armed) -> Result<(), FabricError> {
        *self.armed.lock().expect("no holder panics") = events;
        self.inner.arm(events)
    }

    fn notify_woken(&mut self) {
        self.inner.notify_woken();
    }

    the_rest_is_inner!();
}

/// Two nodes, and how the caller's control connection is armed.
struct Watch {
    caller: Arc<Session<Watched>>,
    callee: Callee<Watched>,
    host: Still<Watched>,
    peer: Peer<Still<Watched>>,
    armed: Arc<Mutex<Armed>>,
}

impl Watch {
    fn new() -> Self {
        let armed = Arc::new(Mutex::new(Armed::Nothing));
        let of_control = Arc::clone(&armed);
        let link = |limits: [ConnectionLimits; 2]| {
            let watched = |inner, armed: &Arc<Mutex<Armed>>| Watched { inner, armed: Arc::clone(armed) };
            let other = Arc::new(Mutex::new(Armed::Nothing));
            let ([control, bulk], [far_control, far_bulk]) = shm_link(limits)?;
            let near: Pairs<Watched> = [watched(control, &of_control), watched(bulk, &other)];
            let far: Pairs<Watched> = [watched(far_control, &other), watched(far_bulk, &other)];
            Ok((near, far))
        };
        let routes = vec![Route::inline(|_, _: Ask| Answer {}), Route::inline_notification(|_, _: News| ())];
        let ends = Ends::new(routes, link).expect("two nodes over shared memory");
        let peer = ends.peer();
        let Ends { caller, callee } = ends;
        Self { caller, callee, host: Still::alone(), peer, armed }
    }

    /// Uses all call slots.
    fn fill(&self) -> Vec<Pending<Ask, Still<Watched>>> {
        let calls = core::iter::from_fn(|| self.peer.start(&Ask {}).ok()).collect::<Vec<_>>();
        assert_eq!(calls.len(), usize::from(limits().calls));
        calls
    }

    /// Runs the handlers of all messages.
    fn answers(&self) {
        assert_ne!(self.callee.serve(1), 0, "the handler runs");
    }

    fn receives(&self) {
        self.caller.turn(1, || false, &mut Nobody, &self.host).expect("no other thread holds the engine");
    }

    fn armed(&self) -> Armed {
        *self.armed.lock().expect("no holder panics")
    }
}

#[test]
fn a_future_that_takes_its_reply_wakes_the_next_task() {
    let watch = Watch::new();
    let mut open = watch.fill();
    let ask = Ask {};
    let mut tasks = [(); 2].map(|()| Task::new(watch.peer.call_async(&ask)).waits());
    watch.answers();
    watch.receives();
    assert_eq!(tasks[0].wakes(), 0, "the replies were not taken");
    let first = open.remove(0);
    assert!(Task::new(first).poll().is_ready());
    assert_eq!((tasks[0].wakes(), tasks[1].wakes()), (1, 0));
    assert!(tasks[0].poll().is_pending(), "its request is sent");
    drop(open.remove(0));
    assert_eq!((tasks[0].wakes(), tasks[1].wakes()), (1, 1), "a reply that is dropped frees its slot, too");
}

#[test]
fn a_thread_that_takes_its_reply_wakes_the_next_task() {
    let watch = Watch::new();
    let mut open = watch.fill();
    let ask = Ask {};
    let tasks = [(); 2].map(|()| Task::new(watch.peer.call_async(&ask)).waits());
    // The first reply is taken by its thread from the connection, the second one from its call slot.
    watch.answers();
    let _reply = open.remove(0).wait().expect("a reply");
    assert_eq!((tasks[0].wakes(), tasks[1].wakes()), (1, 0));
    watch.receives();
    let _reply = open.remove(0).wait().expect("a reply");
    assert_eq!((tasks[0].wakes(), tasks[1].wakes()), (1, 1));
}

/// Shows: calls.async-wakes
#[test]
fn credits_that_come_back_wake_as_many_tasks() {
    let watch = Watch::new();
    let news = News {};
    let sent = (0..).take_while(|_| watch.peer.notify(&news).is_ok()).count();
    assert_eq!(sent, usize::from(limits().requests[Class::Control.index()]));
    let mut tasks: Vec<_> =
        (0..2 * sent).map(|_| Task::new(watch.peer.notify_async(&news)).waits()).collect();
    // The peer returns credits together, when half of its window is used.
    watch.answers();
    watch.receives();
    let returned = watch.caller.credits(Class::Control) as usize;
    let woken = tasks.iter().filter(|task| task.wakes() == 1).count();
    assert!(returned > sent / 2 && woken == returned, "{woken} tasks were woken for {returned} credits");
    assert!(tasks[..returned].iter_mut().all(|task| task.poll().is_ready()), "those that came first");
    assert_eq!(watch.caller.credits(Class::Control), 0);
    assert!(tasks[returned..].iter().all(|task| task.wakes() == 0));
}

#[test]
fn the_end_of_the_session_wakes_all_tasks() {
    let watch = Watch::new();
    let _open = watch.fill();
    let ask = Ask {};
    let mut tasks: Vec<_> = (0..5).map(|_| Task::new(watch.peer.call_async(&ask)).waits()).collect();
    watch.caller.take_down(DownCause::Local, &mut Nobody, &watch.host);
    assert!(tasks.iter().all(|task| task.wakes() == 1));
    assert!(tasks.iter_mut().all(|task| matches!(task.poll(), Poll::Ready(Err(_)))));
    assert!(!watch.caller.is_room_awaited());
}

/// Otherwise only a tick would find a late reply to a call that its thread has left, or credits that come with a reply.
#[test]
fn the_serving_thread_arms_for_all_events_while_a_task_waits() {
    let watch = Watch::new();
    let sleeps = || watch.caller.set_serving(ServingState::Sleeping, &watch.host);
    let news = News {};
    while watch.peer.notify(&news).is_ok() {}
    sleeps();
    assert_eq!(watch.armed(), Armed::Solicited, "no thread and no task waits");
    let task = Task::new(watch.peer.notify_async(&news)).waits();
    assert_eq!(watch.armed(), Armed::All, "the thread sleeps already");
    // It wakes up for something else, and sleeps again.
    watch.caller.set_serving(ServingState::Working, &watch.host);
    watch.caller.disarm();
    sleeps();
    assert_eq!(watch.armed(), Armed::All);
    drop(task);
    sleeps();
    assert_eq!(watch.armed(), Armed::Solicited);
}
