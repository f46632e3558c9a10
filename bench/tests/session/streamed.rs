//! Long payloads, several at a time, of a caller that finds each reply at its first poll.

use std::collections::VecDeque;

use pronto_bench::pair::{Ends, shm_link};
use pronto_rpc::{Message, Pending, Route};
use pronto_wire::Class;

#[derive(Message)]
#[message(name = "streamed.long", reply = Length, class = bulk)]
struct Long {
    bytes: Vec<u8>,
}

#[derive(Message)]
#[message(name = "streamed.length", class = bulk)]
struct Length {
    bytes: u64,
}

/// Number of requests that are open at a time: their payloads fill a chunk of send memory.
const WINDOW: usize = 4;
const BYTES: usize = (1 << 20) - 64;

#[test]
fn a_stream_of_long_payloads_reuses_its_memory() {
    let routes = vec![Route::inline_in_place::<Long, _>(|_, place| Length { bytes: place.len() as u64 })];
    let ends = Ends::new(routes, shm_link).expect("two nodes over shared memory");
    let peer = ends.peer();
    let long = Long { bytes: vec![7; BYTES] };
    let mut open = VecDeque::new();
    for _ in 0..16 * WINDOW {
        if open.len() == WINDOW {
            let mut oldest: Pending<Long, _> = open.pop_front().expect("a call is open");
            let answer = oldest.poll().expect("there is a reply").expect("with a length");
            assert_eq!(answer.bytes, (BYTES + size_of::<u32>()) as u64);
        }
        open.push_back(peer.start(&long).expect("there is room for a call"));
        assert_eq!(ends.callee.serve(1), 1, "the handler runs");
    }
    // One chunk for the open calls, one for the next ones, and one ahead of need.
    let chunks = ends.caller.ring_stats(Class::Bulk).expect("there is a ring").open_chunks;
    assert!(chunks <= 3, "{chunks} chunks");
}
