//! Tasks that wait for room to send to one peer. They get room in the order of their arrival.
//!
//! Room is a credit of the message's class, for a call also a call slot, and for a rendezvous send also one of [`MAX_SENDS`]. A task joins
//! the queue of its class. When room becomes free, a promise of it is given to the task at the front, and its waker is woken. The task then
//! sends its message like any other sender, and the promise ends. Each unit of room is promised to one task only, so each freed unit wakes
//! one task. A task that leaves without having sent gives its promise back for the next one.
//!
//! A promise reserves nothing from senders without a ticket, such as blocking ones. A task that finds its room taken goes back to its old
//! place in the queue.
//!
//! # Invariants
//! 1. The flag [`Wanted::wants_room`] is set exactly while a ticket waits or has a promise. It changes under the queue's lock.
//! 2. `promised` is the sum of the room that the tickets in `given` have been promised.
//! 3. A ticket that is neither waiting nor given is over: its deadline has passed, or the node has ended.
//! 4. No waker is called, cloned or dropped under the lock, as wakers are code of the program.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::task::Waker;

use pronto_sync::{TryLock, TryLockGuard};
use pronto_wire::Class;

use super::rendezvous::MAX_SENDS;
use super::send_error::SendError;
use crate::executor::Executor;
use crate::time::Nanos;
use crate::wait::back_off::BackOff;
use crate::wait::wanted::Wanted;

/// The room that a message needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoomFor {
    /// A notification: a credit.
    Notification(Class),
    /// A call: a credit and a call slot.
    Call(Class),
    /// A rendezvous send: the room of a bulk call, and one of the sends of this peer.
    Transfer,
}

/// The effect of the end of the session on a task that waits for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenDown {
    /// The task is woken, and its attempt to send fails.
    Fails,
    /// The task waits for the next session, until its deadline.
    Waits,
}

/// The request of a task for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoomRequest {
    /// The room that the message needs.
    pub room: RoomFor,
    /// Time when the wait ends without room.
    pub deadline: Nanos,
    /// The effect of the end of the session.
    pub when_down: WhenDown,
}

/// The place of a task in the queue. Leave the queue with it: see [`Session::leave_queue`](super::Session::leave_queue).
#[derive(Debug)]
#[must_use = "a ticket that is not returned delays the tasks behind it until its deadline"]
pub struct RoomTicket {
    number: u64,
    request: RoomRequest,
}

impl RoomTicket {
    /// Returns the request that the ticket was given for.
    pub const fn request(&self) -> &RoomRequest {
        &self.request
    }
}

/// The state of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoomState {
    /// The task waits. Its waker is woken when the state changes.
    Waiting,
    /// There is room: the task may send now.
    Given,
    /// The deadline has passed, or the node has ended.
    Expired,
}

/// Amounts of room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) credits: [u32; 2],
    pub(super) slots: u32,
    pub(super) transfers: u32,
}

impl Room {
    const fn of(room: RoomFor) -> Self {
        let (class, slots, transfers) = match room {
            RoomFor::Notification(class) => (class, 0, 0),
            RoomFor::Call(class) => (class, 1, 0),
            RoomFor::Transfer => (Class::Bulk, 1, 1),
        };
        let mut credits = [0; 2];
        credits[class.index()] = 1;
        Self { credits, slots, transfers }
    }

    fn each(self, other: Self, change: impl Fn(u32, u32) -> u32) -> Self {
        let credits = [0, 1].map(|class| change(self.credits[class], other.credits[class]));
        let (slots, transfers) = (change(self.slots, other.slots), change(self.transfers, other.transfers));
        Self { credits, slots, transfers }
    }

    fn plus(self, other: Self) -> Self {
        self.each(other, |a, b| a + b)
    }

    fn minus(self, other: Self) -> Self {
        self.each(other, u32::saturating_sub)
    }

    fn covers(self, other: Self) -> bool {
        other.minus(self) == Self::default()
    }
}

/// The room that a session has now.
#[derive(Clone, Copy, Debug)]
pub(super) enum Available {
    /// The peer is up.
    Up(Room),
    /// The session is over.
    Down,
}

/// The event after which a waiting task is given room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    /// The room is free.
    Free,
    /// The next tick: nothing reports the end of the last refusal.
    Tick,
}

#[derive(Debug)]
struct Entry {
    request: RoomRequest,
    /// `None` before the first poll, and after the task was woken.
    waker: Option<Waker>,
    until: Until,
    /// The room that is promised while the entry is in `given`.
    promise: Room,
}

/// The tickets of one peer.
#[derive(Debug)]
struct Tickets {
    /// Tickets without room, by queue and arrival.
    waiting: [BTreeMap<u64, Entry>; QUEUES],
    /// Tickets with room whose task has not used it yet.
    given: BTreeMap<u64, Entry>,
    promised: Room,
    next: u64,
    /// No ticket has an earlier deadline.
    earliest: Nanos,
    /// The node has ended, so that no tick ends a wait.
    closed: bool,
}

