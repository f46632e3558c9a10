//! Compare-and-swap and fetch-add on a peer's memory, alone and concurrently.

use pronto_core::fabric::{
    Completion, DoorbellEvent, Operation, PostError, QueuePair, Region, RemoteRange, Rights, SendWork,
    Signal, Status, WrId, poll_by_value,
};
use pronto_sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::one_sided::{Refused, access, bytes_of, granted, part};
use super::tests;
use crate::random::payload;
use crate::rig::{End, LIMITS, Rig};
use crate::suite::Chapter;
use crate::{Harness, Pair, watchdog};

pub(super) fn chapter<H: Harness>() -> Chapter<H> {
    Chapter {
        name: "atomics",
        tests: tests![
            fetch_add_returns_the_previous_value_and_wraps needs [OneSided],
            compare_swap_swaps_only_the_expected_value needs [OneSided],
            many_operations_lose_nothing needs [OneSided],
            only_eight_aligned_bytes_are_accepted needs [OneSided],
            additions_over_two_connections_are_atomic needs [OneSided],
            additions_are_atomic_with_the_owners needs [OneSided, GlobalAtomics],
        ],
    }
}

fn word(region: &Region, at: usize) -> u64 {
    let mut bytes = [0; 8];
    region.read(at, &mut bytes).expect("eight bytes of the region");
    u64::from_ne_bytes(bytes)
}

fn set(region: &Region, at: usize, value: u64) {
    region.write(at, &value.to_ne_bytes()).expect("eight bytes of the region");
}

fn fetch_add_returns_the_previous_value_and_wraps<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let (target, remote) = granted(&mut rig, End::B, 24, Rights::ALL);
    let untouched = (word(&target, 0), word(&target, 16));
    set(&target, 8, u64::MAX - 4);
    for (add, before) in [(3, u64::MAX - 4), (0, u64::MAX - 1), (7, u64::MAX - 1), (u64::MAX, 5), (1, 4)] {
        let operation = Operation::FetchAdd { remote: part(remote, 8, 8), add };
        assert_eq!(access(&mut rig, End::A, operation), Ok(before));
    }
    assert_eq!(word(&target, 8), 5);
    assert_eq!((word(&target, 0), word(&target, 16)), untouched);
    rig.finish();
}

fn compare_swap_swaps_only_the_expected_value<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let (target, remote) = granted(&mut rig, End::B, 64, Rights::ALL);
    let remote = part(remote, 56, 8);
    let mut holds = word(&target, 56);
    for i in 0..40_u64 {
        let desired = payload(i, 8)[0].into();
        let expected = if i % 2 == 0 { holds } else { !holds };
        let operation = Operation::CompareSwap { remote, expected, desired };
        assert_eq!(access(&mut rig, End::A, operation), Ok(holds));
        holds = if i % 2 == 0 { desired } else { holds };
        assert_eq!(word(&target, 56), holds);
    }
    rig.finish();
}

fn many_operations_lose_nothing<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let (target, remote) = granted(&mut rig, End::B, 8, Rights::ALL);
    set(&target, 0, 0);
    for _ in 0..100 {
        rig.one_sided(End::A, Operation::FetchAdd { remote, add: 1 })
            .expect("a granted access can be posted");
    }
    rig.wait_idle();
    let mut seen: Vec<_> = rig.at(End::A).done.iter().map(|completion| completion.status).collect();
    seen.sort_by_key(|status| if let Status::Done(value) = status { *value } else { u64::MAX });
    assert!(seen.into_iter().eq((0..100).map(Status::Done)), "some value was returned twice, or never");
    assert_eq!(word(&target, 0), 100);
    rig.finish();
}

