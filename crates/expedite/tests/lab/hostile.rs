//! Programs that try to exceed their share: the total boosted time of a user stays below the cap.

use core::time::Duration;
use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::sync::{Arc, Weak};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::gettid;
use pronto_expedite::schedule::{CALLER, policy};
use pronto_expedite::{Device, Flag};
use pronto_sync::atomic::{AtomicU32, Ordering};

use crate::machine::{Module, now, pin, receive};
use crate::users::become_user;

/// Duration of each test: thirty windows of the budget. If the emulated CPU was stopped in boosts, the budget is overdrawn until it is
/// paid back, so a test lasts longer, up to the maximum.
const TIME: Duration = Duration::from_secs(3);
const MAX_TIME: Duration = Duration::from_secs(30);

/// Default cap of a user's share of one CPU, in percent.
const CAP: u64 = 25;

const CPUS: u64 = 2;

/// Threads of the user; their shares together exceed the user's cap.
const THREADS: usize = 12;

/// Computing time per message, longer than a slice, so that each boost is used up.
const GREED: Duration = Duration::from_millis(1);

/// Pause between the first rounds of messages.
const SETTLE: Duration = Duration::from_millis(20);

/// Action of one of the user's threads on its socket, after each message.
type Action = fn(&Device, &OwnedFd);

fn compute() {
    let start = now();
    while start.elapsed() < GREED {
        core::hint::spin_loop();
    }
}

/// Reads a message if one arrives within 20 ms.
fn take(end: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(end.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::from(20_u8)) == Ok(1) && nix::unistd::read(end, &mut [0; 64]).is_ok()
}

fn reader(device: &Device, end: &OwnedFd, wanted: &Weak<()>, action: Action) {
    become_user(65_534);
    while wanted.strong_count() > 0 {
        if take(end) {
            action(device, end);
        }
    }
}

/// A user's maximum share of some CPUs.
#[derive(Debug, Clone, Copy)]
struct Cap {
    percent: u64,
    cpus: u64,
}

impl Cap {
    const DEFAULT: Self = Self { percent: CAP, cpus: CPUS };

    /// Returns the boosted nanoseconds that it allows, plus 5 % for measurement error.
    fn allows(self, elapsed: Duration) -> u64 {
        u64::try_from(elapsed.as_nanos()).unwrap() * self.cpus * self.percent * 105 / 10_000
    }
}

/// Runs the user's threads with `action` after each message while messages keep arriving. Returns the module's counters, and the
/// duration.
fn tried(action: Action) -> (BTreeMap<&'static str, u64>, Duration) {
    tried_under(Cap::DEFAULT, Duration::ZERO, action)
}

/// Runs [`tried`] under a cap, with a pause after each round of messages.
fn tried_under(cap: Cap, pause: Duration, action: Action) -> (BTreeMap<&'static str, u64>, Duration) {
    let module = Module::load(&[&format!("user_percent={}", cap.percent)]);
    let device = Device::open().unwrap();
    let wanted = Arc::new(());
    let start = now();
    std::thread::scope(|scope| {
        let mut writers = Vec::new();
        for _ in 0..THREADS {
            let (one, other) = UnixStream::pair().unwrap();
            other.set_nonblocking(true).unwrap();
            device.flag(&one, Flag::default()).unwrap();
            let (device, weak) = (&device, Arc::downgrade(&wanted));
            scope.spawn(move || reader(device, &one.into(), &weak, action));
            writers.push(other);
        }
        let is_within = || module.counters()["boosted_ns"] <= cap.allows(start.elapsed());
        while start.elapsed() < TIME || (start.elapsed() < MAX_TIME && !is_within()) {
            for writer in &writers {
                let _ = nix::unistd::write(writer, &[0; 8]);
            }
            // The readers get a chance to fall asleep. Messages of the first rounds find them asleep on a busy machine, too.
            std::thread::yield_now();
            let pause = if start.elapsed() < TIME / 4 { pause.max(SETTLE) } else { pause };
            if !pause.is_zero() {
                std::thread::park_timeout(pause);
            }
        }
        drop(wanted);
    });
    let elapsed = start.elapsed();
    let counters = module.counters();
    let allowed = cap.allows(elapsed);
    println!("{} of {allowed} ns; {counters:?}", counters["boosted_ns"]);
    assert!(counters["boosted_ns"] <= allowed, "{} of {allowed} ns: {counters:?}", counters["boosted_ns"]);
    assert!(counters["direct"] + counters["worker"] > 0, "nothing was boosted: {counters:?}");
    (counters, elapsed)
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn many_threads_gain_nothing() {
    let (counters, _) = tried(|_, _| compute());
    assert!(counters["denied_user"] + counters["denied_thread"] > 0, "{counters:?}");
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn flagging_anew_gains_nothing() {
    let (counters, _) = tried(|device, end| {
        device.unflag(end).unwrap();
        device.flag(end, Flag::default()).unwrap();
        compute();
    });
    assert!(counters["denied_user"] + counters["denied_thread"] > 0, "{counters:?}");
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_new_thread_per_message_gains_nothing() {
    // The pace lets each message find its reader asleep. The cap is far below the total demand.
    let (counters, _) = tried_under(Cap { percent: 3, cpus: CPUS }, Duration::from_millis(20), |_, end| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if take(end) {
                    compute();
                }
            });
        });
    });
    assert!(
        counters["denied_user"] > 0,
        "each thread is new, so the user's budget must deny boosts: {counters:?}"
    );
}