/// The queues: one per class, and one of transfers, whose limit is of another kind.
const QUEUES: usize = 3;

const fn queue_of(room: RoomFor) -> usize {
    match room {
        RoomFor::Notification(class) | RoomFor::Call(class) => class.index(),
        RoomFor::Transfer => 2,
    }
}

/// The queues of tasks that wait for room.
#[derive(Debug)]
pub(super) struct Admission {
    tickets: TryLock<Tickets>,
}

impl Default for Admission {
    fn default() -> Self {
        let tickets = Tickets {
            waiting: [BTreeMap::new(), BTreeMap::new(), BTreeMap::new()],
            given: BTreeMap::new(),
            promised: Room::default(),
            next: 0,
            earliest: Nanos::NEVER,
            closed: false,
        };
        Self { tickets: TryLock::new(tickets) }
    }
}

impl Admission {
    /// Takes the lock, which other threads hold for moments.
    fn lock(&self, executor: &impl Executor) -> TryLockGuard<'_, Tickets> {
        let mut back_off = BackOff::default();
        loop {
            if let Some(tickets) = self.tickets.try_lock() {
                return tickets;
            }
            back_off.pause(executor);
        }
    }

    /// Adds a ticket behind all others of its queue. Returns whether no other ticket exists. The caller must check for room afterwards.
    pub(super) fn join(
        &self,
        request: RoomRequest,
        wanted: &Wanted,
        executor: &impl Executor,
    ) -> (RoomTicket, bool) {
        let mut tickets = self.lock(executor);
        let is_first = tickets.is_empty();
        let number = tickets.next;
        tickets.next += 1;
        if tickets.closed {
            return (RoomTicket { number, request }, false);
        }
        tickets.earliest = tickets.earliest.min(request.deadline);
        let entry = Entry { request, waker: None, until: Until::Free, promise: Room::default() };
        tickets.waiting[queue_of(request.room)].insert(number, entry);
        tickets.flag(wanted);
        (RoomTicket { number, request }, is_first)
    }

    /// Returns the state of a ticket, and stores the waker if it waits. A ticket that has room goes back to its place if an earlier one
    /// waits in its queue again: its task may not send before the other one. The second value is true if it did; the caller must then
    /// check for room afterwards.
    pub(super) fn poll(
        &self,
        ticket: &RoomTicket,
        waker: &Waker,
        executor: &impl Executor,
    ) -> (RoomState, bool) {
        let waker = waker.clone();
        let queue = queue_of(ticket.request.room);
        let mut tickets = self.lock(executor);
        let given = tickets.given.get(&ticket.number).map(|entry| entry.promise != Room::default());
        if let Some(has_room) = given {
            let first = tickets.waiting[queue].first_key_value();
            // A task whose attempt fails because the session is over has no room, and delays nobody.
            if !has_room || first.is_none_or(|(first, _)| *first > ticket.number) {
                return (RoomState::Given, false);
            }
            tickets.put_back(ticket, Until::Free);
        }
        let Some(entry) = tickets.waiting[queue].get_mut(&ticket.number) else {
            return (RoomState::Expired, false);
        };
        let old = entry.waker.replace(waker);
        drop(tickets);
        drop(old);
        (RoomState::Waiting, given.is_some())
    }

    /// Puts a ticket whose task was refused back to its place in the queue.
    pub(super) fn back(&self, ticket: &RoomTicket, until: &SendError, executor: &impl Executor) {
        let until = match until {
            SendError::NoCredit { .. }
            | SendError::NoCallSlot { .. }
            | SendError::TooManyTransfers { .. } => Until::Free,
            _ => Until::Tick,
        };
        self.lock(executor).put_back(ticket, until);
    }

    /// Lets a ticket that has room wait for the next tick, as there seems to be room, but it is refused.
    pub(super) fn until_tick(&self, ticket: &RoomTicket, executor: &impl Executor) {
        self.lock(executor).put_back(ticket, Until::Tick);
    }

    /// Removes a ticket, whose task has sent its message or has given up. The caller must check for room afterwards.
    pub(super) fn leave(&self, ticket: &RoomTicket, wanted: &Wanted, executor: &impl Executor) {
        let mut tickets = self.lock(executor);
        let left = tickets.take_given(ticket.number);
        let left = left.or_else(|| tickets.waiting[queue_of(ticket.request.room)].remove(&ticket.number));
        tickets.flag(wanted);
        drop(tickets);
        drop(left);
    }

    /// Gives room to one ticket: the one that waits longest, of those at the front of a queue for which there is room. Returns `None` if
    /// there is none, otherwise its waker. The caller must wake it, and call this again.
    pub(super) fn give(
        &self,
        available: impl FnOnce() -> Available,
        executor: &impl Executor,
    ) -> Option<Option<Waker>> {
        let mut tickets = self.lock(executor);
        let (queue, number, promise) = match available() {
            Available::Up(room) => tickets.next_with_room(room)?,
            Available::Down => tickets.next_that_fails()?,
        };
        let mut entry = tickets.waiting[queue].remove(&number)?;
        let waker = entry.waker.take();
        tickets.promised = tickets.promised.plus(promise);
        tickets.given.insert(number, Entry { promise, ..entry });
        Some(waker)
    }

    /// Returns whether a ticket at the front of a queue waits for a credit of a class.
    pub(super) fn lacks_credit(&self, class: Class, available: Room, executor: &impl Executor) -> bool {
        let tickets = self.lock(executor);
        let free = available.minus(tickets.promised);
        let lacks =
            |entry: &Entry| Room::of(entry.request.room).credits[class.index()] > free.credits[class.index()];
        tickets.waiting.iter().filter_map(BTreeMap::first_key_value).any(|(_, entry)| lacks(entry))
    }

    /// Ends all tickets, present and future ones. Returns their wakers, which the caller must wake.
    pub(super) fn close(&self, wanted: &Wanted, executor: &impl Executor) -> Vec<Waker> {
        let mut tickets = self.lock(executor);
        tickets.closed = true;
        let ended = tickets.take_overdue(Nanos::NEVER);
        tickets.flag(wanted);
        drop(tickets);
        ended.into_iter().filter_map(|entry| entry.waker).collect()
    }

    /// Ends the tickets whose deadline has passed, including those that have room, and lets those that wait for a tick try again. Returns
    /// the wakers of the ended ones. The caller must wake them, and check for room afterwards.
    pub(super) fn tick(&self, now: Nanos, wanted: &Wanted, executor: &impl Executor) -> Vec<Waker> {
        let mut tickets = self.lock(executor);
        for queue in &mut tickets.waiting {
            // Only the ticket at the front has been refused, except if another has left the queue in front of it.
            for entry in queue.values_mut().take_while(|entry| entry.until == Until::Tick) {
                entry.until = Until::Free;
            }
        }
        if now < tickets.earliest {
            return Vec::new();
        }
        let overdue = tickets.take_overdue(now);
        tickets.flag(wanted);
        drop(tickets);
        overdue.into_iter().filter_map(|entry| entry.waker).collect()
    }
}

