//! Flags on the files of other processes: another file under the number of a closed one is flagged, too.

use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use nix::sys::eventfd::EventFd;
use pronto_expedite::Flag;
use pronto_expedite::follow::{Followed, Follower};
use pronto_expedite::process::Kind;

use crate::machine::{Module, until};
use crate::rdma::Rdma;

/// Flags the files of one kind in this process, closes one of them, and opens another one, which gets its number.
fn reopened(kind: Kind, open: impl Fn() -> OwnedFd) {
    let module = Module::load(&[]);
    let mut follower = Follower::new(Flag::default(), &[kind], Followed::Running).unwrap();
    let mut flagged_now = || {
        let scan = follower.scan(&[std::process::id()].into());
        assert!(scan.unreachable.is_empty() && scan.postponed.is_none(), "{scan:?}");
        scan.flagged.into_iter().map(|flagged| flagged.file.fd).collect::<Vec<_>>()
    };
    // Other files of this kind that the process has.
    flagged_now();
    let others = module.counters()["flags"];
    let first = open();
    let number = first.as_raw_fd();
    assert_eq!(flagged_now(), [number]);
    assert_eq!(flagged_now(), [], "it is flagged once");
    drop(first);
    // The kernel may give the number of an eventfd to the next one only now.
    until("the flag has ended", || module.counters()["flags"] == others);
    let second = open();
    assert_eq!(second.as_raw_fd(), number, "the lowest free number");
    assert_eq!(flagged_now(), [number], "another file under the same number");
    assert!(follower.device().is_flagged(second.as_fd()).unwrap());
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn an_eventfd_under_the_number_of_a_closed_one_is_flagged() {
    reopened(Kind::Eventfd, || EventFd::new().unwrap().into());
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_completion_channel_under_the_number_of_a_closed_one_is_flagged() {
    let nodes = Rdma::start();
    reopened(Kind::RdmaEvents, || nodes.completion_channel());
}
