//! A device that is removed while connections use it.
//!
//! A deleted soft-RoCE device cannot be opened any more. Its connections end, and no asynchronous event reports it. But
//! the kernel waits for its users (`ib_uverbs_remove_one` in drivers/infiniband/core/uverbs_main.c, for drivers without
//! `disassociate_ucontext`): the command that deletes it returns when the last user has closed it.
//! without `disassociate_ucontext`): the command that deletes it returns when the last has closed it.

use core::time::Duration;
use std::process::{Child, Command};
use std::thread;

use pronto_core::fabric::{
    DoorbellEvent, FabricError, Gather, Operation, PostError, QueuePair, SendWork, Signal, WrId,
    poll_by_value,
};
use pronto_fabric_verbs::{Device, VerbsError, VerbsQueuePair};
use pronto_wire::RawHeader;

use crate::grants::LIMITS;
use crate::pair::{Devices, addresses};

/// Maximum number of rounds of a tenth of a millisecond: at least two seconds. Not many more: the lab kernel panics if
/// a removal hangs for a minute.
const PATIENCE: u32 = 20_000;

/// Recreates the nodes at the end of a test, even if the test fails.
struct Nodes;

impl Drop for Nodes {
    fn drop(&mut self) {
        let again = "rdma link delete rxe0; rdma link delete rxe1; ip netns delete n0; ip netns delete n1; \
            rm /run/lab/nodes; lab-nodes 2";
        let made = Command::new("sh").args(["-c", again]).output();
        assert!(made.is_ok_and(|made| made.status.success()) || thread::panicking(), "no nodes");
    }
}

fn rest() {
    thread::park_timeout(Duration::from_micros(100));
}

fn comes_true(mut what: impl FnMut() -> bool) -> bool {
    (0..PATIENCE).any(|_| {
        rest();
        what()
    })
}

/// Messages that were posted and have not completed.
#[derive(Default)]
struct Load {
    posted: u32,
    completed: u32,
    arrived: u32,
}

impl Load {
    fn post(&mut self, sender: &mut VerbsQueuePair) -> Result<(), FabricError> {
        let header = RawHeader::default();
        let operation = Operation::Send { header: &header, payload: Gather::Short(b"load") };
        let signal = Signal::Signalled(WrId { slot: 0, generation: 0 });
        match sender.post(SendWork { signal, operation }) {
            Ok(()) => self.posted += 1,
            Err(PostError::Full) => {}
            Err(PostError::Failed(error)) => return Err(error),
            Err(other) => panic!("{other}"),
        }
        sender.ring_doorbell(DoorbellEvent::Solicited)
    }

    fn reap(&mut self, sender: &mut VerbsQueuePair) {
        while sender.poll_send().is_some() {
            self.completed += 1;
        }
    }

    /// Sends one message after the other until the receiver has `messages`, or an end fails.
    fn run(&mut self, ends: [&mut VerbsQueuePair; 2], messages: u32) -> Result<(), FabricError> {
        let [sender, receiver] = ends;
        let until = self.arrived + messages;
        while self.arrived < until {
            self.post(sender)?;
            let arrived = (0..PATIENCE).find_map(|_| {
                self.reap(sender);
                match (poll_by_value(receiver), poll_by_value(sender)) {
                    (Err(error), _) | (_, Err(error)) => return Some(Err(error)),
                    (Ok(Some(_)), _) => return Some(Ok(())),
                    _ => {}
                }
                rest();
                None
            });
            arrived.expect("it arrives or the connection ends")?;
            self.arrived += 1;
        }
        Ok(())
    }
}

/// Removes a device under load with this command.
fn taken_away(command: &[&str]) {
    let nodes = Nodes;
    let devices = Devices::open();
    let [mut a, mut b] = devices.link(LIMITS);
    let mut load = Load::default();
    load.run([&mut a.bulk, &mut b.bulk], 50).unwrap();
    assert!(devices.0[1].is_present());
    let mut removal: Child = Command::new(command[0]).args(&command[1..]).spawn().unwrap();
    // More messages than arrive before the command runs.
    assert_eq!(load.run([&mut a.bulk, &mut b.bulk], 1_000_000), Err(FabricError::Lost));
    // Both ends learn of it, in both classes.
    for pair in [&mut a.bulk, &mut b.bulk, &mut a.control, &mut b.control] {
        let ended = comes_true(|| {
            let _ended = load.post(pair);
            load.reap(pair);
            a.lifeline.check();
            b.lifeline.check();
            poll_by_value(pair).is_err()
        });
        assert!(ended, "a connection outlives its device");
        assert!(load.post(pair).is_err(), "something was posted to a dead device");
        load.reap(pair);
    }
    assert_eq!(load.completed, load.posted, "every request completes, once");
    assert!(comes_true(|| !devices.0[1].is_present()), "the device is gone");
    let address = addresses()[1];
    assert_eq!(Device::for_address(address).err(), Some(VerbsError::NoPort(address)));
    // The command waits for the users of the device.
    assert!(removal.try_wait().unwrap().is_none(), "no process had the device open");
    drop((a, b, devices));
    assert!(comes_true(|| removal.try_wait().unwrap().is_some()), "the device is never released");
    drop(nodes);
    let [mut a, mut b] = Devices::open().link(LIMITS);
    Load::default().run([&mut a.bulk, &mut b.bulk], 1).unwrap();
}

/// Shows: operations.rdma-removed, operations.rdma-released
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_device_that_is_deleted_under_load_ends_its_connections() {
    taken_away(&["rdma", "link", "delete", "rxe1"]);
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_network_device_that_is_deleted_under_load_ends_its_connections() {
    taken_away(&["ip", "-n", "n1", "link", "delete", "eth0"]);
}

/// The number under which a device was opened is free before the device is.
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn another_device_is_not_mistaken_for_the_removed_one() {
    let nodes = Nodes;
    let Devices([kept, other]) = Devices::open();
    let mut removal = Command::new("rdma").args(["link", "delete", "rxe1"]).spawn().unwrap();
    assert!(comes_true(|| !other.is_present()));
    assert!(kept.is_present());
    let rdma = |words: &str| Command::new("rdma").args(words.split(' ')).status().unwrap().success();
    assert!(rdma("link add rxe9 type rxe netdev lo"));
    assert!(!other.is_present(), "another device has the same number");
    assert!(rdma("link delete rxe9"));
    drop((kept, other));
    assert!(comes_true(|| removal.try_wait().unwrap().is_some()));
    drop(nodes);
}
