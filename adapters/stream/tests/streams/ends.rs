//! How streams end other than in order.

use std::io::ErrorKind;

use pronto_stream::{PeerStream, StreamError, StreamLimits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::rig::{Pair, TRANSPORTS, run};

/// Returns the kind and the reason of the end of a stream.
fn reason(error: &std::io::Error) -> (ErrorKind, Option<StreamError>) {
    let reason = error.get_ref().and_then(|inner| inner.downcast_ref::<StreamError>()).cloned();
    (error.kind(), reason)
}

/// Waits for the end of a stream on both halves, each in a task of its own.
pub(crate) async fn ends_of(stream: PeerStream) -> [(ErrorKind, Option<StreamError>); 2] {
    let (mut from, mut to) = tokio::io::split(stream);
    let reads = tokio::spawn(async move { from.read_u8().await.expect_err("the stream ends") });
    let writes = tokio::spawn(async move {
        loop {
            if let Err(error) = to.write_all(&[1; 10_000]).await {
                return error;
            }
        }
    });
    [reason(&reads.await.expect("no panic")), reason(&writes.await.expect("no panic"))]
}

/// Shows: adapters.stream-reset
#[test]
fn a_dropped_stream_resets_the_other_side_after_what_has_arrived() {
    for transport in TRANSPORTS {
        run(async {
            let mut pair = Pair::new(transport, "dropped", StreamLimits::default()).await;
            let (mut opened, mut accepted) = pair.stream().await;
            opened.write_all(b"last").await.expect("the stream takes bytes");
            opened.flush().await.expect("the stream flushes");
            drop(opened);
            let mut got = [0; 4];
            accepted.read_exact(&mut got).await.expect("the bytes have arrived");
            assert_eq!(&got, b"last");
            let expected = (ErrorKind::ConnectionReset, Some(StreamError::Reset));
            // A write would be answered by a reset of its own.
            assert_eq!(reason(&accepted.read_u8().await.expect_err("the stream ends")), expected);
            assert_eq!(ends_of(accepted).await, [expected.clone(), expected]);
        });
    }
}

/// Shows: adapters.stream-peer-down
#[test]
fn the_end_of_a_peer_resets_its_streams() {
    for transport in TRANSPORTS {
        run(async {
            let mut pair = Pair::new(transport, "down", StreamLimits::default()).await;
            let (opened, _accepted) = pair.stream().await;
            let ends = tokio::spawn(ends_of(opened));
            tokio::task::yield_now().await;
            drop(pair.server);
            for (kind, reason) in ends.await.expect("no panic") {
                assert_eq!(kind, ErrorKind::ConnectionReset, "{reason:?}");
            }
        });
    }
}

/// Shows: adapters.stream-node-ends
#[test]
fn the_end_of_the_own_node_ends_its_streams() {
    run(async {
        let mut pair = Pair::new("shm", "own", StreamLimits::default()).await;
        let (mut opened, _accepted) = pair.stream().await;
        let reads = tokio::spawn(async move { opened.read_u8().await });
        tokio::task::yield_now().await;
        drop(pair.client);
        reads.await.expect("no panic").expect_err("the stream ends");
        assert!(pair.streams.connect(&pair.peer, "test").await.is_err());
    });
}

#[test]
fn a_listener_that_is_dropped_resets_what_it_has_not_accepted() {
    run(async {
        let pair = Pair::new("shm", "unaccepted", StreamLimits::default()).await;
        let opened = pair.streams.connect(&pair.peer, "test").await.expect("the stream opens");
        drop(pair.listener);
        let expected = (ErrorKind::ConnectionReset, Some(StreamError::Reset));
        assert_eq!(ends_of(opened).await, [expected.clone(), expected]);
    });
}
