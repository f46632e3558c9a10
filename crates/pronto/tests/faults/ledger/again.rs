//! Requests that wait for room on a resumed link may have been executed on the earlier link.

use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::fs::File;
use std::sync::{Arc, Mutex};
use std::task::Wake;

use nix::sys::memfd::{MFdFlags, memfd_create};
use pronto::{CallError, Event, Executed, Node, Pending, WaitPolicy};

use super::books::RECORD;
use super::server::{Crossed, CrossedReceipt, Entry, React};
use super::start_server;
use super::windows::Windows;
use crate::proxy::Proxy;
use crate::rig::{TIMEOUT, assert_all_released, event, free_address, shared_run, until};

/// Calls that are executed and get no reply.
const CALLS: u64 = 6;
/// Bytes of each reply, and bytes that the proxy forwards of a connection: no whole reply, but every credit.
const REPLY: u32 = 1 << 20;
const CARRIED: usize = 256 << 10;

/// A call whose end is consumed as soon as it is published, as by a waiting thread on another CPU. A second end would then meet a
/// slot that is free or belongs to another call.
struct Open {
    pending: Mutex<Option<Pending<Crossed>>>,
    end: Mutex<Option<Result<CrossedReceipt, CallError>>>,
}

impl Open {
    fn awaiting(mut pending: Pending<Crossed>) -> Arc<Self> {
        let open = Arc::new(Self { pending: Mutex::default(), end: Mutex::default() });
        let waker = Waker::from(Arc::clone(&open));
        let polled = Future::poll(Pin::new(&mut pending), &mut Context::from_waker(&waker));
        assert!(polled.is_pending(), "the proxy must forward no reply");
        *open.pending.lock().unwrap() = Some(pending);
        open
    }
}

impl Wake for Open {
    fn wake(self: Arc<Self>) {
        let mut pending = self.pending.lock().unwrap();
        let open = pending.as_mut().expect("woken after it was polled");
        let waker = Waker::from(Arc::clone(&self));
        // A new link wakes all tasks, too.
        if let Poll::Ready(end) = Future::poll(Pin::new(open), &mut Context::from_waker(&waker)) {
            *pending = None;
            assert!(self.end.lock().unwrap().replace(end).is_none(), "a call must end once");
        }
    }
}

/// More calls are executed than the next link has credits for, because replies of the other class take longer than the credits. That link
/// goes silent before it returns a credit, so the session ends while some requests still wait to be sent again.
#[test]
fn requests_that_wait_to_be_sent_again_may_have_been_executed() {
    let _shared = shared_run();
    let log = File::from(memfd_create("pronto-ledger-again", MFdFlags::MFD_CLOEXEC).unwrap());
    let listen = free_address();
    let _server = start_server(&listen, &log, Windows::Full, None);
    let wire = Proxy::to(&listen);
    wire.hold_back_beyond(CARRIED);
    let limits = Windows::Full.limits();
    assert!(u64::from(limits.requests[0]) < CALLS, "some requests must wait for a credit");
    let builder = Node::builder(2).wait(WaitPolicy::Block).limits(limits);
    let node = builder.peer(1, &wire.address()).start().unwrap();
    let peer = node.wait_for_peer(1, TIMEOUT).unwrap();
    let events = node.events();
    let entry = |id| Entry { id, react: React::Reply, duration_us: 0, reply: REPLY, body: Vec::new() };
    let mut open = Vec::new();
    until("all calls are started", || {
        open.extend(peer.start(&Crossed { entry: entry(open.len() as u64) }).ok().map(Open::awaiting));
        open.len() as u64 == CALLS
    });
    until("all calls are executed", || log.metadata().unwrap().len() == CALLS * RECORD as u64);
    wire.go_silent_when_ready();
    assert!(wire.cut() > 0);
    event(&events, TIMEOUT, |event| matches!(event, Event::LinkResumed { .. }));
    assert!(wire.has_failed(), "the connection must be silent");
    until("all calls have ended", || open.iter().all(|open| open.end.lock().unwrap().is_some()));
    let ends: Vec<_> = open.iter().filter_map(|open| open.end.lock().unwrap().take()).collect();
    wire.recover();
    let is_down = |end: &Result<_, _>| matches!(end, Err(CallError::PeerDown { .. }));
    assert!(ends.iter().all(is_down), "no call must get a reply: {ends:?}");
    assert!(
        !ends.iter().flat_map(|end| end.as_ref().err()).any(|error| error.executed() == Executed::No),
        "the log contains all calls, but an end reports that its call was not executed: {ends:?}"
    );
    event(&events, TIMEOUT, |event| matches!(event, Event::PeerDown { .. }));
    // The serving thread is alive, and all call slots are free again.
    event(&events, TIMEOUT, |event| matches!(event, Event::PeerUp(_)));
    assert_all_released(&node, &peer);
}
