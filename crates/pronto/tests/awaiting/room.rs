//! Tasks get room in the order of their arrival, and one answer wakes one task.

use core::cell::RefCell;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::sync::{Arc, Mutex};

use pronto::{CallError, CallRejection, Executed, Limits, SendError, WaitPolicy};

use crate::executor::{Executor, block_on};
use crate::rig::{Again, Echo, Held, LONG, Noted, Page, Pair, Sum, TRANSPORTS, pair, pair_with, until};

const TASKS: usize = 300;
const WINDOW: u16 = 4;

/// Shows: calls.async-order, calls.async-polls
#[test]
fn tasks_call_in_the_order_of_their_arrival_with_three_polls_each() {
    for transport in TRANSPORTS {
        let order = Arc::new(Mutex::new(Vec::new()));
        let notes = Arc::clone(&order);
        let Pair { server: _server, client: _client, peer, .. } =
            pair_with(transport, "order", WINDOW, move |server| {
                server.handle_inline(move |_, page: Page| {
                    let number = page.bytes.len();
                    notes.lock().unwrap().push(number);
                    Sum { total: number as u64 }
                })
            });
        let mut executor = Executor::default();
        for number in 0..TASKS {
            let peer = &peer;
            executor.spawn(async move {
                let page = Page { bytes: vec![0; number] };
                assert_eq!(peer.call_async_within(&page, LONG).await.unwrap().total, number as u64);
            });
        }
        executor.run_all();
        assert_eq!(*order.lock().unwrap(), (0..TASKS).collect::<Vec<_>>(), "{transport}");
        let polls: Vec<_> = (0..TASKS).map(|task| executor.polls(task)).collect();
        assert!(polls.iter().all(|polls| *polls <= 3), "{transport}: polls per call: {polls:?}");
        assert!(!peer.session().is_room_awaited(), "{transport}: the queue must be empty");
    }
}

/// Shows: calls.async-wakes
#[test]
fn one_answer_wakes_one_task() {
    for transport in TRANSPORTS {
        let pair = pair(transport, "wakes", 1);
        let mut executor = Executor::default();
        let tasks: Vec<_> = (0..20)
            .map(|number| {
                let peer = &pair.peer;
                executor.spawn(async move {
                    assert_eq!(peer.call_async_within(&Held { number }, LONG).await.unwrap().total, number);
                })
            })
            .collect();
        for at in 0..tasks.len() {
            let (number, responder) = pair.received();
            assert_eq!(number, at as u64, "{transport}");
            responder.reply(&Sum { total: number });
            executor.run_until("the answered task ends", |executor| executor.has_ended(tasks[at]));
            // It was woken for room, except the first task, and for its reply.
            let expected = |task: usize| match task {
                0 => 1,
                task if task <= at => 2,
                task if task == at + 1 => 1,
                _ => 0,
            };
            let wakes: Vec<_> = tasks.iter().map(|task| executor.wakes(*task)).collect();
            let expected: Vec<_> = (0..tasks.len()).map(expected).collect();
            assert_eq!(wakes, expected, "{transport}, after {at} answers");
        }
    }
}

/// Shows: calls.async-order
#[test]
fn a_task_does_not_overtake_those_that_wait() {
    for transport in TRANSPORTS {
        let pair = pair(transport, "overtake", 2);
        let mut executor = Executor::default();
        let call = |number| {
            let peer = &pair.peer;
            async move {
                let _sum = peer.call_async_within(&Held { number }, LONG).await.unwrap();
            }
        };
        for number in 0..4 {
            executor.spawn(call(number));
        }
        let [first, second] = [pair.received(), pair.received()];
        // Task 2 gets room. Before it is polled, another task comes.
        executor.hang(2);
        first.1.reply(&Sum { total: 0 });
        executor.run_until("task 2 has room", |executor| executor.has_ended(0) && executor.wakes(2) == 1);
        let late = executor.spawn(call(9));
        assert_eq!(
            pair.peer.session().open_calls(),
            1,
            "{transport}: the free slot is not for the last task"
        );
        executor.resume(2);
        let next = pair.received();
        assert_eq!(next.0, 2, "{transport}");
        second.1.reply(&Sum { total: 1 });
        let third = executor.serve(&pair);
        assert_eq!(third.0, 3, "{transport}");
        assert!(!executor.has_ended(late) && pair.is_empty(), "{transport}");
    }
}

