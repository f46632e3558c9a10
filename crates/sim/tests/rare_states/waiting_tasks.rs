//! Tasks that wait for room: room that a task does not use goes to the next one immediately, not with a tick.

use core::task::Waker;

use pronto_core::Nanos;
use pronto_core::session::{Limits, RoomFor, RoomRequest, RoomState, WhenDown};
use pronto_sim::SimOptions;
use pronto_wire::Class;

use super::pair::{Nothing, Pair, few};

#[test]
fn a_task_that_leaves_the_queue_passes_its_room_on() {
    let pair = Pair::new(SimOptions::like_tcp(), Limits { calls: 1, ..few() });
    let (room, deadline) = (RoomFor::Call(Class::Control), Nanos::NEVER);
    let request = RoomRequest { room, deadline, when_down: WhenDown::Fails };
    let [first, second] = [(); 2].map(|()| pair.near.join_queue(request, &mut Nothing, &pair.executor));
    let state = |ticket| pair.near.poll_queue(ticket, Waker::noop(), &pair.executor);
    assert_eq!([state(&first), state(&second)], [RoomState::Given, RoomState::Waiting]);
    pair.near.leave_queue(&first, &pair.executor);
    assert_eq!(state(&second), RoomState::Given);
    pair.near.leave_queue(&second, &pair.executor);
    assert!(!pair.near.is_room_awaited());
}
