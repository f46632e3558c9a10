//! Arm, recheck, sleep: a thread that sleeps on the channel is woken by anything that arrives after its recheck.

use pronto_core::fabric::{
    Armed, Arrived, ConnectionLimits, DoorbellEvent, FabricError, Gather, Operation, PostError, QueuePair,
    SendWork, Signal, poll_by_value,
};
use pronto_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pronto_wire::RawHeader;

use super::tests;
use crate::random::Random;
use crate::rig::{End, Form, LIMITS, Rig};
use crate::suite::Chapter;
use crate::{Harness, Pair, watchdog};

pub(super) fn chapter<H: Harness>() -> Chapter<H> {
    Chapter {
        name: "arming",
        tests: tests![
            a_message_wakes needs [Channel],
            a_solicited_message_wakes_a_sleeper_armed_for_it needs [Channel],
            arming_for_more_misses_nothing needs [Channel],
            a_completion_wakes needs [Channel],
            a_lease_dropped_elsewhere_wakes_its_sender needs [Channel],
            no_event_is_lost_in_any_interleaving needs [Channel],
            no_event_is_lost_between_two_threads needs [Channel],
            no_event_follows_disarming needs [Channel],
            the_peers_end_wakes needs [Channel],
            a_dead_connection_keeps_no_thread_awake needs [Channel],
        ],
    }
}

fn event<H: Harness>(rig: &mut Rig<'_, H>, end: End) -> bool {
    let harness = rig.harness();
    harness.event(&rig.at(end).qp).unwrap_or(false)
}

/// Sleeps at one end: its queue pair is not called until there is an event. The other end continues polling.
#[track_caller]
pub(super) fn sleep<H: Harness>(rig: &mut Rig<'_, H>, end: End, other_polls: Other) {
    for _ in 0..rig.harness().patience() {
        if event(rig, end) {
            return;
        }
        if other_polls == Other::Sleeps || !rig.at(end.other()).poll() {
            rig.settle();
        }
    }
    panic!("no event for something that arrived after the recheck");
}

/// Behaviour of the other end meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Other {
    Polls,
    Sleeps,
}

fn arm<H: Harness>(rig: &mut Rig<'_, H>, end: End) {
    rig.qp(end).arm(Armed::All).expect("a live queue pair can be armed");
}

/// Runs the engine's loop (arm, recheck, sleep) until `until` returns true.
#[track_caller]
fn sleep_until<H: Harness>(
    rig: &mut Rig<'_, H>,
    end: End,
    other: Other,
    mut until: impl FnMut(&mut Rig<'_, H>) -> bool,
) {
    for _ in 0..10_000 {
        arm(rig, end);
        rig.at(end).poll();
        if until(rig) {
            rig.qp(end).arm(Armed::Nothing).expect("disarming never fails");
            return;
        }
        sleep(rig, end, other);
        rig.at(end).poll();
        rig.qp(end).arm(Armed::Nothing).expect("disarming never fails");
        if until(rig) {
            return;
        }
    }
    panic!("ten thousand events without the expected one");
}

fn a_message_wakes<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    for i in 0..200 {
        let form = Form::ALL[i % 4];
        arm(&mut rig, End::B);
        rig.at(End::B).poll();
        rig.post(End::A, form, if form.is_inline() { 40 } else { 3000 }).expect("one message fits");
        rig.ring(End::A);
        sleep_until(&mut rig, End::B, Other::Sleeps, |rig| rig.at(End::B).expects() == 0);
        rig.wait_idle();
    }
    rig.finish();
}

/// The sleeper has requested only solicited events. Earlier unsolicited messages must not change that.
fn a_solicited_message_wakes_a_sleeper_armed_for_it<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    for i in 0..200 {
        rig.qp(End::B).arm(Armed::Solicited).expect("a live queue pair can be armed");
        rig.at(End::B).poll();
        for _ in 0..i % 4 {
            rig.post(End::A, Form::Inline, 8).expect("few messages fit");
            rig.qp(End::A).ring_doorbell(DoorbellEvent::Unsolicited).expect("alive");
        }
        rig.post(End::A, Form::ALL[i % 4], 40).expect("one message fits");
        rig.ring(End::A);
        sleep(&mut rig, End::B, Other::Sleeps);
        sleep_until(&mut rig, End::B, Other::Sleeps, |rig| rig.at(End::B).expects() == 0);
        rig.wait_idle();
    }
    rig.finish();
}