/// Shows: calls.async-deadline
#[test]
fn a_deadline_ends_a_wait_for_room_without_polls() {
    for transport in TRANSPORTS {
        let pair = pair(transport, "deadline", 1);
        let _open = pair.peer.start_within(&Held { number: 0 }, LONG).unwrap();
        let (_, _responder) = pair.received();
        let call = pair.peer.call_async_within(&Held { number: 1 }, Duration::from_millis(150));
        let (end, polls) = block_on(call);
        assert_eq!(end, Err(CallError::Deadline { executed: Executed::No }), "{transport}");
        assert!(polls <= 2, "{transport}: {polls} polls of a wait that ended by its deadline");
        assert!(pair.is_empty() && !pair.peer.session().is_room_awaited());
        let call = pair.peer.call_async_within(&Held { number: 1 }, Duration::ZERO);
        assert_eq!(block_on(call).0, Err(CallError::Deadline { executed: Executed::No }), "{transport}");
    }
}

/// The serving thread keeps time for the wait alone.
#[test]
fn a_deadline_ends_a_wait_for_a_credit_while_no_call_is_open() {
    let gate = Arc::new(Mutex::new(()));
    let blocks = Arc::clone(&gate);
    let pair = pair_with("shm", "credit-deadline", WINDOW, move |server| {
        let limits = Limits { requests: [8, 8], ..Limits::default() };
        server.limits(limits).on(move |_, _: Noted| drop(blocks.lock().unwrap()))
    });
    let closed = gate.lock().unwrap();
    while pair.peer.notify(&Noted { number: 0 }).is_ok() {}
    for _ in 0..3 {
        let (end, polls) =
            block_on(pair.peer.notify_async_within(&Noted { number: 0 }, Duration::from_millis(30)));
        assert_eq!(end, Err(CallError::Deadline { executed: Executed::No }));
        assert!(polls <= 2, "{polls}");
    }
    drop(closed);
}

#[test]
fn a_deadline_ends_a_call_that_was_sent() {
    let pair = pair("shm", "reply-deadline", 1);
    let (end, polls) = block_on(pair.peer.call_async_within(&Held { number: 0 }, Duration::from_millis(50)));
    assert_eq!(end, Err(CallError::Deadline { executed: Executed::Maybe }));
    assert!(polls <= 3, "{polls}");
}

/// Shows: calls.async-notify
#[test]
fn notifications_wait_for_credits_and_arrive_in_order() {
    for transport in TRANSPORTS {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (notes, gate) = (Arc::clone(&seen), Arc::new(Mutex::new(())));
        let blocks = Arc::clone(&gate);
        let pair = pair_with(transport, "notes", WINDOW, move |server| {
            // A window that does not grow.
            let limits = Limits { requests: [8, 8], ..Limits::default() };
            server.limits(limits).on(move |_, note: Noted| {
                let _passes = blocks.lock().unwrap();
                notes.lock().unwrap().push(note.number);
            })
        });
        let closed = gate.lock().unwrap();
        let mut executor = Executor::default();
        for number in 0..TASKS as u64 {
            let peer = &pair.peer;
            executor.spawn(async move { peer.notify_async_within(&Noted { number }, LONG).await.unwrap() });
        }
        executor.run_woken();
        let waits = (0..TASKS).filter(|task| !executor.has_ended(*task)).count();
        assert!(waits > TASKS / 2, "{transport}: the window must be used up, {waits} tasks wait");
        drop(closed);
        executor.run_all();
        until("all have arrived", || seen.lock().unwrap().len() == TASKS);
        assert_eq!(*seen.lock().unwrap(), (0..TASKS as u64).collect::<Vec<_>>(), "{transport}");
    }
}

/// The messages are longer than the send memory together.
///
/// Shows: calls.async-memory
#[test]
fn tasks_wait_for_send_memory() {
    for transport in TRANSPORTS {
        let Pair { server: _server, client: _client, peer, .. } =
            pair_with(transport, "memory", 56, |server| {
                server.handle_inline(|_, page: Page| Sum { total: page.bytes.len() as u64 })
            });
        let mut executor = Executor::default();
        for _ in 0..20 {
            let peer = &peer;
            executor.spawn(async move {
                let page = Page { bytes: vec![1; 2 << 20] };
                assert_eq!(peer.call_async_within(&page, LONG).await.unwrap().total, 2 << 20);
            });
        }
        executor.run_all();
    }
}

