//! Flags on the files of other processes: another file under the number of a closed one is flagged, too.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::process::Command;

use nix::sys::eventfd::EventFd;
use pronto_expedite::Flag;
use pronto_expedite::follow::{Followed, Follower};
use pronto_expedite::process::Kind;

use crate::machine::{Module, until};
use crate::program::run;

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

/// Commands of a device file of RDMA (`include/uapi/rdma/ib_user_verbs.h`).
const GET_CONTEXT: u32 = 0;
const CREATE_COMP_CHANNEL: u32 = 17;

#[expect(clippy::disallowed_types, reason = "the kernel needs the address of the word")]
type Word = core::sync::atomic::AtomicU64;

/// Makes a request of a device that has no arguments. Returns the first 32 bits of the response: a descriptor.
fn request(device: &File, command: u32) -> OwnedFd {
    let response = Word::new(0);
    let words = |bytes: usize| u16::try_from(bytes / 4).unwrap().to_ne_bytes();
    let address = response.as_ptr().expose_provenance() as u64;
    let mut request = command.to_ne_bytes().to_vec();
    // The length of the request, with this header, and that of the response.
    request.extend(words(16));
    request.extend(words(size_of::<Word>()));
    request.extend(address.to_ne_bytes());
    assert_eq!(nix::unistd::write(device, &request), Ok(request.len()));
    let [a, b, c, d, ..] = response.load(pronto_sync::atomic::Ordering::Acquire).to_ne_bytes();
    // SAFETY: the kernel created the descriptor for this function.
    unsafe { OwnedFd::from_raw_fd(i32::from_ne_bytes([a, b, c, d])) }
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_completion_channel_under_the_number_of_a_closed_one_is_flagged() {
    run(Command::new("lab-nodes").arg("2"));
    let device = File::options().read(true).write(true).open("/dev/infiniband/uverbs0").unwrap();
    let events = request(&device, GET_CONTEXT);
    reopened(Kind::RdmaEvents, || request(&device, CREATE_COMP_CHANNEL));
    drop((events, device));
    run(Command::new("lab-nodes").arg("0"));
}