/// Unsolicited messages arrive before and after a sleeper that has requested only solicited events requests all events.
fn arming_for_more_misses_nothing<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    for i in 0..200 {
        rig.qp(End::B).arm(Armed::Solicited).expect("a live queue pair can be armed");
        rig.at(End::B).poll();
        let unsolicited = |rig: &mut Rig<'_, H>| {
            rig.post(End::A, Form::Inline, 8).expect("one message fits");
            rig.qp(End::A).ring_doorbell(DoorbellEvent::Unsolicited).expect("alive");
        };
        if i % 2 == 0 {
            unsolicited(&mut rig);
        } else {
            arm(&mut rig, End::B);
            rig.at(End::B).poll();
            unsolicited(&mut rig);
            sleep(&mut rig, End::B, Other::Sleeps);
        }
        sleep_until(&mut rig, End::B, Other::Sleeps, |rig| rig.at(End::B).expects() == 0);
        rig.wait_idle();
    }
    rig.finish();
}

fn a_completion_wakes<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    for i in 0..200 {
        let form = [Form::Inline, Form::Ring, Form::Region][i % 3];
        rig.post(End::A, form, 40).expect("one message fits");
        rig.ring(End::A);
        sleep_until(&mut rig, End::A, Other::Polls, |rig| rig.at(End::A).open() == 0);
        rig.wait_idle();
    }
    rig.finish();
}

/// The receiving engine sleeps; at that end, only the handler that drops the lease runs.
fn a_lease_dropped_elsewhere_wakes_its_sender<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    rig.at(End::B).hold = true;
    for _ in 0..50 {
        rig.post(End::A, Form::Ring, 3000).expect("one message fits");
        rig.ring(End::A);
        rig.wait("for the message", |rig| rig.at(End::B).held.len() == 1);
        arm(&mut rig, End::A);
        rig.at(End::A).poll();
        let held = rig.at(End::B).held.pop().expect("just seen");
        std::thread::spawn(move || drop(held.payload)).join().expect("dropping a lease does not panic");
        sleep_until(&mut rig, End::A, Other::Sleeps, |rig| rig.at(End::A).open() == 0);
    }
    rig.finish();
}

fn no_event_is_lost_in_any_interleaving<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    for round in 0..3000 {
        let sleeper = End::BOTH[round % 2];
        let waker = sleeper.other();
        disturb(&mut rig, sleeper);
        arm(&mut rig, sleeper);
        disturb(&mut rig, sleeper);
        arm(&mut rig, sleeper);
        if rig.random.below(2) == 0 {
            post_some(&mut rig, waker);
            rig.ring(waker);
        }
        rig.at(sleeper).poll();
        if rig.random.below(2) == 0 {
            post_some(&mut rig, waker);
        }
        rig.ring(waker);
        rig.ring(sleeper);
        sleep_until(&mut rig, sleeper, Other::Polls, |rig| {
            let side = rig.at(sleeper);
            side.expects() == 0 && side.open() == 0
        });
        rig.wait_idle();
    }
    rig.finish();
}

/// Performs a few random steps at both ends, with arming and disarming at any point.
fn disturb<H: Harness>(rig: &mut Rig<'_, H>, sleeper: End) {
    for _ in 0..rig.random.below(5) {
        match rig.random.below(8) {
            0 => post_some(rig, sleeper.other()),
            1 => post_some(rig, sleeper),
            2 => rig.ring(sleeper.other()),
            3 => rig.ring(sleeper),
            4 => arm(rig, sleeper),
            5 => rig.qp(sleeper).arm(Armed::Nothing).expect("disarming never fails"),
            6 => rig.settle(),
            _ => drop(rig.at(sleeper.other()).poll()),
        }
    }
}

fn post_some<H: Harness>(rig: &mut Rig<'_, H>, from: End) {
    if rig.at(from.other()).expects() < 12 {
        let form = Form::ALL[rig.random.below(4)];
        match rig.post(from, form, 40) {
            Ok(()) | Err(PostError::Full) => {}
            Err(error) => panic!("a message within the depth: {error}"),
        }
    }
}

fn no_event_follows_disarming<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    for messages in 0..16 {
        arm(&mut rig, End::B);
        for _ in 0..messages {
            rig.post(End::A, Form::Ring, 100).expect("messages up to the depth can be posted");
        }
        rig.ring(End::A);
        if messages > 0 {
            sleep(&mut rig, End::B, Other::Polls);
        }
        arm(&mut rig, End::B);
        rig.wait_idle();
        rig.qp(End::B).arm(Armed::Nothing).expect("disarming never fails");
        for _ in 0..50 {
            assert!(!event(&mut rig, End::B), "an event remains after {messages} messages and disarming");
            rig.settle();
        }
    }
    rig.finish();
}

