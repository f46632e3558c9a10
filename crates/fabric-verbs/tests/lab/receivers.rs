//! Receives: there is one for every message that credits allow, and a sender that exceeds them gets an error.

use core::time::Duration;
use std::fs;
use std::thread;

use pronto_core::fabric::{
    ConnectionLimits, DoorbellEvent, FabricError, Gather, Operation, PostError, QueuePair, SendWork, Signal,
    poll_by_value,
};
use pronto_fabric_verbs::VerbsQueuePair;
use pronto_wire::RawHeader;

use crate::grants::LIMITS;
use crate::pair::Devices;

fn post(qp: &mut VerbsQueuePair, payload: &[u8]) -> Result<(), PostError> {
    let header = RawHeader::default();
    let operation = Operation::Send { header: &header, payload: Gather::Short(payload) };
    qp.post(SendWork { signal: Signal::Unsignalled, operation })
}

/// Returns the number of receiver-not-ready events that the devices have counted, at either side.
fn not_ready(devices: &Devices) -> u64 {
    let one = |device: &str, counter: &str| -> u64 {
        let path = format!("/sys/class/infiniband/{device}/ports/1/hw_counters/{counter}");
        fs::read_to_string(path).unwrap().trim().parse().unwrap()
    };
    let of = |device| one(device, "rcvd_rnr_err") + one(device, "send_rnr_err");
    devices.0.iter().map(|device| of(device.name())).sum()
}

/// Ten peers fill their windows at the same time, three times, before their one receiver polls.
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn ten_to_one_finds_a_receive_for_every_message() {
    let devices = Devices::open();
    let limits = ConnectionLimits { send_depth: 64, receive_depth: 64, ..LIMITS };
    let mut links: Vec<_> = (0..10).map(|_| devices.link(limits)).collect();
    let before = not_ready(&devices);
    for _ in 0..3 {
        for [a, _] in &mut links {
            for number in 0..64_u8 {
                post(&mut a.bulk, &[number; 40]).unwrap();
            }
            a.bulk.ring_doorbell(DoorbellEvent::Solicited).unwrap();
        }
        for [a, b] in &mut links {
            let mut received = 0;
            for _ in 0..2_000_000 {
                received += usize::from(poll_by_value(&mut b.bulk).unwrap().is_some());
                if received == 64 {
                    break;
                }
                assert!(poll_by_value(&mut a.bulk).unwrap().is_none());
                thread::yield_now();
            }
            assert_eq!(received, 64);
            // The acknowledgements have arrived: the send queue has room again.
            assert!(a.bulk.poll_send().is_none());
        }
    }
    assert_eq!(not_ready(&devices), before, "a receiver was not ready");
}

/// Posts messages without a credit, as no session does, until the queue pair fails. Returns `None` if it never does.
fn post_until_failure(qp: &mut VerbsQueuePair, most: u32) -> Option<FabricError> {
    let mut posted = 0;
    for _ in 0..PATIENCE {
        let outcome = if posted < most { post(qp, &[7; 40]) } else { Ok(()) };
        match outcome {
            Ok(()) => posted += u32::from(posted < most),
            Err(PostError::Full) => {}
            Err(PostError::Failed(error)) => return Some(error),
            Err(error) => panic!("{error}"),
        }
        if let Err(error) = qp.ring_doorbell(DoorbellEvent::Solicited) {
            return Some(error);
        }
        assert!(qp.poll_send().is_none(), "nothing was signalled");
        if let Err(error) = poll_by_value(qp) {
            return Some(error);
        }
        sleep_a_little();
    }
    None
}

/// Maximum number of rounds of a tenth of a millisecond: a device gives up a peer after half a second.
const PATIENCE: u32 = 100_000;

fn sleep_a_little() {
    thread::park_timeout(Duration::from_micros(100));
}

/// Six queue pairs share receives for their messages in flight, and each sends almost twice that number: the last
/// messages find none.
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_message_without_a_receive_fails_its_sender() {
    let devices = Devices::open();
    let mut links: Vec<_> = (0..3).map(|_| devices.link(LIMITS)).collect();
    let before = not_ready(&devices);
    // Fits a completion queue, so that the queue does not overflow. The other end does not poll.
    let senders = links.iter_mut().flat_map(|[a, _]| [&mut a.control, &mut a.bulk]);
    let failures: Vec<_> = senders
        .filter_map(|sender| {
            for _ in 0..60 {
                post(sender, &[7; 40]).unwrap();
            }
            sender.ring_doorbell(DoorbellEvent::Solicited).unwrap();
            (0..8_000).find_map(|_| {
                sleep_a_little();
                assert!(sender.poll_send().is_none(), "nothing was signalled");
                poll_by_value(sender).err()
            })
        })
        .collect();
    assert!(failures.contains(&FabricError::ReceiverNotReady), "{failures:?}");
    assert!(not_ready(&devices) > before, "the device has not counted it");
}

/// More messages than the receiver's completion queue holds: that connection ends, and no other one is affected.
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn an_overrun_completion_queue_ends_its_connection_alone() {
    let devices = Devices::open();
    let [mut a, mut b] = devices.link(LIMITS);
    let failed = post_until_failure(&mut a.bulk, 120);
    assert!(failed.is_some(), "a hundred messages beyond the window caused no failure");
    assert!((0..PATIENCE).any(|_| {
        sleep_a_little();
        b.lifeline.check();
        poll_by_value(&mut b.bulk).is_err()
    }));
    post(&mut a.control, &[1; 8]).unwrap();
    a.control.ring_doorbell(DoorbellEvent::Solicited).unwrap();
    let arrived = (0..PATIENCE).any(|_| {
        sleep_a_little();
        poll_by_value(&mut b.control).unwrap().is_some()
    });
    assert!(arrived, "no message over the other queue pair of the same peer");
}
