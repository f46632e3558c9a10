//! A flag with its own cap. It applies in addition to the module's caps, so it can only lower them.

use core::time::Duration;
use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::sync::{Arc, Weak};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use pronto_expedite::{Device, Flag, Refused};

use crate::machine::{Module, Numbered, now, receive, until};
use crate::waiting::{GENEROUS, write};

/// Duration of each test: twenty windows of the budget. If the emulated CPU was stopped in boosts, the budget is overdrawn until it is
/// paid back, and on a busy host few messages arrive: a test then lasts longer, up to the maximum.
const TIME: Duration = Duration::from_secs(2);
const MAX_TIME: Duration = Duration::from_secs(30);

/// Computing time per message, longer than a slice, so that each boost is used up.
const GREED: Duration = Duration::from_millis(1);

/// Cap that the tests set, in percent of a CPU: far below the demand of the threads on any machine.
const CAP: u32 = 2;

/// Threads that wait on one flagged descriptor.
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

/// Returns the module's counters while several threads took an endless stream of messages from one descriptor with these flags,
/// each through a device of its own, and the duration in nanoseconds. Lasts until the boosted time is `expected` for the duration, or
/// [`MAX_TIME`].
fn tried(
    parameters: &[&str],
    flags: &[Flag],
    expected: fn(u64, u64) -> bool,
) -> (BTreeMap<&'static str, u64>, u64) {
    let module = Module::load(parameters);
    let (one, other) = UnixStream::pair().unwrap();
    for end in [&one, &other] {
        end.set_nonblocking(true).unwrap();
    }
    let set = |flag: &Flag| {
        let device = Device::open().unwrap();
        device.flag(&one, *flag).unwrap();
        device
    };
    let _devices: Vec<_> = flags.iter().map(set).collect();
    let (one, wanted) = (OwnedFd::from(one), Arc::new(()));
    let start = now();
    std::thread::scope(|scope| {
        for _ in 0..CROWD {
            let (one, wanted) = (&one, Arc::downgrade(&wanted));
            scope.spawn(move || reader(one, &wanted));
        }
        let is_expected = || expected(module.counters()["boosted_ns"], nanoseconds(start.elapsed()));
        while start.elapsed() < TIME || (start.elapsed() < MAX_TIME && !is_expected()) {
            let _ = nix::unistd::write(&other, &[0; 8]);
            // The readers get a chance to fall asleep.
            std::thread::yield_now();
        }
        drop(wanted);
    });
    let elapsed = nanoseconds(start.elapsed());
    let counters = module.counters();
    assert!(counters["direct"] + counters["worker"] > 0, "nothing was boosted: {counters:?}");
    (counters, elapsed)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap()
}

/// Returns the time that a cap of [`CAP`] allows, plus 5 %.
fn allowed(elapsed: u64) -> u64 {
    elapsed * u64::from(CAP) / 100 * 105 / 100
}

fn is_within(boosted: u64, elapsed: u64) -> bool {
    boosted <= allowed(elapsed)
}

/// Twice as much, so that the last moment of the test decides nothing.
fn is_beyond(boosted: u64, elapsed: u64) -> bool {
    boosted > 2 * allowed(elapsed)
}