impl Tickets {
    fn is_empty(&self) -> bool {
        self.given.is_empty() && self.waiting.iter().all(BTreeMap::is_empty)
    }

    /// Adapts the flag to the tickets.
    fn flag(&self, wanted: &Wanted) {
        wanted.set_room(!self.is_empty());
    }

    /// Ends the promise of a ticket, if it has one.
    fn take_given(&mut self, number: u64) -> Option<Entry> {
        let entry = self.given.remove(&number)?;
        debug_assert!(self.promised.covers(entry.promise), "each promise is counted");
        self.promised = self.promised.minus(entry.promise);
        Some(Entry { promise: Room::default(), ..entry })
    }

    /// Puts a ticket that has room back to its place in the queue.
    fn put_back(&mut self, ticket: &RoomTicket, until: Until) {
        if let Some(entry) = self.take_given(ticket.number) {
            self.waiting[queue_of(ticket.request.room)].insert(ticket.number, Entry { until, ..entry });
        }
    }

    fn next_with_room(&self, available: Room) -> Option<(usize, u64, Room)> {
        let free = available.minus(self.promised);
        let fronts = self.waiting.iter().enumerate().filter_map(|(queue, tickets)| {
            let (number, entry) = tickets.first_key_value()?;
            let needs = Room::of(entry.request.room);
            (entry.until == Until::Free && free.covers(needs)).then_some((queue, *number, needs))
        });
        fronts.min_by_key(|(_, number, _)| *number)
    }

    fn next_that_fails(&self) -> Option<(usize, u64, Room)> {
        self.waiting.iter().enumerate().find_map(|(queue, tickets)| {
            let mut failing = tickets.iter().filter(|(_, entry)| entry.request.when_down == WhenDown::Fails);
            failing.next().map(|(number, _)| (queue, *number, Room::default()))
        })
    }

    fn take_overdue(&mut self, now: Nanos) -> Vec<Entry> {
        let mut overdue = Vec::new();
        let mut earliest = Nanos::NEVER;
        let mut check = |entry: &Entry| {
            let is_overdue = entry.request.deadline <= now;
            if !is_overdue {
                earliest = earliest.min(entry.request.deadline);
            }
            is_overdue
        };
        let given: Vec<u64> =
            self.given.iter().filter(|(_, entry)| check(entry)).map(|(number, _)| *number).collect();
        for queue in &mut self.waiting {
            let numbers: Vec<u64> =
                queue.iter().filter(|(_, entry)| check(entry)).map(|(number, _)| *number).collect();
            overdue.extend(numbers.iter().filter_map(|number| queue.remove(number)));
        }
        overdue.extend(given.into_iter().filter_map(|number| self.take_given(number)));
        self.earliest = earliest;
        overdue
    }
}

/// The number of rendezvous sends that can begin, if `sends` are in progress.
pub(super) const fn transfers_left(sends: u32) -> u32 {
    MAX_SENDS.saturating_sub(sends)
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests;