#[test]
fn the_end_of_the_peer_ends_waits_for_room() {
    for transport in TRANSPORTS {
        let pair = pair(transport, "down", 1);
        let ends = RefCell::new(Vec::new());
        let mut executor = Executor::default();
        for number in 0..5 {
            let (peer, ends) = (&pair.peer, &ends);
            executor.spawn(async move {
                let end = peer.call_async_within(&Held { number }, LONG).await.unwrap_err();
                ends.borrow_mut().push(end);
            });
        }
        let (_, _responder) = pair.received();
        drop(pair.server);
        executor.run_all();
        let not_sent = |end: &&CallError| end.executed() == Executed::No;
        assert_eq!(ends.borrow().iter().filter(not_sent).count(), 4, "{transport}: {:?}", ends.borrow());
    }
}

/// Shows: calls.async-repeated
#[test]
fn an_idempotent_call_is_repeated_when_the_peer_is_back() {
    let listen = crate::rig::address("shm", "again");
    let received = Arc::new(Mutex::new(0));
    let server = |answers: bool| {
        let received = Arc::clone(&received);
        let builder = pronto::Node::builder(1).wait(WaitPolicy::Block).listen(&listen);
        let hold = Mutex::new(Vec::new());
        let builder = builder.handle_deferred(move |_, again: Again, responder| {
            *received.lock().unwrap() += 1;
            if answers {
                responder.reply(&Sum { total: again.number });
            } else {
                hold.lock().unwrap().push(responder);
            }
        });
        builder.start().unwrap()
    };
    let first = server(false);
    let client = pronto::Node::builder(2).wait(WaitPolicy::Block).peer(1, &listen).start().unwrap();
    let peer = client.wait_for_peer(1, LONG).unwrap();
    let mut executor = Executor::default();
    let task = executor.spawn(async {
        assert_eq!(peer.call_async_within(&Again { number: 7 }, LONG).await.unwrap().total, 7);
    });
    until("the first server has the request", || *received.lock().unwrap() == 1);
    drop(first);
    executor.run_until("the peer is down", |_| !peer.is_up());
    executor.run_woken();
    assert!(!executor.has_ended(task));
    let _second = server(true);
    executor.run_all();
}

/// Blocking callers do not queue; tasks and they share the room, and all end.
///
/// Shows: calls.async-place
#[test]
fn tasks_and_blocking_callers_share_a_peer() {
    for transport in TRANSPORTS {
        let Pair { server: _server, client: _client, peer, .. } = pair(transport, "mixed", 2);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for number in 0..200 {
                        assert_eq!(peer.call_within(&Echo { number }, LONG).unwrap().total, number);
                    }
                });
            }
            let mut executor = Executor::default();
            for _ in 0..40 {
                executor.spawn(async {
                    for number in 0..10 {
                        let reply = peer.call_async_within(&Echo { number }, LONG).await;
                        assert_eq!(reply.unwrap().total, number);
                    }
                });
            }
            executor.run_all();
        });
        assert!(!peer.session().is_room_awaited());
    }
}

/// Shows: calls.async-own-end
#[test]
fn tasks_that_wait_for_room_learn_that_their_node_has_ended() {
    for transport in TRANSPORTS {
        let Pair { server: _server, client, peer, received: _received } = pair(transport, "own-end", 1);
        let mut context = Context::from_waker(Waker::noop());
        let calls = &peer;
        let call = |number| async move { calls.call_async_within(&Held { number }, LONG).await };
        let mut tasks = [0, 1].map(|number| Box::pin(call(number)));
        for task in &mut tasks {
            assert!(task.as_mut().poll(&mut context).is_pending(), "{transport}");
        }
        drop(client);
        let [open, queued] = tasks.map(|mut task| match task.as_mut().poll(&mut context) {
            Poll::Ready(Err(error)) => error,
            other => panic!("{transport}: {other:?}"),
        });
        assert!(matches!(open, CallError::PeerDown { .. }), "{transport}: {open}");
        let expected =
            matches!(queued, CallError::Rejected(CallRejection::Here(SendError::NotConnected { .. })));
        assert!(expected, "{transport}: {queued}");
        assert_eq!(queued.executed(), Executed::No);
    }
}
