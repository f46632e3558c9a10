//! What is sent again when a peer goes away: idempotent requests, and nothing else.

use core::time::Duration;
use std::sync::{Arc, Barrier};

use pronto::{CallError, Message, Node, WaitPolicy};

#[derive(Message, Debug)]
#[message(name = "test.life")]
struct Life {
    which: u32,
}

#[derive(Message, Debug)]
#[message(name = "test.ask", reply = Life, idempotent)]
struct Ask {}

#[derive(Message, Debug)]
#[message(name = "test.act", reply = Life)]
struct Act {}

const SOON: Duration = Duration::from_secs(10);

/// A node whose first life never answers, and whose second one does.
fn life(which: u32, address: &str, taken: &Arc<Barrier>) -> Node {
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
                responder.reply(&Life { which });
            }
        })
        .handle_deferred(move |_, _: Act, responder| {
            if which == 1 {
                hold_act.lock().expect("no holder panics").push(responder);
                act.wait();
            } else {
                responder.reply(&Life { which });
            }
        })
        .start()
        .expect("it starts")
}

#[test]
fn idempotent_requests_survive_a_peers_death_and_others_do_not() {
    let address = format!("shm:@pronto-retry-{}", std::process::id());
    let taken = Arc::new(Barrier::new(2));
    let first = life(1, &address, &taken);
    let client = Node::builder(2).wait(WaitPolicy::Block).peer(1, &address).start().expect("it starts");
    let peer = client.wait_for_peer(1, SOON).expect("it comes up");

    let asker = {
        let peer = peer.clone();
        std::thread::spawn(move || peer.call_within(&Ask {}, SOON))
    };
    taken.wait();
    let actor = {
        let peer = peer.clone();
        std::thread::spawn(move || peer.call_within(&Act {}, SOON))
    };
    taken.wait();
    drop(first);
    let acted = actor.join().expect("it ends");
    assert!(matches!(acted, Err(CallError::PeerDown { .. })), "{acted:?}");
    let _second = life(2, &address, &taken);
    let asked = asker.join().expect("it ends").expect("the next life answers");
    assert_eq!(asked.which, 2);
}
