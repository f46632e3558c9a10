//! Requests that wait for room on a resumed link were carried, and executed, on the link before it.

use core::pin::Pin;
use core::task::{Context, Waker};
use std::fs::File;
use std::sync::{Arc, Mutex};
use std::task::Wake;

use nix::sys::memfd::{MFdFlags, memfd_create};
use pronto::{CallError, Event, Executed, Node, Pending, WaitPolicy};

use super::books::RECORD;
use super::server::{Crossed, CrossedReceipt, Entry, React, Windows};
use super::start_server;
use crate::proxy::Proxy;
use crate::rig::{SOON, assert_all_back, beside_others, event, free_address, until};

/// Calls that are executed and not answered.
const CALLS: u64 = 6;
/// Bytes of each reply, and bytes that the wire carries of a connection: no reply is among them, and every credit is.
const REPLY: u32 = 1 << 20;
const CARRIED: usize = 256 << 10;

/// A call whose end is taken as soon as it is published, as a waiting thread on another CPU may take it: a second end would then
/// meet a slot that is free, or is another call's.
struct Open {
    pending: Mutex<Option<Pending<Crossed>>>,
    end: Mutex<Option<Result<CrossedReceipt, CallError>>>,
}

impl Open {
    fn awaiting(mut pending: Pending<Crossed>) -> Arc<Self> {
        let open = Arc::new(Self { pending: Mutex::default(), end: Mutex::default() });
        let waker = Waker::from(Arc::clone(&open));
        let polled = Future::poll(Pin::new(&mut pending), &mut Context::from_waker(&waker));
        assert!(polled.is_pending(), "no reply passes the wire");
        *open.pending.lock().unwrap() = Some(pending);
        open
    }
}

impl Wake for Open {
    fn wake(self: Arc<Self>) {
        let mut pending = self.pending.lock().unwrap().take().expect("woken after it was polled");
        let end = pending.poll().expect("woken when it has ended");
        assert!(self.end.lock().unwrap().replace(end).is_none(), "a call ends once");
    }
}

/// More calls are executed than the next link has credits for: their replies, of the other class, are longer on their way than their
/// credits. That link goes silent before it returns a credit, so that the session ends while some requests still wait to be sent again.
#[test]
fn requests_that_wait_to_be_sent_again_may_have_been_executed() {
    let _beside = beside_others();
    let log = File::from(memfd_create("pronto-ledger-again", MFdFlags::MFD_CLOEXEC).unwrap());
    let listen = free_address();
    let _server = start_server(&listen, &log, Windows::Full);
    let wire = Proxy::to(&listen);
    wire.holds_back_beyond(CARRIED);
    let limits = Windows::Full.limits();
    assert!(u64::from(limits.requests[0]) < CALLS, "some requests must wait for a credit");
    let builder = Node::builder(2).wait(WaitPolicy::Block).limits(limits);
    let node = builder.peer(1, &wire.address()).start().unwrap();
    let peer = node.wait_for_peer(1, SOON).unwrap();
    let events = node.events();
    let entry = |id| Entry { id, react: React::Reply, takes: 0, reply: REPLY, body: Vec::new() };
    let mut open = Vec::new();
    until("all calls are taken", || {
        open.extend(peer.start(&Crossed { entry: entry(open.len() as u64) }).ok().map(Open::awaiting));
        open.len() as u64 == CALLS
    });
    until("all calls are executed", || log.metadata().unwrap().len() == CALLS * RECORD as u64);
    wire.dies_when_ready();
    assert!(wire.cut() > 0);
    event(&events, SOON, |event| matches!(event, Event::LinkResumed { .. }));
    assert!(wire.has_failed(), "the wire is dead");
    until("all calls have ended", || open.iter().all(|open| open.end.lock().unwrap().is_some()));
    let ends: Vec<_> = open.iter().filter_map(|open| open.end.lock().unwrap().take()).collect();
    wire.recovers();
    let is_down = |end: &Result<_, _>| matches!(end, Err(CallError::PeerDown { .. }));
    assert!(ends.iter().all(is_down), "no call is answered: {ends:?}");
    assert!(
        !ends.iter().flat_map(|end| end.as_ref().err()).any(|error| error.executed() == Executed::No),
        "the log has all calls, and an end claims that one was not executed: {ends:?}"
    );
    event(&events, SOON, |event| matches!(event, Event::PeerDown { .. }));
    // The serving thread lives, and all slots are back.
    event(&events, SOON, |event| matches!(event, Event::PeerUp(_)));
    assert_all_back(&node, &peer);
}
