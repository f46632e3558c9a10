//! A flag with a cap of its own: it holds besides those of the module, so it can only be tighter.

use core::time::Duration;
use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use pronto_expedite::{Device, Flag, Refused};

use crate::machine::{Module, now};
use crate::waiting::GENEROUS;

/// For how long messages come: twenty windows of the budget.
const TIME: Duration = Duration::from_secs(2);

/// Longer than a slice, so that each boost is used up.
const GREED: Duration = Duration::from_millis(1);

/// Of a processor, what the tests allow, hundredths: much less than the threads ask for on any machine.
const CAP: u32 = 2;

/// Threads that wait at one flag.
const CROWD: usize = 3;

fn compute() {
    let start = now();
    while start.elapsed() < GREED {
        core::hint::spin_loop();
    }
}

fn reader(end: &OwnedFd, wanted: &Weak<()>) {
    while wanted.strong_count() > 0 {
        let mut fds = [PollFd::new(end.as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, PollTimeout::from(20_u8)) == Ok(1) && nix::unistd::read(end, &mut [0; 64]).is_ok() {
            compute();
        }
    }
}

/// What the module counted while several threads took messages without an end at one flag, and for how long they did.
fn tried(parameters: &[&str], flag: Flag) -> (BTreeMap<String, u64>, u64) {
    let module = Module::load(parameters);
    let device = Device::open().unwrap();
    let (one, other) = UnixStream::pair().unwrap();
    for end in [&one, &other] {
        end.set_nonblocking(true).unwrap();
    }
    device.flag(&one, flag).unwrap();
    let (one, wanted) = (OwnedFd::from(one), Arc::new(()));
    let start = now();
    std::thread::scope(|scope| {
        for _ in 0..CROWD {
            let (one, wanted) = (&one, Arc::downgrade(&wanted));
            scope.spawn(move || reader(one, &wanted));
        }
        while start.elapsed() < TIME {
            let _ = nix::unistd::write(&other, &[0; 8]);
            // The readers get a chance to fall asleep.
            std::thread::yield_now();
        }
        drop(wanted);
    });
    let elapsed = u64::try_from(start.elapsed().as_nanos()).unwrap();
    let counters = module.counters();
    assert!(counters["direct"] + counters["worker"] > 0, "nothing was boosted: {counters:?}");
    (counters, elapsed)
}

/// What a cap of [`CAP`] allows, and a twentieth of that.
fn allowed(elapsed: u64) -> u64 {
    elapsed * u64::from(CAP) / 100 * 105 / 100
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn all_threads_at_a_flag_stay_under_its_cap() {
    let (counters, elapsed) = tried(GENEROUS, Flag { percent: CAP, ..Flag::default() });
    assert!(counters["boosted_ns"] <= allowed(elapsed), "in {elapsed} ns: {counters:?}");
    assert!(counters["denied_flag"] > 0, "{counters:?}");
    let (without, elapsed) = tried(GENEROUS, Flag::default());
    assert!(without["boosted_ns"] > allowed(elapsed), "the cap had nothing to do: {without:?}");
    assert_eq!(without["denied_flag"], 0, "{without:?}");
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_flag_cannot_have_more_than_the_module_gives() {
    let cap = format!("user_percent={CAP}");
    let generous_flag = Flag { percent: 100, slice: Duration::from_secs(1), ..Flag::default() };
    let (counters, elapsed) = tried(&["thread_percent=100", &cap, "cpu_percent=100"], generous_flag);
    // The user has so much on each of the two processors.
    assert!(counters["boosted_ns"] <= 2 * allowed(elapsed), "in {elapsed} ns: {counters:?}");
    assert!(counters["denied_user"] > 0, "{counters:?}");
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_cap_that_is_none_is_refused() {
    let module = Module::load(&[]);
    let device = Device::open().unwrap();
    let (one, _other) = UnixStream::pair().unwrap();
    let invalid = Err(Refused::System(nix::errno::Errno::EINVAL));
    let flag = |percent, us| {
        let flag = Flag { percent, slice: Duration::from_micros(us), ..Flag::default() };
        let result = device.flag(&one, flag);
        if result.is_ok() {
            device.unflag(&one).unwrap();
        }
        result
    };
    for percent in [101, 1_000, u32::MAX] {
        assert_eq!(flag(percent, 0), invalid, "{percent}");
    }
    // A twelfth of 1 ms is earned every 10 ms, and less than twice that is the most that is ever there.
    assert_eq!(flag(1, 0), invalid, "no slice of 200 us ever fits");
    assert_eq!(flag(1, 167), invalid);
    assert_eq!((flag(1, 150), flag(2, 0), flag(100, 0)), (Ok(()), Ok(()), Ok(())));
    assert_eq!(module.counters()["flags"], 0);
}
