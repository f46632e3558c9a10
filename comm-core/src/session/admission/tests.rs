//! The order in which tickets get room, and the ends of their waits.

use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec;

use pronto_sync::atomic::{AtomicU32, Ordering};
use pronto_wire::NodeId;

use super::*;
use crate::wait::back_off::tests::RealTime;

const CONTROL: RoomFor = RoomFor::Call(Class::Control);
const BULK: RoomFor = RoomFor::Call(Class::Bulk);
const NOTIFICATION: RoomFor = RoomFor::Notification(Class::Control);
const NO_CREDIT: SendError = SendError::NoCredit { class: Class::Control };

/// Counts the wake-ups of one task.
#[derive(Default)]
struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

struct Queue {
    admission: Admission,
    wanted: Wanted,
    thread: RealTime<'static>,
    room: Room,
}

impl Queue {
    fn new(room: Room) -> Self {
        let thread = RealTime::with(|| ());
        Self { admission: Admission::default(), wanted: Wanted::default(), thread, room }
    }

    fn joins(&self, room: RoomFor) -> RoomTicket {
        self.joins_until(room, Nanos::NEVER, WhenDown::Fails)
    }

    fn joins_until(&self, room: RoomFor, deadline: Nanos, when_down: WhenDown) -> RoomTicket {
        self.admission.join(RoomRequest { room, deadline, when_down }, &self.wanted, &self.thread).0
    }

    fn leaves(&self, ticket: &RoomTicket) {
        self.admission.leave(ticket, &self.wanted, &self.thread);
    }

    fn gives(&self) -> usize {
        self.gives_while(Available::Up(self.room))
    }

    fn gives_while(&self, available: Available) -> usize {
        let give = || self.admission.give(|| available, &self.thread);
        core::iter::from_fn(give).map(|waker| waker.into_iter().for_each(Waker::wake)).count()
    }

    fn state(&self, ticket: &RoomTicket) -> RoomState {
        self.admission.poll(ticket, Waker::noop(), &self.thread).0
    }

    fn have_room(&self, tickets: &[RoomTicket]) -> Vec<usize> {
        let has_room = |at: &usize| self.state(&tickets[*at]) == RoomState::Given;
        (0..tickets.len()).filter(has_room).collect()
    }

    fn ticks(&self, now: Nanos) -> usize {
        self.admission.tick(now, &self.wanted, &self.thread).len()
    }
}

fn room(credits: [u32; 2], slots: u32) -> Room {
    Room { credits, slots, transfers: MAX_SENDS }
}

#[test]
fn each_unit_of_room_is_promised_once_and_in_the_order_of_arrival() {
    let mut queue = Queue::new(room([2, 0], 9));
    assert!(!queue.wanted.wants_room());
    let tickets: Vec<_> = (0..5).map(|_| queue.joins(CONTROL)).collect();
    assert!(queue.wanted.wants_room());
    assert_eq!((queue.gives(), queue.gives()), (2, 0), "a unit that was promised is not promised again");
    assert_eq!(queue.have_room(&tickets), [0, 1]);
    // The first task has sent its message, and a credit comes back.
    queue.leaves(&tickets[0]);
    queue.room.credits[0] = 1;
    assert_eq!(queue.gives(), 0, "one is used, the other still promised");
    queue.room.credits[0] = 2;
    assert_eq!(queue.gives(), 1);
    assert_eq!(queue.have_room(&tickets), [1, 2]);
    tickets.iter().for_each(|ticket| queue.leaves(ticket));
    assert!(!queue.wanted.wants_room() && !queue.wanted.anything_or_room());
}

