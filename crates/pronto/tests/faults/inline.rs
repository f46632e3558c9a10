//! Inline handlers that use handles from outside their context: no operation blocks the thread, which holds the engine lock.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Wake;

use pronto::{GrantError, Message, Node, Peer, Pending, Receive, Rights};
use pronto_sync::atomic::{AtomicU32, Ordering};

use crate::rig::{Add, Sum, TIMEOUT, TRANSPORTS, add, address, client, server, shared_run, until};

#[derive(Message, Debug)]
#[message(name = "faults.inline", reply = Sum)]
struct Inline {
    step: u64,
}

/// Time limit for a call to an inline handler; a handler that blocks fails its test after this time.
const LIMIT: Duration = Duration::from_secs(8);
/// Tag of the rendezvous message.
const TAG: u64 = 11;

/// A node that is leaked if its test fails: dropping it would wait for a blocked thread forever.
struct LeakOnFailure(Option<Node>);

impl core::ops::Deref for LeakOnFailure {
    type Target = Node;

    fn deref(&self) -> &Node {
        self.0.as_ref().unwrap()
    }
}

impl Drop for LeakOnFailure {
    fn drop(&mut self) {
        if std::thread::panicking() {
            core::mem::forget(self.0.take());
        }
    }
}

/// Two linked nodes. An inline handler of node 1 runs `act` with its step and with node 1's own handle of node 2.
struct Pair {
    one: LeakOnFailure,
    _two: LeakOnFailure,
    /// Node 2's handle of node 1.
    to_one: Peer,
    /// Node 1's handle of node 2, which the handler uses.
    to_two: Peer,
}

impl Pair {
    fn over(transport: &str, name: &str, act: impl Fn(u64, &Peer) -> u64 + Send + Sync + 'static) -> Self {
        Self::numbered(transport, name, [1, 2], act)
    }

    fn numbered(
        transport: &str,
        name: &str,
        [one, two]: [u16; 2],
        act: impl Fn(u64, &Peer) -> u64 + Send + Sync + 'static,
    ) -> Self {
        let handle: Arc<OnceLock<Peer>> = Arc::default();
        let outside = Arc::clone(&handle);
        let one_node = server(one, &address(transport, name))
            .handle_inline(move |_, call: Inline| Sum { total: act(call.step, outside.get().unwrap()) })
            .start()
            .unwrap();
        let listening = one_node.listening()[0].to_string();
        let two_node = Node::builder(two)
            .wait(pronto::WaitPolicy::Block)
            .peer(one, &listening)
            .handle_inline(|_, add: Add| Sum { total: add.values.iter().sum() })
            .start()
            .unwrap();
        let to_one = two_node.wait_for_peer(one, TIMEOUT).unwrap();
        let to_two = one_node.wait_for_peer(two, TIMEOUT).unwrap();
        handle.set(to_two.clone()).unwrap();
        Self { one: LeakOnFailure(Some(one_node)), _two: LeakOnFailure(Some(two_node)), to_one, to_two }
    }

    /// Calls the inline handler and returns its result.
    fn run(&self, step: u64) -> u64 {
        self.to_one.call_within(&Inline { step }, LIMIT).expect("the handler does not block").total
    }
}

/// Waker that counts its wake-ups.
#[derive(Default)]
struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn poll_once<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// Shows: embedding.inline
#[test]
fn an_inline_handler_may_poll_a_call_for_the_first_time() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let count = Arc::new(Count::default());
        let (waker, started) = (Waker::from(Arc::clone(&count)), Arc::new(Mutex::new(None::<Pending<Add>>)));
        let (polled_with, starts) = (waker.clone(), Arc::clone(&started));
        let pair = Pair::over(transport, "inline-call", move |_, peer| {
            let mut call = peer.start(&Add { values: vec![4, 5] }).unwrap();
            let waits = poll_once(&mut call, &polled_with).is_pending();
            *starts.lock().unwrap() = Some(call);
            u64::from(waits)
        });
        for round in 1..=20 {
            assert_eq!(pair.run(0), 1, "the reply cannot arrive within the handler");
            until("the future is woken", || count.0.load(Ordering::Relaxed) == round);
            let mut call = started.lock().unwrap().take().unwrap();
            let Poll::Ready(reply) = poll_once(&mut call, &waker) else {
                panic!("the future was woken and must be ready")
            };
            assert_eq!(reply.unwrap().total, 9);
        }
        assert_eq!(crate::rig::counter(&pair.one, 2, "lost_wake_ups"), 0, "a wake-up was lost");
    }
}

