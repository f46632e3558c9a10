//! Events of peers, for subscribers and for threads that wait for a state.
//!
//! Each subscriber has its own queue of at most [`HELD`] events. If the queue is full, the oldest event is dropped and counted.
//! A subscriber that does not read therefore uses a bounded amount of memory and delays no thread. The loss is reported in its
//! place, before the first event that is left.

use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, Weak};

use pronto_core::session::Event;
use pronto_sync::atomic::{AtomicU64, Ordering};
use thiserror::Error;

use crate::serving::guard;
use crate::status::awaiting::StateTasks;

/// Maximum number of unread events of one subscriber: enough for 256 peers that each come up, lose a link, resume and go down
/// between two reads. Chosen by us; no source.
pub const HELD: usize = 1_024;

/// Report that events were dropped because the subscriber did not read in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{events} events were dropped because {HELD} were unread")]
pub struct Missed {
    /// Number of events dropped since the last one that was read.
    pub events: u64,
}

/// A subscription to the events of peers and their links, such as `PeerUp` and `PeerDown`. Holds at most [`HELD`] unread events;
/// beyond that the oldest are dropped, and [`Missed`] takes their place.
#[derive(Debug)]
pub struct Events {
    queue: Arc<Queue>,
}

impl Events {
    /// Returns the next event if there is one, or [`Missed`] if events were dropped before it.
    pub fn try_next(&self) -> Option<Result<Event, Missed>> {
        self.queue.lock().take()
    }

    /// Waits for the next event for at most `limit`. Returns [`Missed`] if events were dropped before it, and `None` at the limit or
    /// if the node has ended and all events were read.
    pub fn next_within(&self, limit: Duration) -> Option<Result<Event, Missed>> {
        let held = self.queue.lock();
        let waited =
            self.queue.changed.wait_timeout_while(held, limit, |held| held.is_empty() && !held.closed);
        let (mut held, _) = waited.expect("no holder panics");
        held.take()
    }

    /// Awaits the next event. Returns [`Missed`] if events were dropped before it, and `None` if the node has ended and all events were
    /// read. Dropping the future loses no event.
    pub async fn next(&mut self) -> Option<Result<Event, Missed>> {
        core::future::poll_fn(|context| self.poll_next_event(context)).await
    }

    /// Polls for the next event, like [`Events::next`]. If there is none, the task that polled last is woken by the next event.
    pub fn poll_next_event(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Event, Missed>>> {
        let waker = context.waker().clone();
        let mut held = self.queue.lock();
        if !held.is_empty() || held.closed {
            return Poll::Ready(held.take());
        }
        let old = held.waker.replace(waker);
        drop(held);
        // A waker is code of the program, which must not run under the lock.
        drop(old);
        Poll::Pending
    }
}

#[cfg(feature = "stream")]
impl futures_core::Stream for Events {
    type Item = Result<Event, Missed>;

    fn poll_next(
        mut self: core::pin::Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Event, Missed>>> {
        self.poll_next_event(context)
    }
}

/// One subscriber's events.
#[derive(Debug, Default)]
struct Queue {
    held: Mutex<Held>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Held {
    events: VecDeque<Event>,
    /// Number of dropped events that the subscriber does not know of yet.
    missed: u64,
    /// The node has ended, so there are no further events.
    closed: bool,
    /// The task that awaits the next event.
    waker: Option<Waker>,
}

impl Queue {
    fn lock(&self) -> std::sync::MutexGuard<'_, Held> {
        self.held.lock().expect("no holder panics")
    }
}

impl Held {
    fn is_empty(&self) -> bool {
        self.events.is_empty() && self.missed == 0
    }

    fn take(&mut self) -> Option<Result<Event, Missed>> {
        match core::mem::take(&mut self.missed) {
            0 => self.events.pop_front().map(Ok),
            events => Some(Err(Missed { events })),
        }
    }

    /// Appends an event. Returns whether the oldest one was dropped for it.
    fn push(&mut self, event: Event) -> bool {
        let full = self.events.len() >= HELD;
        if full {
            self.events.pop_front();
            self.missed += 1;
        }
        self.events.push_back(event);
        full
    }
}

/// All subscribers, and the threads and tasks that wait for a state.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    subscribers: Mutex<Vec<Weak<Queue>>>,
    missed: AtomicU64,
    count: Mutex<u64>,
    changed: Condvar,
    pub(crate) tasks: StateTasks,
}

impl EventLog {
    pub(crate) fn subscribe(&self) -> Events {
        let queue = Arc::new(Queue::default());
        let mut subscribers = self.subscribers.lock().expect("no holder panics");
        subscribers.retain(|subscriber| subscriber.strong_count() != 0);
        subscribers.push(Arc::downgrade(&queue));
        drop(subscribers);
        Events { queue }
    }

    /// Returns the number of dropped events of all subscribers.
    pub(crate) fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }

    /// Appends an event for all subscribers. Returns the wakers of the tasks that wait for it; the caller must call them.
    #[must_use]
    pub(crate) fn publish(&self, event: Event) -> Vec<Waker> {
        let mut wakers = Vec::new();
        let publish_to = |subscriber: &Weak<Queue>| {
            let Some(queue) = subscriber.upgrade() else { return false };
            let mut held = queue.lock();
            if held.push(event) {
                self.missed.fetch_add(1, Ordering::Relaxed);
            }
            wakers.extend(held.waker.take());
            drop(held);
            queue.changed.notify_one();
            true
        };
        self.subscribers.lock().expect("no holder panics").retain(publish_to);
        wakers.extend(self.look_again());
        wakers
    }

