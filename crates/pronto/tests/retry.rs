//! When a peer goes away, idempotent requests are sent again, and no others.

use core::time::Duration;
use std::sync::{Arc, Barrier};

use pronto::{CallError, Message, Node, WaitPolicy};

#[derive(Message, Debug)]
#[message(name = "test.life")]
struct Incarnation {
    which: u32,
}

#[derive(Message, Debug)]
#[message(name = "test.ask", reply = Incarnation, idempotent)]
struct Ask {}

#[derive(Message, Debug)]
#[message(name = "test.act", reply = Incarnation)]
struct Act {}

const TIMEOUT: Duration = Duration::from_secs(10);

/// Starts incarnation `which` of a node. The first incarnation never replies; the second one does.
fn incarnation(which: u32, address: &str, taken: &Arc<Barrier>) -> Node {
    let (ask, act) = (Arc::clone(taken), Arc::clone(taken));
    let hold = std::sync::Mutex::new(Vec::new());
    let hold_act = std::sync::Mutex::new(Vec::new());
    Node::builder(1)
        .wait(WaitPolicy::Block)
        .listen(address)
        .handle_deferred(move |_, _: Ask, responder| {
            if which == 1 {
                hold.lock().expect("no holder panics").push(responder);
                ask.wait();
            } else {
                responder.reply(&Incarnation { which });
            }
        })
        .handle_deferred(move |_, _: Act, responder| {
            if which == 1 {
                hold_act.lock().expect("no holder panics").push(responder);
                act.wait();
            } else {
                responder.reply(&Incarnation { which });
            }
        })
        .start()
        .expect("the node starts")
}

/// Shows: messages.idempotent
#[test]
fn only_idempotent_requests_survive_the_end_of_a_peer() {
    let address = format!("shm:@pronto-retry-{}", std::process::id());
    let taken = Arc::new(Barrier::new(2));
    let first = incarnation(1, &address, &taken);
    let client = Node::builder(2).wait(WaitPolicy::Block).peer(1, &address).start().expect("the node starts");
    let peer = client.wait_for_peer(1, TIMEOUT).expect("the peer connects");

    let asker = {
        let peer = peer.clone();
        std::thread::spawn(move || peer.call_within(&Ask {}, TIMEOUT))
    };
    taken.wait();
    let actor = {
        let peer = peer.clone();
        std::thread::spawn(move || peer.call_within(&Act {}, TIMEOUT))
    };
    taken.wait();
    drop(first);
    let acted = actor.join().expect("the thread ends");
    assert!(matches!(acted, Err(CallError::PeerDown { .. })), "{acted:?}");
    let _second = incarnation(2, &address, &taken);
    let asked = asker.join().expect("the thread ends").expect("the second incarnation replies");
    assert_eq!(asked.which, 2);
}