/// Shows: operations.module
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn all_threads_of_a_flag_stay_under_its_cap() {
    let (counters, elapsed) = tried(GENEROUS, &[Flag { percent: CAP, ..Flag::default() }], is_within);
    assert!(counters["boosted_ns"] <= allowed(elapsed), "in {elapsed} ns: {counters:?}");
    assert!(counters["denied_flag"] > 0, "{counters:?}");
    let (without, elapsed) = tried(GENEROUS, &[Flag::default()], is_beyond);
    assert!(without["boosted_ns"] > allowed(elapsed), "the load must exceed the cap: {without:?}");
    assert_eq!(without["denied_flag"], 0, "{without:?}");
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn the_loosest_flag_of_a_file_counts() {
    let flag = |percent| Flag { percent, ..Flag::default() };
    let (tight, _) = tried(GENEROUS, &[flag(CAP), flag(CAP)], |_, _| true);
    assert!(tight["denied_flag"] > 0, "{tight:?}");
    let (loose, elapsed) = tried(GENEROUS, &[flag(CAP), flag(0), flag(5)], is_beyond);
    assert!(
        loose["boosted_ns"] > allowed(elapsed) && loose["denied_flag"] == 0,
        "in {elapsed} ns: {loose:?}"
    );
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_flag_cannot_exceed_the_caps_of_the_module() {
    // The user has this share on each of the two CPUs.
    let of_user: fn(u64, u64) -> bool = |boosted, elapsed| boosted <= 2 * allowed(elapsed);
    let cap = format!("user_percent={CAP}");
    let generous_flag = Flag { percent: 100, slice: Duration::from_secs(1), ..Flag::default() };
    let (counters, elapsed) =
        tried(&["thread_percent=100", &cap, "cpu_percent=100"], &[generous_flag], of_user);
    assert!(of_user(counters["boosted_ns"], elapsed), "in {elapsed} ns: {counters:?}");
    assert!(counters["denied_user"] > 0, "{counters:?}");
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn an_invalid_cap_is_refused() {
    let module = Module::load(&[]);
    let device = Device::open().unwrap();
    let (one, _other) = UnixStream::pair().unwrap();
    let invalid = Err(Refused::System(nix::errno::Errno::EINVAL));
    let too_small = Err(Refused::TooSmall);
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
    // The budget gains a twelfth of 1 ms every 10 ms, and never holds twice that.
    assert_eq!(flag(1, 0), too_small, "a slice of 200 us never fits into the budget");
    assert_eq!(flag(1, 167), too_small);
    assert_eq!((flag(1, 150), flag(2, 0), flag(100, 0)), (Ok(()), Ok(()), Ok(())));
    assert_eq!(module.counters()["flags"], 0);
}

/// Sends messages, up to `most` or until `enough` of them have boosted a thread that computes for that time after each, with a flag for
/// sleepers only. Returns the numbers of boosts and denials, and the duration.
fn boosts_of_a_thread_that_computes(computes_for: Duration, most: u64, enough: u64) -> (u64, u64, Duration) {
    let start = now();
    let module = Module::load(GENEROUS);
    let device = Device::open().unwrap();
    let (one, other) = UnixStream::pair().unwrap();
    device.flag(&one, Flag { sleepers_only: true, ..Flag::default() }).unwrap();
    let other = OwnedFd::from(other);
    let (handled, is_handled) = channel();
    let reader = Numbered::spawn(move || {
        while let Ok(1..) = nix::unistd::read(&one, &mut [0; 64]) {
            let start = now();
            while start.elapsed() < computes_for {
                core::hint::spin_loop();
            }
            handled.send(()).unwrap();
        }
    });
    for _ in 0..most {
        if module.counters()["direct"] >= enough {
            break;
        }
        reader.until_it_sleeps();
        // A message that comes just before the thread waits for it is not counted.
        write(&other);
        receive(&is_handled);
        until("every boost has ended", || {
            let counters = module.counters();
            counters["direct"] + counters["worker"] == counters["drops"]
        });
    }
    // The end of the connection wakes the thread as a message does.
    let (counters, time) = (module.counters(), start.elapsed());
    drop(other);
    reader.join();
    (counters["direct"], counters["denied_thread"], time)
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_flag_for_sleepers_boosts_no_thread_that_computes() {
    // More than a whole budget after each message.
    let (boosts, denied, time) = boosts_of_a_thread_that_computes(Duration::from_millis(20), 100, 100);
    // Such a thread spends each grant immediately, and there is one per 100 ms.
    let grants = time.as_millis() / 100 + 2;
    assert!(
        u128::from(boosts) <= grants && boosts + denied >= 90,
        "{boosts} boosts, {denied} denials, {time:?}"
    );
    assert!(denied > 0, "{boosts} boosts in {time:?}");
    let (boosts, denied, _) = boosts_of_a_thread_that_computes(Duration::ZERO, 10_000, 20);
    assert_eq!(boosts, 20, "{denied} denials");
}