#[test]
fn one_waker_is_woken_for_one_unit_of_room() {
    let queue = Queue::new(room([1, 0], 1));
    let tasks: Vec<_> = (0..4).map(|_| (queue.joins(CONTROL), Arc::new(Count::default()))).collect();
    for (ticket, count) in &tasks {
        let waker = Waker::from(Arc::clone(count));
        assert_eq!(queue.admission.poll(ticket, &waker, &queue.thread), (RoomState::Waiting, false));
    }
    let woken = || tasks.iter().map(|(_, count)| count.0.load(Ordering::Relaxed)).collect::<Vec<_>>();
    queue.gives();
    assert_eq!(woken(), [1, 0, 0, 0]);
    queue.leaves(&tasks[0].0);
    queue.gives();
    assert_eq!(woken(), [1, 1, 0, 0]);
    assert_eq!(Arc::strong_count(&tasks[0].1), 1, "the waker of a task that has left is dropped");
}

#[test]
fn a_task_that_leaves_gives_its_promise_to_the_next() {
    let queue = Queue::new(room([1, 0], 1));
    let tickets: Vec<_> = (0..4).map(|_| queue.joins(CONTROL)).collect();
    queue.gives();
    queue.leaves(&tickets[1]);
    queue.leaves(&tickets[0]);
    assert_eq!(queue.gives(), 1);
    assert_eq!(queue.have_room(&tickets[2..]), [0]);
}

/// Shows: calls.async-place
#[test]
fn a_refused_task_keeps_its_place() {
    let queue = Queue::new(room([2, 0], 2));
    let tickets: Vec<_> = (0..3).map(|_| queue.joins(CONTROL)).collect();
    queue.gives();
    queue.admission.back(&tickets[0], &NO_CREDIT, &queue.thread);
    assert_eq!(queue.have_room(&tickets), [0; 0], "the second task does not overtake it");
    assert_eq!(queue.gives(), 2);
    assert_eq!(queue.have_room(&tickets), [0, 1], "it is still before the third");
    queue.admission.until_tick(&tickets[0], &queue.thread);
    assert_eq!((queue.have_room(&tickets), queue.gives()), (vec![], 0), "both wait for the tick");
    queue.ticks(Nanos::ZERO);
    assert_eq!((queue.gives(), queue.have_room(&tickets)), (2, vec![0, 1]));
}

#[test]
fn a_task_that_waits_for_the_next_session_does_not_delay_one_that_fails_with_this_one() {
    let queue = Queue::new(room([1, 0], 1));
    let waits = queue.joins_until(CONTROL, Nanos::NEVER, WhenDown::Waits);
    let fails = queue.joins(CONTROL);
    assert_eq!(queue.gives_while(Available::Down), 1);
    assert_eq!([&waits, &fails].map(|ticket| queue.state(ticket)), [RoomState::Waiting, RoomState::Given]);
}

#[test]
fn a_task_that_is_refused_for_lack_of_memory_tries_again_with_a_tick() {
    let queue = Queue::new(room([2, 0], 2));
    let tickets: Vec<_> = (0..2).map(|_| queue.joins(CONTROL)).collect();
    queue.gives();
    queue.admission.back(&tickets[1], &SendError::Busy, &queue.thread);
    queue.admission.back(&tickets[0], &SendError::NoRing, &queue.thread);
    assert_eq!(queue.gives(), 0);
    assert_eq!(queue.ticks(Nanos::ZERO), 0);
    assert_eq!(queue.gives(), 2);
    queue.admission.until_tick(&tickets[0], &queue.thread);
    assert_eq!(queue.gives(), 0);
    queue.ticks(Nanos::ZERO);
    assert_eq!(queue.gives(), 1);
}

#[test]
fn a_deadline_ends_a_wait_and_a_promise() {
    let queue = Queue::new(room([1, 0], 1));
    let until = |nanos| queue.joins_until(CONTROL, Nanos(nanos), WhenDown::Fails);
    let tickets = [until(10), until(20), until(30), until(5)];
    let states = || tickets.each_ref().map(|ticket| queue.state(ticket));
    let (waits, given, over) = (RoomState::Waiting, RoomState::Given, RoomState::Expired);
    queue.gives();
    assert_eq!(states(), [given, waits, waits, waits]);
    assert_eq!(queue.ticks(Nanos(4)), 0);
    assert_eq!(queue.ticks(Nanos(5)), 1, "the last one waits for the shortest time");
    // The first task has room and does not come for it.
    assert_eq!((queue.ticks(Nanos(10)), queue.gives()), (0, 1));
    assert_eq!(states(), [over, given, waits, over]);
    assert_eq!((queue.ticks(Nanos(19)), queue.ticks(Nanos(30))), (0, 1));
    assert_eq!(states(), [over; 4]);
    assert!(!queue.wanted.wants_room());
    tickets.iter().for_each(|ticket| queue.leaves(ticket));
}

