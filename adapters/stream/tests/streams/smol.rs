//! Streams in a program without tokio, through the traits of futures-io.
#![cfg(feature = "futures-io")]

use pronto_stream::StreamLimits;
use smol::future::{or, zip};
use smol::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::rig::{PATIENCE, Pair, TRANSPORTS};

/// Longer than a window, so that the writer waits for its reader.
const LEN: u32 = 3 << 20;

/// Shows: adapters.stream-futures
#[test]
fn bytes_arrive_in_a_program_without_tokio() {
    for transport in TRANSPORTS {
        let test = async {
            let mut pair = Pair::new(transport, "smol", StreamLimits::default()).await;
            let (mut here, mut there) = pair.stream().await;
            let bytes: Vec<u8> = (0..LEN).map(|at| (at % 251).to_le_bytes()[0]).collect();
            let send = async {
                here.write_all(&bytes).await?;
                here.flush().await?;
                here.close().await
            };
            let mut received = Vec::new();
            let (sent, read) = zip(send, there.read_to_end(&mut received)).await;
            sent.expect("all bytes leave");
            assert_eq!(read.expect("the stream ends"), LEN as usize);
            assert!(received == bytes, "the bytes have changed");
            there.write_all(b"back").await.expect("the other direction is open");
            there.close().await.expect("it ends");
            let mut back = String::new();
            here.read_to_string(&mut back).await.expect("the stream ends");
            assert_eq!(back, "back");
        };
        let limit = async {
            smol::Timer::after(PATIENCE).await;
            panic!("the test hangs");
        };
        smol::block_on(or(test, limit));
    }
}
