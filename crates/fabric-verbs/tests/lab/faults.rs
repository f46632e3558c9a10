//! Network faults under a connection. Each test restores the network.

use core::time::Duration;
use std::process::Command;
use std::thread;

use pronto_core::fabric::{
    Armed, DoorbellEvent, FabricError, Gather, Operation, PostError, QueuePair, SendWork, Signal, WrId,
    poll_by_value,
};
use pronto_fabric_verbs::{Device, Link, VerbsError, VerbsQueuePair};
use pronto_wire::RawHeader;

use crate::grants::LIMITS;
use crate::pair::{Devices, addresses};

/// Maximum number of rounds of a tenth of a millisecond: at least ten seconds.
const PATIENCE: u32 = 100_000;

fn ip(words: &str) {
    let done = Command::new("ip").args(words.split(' ')).status().unwrap();
    assert!(done.success(), "ip {words}");
}

fn rest() {
    thread::park_timeout(Duration::from_micros(100));
}

fn post(qp: &mut VerbsQueuePair, payload: &[u8]) -> Result<(), PostError> {
    let header = RawHeader::default();
    let operation = Operation::Send { header: &header, payload: Gather::Short(payload) };
    let signal = Signal::Signalled(WrId { slot: 0, generation: 0 });
    qp.post(SendWork { signal, operation })?;
    Ok(qp.ring_doorbell(DoorbellEvent::Solicited)?)
}

/// Returns whether a message arrives from the first link end at the second.
fn passes([a, b]: &mut [Link; 2]) -> bool {
    post(&mut a.bulk, b"hello").unwrap();
    (0..PATIENCE).any(|_| {
        rest();
        assert!(poll_by_value(&mut a.bulk).unwrap().is_none());
        poll_by_value(&mut b.bulk).unwrap().is_some()
    })
}

/// Returns the error with which the queue pair ends, if it does.
fn end_of(qp: &mut VerbsQueuePair) -> Option<FabricError> {
    (0..PATIENCE).find_map(|_| {
        rest();
        while qp.poll_send().is_some() {}
        poll_by_value(qp).err()
    })
}

/// Runs a function at the end of a test, even if the test fails.
struct Afterwards<F: FnMut()>(F);

impl<F: FnMut()> Drop for Afterwards<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Shows: protocol.rdma-sockets, operations.rdma-fails
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_link_that_is_down_is_lost_and_a_new_one_works_when_it_is_up() {
    let devices = Devices::open();
    let mut links = devices.link(LIMITS);
    assert!(passes(&mut links));
    let up = Afterwards(|| ip("-n n1 link set eth0 up"));
    ip("-n n1 link set eth0 down");
    post(&mut links[0].bulk, b"into the void").unwrap();
    assert_eq!(end_of(&mut links[0].bulk), Some(FabricError::Lost));
    drop(up);
    // The other side learns of it by the socket, which carries no data.
    links[1].lifeline.check();
    assert_eq!(end_of(&mut links[1].bulk), Some(FabricError::Lost));
    drop(links);
    // Addresses return to the GID table with a delay.
    let found = (0..PATIENCE).find_map(|_| {
        rest();
        Device::for_address(addresses()[1]).ok()
    });
    drop(found.expect("the port has its address back"));
    assert!(passes(&mut Devices::open().link(LIMITS)));
}

/// Shows: operations.rdma-port
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn no_port_has_a_removed_address() {
    let address = addresses()[1];
    let back = Afterwards(|| ip(&format!("-n n1 addr add {address}/24 dev eth0")));
    ip(&format!("-n n1 addr del {address}/24 dev eth0"));
    let refused = (0..PATIENCE).find_map(|_| {
        rest();
        Device::for_address(address).err()
    });
    assert_eq!(refused, Some(VerbsError::NoPort(address)));
    drop(back);
    assert!((0..PATIENCE).any(|_| {
        rest();
        Device::for_address(address).is_ok()
    }));
    assert!(passes(&mut Devices::open().link(LIMITS)));
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn ports_of_different_mtu_agree_on_the_smaller() {
    let back = Afterwards(|| ip("-n n0 link set eth0 mtu 9000"));
    ip("-n n0 link set eth0 mtu 1500");
    let mut links = Devices::open().link(LIMITS);
    assert!(passes(&mut links));
    drop(back);
}

/// A peer sends far more often than the receiver polls: events do not accumulate.
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_storm_of_events_ends_with_its_messages() {
    let [mut a, mut b] = Devices::open().link(LIMITS);
    for _ in 0..200 {
        b.bulk.arm(Armed::All).unwrap();
        for _ in 0..LIMITS.send_depth {
            post(&mut a.bulk, b"storm").unwrap();
        }
        let mut left = LIMITS.send_depth;
        for _ in 0..PATIENCE {
            left -= u32::from(poll_by_value(&mut b.bulk).unwrap().is_some());
            while a.bulk.poll_send().is_some() {}
            if left == 0 {
                break;
            }
            thread::yield_now();
        }
        assert_eq!(left, 0);
        b.bulk.arm(Armed::Nothing).expect("disarming never fails");
    }
    // One armed queue may still have an event; after that there is none.
    b.bulk.arm(Armed::Nothing).expect("disarming never fails");
    assert!(poll_by_value(&mut b.bulk).unwrap().is_none());
}
