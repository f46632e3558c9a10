//! A user's program that forks: the child is told that the connections are not its own, the parent goes on.

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use pronto::{CallError, CallRejection, Peer};

use crate::child::{Child, say};
use crate::rig::{Add, TRANSPORTS, add, beside_others, client, counter, started};

#[test]
fn a_forked_child_is_refused_and_its_parent_is_not() {
    let _beside = beside_others();
    for transport in TRANSPORTS {
        let (node, address) = started(1, transport, "fork");
        let forker = Child::start("fork", &[&address]);
        assert_eq!(forker.hears("forked "), "as it should", "{transport}");
        // Nothing that the child did, or left undone at its end, reached this node.
        assert_eq!(counter(&node, 2, "corrupt_peers"), 0);
        assert_eq!(counter(&node, 2, "links_lost"), 0);
    }
}

/// What the child process of the story does.
pub(crate) fn forks(address: &str) {
    let (node, peer) = client(2, address);
    add(&peer);
    // SAFETY: until `_exit` the child only calls what is refused by one look at a flag, and takes no lock.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let code = i32::from(!is_refused(&peer));
            // SAFETY: ends the child at once; nothing of the parent's is run or flushed.
            unsafe { nix::libc::_exit(code) }
        }
        ForkResult::Parent { child } => {
            for _ in 0..100 {
                add(&peer);
            }
            let status = waitpid(child, None).unwrap();
            add(&peer);
            let well = matches!(status, WaitStatus::Exited(_, 0)) && counter(&node, 1, "links_lost") == 0;
            say(&format!("forked {}", if well { "as it should" } else { "and something was wrong" }));
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