fn the_peers_end_wakes<H: Harness>(harness: &H) {
    for drops in [false, true] {
        let mut rig = Rig::new(harness);
        rig.send(End::A, Form::Inline, 8);
        rig.wait_idle();
        rig.expect_failure();
        arm(&mut rig, End::B);
        assert!(!rig.at(End::B).poll(), "nothing has happened yet");
        rig.qp(End::A).close();
        if drops {
            drop(rig.take(End::A));
        }
        for _ in 0..rig.harness().patience() {
            rig.settle();
            if event(&mut rig, End::B) {
                break;
            }
        }
        assert!(event(&mut rig, End::B), "no event for the loss of the connection");
        rig.wait("for the loss to be reported", |rig| rig.at(End::B).failure.is_some());
        assert_eq!(rig.at(End::B).failure, Some(FabricError::Lost));
        rig.finish_closed();
    }
}

fn a_dead_connection_keeps_no_thread_awake<H: Harness>(harness: &H) {
    for survivor_armed in [false, true] {
        let mut rig = Rig::new(harness);
        rig.expect_failure();
        rig.post(End::A, Form::Ring, 100).expect("one message fits");
        rig.ring(End::A);
        if survivor_armed {
            arm(&mut rig, End::B);
        }
        drop(rig.take(End::A));
        rig.wait("for the loss to be reported", |rig| rig.at(End::B).failure.is_some());
        rig.qp(End::B).close();
        rig.at(End::B).poll();
        rig.qp(End::B).arm(Armed::Nothing).expect("disarming never fails");
        for _ in 0..50 {
            assert!(!event(&mut rig, End::B), "the channel of a closed queue pair stays readable");
            rig.settle();
        }
        rig.finish_closed();
    }
}

/// Messages of the test with two threads.
const MESSAGES: u64 = 3000;

fn no_event_is_lost_between_two_threads<H: Harness>(harness: &H) {
    let limits = ConnectionLimits { send_depth: 8, receive_depth: 8, ..LIMITS };
    let Pair { mut a, mut b, mut link } = harness.pair(limits);
    let received = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random::new(7);
            for number in 0..MESSAGES {
                while number >= received.load(Ordering::Acquire) + 8 && !over.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                for _ in 0..random.below(300) {
                    core::hint::spin_loop();
                }
                post_number(&mut a, number, &over);
            }
            while !over.load(Ordering::Relaxed) {
                let _ = poll_by_value(&mut a);
                std::thread::yield_now();
            }
        });
        // A failed wait panics; the sender must stop then, too, or the scope would wait for it.
        let _stop = Stop(&over);
        receive_numbers(harness, &mut b, &mut link, &received);
    });
}

fn post_number<Q: QueuePair>(a: &mut Q, number: u64, over: &AtomicBool) {
    let bytes = number.to_le_bytes();
    let operation = Operation::Send { header: &RawHeader::default(), payload: Gather::Short(&bytes) };
    while !over.load(Ordering::Relaxed) {
        match a.post(SendWork { signal: Signal::Unsignalled, operation }) {
            Ok(()) => break,
            Err(PostError::Full) => {
                a.ring_doorbell(DoorbellEvent::Solicited).expect("alive");
                assert!(matches!(poll_by_value(a), Ok(None)), "nothing was sent in this direction");
                let _ = a.poll_send();
            }
            Err(error) => panic!("a message within the depth: {error}"),
        }
    }
    a.ring_doorbell(DoorbellEvent::Solicited).expect("alive");
}

fn receive_numbers<H: Harness>(harness: &H, b: &mut H::Qp, link: &mut H::Link, received: &AtomicU64) {
    let mut next = 0;
    let mut take_all = |b: &mut H::Qp| {
        let before = next;
        while let Some(message) = poll_by_value(b).expect("alive") {
            let Arrived::Inline(payload) = message.payload else { panic!("inline payloads arrive inline") };
            assert_eq!(payload.as_slice(), u64::to_le_bytes(next));
            next += 1;
            received.store(next, Ordering::Release);
        }
        assert_eq!(b.poll_send(), None);
        (next, next > before)
    };
    loop {
        b.arm(Armed::All).expect("alive");
        let (count, moved) = take_all(b);
        if count == MESSAGES {
            return;
        }
        if moved {
            continue;
        }
        let woken = (0..harness.patience()).any(|_| {
            harness.settle(link);
            watchdog::turn();
            harness.event(b) == Some(true)
        });
        assert!(woken, "no event after message {count}");
        b.arm(Armed::Nothing).expect("disarming never fails");
    }
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
