//! What happens to the network under a connection. Each test puts it back as it was.

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

/// Rounds of a tenth of a millisecond: ten seconds at least.
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

/// Whether a message passes from the one to the other.
fn passes([a, b]: &mut [Link; 2]) -> bool {
    post(&mut a.bulk, b"hello").unwrap();
    (0..PATIENCE).any(|_| {
        rest();
        assert!(poll_by_value(&mut a.bulk).unwrap().is_none());
        poll_by_value(&mut b.bulk).unwrap().is_some()
    })
}

/// How the queue pair ends, if it does.
fn end_of(qp: &mut VerbsQueuePair) -> Option<FabricError> {
    (0..PATIENCE).find_map(|_| {
        rest();
        while qp.poll_send().is_some() {}
        poll_by_value(qp).err()
    })
}

/// Runs something, whatever becomes of the test, when it is over.
struct Afterwards<F: FnMut()>(F);

impl<F: FnMut()> Drop for Afterwards<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_link_that_is_down_is_given_up_and_another_works_when_it_is_up() {
    let devices = Devices::open();
    let mut links = devices.link(LIMITS);
    assert!(passes(&mut links));
    let up = Afterwards(|| ip("-n n1 link set eth0 up"));
    ip("-n n1 link set eth0 down");
    post(&mut links[0].bulk, b"into the void").unwrap();
    assert_eq!(end_of(&mut links[0].bulk), Some(FabricError::Lost));
    drop(up);
    // The other side hears of it by the connection that carries nothing.
    links[1].lifeline.look();
    assert_eq!(end_of(&mut links[1].bulk), Some(FabricError::Lost));
    drop(links);
    // Addresses come back to the table of GIDs in their own time.
    let found = (0..PATIENCE).find_map(|_| {
        rest();
        Device::for_address(addresses()[1]).ok()
    });
    drop(found.expect("the port has its address back"));
    assert!(passes(&mut Devices::open().link(LIMITS)));
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn an_address_that_is_gone_is_no_port_s() {
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

/// A peer that sends far more often than anybody looks: events do not pile up.
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
    // One armed queue may still have an event; after that there is silence.
    b.bulk.arm(Armed::Nothing).expect("disarming never fails");
    assert!(poll_by_value(&mut b.bulk).unwrap().is_none());
}
