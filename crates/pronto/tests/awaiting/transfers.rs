//! Tasks that send into posted buffers.

use core::ops::Range;

use crate::executor::{Executor, block_on};
use crate::rig::{LONG, Pair, TRANSPORTS, pair, until};

const TAG: u64 = 5;
/// More than the sends that may be in progress.
const TASKS: u64 = 60;
/// Messages that a peer stores before receives are posted.
const STORED: usize = 4;
/// Lengths in bytes: of messages that go with their offer, and of those that the receiver reads.
const LENGTHS: [u64; 2] = [24, 600 << 10];

/// Returns the bytes of a message in a region for two messages, which take turns.
const fn place(number: u64, len: u64) -> Range<u64> {
    let start = number % 2 * len;
    start..start + len
}

/// Shows: calls.async-send
#[test]
fn messages_wait_for_room_and_arrive_in_order() {
    for transport in TRANSPORTS {
        for len in LENGTHS {
            let Pair { server, client, peer, .. } = pair(transport, "sends", 56);
            let back = server.wait_for_peer(2, LONG).unwrap();
            let length = usize::try_from(len).unwrap();
            let (from, to) = (client.region(2 * length).unwrap(), server.region(length).unwrap());
            from.write(0, &vec![0; length]).unwrap();
            from.write(length, &vec![1; length]).unwrap();
            let mut executor = Executor::default();
            for number in 0..TASKS {
                let (peer, from) = (&peer, &from);
                executor.spawn(async move {
                    peer.send_async(TAG, from, place(number, len), LONG).await.unwrap();
                });
            }
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut received = vec![0; length];
                    for number in 0..TASKS {
                        // A task can receive, too.
                        let end = block_on(back.post(TAG, &to, 0..len).unwrap()).0;
                        assert_eq!(end, Ok(len), "{transport}: message {number} of {len} bytes");
                        to.read(0, &mut received).unwrap();
                        let expected = u8::try_from(number % 2).unwrap();
                        assert!(received.iter().all(|byte| *byte == expected), "{transport}: {number}");
                    }
                });
                executor.run_all();
            });
            let polls: Vec<_> =
                (0..TASKS).map(|task| executor.polls(usize::try_from(task).unwrap())).collect();
            assert!(polls.iter().all(|polls| *polls <= 3), "{transport}: polls per message: {polls:?}");
            assert!(!peer.session().is_room_awaited());
        }
    }
}

/// Shows: calls.async-send
#[test]
fn a_send_that_is_dropped_is_cancelled() {
    for transport in TRANSPORTS {
        let Pair { server, client, peer, .. } = pair(transport, "drop-send", 56);
        let back = server.wait_for_peer(2, LONG).unwrap();
        let (from, to) = (client.region(2).unwrap(), server.region(1).unwrap());
        from.write(0, &[7, 8]).unwrap();
        let long = client.region(1 << 20).unwrap();
        let mut executor = Executor::default();
        for _ in 0..STORED {
            let (peer, from) = (&peer, &from);
            executor.spawn(async move { peer.send_async(TAG, from, 0..1, LONG).await.unwrap() });
        }
        // Eager messages that no receive waits for are stored by the peer, and their sends end.
        executor.run_all();
        let task = executor.spawn(async {
            peer.send_async(TAG + 1, &long, 0..1 << 20, LONG).await.unwrap();
        });
        until("the long message is offered", || back.transfers()[0] > STORED);
        executor.cancel(task);
        until("its offer is gone", || back.transfers()[0] == STORED);
        block_on(peer.send_async(TAG + 1, &from, 1..2, LONG)).0.unwrap();
        assert_eq!(block_on(back.post(TAG + 1, &to, 0..1).unwrap()).0, Ok(1), "{transport}");
        let mut byte = [0];
        to.read(0, &mut byte).unwrap();
        assert_eq!(byte, [8], "{transport}");
    }
}