/// Shows: calls.async-classes
#[test]
fn the_classes_wait_for_their_own_credits_and_share_call_slots_by_arrival() {
    let mut queue = Queue::new(room([0, 1], 1));
    let tickets = [queue.joins(CONTROL), queue.joins(BULK), queue.joins(BULK), queue.joins(NOTIFICATION)];
    assert_eq!(queue.gives(), 1);
    assert_eq!(queue.have_room(&tickets), [1], "control lacks a credit");
    queue.room = room([2, 2], 1);
    assert_eq!(queue.gives(), 0, "all slots are in use");
    queue.leaves(&tickets[1]);
    queue.room = room([2, 1], 1);
    assert_eq!(queue.gives(), 2);
    assert_eq!(queue.have_room(&tickets), [0, 3], "the older call gets the slot; a notification needs none");
}

#[test]
fn transfers_have_a_limit_of_their_own() {
    let mut queue = Queue::new(Room { transfers: transfers_left(MAX_SENDS), ..room([9, 9], 9) });
    let tickets = [queue.joins(RoomFor::Transfer), queue.joins(BULK)];
    queue.gives();
    assert_eq!(queue.have_room(&tickets), [1]);
    queue.room.transfers = transfers_left(MAX_SENDS - 1);
    queue.gives();
    assert_eq!(queue.have_room(&tickets), [0, 1]);
    queue.admission.back(&tickets[0], &SendError::TooManyTransfers { max: 1 }, &queue.thread);
    assert_eq!(queue.gives(), 1);
}

#[test]
fn the_end_of_the_session_ends_waits_except_those_for_the_next_one() {
    let queue = Queue::new(room([0, 0], 0));
    let waits = queue.joins_until(CONTROL, Nanos::NEVER, WhenDown::Waits);
    let fails = vec![queue.joins(CONTROL), queue.joins(BULK)];
    assert_eq!(queue.gives_while(Available::Down), 2);
    assert_eq!(queue.have_room(&fails), [0, 1], "they find out that the peer is down");
    assert_eq!(queue.state(&waits), RoomState::Waiting);
    let refused = SendError::NotConnected { peer: NodeId(1) };
    queue.admission.back(&fails[0], &refused, &queue.thread);
    assert_eq!(queue.gives_while(Available::Down), 1, "the end is not left to a tick");
    // They were promised nothing.
    assert_eq!(queue.gives_while(Available::Up(room([1, 0], 1))), 1);
    assert_eq!(queue.state(&waits), RoomState::Given);
}

#[test]
fn the_end_of_the_node_ends_all_waits() {
    let queue = Queue::new(room([1, 0], 1));
    let tickets =
        [WhenDown::Fails, WhenDown::Waits].map(|when| queue.joins_until(CONTROL, Nanos::NEVER, when));
    assert_eq!((queue.gives(), queue.state(&tickets[1])), (1, RoomState::Waiting));
    assert_eq!(queue.admission.close(&queue.wanted, &queue.thread).len(), 1, "the first one has been woken");
    let late = queue.joins(CONTROL);
    let states = [&tickets[0], &tickets[1], &late].map(|ticket| queue.state(ticket));
    assert_eq!(states, [RoomState::Expired; 3]);
    assert!(!queue.wanted.wants_room());
    tickets.iter().chain([&late]).for_each(|ticket| queue.leaves(ticket));
}
