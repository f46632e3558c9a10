//! A user's program that forks: operations of the child are refused, and the parent continues.

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use pronto::{Bytes, CallError, CallRejection, Message, Peer};

use crate::child::{Child, report};
use crate::rig::{Add, TRANSPORTS, add, client, counter, shared_run, started};

/// [`Page`](crate::rig::Page), in place.
#[derive(Message)]
#[message(name = "faults.page", class = bulk)]
struct PageInPlace {
    bytes: Bytes,
}

#[derive(Message)]
#[message(name = "faults.fetch", reply = PageInPlace)]
struct FetchInPlace {
    len: u32,
}

/// Shows: embedding.fork, messages.bytes-forked
#[test]
fn a_forked_child_is_refused_and_its_parent_is_not() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let (node, address) = started(1, transport, "fork");
        let forker = Child::start("fork", &[&address]);
        assert_eq!(forker.expect_line("forked "), "correctly", "{transport}");
        // No action of the child, and nothing at its exit, may reach this node.
        assert_eq!(counter(&node, 2, "corrupt_peers"), 0);
        assert_eq!(counter(&node, 2, "links_lost"), 0);
    }
}

/// Runs the child process of the scenario.
pub(crate) fn run(address: &str) {
    let (node, peer) = client(2, address);
    add(&peer);
    let page = peer.call(&FetchInPlace { len: 40_000 }).unwrap();
    // SAFETY: until `_exit` the child only makes calls that are refused after a check of a flag, and takes no lock.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let code = i32::from(!(is_refused(&peer) && is_unreadable(&page.bytes)));
            // SAFETY: ends the child immediately; no code of the parent runs, and no buffer is flushed.
            unsafe { nix::libc::_exit(code) }
        }
        ForkResult::Parent { child } => {
            for _ in 0..100 {
                add(&peer);
            }
            let status = waitpid(child, None).unwrap();
            add(&peer);
            let is_correct =
                matches!(status, WaitStatus::Exited(_, 0)) && counter(&node, 1, "links_lost") == 0;
            report(&format!("forked {}", if is_correct { "correctly" } else { "incorrectly" }));
        }
    }
    while !crate::child::command().is_empty() {}
}

fn is_refused(peer: &Peer) -> bool {
    let forked = |error: Option<CallError>| matches!(error, Some(CallError::Rejected(CallRejection::Forked)));
    let request = Add { values: Vec::new() };
    forked(peer.call(&request).err())
        && forked(peer.start(&request).err())
        && forked(peer.notify(&request).err())
}

/// Returns whether the forked child cannot read bytes in memory of their sender; a copy is its own.
fn is_unreadable(bytes: &Bytes) -> bool {
    let mut part = [0; 8];
    bytes.copy_to(0, &mut part).is_err() == bytes.is_lent()
        && bytes.read_blocks(|_, _| {}).is_err() == bytes.is_lent()
}
