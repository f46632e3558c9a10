//! A full socket while all threads sleep: the backlog is sent as soon as there is room.

use core::time::Duration;

use pronto::{Class, Message, Node, WaitPolicy};
use pronto_core::Nanos;
use pronto_core::session::Limits;
use pronto_sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use crate::proxy::Proxy;
use crate::rig::{TIMEOUT, Watch, counter, pause, shared_run, until};

#[derive(Message, Debug)]
#[message(name = "faults.load", class = bulk)]
struct Load {
    bytes: Vec<u8>,
}

/// Time limit, far below the tick interval of a quiet node whose heartbeats are as rare as here.
const WITHIN: Duration = Duration::from_secs(5);

#[test]
fn the_backlog_of_a_full_socket_is_sent_while_all_threads_sleep() {
    let _shared = shared_run();
    let hour = Nanos::from_secs(3600);
    let limits = Limits::default().with_liveness(Some(hour), Some(hour));
    let arrived = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&arrived);
    let node = Node::builder(1)
        .wait(WaitPolicy::Block)
        .limits(limits)
        .listen("tcp:127.0.0.1:0")
        .on(move |_, load: Load| {
            count.fetch_add(load.bytes.len() as u64, Ordering::Relaxed);
        })
        .start()
        .unwrap();
    let wire = Proxy::to(&node.listening()[0].to_string());
    let caller =
        Node::builder(2).wait(WaitPolicy::Block).limits(limits).peer(1, &wire.address()).start().unwrap();
    let peer = caller.wait_for_peer(1, TIMEOUT).unwrap();
    // Waits until the ticks that follow a new link are over.
    pause(Duration::from_millis(100));
    let len = 7 << 19;
    assert!(len < limits.max_payload[Class::Bulk.index()] as usize);
    wire.go_silent();
    let eager = wire.bytes();
    peer.notify(&Load { bytes: vec![3; len] }).unwrap();
    pause(Duration::from_millis(100));
    assert!(wire.bytes() < eager + len, "the socket must be full");
    wire.recover();
    let watch = Watch::start();
    until("the message arrives", || arrived.load(Ordering::Relaxed) == len as u64);
    assert!(watch.passed() < WITHIN, "{:?}", watch.passed());
    assert_eq!(counter(&caller, 1, "links_lost"), 0);
}
