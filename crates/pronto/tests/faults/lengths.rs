//! Messages longer than the peer receives: the sender is refused with both lengths, and the session is not affected.

use pronto::{
    CallError, CallRejection, Class, Executed, Limits, Message, Node, Peer, Request, SendError, WaitPolicy,
};

use crate::rig::{Sum, TIMEOUT, TRANSPORTS, address, counter, shared_run};

#[derive(Message, Debug)]
#[message(name = "faults.long_control", reply = Sum)]
struct LongControl {
    bytes: Vec<u8>,
}

#[derive(Message, Debug)]
#[message(name = "faults.long_bulk", class = bulk, reply = Sum)]
struct LongBulk {
    bytes: Vec<u8>,
}

/// A request whose inline handler sends a message that is too long back to its caller.
#[derive(Message, Debug)]
#[message(name = "faults.send_back", reply = Sum)]
struct SendBack {}

/// Length of the number of items before the bytes.
const COUNT: usize = 4;
/// Longest payloads that the callee receives, by class.
const MOST: [u32; 2] = [4 << 10, 12 << 10];

/// Asserts that one byte more than the limit is refused by every way to send, and that the limit itself is sent.
fn assert_limit<M: Request<Reply = Sum>>(peer: &Peer, class: Class, message: impl Fn(usize) -> M) {
    let most = MOST[class.index()] as usize;
    let too_long = message(most + 1 - COUNT);
    let refused = [
        peer.call(&too_long).map(drop),
        peer.start(&too_long).map(drop),
        peer.notify(&too_long),
        peer.notify_within(&too_long, TIMEOUT),
    ];
    for outcome in refused {
        let error = outcome.unwrap_err();
        assert_eq!((error.executed(), error.is_retryable()), (Executed::No, false), "{error:?}");
        let expected =
            CallError::Rejected(CallRejection::Here(SendError::TooLong { len: most + 1, max: most }));
        assert_eq!(format!("{error:?}"), format!("{expected:?}"));
    }
    assert_eq!(peer.call(&message(most - COUNT)).unwrap().total, (most - COUNT) as u64);
}

#[test]
fn a_message_longer_than_the_peer_receives_is_refused_by_its_sender() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let limits = Limits { max_payload: MOST, ..Limits::default() };
        let callee = Node::builder(1)
            .wait(WaitPolicy::Block)
            .limits(limits)
            .listen(&address(transport, "lengths"))
            .handle_inline(|_, long: LongControl| Sum { total: long.bytes.len() as u64 })
            .handle_inline(|_, long: LongBulk| Sum { total: long.bytes.len() as u64 })
            .start()
            .unwrap();
        let listening = callee.listening()[0].to_string();
        let caller = Node::builder(2)
            .wait(WaitPolicy::Block)
            .peer(1, &listening)
            .handle_inline(|context, _: SendBack| {
                // This thread holds the engine, so that another turn would post the message.
                let sent = context.try_notify(&LongControl { bytes: vec![5; MOST[0] as usize] });
                let is_refused =
                    matches!(sent, Err(CallError::Rejected(CallRejection::Here(SendError::TooLong { .. }))));
                Sum { total: is_refused.into() }
            })
            .start()
            .unwrap();
        let peer = caller.wait_for_peer(1, TIMEOUT).unwrap();
        assert_limit(&peer, Class::Control, |len| LongControl { bytes: vec![5; len] });
        assert_limit(&peer, Class::Bulk, |len| LongBulk { bytes: vec![5; len] });
        let back = callee.wait_for_peer(2, TIMEOUT).unwrap();
        assert_eq!(back.call(&SendBack {}).unwrap().total, 1, "{transport}: it was not refused");
        for (node, other) in [(&caller, 1), (&callee, 2)] {
            assert_eq!(counter(node, other, "links_lost"), 0, "{transport}");
        }
    }
}