/// Shows: calls.post
#[test]
fn an_inline_handler_may_poll_a_receive_for_the_first_time() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let count = Arc::new(Count::default());
        let (waker, posted) = (Waker::from(Arc::clone(&count)), Arc::new(Mutex::new(None::<Receive>)));
        let (polled_with, takes) = (waker.clone(), Arc::clone(&posted));
        let pair = Pair::over(transport, "inline-receive", move |_, _| {
            let mut receive = takes.lock().unwrap();
            u64::from(poll_once(receive.as_mut().unwrap(), &polled_with).is_pending())
        });
        let (from, to) = (pronto::region(4096).unwrap(), pronto::region(4096).unwrap());
        *posted.lock().unwrap() = Some(pair.to_two.post(TAG, &to, 0..4096).unwrap());
        assert_eq!(pair.run(0), 1, "no message was sent");
        pair.to_one.send(TAG, &from, 0..100, TIMEOUT).unwrap();
        until("the future is woken", || count.0.load(Ordering::Relaxed) >= 1);
        let mut receive = posted.lock().unwrap().take().unwrap();
        let Poll::Ready(received) = poll_once(&mut receive, &waker) else {
            panic!("the future was woken and must be ready")
        };
        assert_eq!(received.unwrap(), 100);
    }
}

/// Shows: embedding.inline
#[test]
fn an_inline_handler_is_refused_operations_that_need_the_engine_lock() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let region = pronto::region(4096).unwrap();
        let granted: Arc<OnceLock<pronto::Grant>> = Arc::default();
        let (memory, grant) = (region.clone(), Arc::clone(&granted));
        let pair = Pair::over(transport, "inline-grant", move |step, peer| {
            let refused = match step {
                0 => peer.register(&memory) == Err(GrantError::WouldDeadlock),
                1 => peer.grant(&memory, 0..64, Rights::ALL).err() == Some(GrantError::WouldDeadlock),
                _ => peer.revoke(grant.get().unwrap().id) == Err(GrantError::WouldDeadlock),
            };
            u64::from(refused)
        });
        granted.set(pair.to_two.grant(&region, 0..64, Rights::ALL).unwrap()).unwrap();
        for step in 0..3 {
            assert_eq!(pair.run(step), 1, "{transport}: step {step}");
        }
        pair.to_two.revoke(granted.get().unwrap().id).expect("the grant was not revoked");
        add(&pair.to_one);
    }
}

#[test]
fn an_inline_handler_may_ask_for_the_state_of_its_node() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let pair = Pair::over(transport, "inline-status", |step, peer| match step {
            0 => {
                let status = peer.host().status();
                let known = status.peers.iter().find(|known| known.node == peer.node()).unwrap();
                let info = known.info.expect("there is a session");
                u64::from(known.linked && info.peer == peer.node())
            }
            // Without the engine lock the information is unknown; the call must not wait for it.
            1 => u64::from(peer.session().info(&**peer.host()).is_none_or(|info| info.peer == peer.node())),
            2 => u64::from(peer.session().is_linked(&**peer.host())) | 1,
            3 => u64::from(peer.session().channels(&**peer.host()).len() == 2),
            _ => u64::from(peer.session().work_in_flight(&**peer.host()) < 1_000),
        });
        for step in 0..5 {
            assert_eq!(pair.run(step), 1, "{transport}: step {step}");
        }
    }
}

