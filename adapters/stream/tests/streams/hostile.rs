//! Peers that break the protocol, by messages of their own.

use core::time::Duration;
use std::io::ErrorKind;
use std::sync::mpsc::{Receiver, channel};

use pronto::{Bytes, Message, Node, Payload, Peer, WaitPolicy};
use pronto_stream::{Listener, PeerStream, StreamError, StreamLimits, Streams};
use tokio::io::AsyncReadExt;

use crate::rig::{PATIENCE, run};

#[derive(Payload, Clone, Copy, Debug, PartialEq)]
enum Side {
    Opener,
    Acceptor,
}

#[derive(Payload, Clone, Copy, Debug, PartialEq)]
struct StreamId {
    number: u64,
    sender: Side,
}

#[derive(Message, Debug)]
#[message(name = "pronto.stream.open", reply = Opened, class = bulk)]
struct Open {
    number: u64,
    service: String,
    window: u32,
}

#[derive(Message, Debug)]
#[message(name = "pronto.stream.opened", class = bulk)]
struct Opened {
    window: u32,
}

#[derive(Message, Debug)]
#[message(name = "pronto.stream.data", class = bulk)]
struct Data {
    stream: StreamId,
    offset: u64,
    bytes: Bytes,
}

#[derive(Message, Debug)]
#[message(name = "pronto.stream.reset", class = bulk)]
struct Reset {
    stream: StreamId,
}

const WINDOW: u32 = 10_000;

/// A server, and a node without streams that speaks their protocol.
struct Rig {
    listener: Listener,
    _nodes: [Node; 2],
    peer: Peer,
    resets: Receiver<StreamId>,
}

impl Rig {
    fn new(name: &str) -> Self {
        let address = format!("shm:@pronto-streams-{name}-{}", std::process::id());
        let streams =
            Streams::new(StreamLimits { window: WINDOW, streams_per_peer: 3, ..StreamLimits::default() });
        let listener = streams.listen("test").expect("the name is free");
        let server = Node::builder(1).wait(WaitPolicy::Block).listen(&address);
        let server = streams.start(server).expect("the server starts");
        let (sender, resets) = channel();
        let hostile = Node::builder(2)
            .wait(WaitPolicy::Block)
            .peer(1, &address)
            .on_inline(move |_, reset: Reset| {
                let _received = sender.send(reset.stream);
            })
            .start()
            .expect("the hostile node starts");
        let peer = hostile.wait_for_peer(1, PATIENCE).expect("the nodes connect");
        Self { listener, _nodes: [server, hostile], peer, resets }
    }

    async fn open(&mut self, number: u64) -> PeerStream {
        let opened = self.peer.call(&Open { number, service: "test".into(), window: 1 });
        assert_eq!(opened.expect("the stream opens").window, WINDOW);
        self.listener.accept().await
    }

    fn send(&self, number: u64, offset: u64, len: u32) {
        let stream = StreamId { number, sender: Side::Opener };
        let bytes = Bytes::from(vec![3; len as usize]);
        self.peer.notify_within(&Data { stream, offset, bytes }, PATIENCE).expect("there is room");
    }

    fn next_reset(&self) -> StreamId {
        self.resets.recv_timeout(PATIENCE).expect("the stream is reset")
    }
}

async fn end_of(stream: &mut PeerStream) -> (ErrorKind, Option<StreamError>) {
    let mut got = Vec::new();
    let error = stream.read_to_end(&mut got).await.expect_err("the stream is broken");
    (error.kind(), error.get_ref().and_then(|inner| inner.downcast_ref::<StreamError>()).cloned())
}

/// Shows: adapters.stream-hostile
#[test]
fn a_peer_that_ignores_the_window_loses_that_stream_only() {
    run(async {
        let mut rig = Rig::new("hostile-window");
        let (mut stream, mut other) = (rig.open(1).await, rig.open(2).await);
        rig.send(1, 0, WINDOW);
        rig.send(1, WINDOW.into(), 1);
        assert_eq!(rig.next_reset(), StreamId { number: 1, sender: Side::Acceptor });
        let exceeded = StreamError::WindowExceeded { sent: 10_001, granted: 10_000 };
        assert_eq!(end_of(&mut stream).await, (ErrorKind::InvalidData, Some(exceeded)));
        rig.send(2, 0, 1);
        assert_eq!(other.read_u8().await.expect("the other stream is open"), 3);
    });
}

#[test]
fn a_lost_a_repeated_and_an_empty_piece_end_the_stream() {
    run(async {
        for (number, offset, len) in [(1, 11, 5), (2, 9, 5), (3, 10, 0)] {
            let mut rig = Rig::new("hostile-offset");
            let mut stream = rig.open(number).await;
            rig.send(number, 0, 10);
            rig.send(number, offset, len);
            let reason = StreamError::OutOfSequence { offset, expected: 10 };
            assert_eq!(end_of(&mut stream).await, (ErrorKind::InvalidData, Some(reason)));
            assert_eq!(rig.next_reset().number, number);
        }
    });
}

#[test]
fn unknown_streams_are_reset_and_a_cancelled_one_is_not_opened() {
    run(async {
        let mut rig = Rig::new("hostile-unknown");
        rig.send(7, 0, 5);
        assert_eq!(rig.next_reset(), StreamId { number: 7, sender: Side::Acceptor });
        // The reset of a stream may pass the request to open it.
        let reset = Reset { stream: StreamId { number: 8, sender: Side::Opener } };
        rig.peer.notify_within(&reset, PATIENCE).expect("there is room");
        let open = |number| Open { number, service: "test".into(), window: 1 };
        assert!(rig.peer.call(&open(8)).is_err(), "the stream was cancelled");
        let streams = [rig.open(1).await, rig.open(2).await, rig.open(3).await];
        assert!(rig.peer.call(&open(4)).is_err(), "the limit of streams per peer");
        assert!(rig.peer.call_within(&open(1), Duration::from_secs(60)).is_err(), "the number is in use");
        drop(streams);
        drop(rig.open(5).await);
    });
}
