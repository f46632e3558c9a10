//! Calls of all sizes leave no memory behind on either node. This file has only one test, because the counts cover the whole process.
//!
//! The test counts bytes that are allocated or mapped, whether touched or not, so the load of the machine does not matter. Pools grow
//! until they have served the largest number of objects in use at a time, and the system takes back memory that was idle. A leak grows
//! in every round, so a few rounds in a row without growth exclude it.

mod counting;

use core::time::Duration;

use pronto::{Message, Node, Peer, WaitPolicy};

use counting::allocated;

#[derive(Message, Clone, Debug, PartialEq)]
#[message(name = "memory.back", class = bulk)]
struct Back {
    bytes: Vec<u8>,
}

#[derive(Message, Clone, Debug)]
#[message(name = "memory.there", reply = Back, class = bulk)]
struct There {
    bytes: Vec<u8>,
}

const TIMEOUT: Duration = Duration::from_secs(20);
/// Sizes of payloads: within one line, in several lines, in the arena, in chunks of send memory.
const SIZES: [usize; 4] = [16, 224, 4 << 10, 64 << 10];
/// Calls of each size in a round.
const CALLS: usize = 25;
/// Rounds in a row without growth.
const QUIET: usize = 4;
/// Rounds before the test fails.
const ROUNDS: usize = 60;

/// Memory of the process in bytes: allocated, and mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    allocated: u64,
    mapped: u64,
}

impl Held {
    fn now() -> Self {
        let pages = std::fs::read_to_string("/proc/self/statm").expect("procfs is mounted");
        let pages: u64 = pages.split(' ').next().and_then(|text| text.parse().ok()).expect("a number");
        Self { allocated: allocated().bytes, mapped: pages * 4096 }
    }

    /// Returns whether neither count is above that of `before`.
    fn is_within(self, before: Self) -> bool {
        self.allocated <= before.allocated && self.mapped <= before.mapped
    }
}

fn round(peer: &Peer) {
    for size in SIZES {
        for call in 0..CALLS {
            let bytes = vec![u8::try_from(call).expect("below 256"); size];
            let back = peer.call_within(&There { bytes: bytes.clone() }, TIMEOUT).expect("a reply");
            assert_eq!(back, Back { bytes });
        }
    }
}

/// Returns the readings until enough rounds in a row had no growth.
fn readings_until_quiet(mut round: impl FnMut()) -> Result<Vec<Held>, Vec<Held>> {
    let mut readings = vec![Held::now()];
    while readings.len() < ROUNDS {
        round();
        readings.push(Held::now());
        let last = &readings[readings.len().saturating_sub(QUIET + 1)..];
        if last.len() > QUIET && last.windows(2).all(|pair| pair[1].is_within(pair[0])) {
            return Ok(readings);
        }
    }
    Err(readings)
}

#[test]
fn calls_of_all_sizes_leave_no_memory_behind() {
    for transport in ["shm", "tcp"] {
        let listen = match transport {
            "shm" => format!("shm:@pronto-test-memory-{}", std::process::id()),
            _ => "tcp:127.0.0.1:0".into(),
        };
        let server = Node::builder(1)
            .wait(WaitPolicy::Block)
            .listen(&listen)
            .handle_inline(|_, there: There| Back { bytes: there.bytes })
            .start()
            .expect("the node starts");
        let address = server.listening()[0].to_string();
        let client =
            Node::builder(2).wait(WaitPolicy::Block).peer(1, &address).start().expect("the node starts");
        let peer = client.wait_for_peer(1, TIMEOUT).expect("the nodes connect");
        let readings = readings_until_quiet(|| round(&peer));
        assert!(readings.is_ok(), "{transport}: {readings:?}");
    }
    let mut leaked = Vec::with_capacity(ROUNDS);
    let readings = readings_until_quiet(|| leaked.push(Box::new(1_u8)));
    assert!(readings.is_err(), "a byte per round must be noticed: {readings:?}");
}
