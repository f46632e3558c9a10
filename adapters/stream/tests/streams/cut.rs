//! Links that are cut and resumed.

use core::net::SocketAddr;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use pronto::{Node, NodeId, WaitPolicy};
use pronto_stream::{StreamError, StreamLimits, Streams};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::ends::ends_of;
use crate::rig::{PATIENCE, run};

/// A relay in front of a server, whose connections can be cut.
struct Relay {
    address: SocketAddr,
    connections: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    fn to(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the relay listens");
        let address = listener.local_addr().expect("the relay has an address");
        let connections = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&connections);
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect(&server) else { return };
                let clone = |stream: &TcpStream| stream.try_clone().expect("the socket is cloned");
                kept.lock().expect("no holder panics").extend([clone(&near), clone(&far)]);
                let (from_near, from_far) = (clone(&near), clone(&far));
                std::thread::spawn(move || copy(from_near, far));
                std::thread::spawn(move || copy(from_far, near));
            }
        });
        Self { address, connections }
    }

    fn cut(&self) {
        let connections = core::mem::take(&mut *self.connections.lock().expect("no holder panics"));
        assert!(!connections.is_empty(), "there is a link to cut");
        for connection in connections {
            let _ended = connection.shutdown(Shutdown::Both);
        }
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 4_096];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ended = to.shutdown(Shutdown::Both);
}

/// Shows: adapters.stream-link-lost
#[test]
fn a_link_that_is_lost_resets_its_streams_and_a_new_one_has_others() {
    run(async {
        let served = Streams::new(StreamLimits::default());
        let mut listener = served.listen("test").expect("the name is free");
        let server = Node::builder(1).wait(WaitPolicy::Block).liveness(PATIENCE).listen("tcp:127.0.0.1:0");
        let server = served.start(server).expect("the server starts");
        let address = server.listening()[0].to_string();
        let relay = Relay::to(address.trim_start_matches("tcp:").into());
        let streams = Streams::new(StreamLimits::default());
        let client = Node::builder(2).wait(WaitPolicy::Block).liveness(PATIENCE);
        let client = client.peer(1, &format!("tcp:{}", relay.address));
        let client = streams.start(client).expect("the client starts");
        let peer = client.wait_for_peer_async(1, PATIENCE).await.expect("the nodes connect");
        let opened = streams.connect(&peer, "test").await.expect("the stream opens");
        let accepted = listener.accept().await;
        let ends = [tokio::spawn(ends_of(opened)), tokio::spawn(ends_of(accepted))];
        tokio::task::yield_now().await;
        relay.cut();
        for (end, other) in ends.into_iter().zip([1, 2]) {
            for (_, reason) in end.await.expect("no panic") {
                assert_eq!(reason, Some(StreamError::LinkLost(NodeId(other))));
            }
        }
        let mut opened = loop {
            match streams.connect(&peer, "test").await {
                Ok(stream) => break stream,
                Err(_) => tokio::time::sleep(core::time::Duration::from_millis(5)).await,
            }
        };
        opened.write_u8(5).await.expect("the stream takes bytes");
        loop {
            // A stream whose opening was cut may come before.
            if let Ok(5) = listener.accept().await.read_u8().await {
                break;
            }
        }
    });
}
