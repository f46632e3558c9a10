//! A socket that is full while everybody sleeps: what waits for room goes out as soon as there is some.

use core::time::Duration;

use pronto::{Class, Message, Node, WaitPolicy};
use pronto_core::Nanos;
use pronto_core::session::Limits;
use pronto_sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use crate::proxy::Proxy;
use crate::rig::{SOON, Watch, beside_others, counter, lasts, until};

#[derive(Message, Debug)]
#[message(name = "faults.load", class = bulk)]
struct Load {
    bytes: Vec<u8>,
}

/// Far less than the time between two ticks of a quiet node whose heartbeats are as rare as here.
const MEANWHILE: Duration = Duration::from_secs(5);

#[test]
fn what_a_full_socket_left_goes_out_while_everybody_sleeps() {
    let _beside = beside_others();
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
    let peer = caller.wait_for_peer(1, SOON).unwrap();
    // Long enough for the ticks that a new link brings to be over.
    lasts(Duration::from_millis(100));
    let len = 7 << 19;
    assert!(len < limits.max_payload[Class::Bulk.index()] as usize);
    wire.goes_dead();
    let eager = wire.bytes();
    peer.notify(&Load { bytes: vec![3; len] }).unwrap();
    lasts(Duration::from_millis(100));
    assert!(wire.bytes() < eager + len, "the socket was full");
    wire.recovers();
    let watch = Watch::start();
    until("it arrives", || arrived.load(Ordering::Relaxed) == len as u64);
    assert!(watch.passed() < MEANWHILE, "{:?}", watch.passed());
    assert_eq!(counter(&caller, 1, "links_lost"), 0);
}