/// Moves the calling thread to the other CPU.
fn move_over() {
    pin(if here() == 0 { 1 } else { 0 });
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn changing_the_cpu_gains_nothing() {
    // Such boosts pay from one account for all CPUs, because they could all use the same CPU. The cap is far below the total demand.
    let of_one_cpu = Cap { percent: 4, cpus: 1 };
    let (counters, _) = tried_under(of_one_cpu, Duration::ZERO, |_, _| {
        move_over();
        compute();
    });
    assert!(counters["denied_user"] > 0, "{counters:?}");
}

/// Returns the CPU on which the calling thread runs.
fn here() -> usize {
    // SAFETY: the call takes no arguments.
    usize::try_from(unsafe { libc::sched_getcpu() }).unwrap()
}

/// Waits for messages on CPU 0. After each it computes until its boost has ended, wherever it is by then, and goes back. Counts the
/// boosts during which another thread has moved it to CPU 1.
fn be_moved(end: &OwnedFd, wanted: &Weak<()>, moved: &AtomicU32) {
    become_user(65_534);
    pin(0);
    while wanted.strong_count() > 0 {
        if !take(end) {
            continue;
        }
        while policy(CALLER).unwrap() == libc::SCHED_RR {}
        if here() == 1 {
            moved.fetch_add(1, Ordering::Relaxed);
            pin(0);
        }
    }
}

/// Boosted time of a user whose threads compute on CPU 0 and are moved to CPU 1 before their boosts end. Each of them runs for all of
/// its boost and never sleeps in it, so that only the account for all CPUs notices that CPU 0 was used: the time is charged to the
/// accounts of CPU 1, where no thread waits for messages.
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn being_moved_at_the_end_of_a_boost_gains_nothing() {
    // Long boosts, so that another thread has time to move the boosted one; no cap is as low as that of the user.
    const PERCENT: u64 = 20;
    let module = Module::load(&[
        "slice_us=3000",
        "thread_percent=100",
        "cpu_percent=100",
        &format!("user_percent={PERCENT}"),
    ]);
    let device = Device::open().unwrap();
    let (wanted, moved) = (Arc::new(()), AtomicU32::new(0));
    let (one, other) = UnixStream::pair().unwrap();
    other.set_nonblocking(true).unwrap();
    device.flag(&one, Flag::default()).unwrap();
    pin(1);
    let cap = Cap { percent: PERCENT, cpus: 1 };
    let start = now();
    std::thread::scope(|scope| {
        let (weak, moved) = (Arc::downgrade(&wanted), &moved);
        let (sender, tids) = channel();
        scope.spawn(move || {
            sender.send(gettid()).unwrap();
            be_moved(&one.into(), &weak, moved);
        });
        let tid = receive(&tids);
        let mut to_other_cpu = CpuSet::new();
        to_other_cpu.set(1).unwrap();
        let is_within = || module.counters()["boosted_ns"] <= cap.allows(start.elapsed());
        while start.elapsed() < TIME || (start.elapsed() < MAX_TIME && !is_within()) {
            let _ = nix::unistd::write(&other, &[0; 8]);
            if policy(tid.as_raw()).unwrap() == libc::SCHED_RR {
                let boosted = now();
                while boosted.elapsed() < Duration::from_millis(1) {
                    core::hint::spin_loop();
                }
                sched_setaffinity(tid, &to_other_cpu).unwrap();
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
        drop(wanted);
    });
    let (counters, allowed) = (module.counters(), cap.allows(start.elapsed()));
    let moved = moved.load(Ordering::Relaxed);
    println!("{} of {allowed} ns, moved {moved} times; {counters:?}", counters["boosted_ns"]);
    assert!(counters["boosted_ns"] <= allowed, "{} of {allowed} ns: {counters:?}", counters["boosted_ns"]);
    assert!(moved >= 10 && counters["denied_user"] > 0, "moved {moved} times: {counters:?}");
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_storm_of_forks_gains_nothing() {
    tried(|_, _| {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(compute);
            }
        });
    });
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn tiny_messages_are_charged_for_their_boosts() {
    let (counters, elapsed) = tried(|_, _| {});
    let boosts = counters["direct"] + counters["worker"];
    // Each boost is charged at least 20 us, which bounds the number of boosts.
    let most = 2 * elapsed.as_nanos() / 20_000 * u128::from(CPUS * CAP) * 105 / 10_000;
    assert!(u128::from(boosts) <= most, "{boosts} boosts, at most {most}: {counters:?}");
}
