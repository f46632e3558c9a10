//! Messages longer than the peer receives: the sender is refused with both lengths, and a call whose reply is too long fails. Neither
//! affects the session.

use pronto::{
    CallError, CallRejection, Class, Executed, FailureCode, Limits, Message, Node, Peer, Request, SendError,
    WaitPolicy,
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
const COUNT: u32 = 4;
/// Longest payloads that the callee receives, by class.
const MOST: [u32; 2] = [4 << 10, 12 << 10];

/// Asserts that one byte more than the limit is refused by every way to send, and that the limit itself is sent.
fn assert_limit<M: Request<Reply = Sum>>(peer: &Peer, class: Class, message: impl Fn(usize) -> M) {
    let most = MOST[class.index()] as usize;
    let too_long = message(most + 1 - COUNT as usize);
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
    assert_eq!(
        peer.call(&message(most - COUNT as usize)).unwrap().total,
        u64::from(MOST[class.index()] - COUNT)
    );
}

/// Shows: calls.ends-rejected, calls.too-long, messages.max-payload
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

/// A request for a reply of `len` bytes in the control class.
#[derive(Message, Debug)]
#[message(name = "faults.long_reply", reply = LongReply)]
struct AskControl {
    len: u32,
}

#[derive(Message, Debug)]
#[message(name = "faults.long_reply.reply")]
struct LongReply {
    bytes: Vec<u8>,
}

/// A request for a reply of `len` bytes in the bulk class.
#[derive(Message, Debug)]
#[message(name = "faults.long_page", reply = LongPage)]
struct AskBulk {
    len: u32,
}

#[derive(Message, Debug)]
#[message(name = "faults.long_page.reply", class = bulk)]
struct LongPage {
    bytes: Vec<u8>,
}

/// Asserts that a reply of the limit arrives, and that one byte more ends the call with a failure which says that the handler ran.
fn assert_reply_limit<M: Request>(
    peer: &Peer,
    class: Class,
    request: impl Fn(u32) -> M,
    len_of: impl Fn(M::Reply) -> usize,
) {
    let most = MOST[class.index()] - COUNT;
    assert_eq!(len_of(peer.call(&request(most)).unwrap()), most as usize);
    let error = peer.call(&request(most + 1)).map(drop).unwrap_err();
    assert!(matches!(error, CallError::NoReply(FailureCode::ReplyTooLarge)), "{error:?}");
    assert_eq!(error.executed(), Executed::Yes);
    assert_eq!(len_of(peer.call(&request(most)).unwrap()), most as usize, "the session was affected");
}

/// Shows: calls.ends-no-reply
#[test]
fn a_reply_longer_than_the_caller_receives_fails_its_call_only() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        for pooled in [false, true] {
            let callee = Node::builder(1).wait(WaitPolicy::Block).listen(&address(transport, "replies"));
            let control = |ask: AskControl| LongReply { bytes: vec![6; ask.len as usize] };
            let bulk = |ask: AskBulk| LongPage { bytes: vec![7; ask.len as usize] };
            let callee = if pooled {
                callee.handle(move |_, ask| control(ask)).handle(move |_, ask| bulk(ask))
            } else {
                callee.handle_inline(move |_, ask| control(ask)).handle_inline(move |_, ask| bulk(ask))
            };
            let callee = callee.start().unwrap();
            let listening = callee.listening()[0].to_string();
            let limits = Limits { max_payload: MOST, ..Limits::default() };
            let caller =
                Node::builder(2).wait(WaitPolicy::Block).limits(limits).peer(1, &listening).start().unwrap();
            let peer = caller.wait_for_peer(1, TIMEOUT).unwrap();
            assert_reply_limit(
                &peer,
                Class::Control,
                |len| AskControl { len },
                |reply: LongReply| reply.bytes.len(),
            );
            assert_reply_limit(
                &peer,
                Class::Bulk,
                |len| AskBulk { len },
                |reply: LongPage| reply.bytes.len(),
            );
            for (node, other) in [(&caller, 1), (&callee, 2)] {
                assert_eq!(counter(node, other, "links_lost"), 0, "{transport}, pooled {pooled}");
                assert_eq!(counter(node, other, "replies_lost"), 0, "{transport}, pooled {pooled}");
            }
        }
    }
}
