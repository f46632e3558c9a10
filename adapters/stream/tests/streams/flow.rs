//! Bytes, windows, and the end of each direction.

use core::future::poll_fn;
use core::pin::{Pin, pin};
use core::task::{Context, Poll, Waker};
use std::io::ErrorKind;

use pronto_stream::{ConnectError, PeerStream, Refusal, StreamLimits};
use proptest::prelude::{Strategy, any, prop};
use proptest::test_runner::{Config, TestRunner};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::rig::{Pair, TRANSPORTS, run};

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| u8::try_from(at * 31 % 251).expect("a remainder").wrapping_add(seed)).collect()
}

/// Writes pieces of these lengths, with flushes in between, and ends the bytes.
async fn write_all(mut to: impl AsyncWrite + Unpin, bytes: &[u8], lengths: &[usize]) {
    let mut left = bytes;
    for length in lengths.iter().cycle() {
        if left.is_empty() {
            break;
        }
        let (piece, rest) = left.split_at((*length).min(left.len()));
        to.write_all(piece).await.expect("the stream takes bytes");
        if length % 3 == 0 {
            to.flush().await.expect("the stream flushes");
        }
        left = rest;
    }
    to.shutdown().await.expect("the stream ends");
}

async fn read_all(mut from: impl tokio::io::AsyncRead + Unpin, lengths: &[usize]) -> Vec<u8> {
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 100_000]);
    for length in lengths.iter().cycle() {
        match from.read(&mut buffer[..*length]).await.expect("the stream has bytes") {
            0 => break,
            read => bytes.extend_from_slice(&buffer[..read]),
        }
    }
    bytes
}

/// Shows: adapters.stream-bytes
#[test]
fn any_sizes_of_reads_and_writes_deliver_the_same_bytes_in_both_directions() {
    let lengths = || prop::collection::vec(1_usize..70_000, 1..12);
    let inputs = (0_usize..400_000, 0_usize..400_000, 1_u32..50_000, any::<u8>(), lengths(), lengths());
    let mut runner = TestRunner::new(Config { cases: 24, failure_persistence: None, ..Config::default() });
    let strategy = inputs.prop_map(|inputs| inputs);
    runner
        .run(&strategy, |(there, back, window, seed, writes, reads)| {
            let transport = TRANSPORTS[usize::from(seed) % 2];
            run(async {
                let limits = StreamLimits { window, ..StreamLimits::default() };
                let mut pair = match seed % 4 {
                    0 | 1 => Pair::new(transport, "bytes", limits).await,
                    _ => Pair::tight(transport, "bytes", limits).await,
                };
                let (opened, accepted) = pair.stream().await;
                let (bytes_there, bytes_back) = (pattern(there, seed), pattern(back, !seed));
                let (from_server, to_server) = tokio::io::split(opened);
                let (from_client, to_client) = tokio::io::split(accepted);
                let ((), (), got_there, got_back) = tokio::join!(
                    write_all(to_server, &bytes_there, &writes),
                    write_all(to_client, &bytes_back, &writes),
                    read_all(from_client, &reads),
                    read_all(from_server, &reads),
                );
                assert!(got_there == bytes_there && got_back == bytes_back, "bytes were changed");
            });
            Ok(())
        })
        .expect("all sizes are delivered");
}

/// Shows: adapters.stream-half-close
#[test]
fn a_direction_that_has_ended_leaves_the_other_one_open() {
    for transport in TRANSPORTS {
        run(async {
            let mut pair = Pair::new(transport, "half", StreamLimits::default()).await;
            let (mut opened, mut accepted) = pair.stream().await;
            opened.write_all(b"question").await.expect("the stream takes bytes");
            opened.shutdown().await.expect("the stream ends");
            let mut got = Vec::new();
            accepted.read_to_end(&mut got).await.expect("the stream ends in order");
            assert_eq!(got, b"question");
            let refused = opened.write(b"more").await.expect_err("the direction has ended");
            assert_eq!(refused.kind(), ErrorKind::BrokenPipe);
            accepted.write_all(b"answer").await.expect("the other direction is open");
            accepted.shutdown().await.expect("the stream ends");
            drop(accepted);
            got.clear();
            opened.read_to_end(&mut got).await.expect("the stream ends in order");
            assert_eq!(got, b"answer");
        });
    }
}

/// Writes until the stream takes no more. Returns the number of bytes.
async fn fill(stream: &mut PeerStream) -> usize {
    let mut written = 0;
    loop {
        let once = poll_fn(|context| Poll::Ready(Pin::new(&mut *stream).poll_write(context, &[7; 5_000])));
        match once.await {
            Poll::Ready(bytes) => written += bytes.expect("the stream takes bytes"),
            Poll::Pending => return written,
        }
    }
}

/// Shows: adapters.stream-window
#[test]
fn a_reader_that_stops_stops_the_writer_until_it_reads_again() {
    for transport in TRANSPORTS {
        run(async {
            let limits = StreamLimits { window: 30_000, ..StreamLimits::default() };
            let mut pair = Pair::new(transport, "stops", limits).await;
            let (mut opened, mut accepted) = pair.stream().await;
            assert_eq!(fill(&mut opened).await, 30_000, "the window bounds what is written");
            let mut buffer = vec![0; 30_000];
            accepted.read_exact(&mut buffer[..14_999]).await.expect("the stream has bytes");
            assert_eq!(fill(&mut opened).await, 0, "less than half of the window is not granted again");
            accepted.read_exact(&mut buffer[..1]).await.expect("the stream has bytes");
            // The write is woken by the credit.
            opened.write_all(&[7; 15_000]).await.expect("the stream takes bytes");
            assert_eq!(fill(&mut opened).await, 0);
            accepted.read_exact(&mut buffer).await.expect("the stream has bytes");
            assert!(buffer.iter().all(|byte| *byte == 7));
        });
    }
}

