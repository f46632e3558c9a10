//! The tiers on a stock kernel, with and without the module, and with and without the privilege to be real-time.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use core::time::Duration;
use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::process::Command;
use std::time::Instant;

use nix::poll::{PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::EventFd;
use nix::unistd::gettid;
use pronto_core::Tier;
use pronto_expedite::schedule::{CALLER, policy};
use pronto_expedite::{Device, obtain};
use pronto_lab_module::Absent;

/// Variable that is set for the part of a test that runs in an unprivileged process.
const UNPRIVILEGED: &str = "PRONTO_TIERS_WITHOUT_RIGHT";

fn succeeds(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Waits until `is_so` returns true; fails after 30 s. `what` describes the condition.
fn until(what: &str, is_so: impl Fn() -> bool) {
    #[expect(clippy::disallowed_methods, reason = "time limits of tests use real time")]
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(30), "timed out waiting until {what}");
        poll(&mut [], PollTimeout::from(2_u8)).unwrap();
    }
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn the_module_is_best_then_fifo_then_a_slice() {
    if std::env::var_os(UNPRIVILEGED).is_some() {
        println!("unprivileged: {}", obtain(None));
        return;
    }
    let absent = Absent::hold();
    let without = obtain(None);
    assert_eq!(without.booster.tier(), Tier::Fifo, "{without}");
    let text = without.to_string();
    assert!(text.starts_with("fifo (module: the module expedite is not loaded"), "{text}");
    // Runs the first part of this test again, in a process that may not be real-time.
    let again = std::env::current_exe().unwrap();
    let test = ["--ignored", "--exact", "--nocapture", "the_module_is_best_then_fifo_then_a_slice"];
    let mut unprivileged = Command::new("setpriv");
    unprivileged.args(["--bounding-set", "-sys_nice", "--inh-caps", "-sys_nice"]).arg(again).args(test);
    let output = succeeds(unprivileged.env(UNPRIVILEGED, "1"));
    assert!(
        output.contains("unprivileged: slice (module: ") && output.contains("fifo: it needs"),
        "{output}"
    );
    let _module = absent.load(&[]);
    let with = obtain(None);
    assert_eq!(with.to_string(), "module");
    let (channel, device) = (EventFd::new().unwrap(), Device::open().unwrap());
    with.booster.watch(channel.as_fd().as_raw_fd()).unwrap();
    std::thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel();
        let channel = &channel;
        let waiter = scope.spawn(move || {
            sender.send(gettid().as_raw()).unwrap();
            channel.read().unwrap()
        });
        let waiter_tid = receiver.recv().unwrap();
        let sleeps = || {
            let stat = fs::read_to_string(format!("/proc/self/task/{waiter_tid}/stat")).unwrap();
            stat.rsplit_once(") ").unwrap().1.starts_with('S')
        };
        until("the thread waits", sleeps);
        channel.write(1).unwrap();
        until("the thread was boosted", || {
            device.query(waiter_tid).map_or(true, |state| state.counts.boosts() == 1)
        });
        waiter.join().unwrap();
    });
    let epolls = [(); 2].map(|()| Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap());
    let event = EventFd::new().unwrap();
    epolls[0].add(&event, EpollEvent::new(EpollFlags::EPOLLIN, 0)).unwrap();
    epolls[1].add(&epolls[0].0, EpollEvent::new(EpollFlags::EPOLLIN, 0)).unwrap();
    let before = device.totals().unwrap().flags;
    with.booster.watch(epolls[1].0.as_raw_fd()).unwrap();
    assert_eq!(device.totals().unwrap().flags, before + 1, "the file in the nested epoll");
}

/// Shows: operations.fifo
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_real_time_thread_that_runs_too_long_is_lowered() {
    let _absent = Absent::hold();
    let fifo = obtain(Some(Tier::Fifo));
    assert_eq!(fifo.to_string(), "fifo");
    let done = std::thread::scope(|scope| {
        let endless = scope.spawn(|| {
            fifo.booster.adopt().unwrap();
            let before = policy(CALLER).unwrap();
            #[expect(clippy::disallowed_methods, reason = "time limits of tests use real time")]
            let start = Instant::now();
            // Simulates a handler that never ends, up to a time limit.
            while policy(CALLER).unwrap() == libc::SCHED_FIFO && start.elapsed() < Duration::from_secs(30) {}
            fifo.booster.before_wait();
            (before, policy(CALLER).unwrap())
        });
        endless.join().unwrap()
    });
    assert_eq!(
        done,
        (libc::SCHED_FIFO, libc::SCHED_OTHER),
        "the thread must be lowered, and not raised while its budget is overdrawn"
    );
}
