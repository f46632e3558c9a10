//! A peer whose replies are not encodings of the reply's type: each such call fails as executed, and the session stays up.

use core::future::Future;
use core::task::{Context, Poll, Waker};
use std::sync::Arc;
use std::task::Wake;

use pronto::{CallError, Class, Executed, Peer, WaitPolicy};
use pronto_wire::Kind;

use crate::raw::Raw;
use crate::rig::{Add, TIMEOUT, TRANSPORTS, add, client, counter, shared_run, started, until};

struct Ignored;

impl Wake for Ignored {
    fn wake(self: Arc<Self>) {}
}

type Outcome = Result<u64, CallError>;
type Call = fn(&Peer) -> Outcome;

/// Every way to get the reply to a call.
fn ways() -> [(&'static str, Call); 4] {
    [
        ("call", |peer| peer.call(&Add { values: vec![1, 2] }).map(|sum| sum.total)),
        ("spinning call", |peer| {
            peer.waiting(WaitPolicy::Spin).call(&Add { values: vec![1, 2] }).map(|sum| sum.total)
        }),
        ("wait", |peer| peer.start(&Add { values: vec![1, 2] })?.wait().map(|sum| sum.total)),
        ("await", |peer| {
            let mut call = peer.start(&Add { values: vec![1, 2] })?;
            let waker = Waker::from(Arc::new(Ignored));
            let mut ended = None;
            until("the call ends", || {
                let poll = core::pin::Pin::new(&mut call).poll(&mut Context::from_waker(&waker));
                if let Poll::Ready(outcome) = poll {
                    ended = Some(outcome);
                }
                ended.is_some()
            });
            ended.unwrap().map(|sum| sum.total)
        }),
    ]
}

/// Shows: calls.pending, calls.ends-malformed
#[test]
fn a_malformed_reply_fails_its_own_call_as_executed() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let (node, address) = started(1, transport, "malformed");
        let (_good, good) = client(2, &address);
        let mut raw = Raw::greet(9, &address);
        let peer = node.wait_for_peer(9, TIMEOUT).unwrap();
        // A number has eight bytes. These replies are in the line, next to it, and in send memory.
        for len in [0, 7, 9, 41, 100, 1_000] {
            for (way, call) in ways() {
                let to_peer = peer.clone();
                let called = std::thread::spawn(move || call(&to_peer));
                let (header, _) = raw.receive(Class::Control);
                let Kind::Request { call, .. } = header.kind else { panic!("{header:?}") };
                raw.post(Class::Control, Kind::Reply { call }, &vec![1; len]).unwrap();
                let outcome = called.join().unwrap();
                let Err(error @ CallError::MalformedReply(_)) = &outcome else {
                    panic!("{transport}, {way}, {len} bytes: {outcome:?}")
                };
                assert_eq!((error.executed(), error.is_retryable()), (Executed::Yes, false));
            }
        }
        // The session of the peer goes on.
        raw.assert_works();
        assert!(peer.is_up());
        assert_eq!(counter(&node, 9, "corrupt_peers"), 0);
        add(&good);
    }
}
