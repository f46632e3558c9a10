//! Measures the cost of the fabric over shared memory: message round trips compared with cache-line round trips.
//!
//! Two threads spin. The floor is one line that both write in turn. A fabric round trip posts, rings the doorbell and
//! polls at both ends, without the engine above. Rounds alternate, so that both measurements see the same machine
//! state. Each sample is a batch, so that reading the clock weighs little.
//! Run: `cargo run --release -p pronto-fabric-shm --example pingpong`.

use std::time::Instant;

use pronto_core::fabric::{
    ConnectionLimits, DoorbellEvent, Extent, Gather, Operation, QueuePair, Region, SendWork, Signal, WrId,
    poll_by_value,
};
use pronto_fabric_shm::{Link, ShmQueuePair, ShmRegion};
use pronto_sync::CachePadded;
use pronto_sync::atomic::{AtomicU64, Ordering};
use pronto_wire::RawHeader;

const ROUNDS: usize = 5;
const SAMPLES: usize = 2_000;
const BATCH: usize = 32;
const SIGNALLED: Signal = Signal::Signalled(WrId { slot: 0, generation: 0 });

const LIMITS: ConnectionLimits = ConnectionLimits {
    send_depth: 64,
    receive_depth: 64,
    max_send_payload: 1 << 20,
    max_receive_payload: 1 << 20,
    send_memory: 32 << 20,
};

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let mut floor = Vec::new();
    let mut rows: Vec<(&str, Payload, Vec<f64>)> = vec![
        ("32 B inline", Payload::Inline(32), Vec::new()),
        ("224 B in send memory", Payload::Ring(224), Vec::new()),
        ("4 KiB in send memory", Payload::Ring(4096), Vec::new()),
        ("4 KiB by reference", Payload::Region(ShmRegion::allocate(4096)?), Vec::new()),
    ];
    for _ in 0..ROUNDS {
        floor.extend(one_line());
        for (_, payload, samples) in &mut rows {
            samples.extend(seam(payload)?);
        }
    }
    let floor = Summary::of(floor);
    println!("{:<22} {:>8} {:>8} {:>8} {:>8}", "round trip, ns", "p50", "mean", "p99", "/ floor");
    println!("{:<22} {:>8.0} {:>8.0} {:>8.0} {:>8.2}", "one line", floor.p50, floor.mean, floor.p99, 1.0);
    for (name, _, samples) in rows {
        let row = Summary::of(samples);
        let ratio = row.p50 / floor.p50;
        println!("{name:<22} {:>8.0} {:>8.0} {:>8.0} {ratio:>8.2}", row.p50, row.mean, row.p99);
    }
    Ok(())
}

/// Payload of the messages in both directions.
enum Payload {
    Inline(usize),
    Ring(u32),
    Region(Region),
}

impl Payload {
    fn gather<'a>(&'a self, bytes: &'a [u8]) -> Gather<'a> {
        match self {
            Self::Inline(len) => Gather::Short(&bytes[..*len]),
            Self::Ring(len) => Gather::Ring(Extent { offset: 0, len: *len }),
            Self::Region(region) => {
                let len = u32::try_from(region.len()).expect("small");
                Gather::Region { region, offset: 0, len }
            }
        }
    }
}

/// Runs between two polls of a waiting loop. It does nothing, at both ends and in the floor alike: a pause instruction
/// costs 25 ns on some machines and 2 ns on others, and is the choice of the waiting policy, not of the transport.
fn spin() {}

/// Measures cache-line round trips.
fn one_line() -> Vec<f64> {
    let line = CachePadded::new(AtomicU64::new(0));
    let total = (SAMPLES * BATCH) as u64;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..total {
                while line.load(Ordering::Acquire) != 2 * i + 1 {
                    spin();
                }
                line.store(2 * i + 2, Ordering::Release);
            }
        });
        let mut i = 0;
        samples(|| {
            line.store(2 * i + 1, Ordering::Release);
            while line.load(Ordering::Acquire) != 2 * i + 2 {
                spin();
            }
            i += 1;
        })
    })
}

/// Measures message round trips: the other end sends a message of the same kind back.
fn seam(payload: &Payload) -> Result<Vec<f64>, Box<dyn core::error::Error>> {
    let (ours, theirs) = Link::pair([LIMITS; 2])?;
    let (mut near, mut far) = (ours.control, theirs.control);
    for end in [&mut near, &mut far] {
        end.prepare(0..1 << 20)?;
    }
    let taken = std::thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..SAMPLES * BATCH {
                receive(&mut far);
                send(&mut far, payload);
                while far.poll_send().is_some() {}
            }
        });
        samples(|| {
            send(&mut near, payload);
            receive(&mut near);
            while near.poll_send().is_some() {}
        })
    });
    Ok(taken)
}

fn send(end: &mut ShmQueuePair, payload: &Payload) {
    let bytes = [7; 40];
    let header = RawHeader::default();
    let operation = Operation::Send { header: &header, payload: payload.gather(&bytes) };
    end.post(SendWork { signal: SIGNALLED, operation }).expect("one message at a time fits");
    end.ring_doorbell(DoorbellEvent::Solicited).expect("the peer is there");
}

fn receive(end: &mut ShmQueuePair) {
    loop {
        // Matched by reference: each move of a message out of its Result costs some nanoseconds.
        match &poll_by_value(end) {
            Ok(Some(message)) => {
                // Reads the first word, as a handler does.
                let mut first = [0; 8];
                message.payload.copy_to(0, &mut first).expect("long enough");
                core::hint::black_box(first);
                return;
            }
            Ok(None) => spin(),
            Err(error) => panic!("the peer is there: {error}"),
        }
    }
}

/// Measures nanoseconds per call, one sample per batch.
#[expect(clippy::disallowed_methods, reason = "measuring is what this program is for")]
fn samples(mut call: impl FnMut()) -> Vec<f64> {
    let batch = |_| {
        let start = Instant::now();
        (0..BATCH).for_each(|_| call());
        start.elapsed().as_secs_f64() * 1e9 / BATCH as f64
    };
    (0..SAMPLES).map(batch).collect()
}

struct Summary {
    p50: f64,
    p99: f64,
    mean: f64,
}

impl Summary {
    fn of(mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        let at = |share: usize| samples[samples.len() * share / 100];
        let mean = samples.iter().sum::<f64>() / samples.len() as f64;
        Self { p50: at(50), p99: at(99), mean }
    }
}
