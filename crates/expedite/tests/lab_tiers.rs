//! The tiers on a stock kernel: with the module and without it, with the right to be real-time and without it.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use core::time::Duration;
use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use nix::poll::{PollTimeout, poll};
use nix::sys::eventfd::EventFd;
use nix::unistd::gettid;
use pronto_core::Tier;
use pronto_expedite::schedule::{CALLER, policy};
use pronto_expedite::{Device, obtain};

/// The module is there, or is not: one test at a time says which.
static ALONE: Mutex<()> = Mutex::new(());

/// Set for the part of a test that runs in a process of its own, without a right.
const WITHOUT_RIGHT: &str = "PRONTO_TIERS_WITHOUT_RIGHT";

fn succeeds(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn load_module() {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let module = target.join("lab-modules").join(release.trim()).join("expedite/expedite.ko");
    succeeds(Command::new("insmod").arg(module));
}

/// Fails after half a minute.
fn until(what: &str, is_so: impl Fn() -> bool) {
    #[expect(clippy::disallowed_methods, reason = "how long something may take is real time")]
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(30), "it is still not so: {what}");
        poll(&mut [], PollTimeout::from(2_u8)).unwrap();
    }
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn the_module_is_best_then_fifo_then_a_slice() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    if std::env::var_os(WITHOUT_RIGHT).is_some() {
        println!("without the right: {}", obtain(None));
        return;
    }
    let without = obtain(None);
    assert_eq!(without.booster.tier(), Tier::Fifo, "{without}");
    let text = without.to_string();
    assert!(text.starts_with("fifo (module: the module expedite is not loaded"), "{text}");
    // The same part of this test in a process that may not be real-time.
    let again = std::env::current_exe().unwrap();
    let test = ["--ignored", "--exact", "--nocapture", "the_module_is_best_then_fifo_then_a_slice"];
    let mut unprivileged = Command::new("setpriv");
    unprivileged.args(["--bounding-set", "-sys_nice", "--inh-caps", "-sys_nice"]).arg(again).args(test);
    let said = succeeds(unprivileged.env(WITHOUT_RIGHT, "1"));
    assert!(said.contains("without the right: slice (module: ") && said.contains("fifo: it needs"), "{said}");
    load_module();
    let with = obtain(None);
    assert_eq!(with.to_string(), "module");
    let (channel, device) = (EventFd::new().unwrap(), Device::open().unwrap());
    with.booster.watch(channel.as_fd().as_raw_fd()).unwrap();
    std::thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let channel = &channel;
        let waiter = scope.spawn(move || {
            tell.send(gettid().as_raw()).unwrap();
            channel.read().unwrap()
        });
        let waiter_tid = told.recv().unwrap();
        let sleeps = || {
            let stat = fs::read_to_string(format!("/proc/self/task/{waiter_tid}/stat")).unwrap();
            stat.rsplit_once(") ").unwrap().1.starts_with('S')
        };
        until("the thread waits", sleeps);
        channel.write(1).unwrap();
        until("it was boosted", || {
            device.query(waiter_tid).map_or(true, |counts| counts.direct + counts.worker == 1)
        });
        waiter.join().unwrap();
    });
    drop((device, with));
    succeeds(Command::new("rmmod").arg("expedite"));
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_real_time_thread_that_runs_on_and_on_is_lowered() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let fifo = obtain(Some(Tier::Fifo));
    assert_eq!(fifo.to_string(), "fifo");
    let done = std::thread::scope(|scope| {
        let endless = scope.spawn(|| {
            fifo.booster.adopt().unwrap();
            let before = policy(CALLER).unwrap();
            #[expect(clippy::disallowed_methods, reason = "how long something may take is real time")]
            let start = Instant::now();
            // A handler that never comes to an end, but for this test's patience.
            while policy(CALLER).unwrap() == libc::SCHED_FIFO && start.elapsed() < Duration::from_secs(30) {}
            fifo.booster.before_wait();
            (before, policy(CALLER).unwrap())
        });
        endless.join().unwrap()
    });
    assert_eq!(done, (libc::SCHED_FIFO, libc::SCHED_OTHER), "lowered, and in debt for a while");
}