#[test]
fn empty_reads_and_writes_change_nothing() {
    run(async {
        let mut pair = Pair::new("shm", "empty", StreamLimits::default()).await;
        let (mut opened, mut accepted) = pair.stream().await;
        assert_eq!(opened.write(&[]).await.expect("an empty write"), 0);
        assert_eq!(accepted.read(&mut []).await.expect("an empty read does not wait"), 0);
        opened.write_all(b"x").await.expect("the stream takes bytes");
        assert_eq!(accepted.read_u8().await.expect("the stream has bytes"), b'x');
    });
}

/// Shows: adapters.stream-many
#[test]
fn a_hundred_streams_are_open_together() {
    for transport in TRANSPORTS {
        run(async {
            let limits = StreamLimits {
                window: 10_000,
                streams_per_peer: 100,
                backlog: 100,
                ..StreamLimits::default()
            };
            let mut pair = Pair::new(transport, "many", limits).await;
            let mut streams = Vec::new();
            for _ in 0..100 {
                streams.push(pair.stream().await);
            }
            let refused = pair.streams.connect(&pair.peer, "test").await;
            assert!(matches!(refused, Err(ConnectError::TooManyStreams(_))), "{refused:?}");
            let mut tasks = Vec::new();
            for (number, (opened, accepted)) in (0..).zip(streams) {
                let (from, to) = tokio::io::split(opened);
                tasks.push(tokio::spawn(async move {
                    let (mut echo_from, mut echo_to) = tokio::io::split(accepted);
                    tokio::io::copy(&mut echo_from, &mut echo_to).await.expect("the echo copies");
                    echo_to.shutdown().await.expect("the echo ends");
                }));
                tasks.push(tokio::spawn(async move {
                    let bytes = pattern(100_000, number);
                    let writes = [1_000 + usize::from(number)];
                    let ((), got) = tokio::join!(write_all(to, &bytes, &writes), read_all(from, &[3_000]));
                    assert!(got == bytes, "stream {number} has the bytes of another one");
                }));
            }
            for task in tasks {
                task.await.expect("no task panics");
            }
            pair.stream().await;
        });
    }
}

/// Shows: adapters.stream-refused
#[test]
fn a_stream_is_refused_with_the_reason() {
    run(async {
        let limits = StreamLimits { backlog: 2, ..StreamLimits::default() };
        let Pair { listener, server_streams, streams, peer, .. } =
            &mut Pair::new("shm", "refused", limits).await;
        let refusal = async |service| match streams.connect(peer, service).await {
            Err(ConnectError::Refused(refusal)) => Some(refusal),
            Ok(stream) => {
                core::mem::forget(stream);
                None
            }
            Err(other) => panic!("{other}"),
        };
        assert_eq!(refusal("other").await, Some(Refusal::NoListener));
        assert_eq!(refusal("test").await, None);
        assert_eq!(refusal("test").await, None);
        assert_eq!(refusal("test").await, Some(Refusal::BacklogFull));
        drop(listener.accept().await);
        assert_eq!(refusal("test").await, None);
        let other = server_streams.listen("other").expect("the name is free");
        assert!(server_streams.listen("other").is_none(), "two listeners have one name");
        drop(other);
        assert_eq!(refusal("other").await, Some(Refusal::NoListener), "the listener was dropped");
    });
}

#[test]
fn a_read_wakes_the_task_that_polled_it_last() {
    run(async {
        let mut pair = Pair::new("shm", "wakers", StreamLimits::default()).await;
        let (mut opened, mut accepted) = pair.stream().await;
        {
            let mut byte = [0];
            let mut first = pin!(accepted.read(&mut byte));
            assert!(first.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        let reads = tokio::spawn(async move { accepted.read_u8().await });
        tokio::task::yield_now().await;
        opened.write_u8(9).await.expect("the stream takes bytes");
        assert_eq!(reads.await.expect("no panic").expect("the stream has bytes"), 9);
    });
}

/// Shows: adapters.stream-bytes
#[test]
fn messages_that_find_no_credit_follow_when_there_is_one() {
    for transport in TRANSPORTS {
        run(async {
            let limits = StreamLimits { window: 3_000, piece: 50, ..StreamLimits::default() };
            let mut pair = Pair::tight(transport, "credits", limits).await;
            let mut tasks = Vec::new();
            for number in 0..20 {
                let (opened, accepted) = pair.stream().await;
                tasks.push(tokio::spawn(async move {
                    let bytes = pattern(20_000, number);
                    let ((), got) =
                        tokio::join!(write_all(opened, &bytes, &[700]), read_all(accepted, &[1_300]));
                    assert!(got == bytes, "stream {number} has other bytes");
                }));
            }
            for task in tasks {
                task.await.expect("no task panics");
            }
        });
    }
}