fn only_eight_aligned_bytes_are_accepted<H: Harness>(harness: &H) {
    for (offset, len) in [(1, 8), (4, 8), (7, 8), (0, 4), (0, 16), (8, 7), (8, 0)] {
        for swap in [false, true] {
            let mut rig = Rig::new(harness);
            let (target, remote) = granted(&mut rig, End::B, 64, Rights::ALL);
            let before = bytes_of(&target);
            rig.expect_failure();
            let remote = part(remote, offset, len);
            let operation = if swap {
                Operation::CompareSwap { remote, expected: word(&target, 0), desired: 0 }
            } else {
                Operation::FetchAdd { remote, add: 1 }
            };
            assert_eq!(access(&mut rig, End::A, operation), Err(Refused), "{len} bytes at {offset}");
            assert_eq!(bytes_of(&target), before, "{len} bytes at {offset}");
            rig.finish_closed();
        }
    }
}

/// Number of additions by each thread.
const ROUNDS: u64 = 2000;

/// Two connections to one word, each driven by a thread of its own, as by an owner that accesses its memory through the
/// fabric.
fn additions_over_two_connections_are_atomic<H: Harness>(harness: &H) {
    assert_eq!(count_together(harness, 0), 2 * ROUNDS);
}

fn additions_are_atomic_with_the_owners<H: Harness>(harness: &H) {
    assert_eq!(count_together(harness, ROUNDS), 3 * ROUNDS);
}

/// Returns the final count after two peers have added, and the owner `own` times with the CPU's instruction.
fn count_together<H: Harness>(harness: &H, own: u64) -> u64 {
    let region = harness.region(8);
    let [mut one, mut two] = [(); 2].map(|()| harness.pair(LIMITS));
    let [first, second] = [&mut one, &mut two]
        .map(|pair| pair.b.grant(&region, 0..8, Rights::ALL).expect("a region can be granted twice").remote);
    let Pair { a: mut a1, b: mut b1, link: mut link1 } = one;
    let Pair { a: mut a2, b: mut b2, link: mut link2 } = two;
    let done = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| add_all(&mut a1, first, &done, &over));
        scope.spawn(|| add_all(&mut a2, second, &done, &over));
        scope.spawn(|| {
            let word = region.word(0).expect("the first eight bytes are aligned");
            for _ in 0..own {
                word.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut fruitless = 0;
        let mut last = 0;
        while last < 2 * ROUNDS && fruitless < harness.patience() {
            for b in [&mut b1, &mut b2] {
                assert!(matches!(poll_by_value(b), Ok(None)));
                assert!(b.poll_send().is_none());
            }
            harness.settle(&mut link1);
            harness.settle(&mut link2);
            watchdog::turn();
            let now = done.load(Ordering::Relaxed);
            fruitless = if now > last { 0 } else { fruitless + 1 };
            last = now;
        }
        over.store(true, Ordering::Relaxed);
        assert_eq!(last, 2 * ROUNDS, "gave up waiting for additions");
    });
    word(&region, 0)
}

fn add_all<Q: QueuePair>(a: &mut Q, remote: RemoteRange, done: &AtomicU64, over: &AtomicBool) {
    let (mut posted, mut completed) = (0_u32, 0);
    while u64::from(completed) < ROUNDS && !over.load(Ordering::Relaxed) {
        if u64::from(posted) < ROUNDS && posted - completed < 8 {
            let signal = Signal::Signalled(WrId { slot: 3, generation: posted });
            let operation = Operation::FetchAdd { remote, add: 1 };
            match a.post(SendWork { signal, operation }) {
                Ok(()) => posted += 1,
                Err(PostError::Full) => {}
                Err(error) => panic!("a granted access can be posted: {error}"),
            }
            a.ring_doorbell(DoorbellEvent::Solicited).expect("alive");
        }
        assert!(matches!(poll_by_value(a), Ok(None)));
        match a.poll_send() {
            Some(Completion { status: Status::Done(_), .. }) => {
                completed += 1;
                done.fetch_add(1, Ordering::Relaxed);
            }
            Some(other) => panic!("{other:?}"),
            None => std::thread::yield_now(),
        }
    }
}
