//! Boosts on a machine with idle CPUs: a thread that may run elsewhere displaces nobody.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../lab/machine.rs"]
mod machine;

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::mpsc::channel;

use nix::poll::{PollTimeout, poll};
use pronto_expedite::{Device, Flag};

use machine::{Module, Numbered, allow, pin, receive};

/// CPUs of the machine.
const CPUS: usize = 4;

/// Messages of each round, and number of rounds, in which the settings alternate.
const MESSAGES: usize = 50;
const ROUNDS: usize = 4;

/// Returns the CPU on which the calling thread runs.
fn here() -> i32 {
    // SAFETY: the call takes no arguments.
    unsafe { libc::sched_getcpu() }
}

/// Returns the CPU on which a process ran last.
fn cpu_of(pid: u32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // Field 39; the second one, in parentheses, may contain spaces.
    stat.rsplit_once(") ").unwrap().1.split(' ').nth(36).unwrap().parse().unwrap()
}

/// Sends messages to a handler that sleeps before each, and starts on the CPU of the process that computes. Returns how many of
/// them it handled there.
fn displaced(hog: u32, is_flagged: bool) -> usize {
    let device = Device::open().unwrap();
    let (receiver, sender) = UnixStream::pair().unwrap();
    let sender = OwnedFd::from(sender);
    if is_flagged {
        device.flag(&receiver, Flag::default()).unwrap();
    }
    let (into_cpus, cpus) = channel();
    let handler = Numbered::spawn(move || {
        for _ in 0..MESSAGES {
            nix::unistd::read(&receiver, &mut [0; 8]).unwrap();
            into_cpus.send(here()).unwrap();
            // Ends on the hog's CPU, where it is the next time it wakes.
            let home = usize::try_from(cpu_of(hog)).unwrap();
            pin(home);
            allow(CPUS);
        }
    });
    let count = (0..MESSAGES).filter(|_| {
        poll(&mut [], PollTimeout::from(3_u8)).unwrap();
        handler.until_it_sleeps();
        let before = cpu_of(hog);
        nix::unistd::write(&sender, &[0; 8]).unwrap();
        receive(&cpus) == before
    });
    let count = count.count();
    handler.join();
    count
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_thread_displaces_nobody_while_another_cpu_is_idle() {
    let module = Module::load(&["even_if_idle=0"]);
    let mut hog = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    poll(&mut [], PollTimeout::from(100_u8)).unwrap();
    let mut counts = [0; 2];
    for _ in 0..ROUNDS {
        for (count, is_flagged) in counts.iter_mut().zip([false, true]) {
            *count += displaced(hog.id(), is_flagged);
        }
    }
    hog.kill().unwrap();
    hog.wait().unwrap();
    let counters = module.counters();
    println!(
        "of {} messages each, {} without and {} with a flag displaced the process that computes; {counters:?}",
        ROUNDS * MESSAGES,
        counts[0],
        counts[1]
    );
    let most = counts[0] + ROUNDS * MESSAGES / 20;
    assert!(counts[1] <= most, "{counts:?}: {counters:?}");
    assert!(counters["idle"] * 10 >= counters["calls"] * 8, "{counters:?}");
}
