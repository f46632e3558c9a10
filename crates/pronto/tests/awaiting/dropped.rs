//! Futures that are dropped in each of their states, and an executor that stops polling one.

use core::time::Duration;

use pronto::Responder;

use crate::executor::Executor;
use crate::rig::{Held, LONG, Pair, Sum, TRANSPORTS, pair, until};

/// Starts a task that makes one call.
fn call<'a>(executor: &mut Executor<'a>, pair: &'a Pair, number: u64, timeout: Duration) -> usize {
    executor.spawn(async move {
        let reply = pair.peer.call_async_within(&Held { number }, timeout).await;
        assert_eq!(reply.unwrap().total, number);
    })
}

fn replies((number, responder): (u64, Responder<Sum>)) {
    responder.reply(&Sum { total: number });
}

/// Shows: calls.async-dropped
#[test]
fn a_future_that_is_dropped_while_it_waits_leaves_the_queue() {
    for transport in TRANSPORTS {
        let pair = pair(transport, "drop-waiting", 1);
        let mut executor = Executor::default();
        let tasks: Vec<_> = (0..4).map(|number| call(&mut executor, &pair, number, LONG)).collect();
        executor.cancel(tasks[1]);
        replies(pair.received());
        executor.run_until("the first task ends", |executor| executor.has_ended(tasks[0]));
        let next = pair.received();
        assert_eq!(next.0, 2, "{transport}: the dropped task is skipped");
        executor.cancel(tasks[3]);
        replies(next);
        executor.run_all();
        assert!(pair.is_empty() && !pair.peer.session().is_room_awaited(), "{transport}");
    }
}

/// Shows: calls.async-dropped
#[test]
fn a_future_that_is_dropped_with_room_passes_it_on() {
    for transport in TRANSPORTS {
        let pair = pair(transport, "drop-given", 1);
        let mut executor = Executor::default();
        let tasks: Vec<_> = (0..3).map(|number| call(&mut executor, &pair, number, LONG)).collect();
        executor.hang(tasks[1]);
        replies(pair.received());
        executor.run_until("the second task has room", |executor| executor.wakes(tasks[1]) == 1);
        assert!(executor.has_ended(tasks[0]));
        assert_eq!(executor.wakes(tasks[2]), 0, "{transport}: there is room for one");
        executor.cancel(tasks[1]);
        assert_eq!(executor.wakes(tasks[2]), 1, "{transport}: the room is passed on");
        executor.run_woken();
        let next = pair.received();
        assert_eq!(next.0, 2, "{transport}");
        replies(next);
        executor.run_all();
    }
}

/// Shows: calls.async-dropped
#[test]
fn a_future_that_is_dropped_after_its_request_was_sent_cancels_the_call() {
    for transport in TRANSPORTS {
        let pair = pair(transport, "drop-posted", 1);
        let mut executor = Executor::default();
        let tasks: Vec<_> = (0..2).map(|number| call(&mut executor, &pair, number, LONG)).collect();
        let (number, responder) = pair.received();
        executor.cancel(tasks[0]);
        until("the callee is notified", || responder.is_cancelled());
        executor.run_woken();
        assert!(pair.is_empty(), "{transport}: the slot is in use until the callee responds");
        replies((number, responder));
        executor.run_until("the next has room", |executor| executor.wakes(tasks[1]) == 1);
        executor.run_woken();
        replies(pair.received());
        executor.run_all();
    }
}

/// Shows: calls.async-dropped
#[test]
fn a_future_that_is_dropped_after_its_reply_came_frees_its_slot() {
    for transport in TRANSPORTS {
        let pair = pair(transport, "drop-answered", 1);
        let mut executor = Executor::default();
        let tasks: Vec<_> = (0..2).map(|number| call(&mut executor, &pair, number, LONG)).collect();
        executor.hang(tasks[0]);
        replies(pair.received());
        until("the reply has come", || executor.wakes(tasks[0]) == 1);
        assert_eq!(executor.wakes(tasks[1]), 0, "{transport}: the reply occupies its slot");
        executor.cancel(tasks[0]);
        assert_eq!(executor.wakes(tasks[1]), 1, "{transport}: its slot is free");
        executor.run_woken();
        replies(pair.received());
        executor.run_all();
    }
}

/// Shows: calls.async-hung
#[test]
fn a_task_that_is_not_polled_delays_others_no_longer_than_its_deadline() {
    for transport in TRANSPORTS {
        let pair = pair(transport, "hung", 2);
        let mut executor = Executor::default();
        let first = call(&mut executor, &pair, 0, LONG);
        let second = call(&mut executor, &pair, 1, LONG);
        let hung = call(&mut executor, &pair, 2, Duration::from_secs(2));
        let others: Vec<_> = (3..9).map(|number| call(&mut executor, &pair, number, LONG)).collect();
        executor.hang(hung);
        let held = [pair.received(), pair.received()];
        let [one, two] = held;
        replies(one);
        executor.run_until("a task has room and is not polled", |executor| executor.wakes(hung) == 1);
        assert!(executor.has_ended(first));
        // The others go on with the other half of the window.
        replies(two);
        executor.run_until("the second task ends", |executor| executor.has_ended(second));
        replies(pair.received());
        executor.run_until("another task ends", |executor| executor.has_ended(others[0]));
        let one = pair.received();
        assert_eq!(one.0, 4, "{transport}");
        // Its room is passed on at its deadline, and two calls are open again.
        executor.run_until("its room is passed on", |executor| executor.polls(others[2]) == 2);
        let two = pair.received();
        assert_eq!(two.0, 5, "{transport}");
        replies(one);
        replies(two);
        for number in 6..9 {
            let task = others[number - 3];
            executor.run_until("the next has room", |executor| executor.polls(task) == 2);
            replies(pair.received());
        }
        executor.run_all();
        assert!(!executor.has_ended(hung) && !pair.peer.session().is_room_awaited(), "{transport}");
    }
}
