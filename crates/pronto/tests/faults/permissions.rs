//! Peers that use message types which they may not use.

use pronto::admin::StatusRequest;
use pronto::{
    CallError, CallRejection, Executed, FailureCode, Message, Node, Peer, TransferError, WaitPolicy, region,
};

use crate::rig::{
    Add, Fetch, Sum, TIMEOUT, TRANSPORTS, Work, add, address, client, counter, server, shared_run, started,
    until,
};

#[derive(Message, Debug)]
#[message(name = "faults.sent_number")]
struct SentNumber {
    number: u64,
}

/// Calls with a request, which must be refused before its handler runs.
fn is_refused<R: core::fmt::Debug>(called: Result<R, CallError>) {
    match called {
        Err(error @ CallError::Rejected(CallRejection::There(FailureCode::NotPermitted))) => {
            assert_eq!((error.executed(), error.is_retryable()), (Executed::No, false));
            assert!(error.to_string().contains("[[allow]]"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

fn refusals(node: &Node, peer: u16) -> u64 {
    counter(node, peer, "not_permitted")
}

/// Sends a message that is long enough to go by reference, or is eager.
fn sends(peer: &Peer, len: u64) -> Result<(), TransferError> {
    let memory = region(1 << 20).unwrap();
    peer.send(7, &memory, 0..len, TIMEOUT)
}

/// Shows: operations.allow, operations.allow-refused, operations.allow-refused-count
#[test]
fn a_peer_uses_the_types_that_a_rule_names_for_it() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let (numbers, arrived) = std::sync::mpsc::channel();
        let node = server(1, &address(transport, "permissions"))
            .on(move |_, message: SentNumber| numbers.send(message.number).unwrap())
            .allow(&["node:2"], &["faults.*"])
            .allow(&["node:3"], &["faults.add"])
            .start()
            .unwrap();
        let address = node.listening()[0].to_string();
        let (_two, trusted) = client(2, &address);
        let (_three, other) = client(3, &address);
        let (_four, stranger) = client(4, &address);
        // Handlers on the polling thread, and on the pool with short and long replies.
        add(&trusted);
        add(&other);
        is_refused(stranger.call(&Add { values: vec![1] }));
        is_refused(stranger.call(&Add { values: vec![1; 1000] }));
        for (key, peer) in [&other, &stranger].into_iter().enumerate() {
            is_refused(peer.call(&Work { key: key as u64 }));
            is_refused(peer.call(&Fetch { len: 5_000 }));
        }
        assert_eq!([2, 3, 4].map(|peer| refusals(&node, peer)), [0, 2, 4], "{transport}");
        // The first execution of these keys, so the refused calls ran no handler.
        for key in [0, 1] {
            assert_eq!(trusted.call(&Work { key }).unwrap().total, 1);
        }
        other.notify(&SentNumber { number: 3 }).unwrap();
        trusted.notify(&SentNumber { number: 2 }).unwrap();
        assert_eq!(arrived.recv_timeout(TIMEOUT), Ok(2));
        until("the notification is refused", || refusals(&node, 3) == 3);
        assert!(arrived.try_recv().is_err(), "a refused notification reached its handler");
    }
}

/// Shows: operations.allow-reload
#[test]
fn new_rules_hold_for_peers_that_are_linked() {
    let _shared = shared_run();
    let (node, address) = started(1, "tcp", "reload");
    let (_two, peer) = client(2, &address);
    let rules = |rules: &str| pronto::Config::parse(&format!("node = 1\n{rules}")).unwrap();
    add(&peer);
    node.reload(&rules("[[allow]]\nwho = [\"node:2\"]\ntypes = [\"faults.work\"]")).unwrap();
    is_refused(peer.call(&Add { values: vec![1] }));
    assert_eq!(peer.call(&Work { key: 0 }).unwrap().total, 1);
    let error = node.reload(&rules("")).unwrap_err().to_string();
    assert!(error.contains("almost everything would be permitted"), "{error}");
    is_refused(peer.call(&Add { values: vec![1] }));
    node.reload(&rules("[[allow]]\nwho = [\"anyone\"]\ntypes = [\"*\"]")).unwrap();
    add(&peer);
    let tls = "[trust]\nmode = \"tls\"\ncertificate = \"/c\"\nkey = \"/k\"\nauthorities = \"/a\"";
    let error = node.reload(&rules(tls)).unwrap_err().to_string();
    assert!(error.contains("restart the node"), "{error}");
}

/// The node with the rules has dialled, and its handler is async.
///
/// Shows: operations.allow
#[test]
fn rules_apply_to_dialled_links_and_async_handlers() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let peers = [2, 3].map(|id| {
            let node = server(id, &address(transport, &format!("dialled-{id}"))).start().unwrap();
            let address = node.listening()[0].to_string();
            (node, address)
        });
        let [(two, at_two), (three, at_three)] = &peers;
        let node = Node::builder(1)
            .wait(WaitPolicy::Block)
            .peer(2, at_two)
            .peer(3, at_three)
            .handle_async(|_, add: Add| async move { Sum { total: add.values.iter().sum() } })
            .allow(&["node:2"], &["*"])
            .start()
            .unwrap();
        add(&two.wait_for_peer(1, TIMEOUT).unwrap());
        is_refused(three.wait_for_peer(1, TIMEOUT).unwrap().call(&Add { values: vec![1] }));
        assert_eq!([2, 3].map(|peer| refusals(&node, peer)), [0, 1]);
        // A waiting caller receives the messages of the peer, too.
        let peer = node.peer(3).unwrap();
        for key in 0..50 {
            let pending = three.peer(1).unwrap().start(&Add { values: vec![1] }).unwrap();
            assert_eq!(peer.call(&Work { key }).unwrap().total, 1);
            is_refused(pending.wait());
        }
    }
}

/// Shows: operations.allow-own
#[test]
fn the_types_of_the_node_itself_have_to_be_named() {
    let _shared = shared_run();
    let node = server(1, &address("shm", "own-types"))
        .listen("tcp:127.0.0.1:0")
        .allow(&["anyone"], &["*"])
        .allow(&["node:3"], &["pronto.status", "pronto.rendezvous.*"])
        .start()
        .unwrap();
    let [shm, tcp] = [0, 1].map(|at| node.listening()[at].to_string());
    let (_two, anyone) = client(2, &tcp);
    let (_three, named) = client(3, &tcp);
    let (_four, same_user) = client(4, &shm);
    [&anyone, &named, &same_user].into_iter().for_each(add);
    is_refused(anyone.call(&StatusRequest {}));
    named.call(&StatusRequest {}).unwrap();
    same_user.call(&StatusRequest {}).unwrap();
    for len in [100, 1 << 20] {
        let refused = sends(&anyone, len).unwrap_err();
        let why = CallRejection::There(FailureCode::NotPermitted);
        assert!(matches!(&refused, TransferError::Rejected(found) if *found == why), "{len}: {refused}");
    }
    assert_eq!(refusals(&node, 2), 3);
    // A permitted message finds its receive.
    let memory = node.region(1 << 20).unwrap();
    for (id, peer) in [(3, &named), (4, &same_user)] {
        let mut receive = node.peer(id).unwrap().post(7, &memory, 0..1 << 20).unwrap();
        sends(peer, 1 << 20).unwrap();
        assert_eq!(receive.wait(TIMEOUT).unwrap(), 1 << 20);
    }
}

/// Shows: operations.allow-checked
#[test]
fn a_wrong_rule_is_an_error_at_the_start() {
    let _shared = shared_run();
    for (who, types, says) in [
        ("node:x", "*", "names no peer"),
        ("anyone", "a*b", "names no message types"),
        ("role:", "*", "names no peer"),
    ] {
        let error = Node::builder(1).wait(WaitPolicy::Block).allow(&[who], &[types]).start().unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
}