/// Two inline handlers run at the same time, each under the engine lock of its own node's session, and each uses the other's session.
#[test]
fn inline_handlers_of_two_nodes_do_not_wait_for_each_other() {
    let _shared = shared_run();
    let sessions: Arc<[OnceLock<Peer>; 2]> = Arc::default();
    let calls: Arc<Mutex<Vec<Pending<Add>>>> = Arc::default();
    let meet = |own: usize, here: Sender<()>, there: Receiver<()>| {
        let (sessions, calls, there) = (Arc::clone(&sessions), Arc::clone(&calls), Mutex::new(there));
        move |step: u64, _: &Peer| {
            let other = sessions[1 - own].get().unwrap();
            // Both handlers run and hold their engine locks from here to the end of the second meeting.
            let met = || {
                here.send(()).unwrap();
                there.lock().unwrap().recv_timeout(LIMIT).is_ok()
            };
            let begun = met();
            let done = match step {
                0 => {
                    let mut call = other.start(&Add { values: vec![1] }).unwrap();
                    let waits = poll_once(&mut call, Waker::noop()).is_pending();
                    calls.lock().unwrap().push(call);
                    waits
                }
                1 => other.host().status().peers.len() == 1,
                2 => other.session().info(&**other.host()).is_none_or(|info| info.peer == other.node()),
                _ => other.grant(&pronto::region(64).unwrap(), 0..64, Rights::ALL).is_err(),
            };
            u64::from(begun && done && met())
        }
    };
    let ((to_one, at_one), (to_two, at_two)) = (channel(), channel());
    let first = Pair::numbered("shm", "inline-meet-1", [1, 2], meet(0, to_two, at_one));
    let second = Pair::numbered("shm", "inline-meet-3", [3, 4], meet(1, to_one, at_two));
    sessions[0].set(first.to_two.clone()).unwrap();
    sessions[1].set(second.to_two.clone()).unwrap();
    for step in 0..4 {
        let both = std::thread::scope(|scope| {
            let pairs = [&first, &second].map(|pair| {
                let call = move || pair.to_one.call_within(&Inline { step }, 2 * LIMIT).map(|sum| sum.total);
                scope.spawn(call)
            });
            pairs.map(|call| call.join().unwrap())
        });
        assert_eq!(both, [Ok(1), Ok(1)], "step {step}");
    }
    for call in calls.lock().unwrap().drain(..) {
        assert_eq!(call.wait().unwrap().total, 1);
    }
}

/// Waker that runs its task within the wake-up, as a small executor may: it starts another call and polls it.
struct RunsWithin {
    peer: Peer,
    next: Mutex<Option<Pending<Add>>>,
    inner: Arc<Count>,
}

impl Wake for RunsWithin {
    fn wake(self: Arc<Self>) {
        let mut call = self.peer.start(&Add { values: vec![8] }).unwrap();
        let _pending = poll_once(&mut call, &Waker::from(Arc::clone(&self.inner)));
        *self.next.lock().unwrap() = Some(call);
    }
}

#[test]
fn a_waker_may_poll_another_call() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        // The waker runs on the serving thread or on the polling thread.
        let (done, ends) = channel();
        std::thread::spawn(move || {
            wakes_and_polls(transport);
            done.send(())
        });
        ends.recv_timeout(TIMEOUT).expect("the waker does not block");
    }
}

fn wakes_and_polls(transport: &str) {
    let node = LeakOnFailure(Some(server(1, &address(transport, "inline-waker")).start().unwrap()));
    let (caller, peer) = client(2, &node.listening()[0].to_string());
    let _caller = LeakOnFailure(Some(caller));
    let inner = Arc::new(Count::default());
    let runs = RunsWithin { peer: peer.clone(), next: Mutex::default(), inner: Arc::clone(&inner) };
    let runs = Arc::new(runs);
    let mut first = peer.start(&Add { values: vec![7] }).unwrap();
    // If the reply has already arrived, no waker is woken, so another call is started.
    while poll_once(&mut first, &Waker::from(Arc::clone(&runs))).is_ready() {
        first = peer.start(&Add { values: vec![7] }).unwrap();
    }
    until("the waker has polled", || runs.next.try_lock().is_ok_and(|next| next.is_some()));
    // The lock is not held during a poll, which may wake the first call's waker once more.
    let mut next = runs.next.lock().unwrap().take().expect("the waker has polled it");
    until("the other call's waker is woken, or its reply has already arrived", || {
        inner.0.load(Ordering::Relaxed) != 0 || poll_once(&mut next, Waker::noop()).is_ready()
    });
}
