//! One program on tokio, smol and a hand-made executor.

use core::time::Duration;
use std::sync::Arc;

use pronto::{CallError, Executed, Node, Peer};

use crate::executor::block_on;
use crate::rig::{Echo, Held, LONG, Pair, TRANSPORTS, pair};

const TASKS: u64 = 64;
const CALLS: u64 = 20;

/// Makes calls one after another.
async fn calls(peer: Peer, task: u64) {
    for number in 0..CALLS {
        let number = task * CALLS + number;
        assert_eq!(peer.call_async_within(&Echo { number }, LONG).await.unwrap().total, number);
    }
}

/// Awaits a peer, and meets a deadline while others wait for the same peer.
async fn meets_a_deadline(client: Arc<Node>) {
    let peer = client.wait_for_peer_async(1, LONG).await.unwrap();
    let end = peer.call_async_within(&Held { number: 1 }, Duration::from_millis(50)).await;
    assert!(matches!(end, Err(CallError::Deadline { executed: Executed::No | Executed::Maybe })), "{end:?}");
}

/// Shows: calls.async-runtimes
#[test]
fn on_tokio() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    for transport in TRANSPORTS {
        let Pair { server: _server, client, peer, received: _received } = pair(transport, "tokio", 4);
        let client = Arc::new(client);
        runtime.block_on(async {
            let late = tokio::spawn(meets_a_deadline(Arc::clone(&client)));
            let tasks: Vec<_> = (0..TASKS).map(|task| tokio::spawn(calls(peer.clone(), task))).collect();
            for task in tasks {
                task.await.unwrap();
            }
            late.await.unwrap();
        });
    }
}

/// Shows: calls.async-runtimes
#[test]
fn on_smol() {
    for transport in TRANSPORTS {
        let Pair { server: _server, client, peer, received: _received } = pair(transport, "smol", 4);
        let client = Arc::new(client);
        smol::block_on(async {
            let late = smol::spawn(meets_a_deadline(Arc::clone(&client)));
            let tasks: Vec<_> = (0..TASKS).map(|task| smol::spawn(calls(peer.clone(), task))).collect();
            for task in tasks {
                task.await;
            }
            late.await;
        });
    }
}

/// Shows: calls.async-runtimes
#[test]
fn on_threads_that_block_on_their_futures() {
    for transport in TRANSPORTS {
        let Pair { server: _server, client, peer, received: _received } = pair(transport, "block-on", 2);
        let client = Arc::new(client);
        std::thread::scope(|scope| {
            scope.spawn(|| block_on(meets_a_deadline(Arc::clone(&client))));
            for task in 0..8 {
                let calls = calls(peer.clone(), task);
                scope.spawn(|| block_on(calls));
            }
        });
    }
}