    /// Makes the threads that wait for a state look at it again. Returns the wakers of the tasks that do; the caller must call them.
    #[must_use]
    pub(crate) fn look_again(&self) -> Vec<Waker> {
        *self.count.lock().expect("no holder panics") += 1;
        self.changed.notify_all();
        self.tasks.all()
    }

    /// Waits until `state` returns a value, for at most `limit`. Calls `state` again after every event.
    pub(crate) fn wait_for<T>(&self, limit: Duration, mut state: impl FnMut() -> Option<T>) -> Option<T> {
        let mut found = None;
        let count = self.count.lock().expect("no holder panics");
        let waited = self.changed.wait_timeout_while(count, limit, |_| {
            found = state();
            found.is_none()
        });
        drop(waited);
        found
    }

    /// Ends all subscriptions: they return the events that are left, and then none. Called when the node ends, as peers of the program may
    /// keep this log alive.
    pub(crate) fn close(&self) {
        let Ok(mut subscribers) = self.subscribers.lock() else { return };
        let subscribers = core::mem::take(&mut *subscribers);
        for queue in subscribers.iter().filter_map(Weak::upgrade) {
            let mut held = queue.lock();
            held.closed = true;
            let waker = held.waker.take();
            drop(held);
            queue.changed.notify_all();
            if let Some(waker) = waker {
                let _panicked = guard::caught(|| waker.wake());
            }
        }
    }
}

impl Drop for EventLog {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use pronto_wire::NodeId;

    use super::*;

    const SOON: Duration = Duration::from_secs(60);

    fn event(number: u16) -> Event {
        Event::LinkResumed { peer: NodeId(number), notifications_lost: 0 }
    }

    fn publish(log: &EventLog, number: u16) {
        assert!(log.publish(event(number)).is_empty(), "no task waits");
    }

    /// Shows: operations.json-node
    #[test]
    fn a_subscriber_that_never_reads_holds_a_bounded_number_of_events() {
        let log = EventLog::default();
        let [events, other] = [log.subscribe(), log.subscribe()];
        (0..u16::MAX).for_each(|number| {
            publish(&log, number);
            assert_eq!(other.try_next(), Some(Ok(event(number))), "a subscriber that reads misses nothing");
        });
        let dropped = u64::from(u16::MAX) - HELD as u64;
        assert_eq!(log.missed(), dropped);
        assert_eq!(events.try_next(), Some(Err(Missed { events: dropped })), "the loss is reported first");
        let held: Vec<_> = core::iter::from_fn(|| events.try_next()).collect();
        assert_eq!(held.len(), HELD);
        assert_eq!(held.first(), Some(&Ok(event(u16::MAX - 1_024))), "the oldest are dropped");
        assert_eq!(held.last(), Some(&Ok(event(u16::MAX - 1))));
    }

    #[test]
    fn a_waiting_subscriber_gets_the_number_of_missed_events() {
        let log = EventLog::default();
        let events = log.subscribe();
        (0..=1_024).for_each(|number| publish(&log, number));
        assert_eq!(events.next_within(SOON), Some(Err(Missed { events: 1 })));
        assert_eq!(events.next_within(SOON), Some(Ok(event(1))));
        publish(&log, 0);
        publish(&log, 0);
        assert_eq!(events.next_within(SOON), Some(Err(Missed { events: 1 })), "each loss is reported once");
        assert_eq!(events.next_within(SOON), Some(Ok(event(3))));
    }

    #[test]
    fn a_waiting_subscriber_wakes_for_an_event_and_for_the_end() {
        let log = EventLog::default();
        let events = log.subscribe();
        let reader = std::thread::spawn(move || {
            [events.next_within(Duration::MAX), events.next_within(Duration::MAX)]
        });
        publish(&log, 5);
        drop(log);
        assert_eq!(reader.join().unwrap(), [Some(Ok(event(5))), None]);
    }

    #[test]
    fn subscribers_that_are_gone_are_forgotten() {
        let log = EventLog::default();
        (0..100).for_each(|_| drop(log.subscribe()));
        let kept = log.subscribe();
        assert_eq!(log.subscribers.lock().unwrap().len(), 1);
        drop(kept);
        publish(&log, 0);
        assert!(log.subscribers.lock().unwrap().is_empty());
    }

    /// Shows: calls.async-events
    #[test]
    fn a_task_is_woken_for_an_event_and_for_the_end() {
        struct Count(AtomicU64);
        impl std::task::Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (log, count) = (EventLog::default(), Arc::new(Count(AtomicU64::new(0))));
        let waker = Waker::from(Arc::clone(&count));
        let mut events = log.subscribe();
        let mut poll = || events.poll_next_event(&mut Context::from_waker(&waker));
        let wakes = || count.0.load(Ordering::Relaxed);
        assert!(poll().is_pending());
        log.publish(event(1)).into_iter().for_each(Waker::wake);
        log.publish(event(2)).into_iter().for_each(Waker::wake);
        assert_eq!(wakes(), 1, "the task was woken and has not come yet");
        assert_eq!([poll(), poll()], [1, 2].map(|number| Poll::Ready(Some(Ok(event(number))))));
        assert!(poll().is_pending());
        drop(log);
        assert_eq!((wakes(), poll()), (2, Poll::Ready(None)));
    }
}
