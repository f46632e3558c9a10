//! Shares of CPU time under the scheduler: caps of boosts, weights, balance of CPUs, and the throughput of processes that exchange
//! messages. All times are virtual.
#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![forbid(unsafe_code)]

#[path = "../machine/mod.rs"]
mod machine;

use core::time::Duration;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::Arc;

use nix::poll::ppoll;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use pronto_expedite::process::thread_descriptor;
use pronto_expedite::schedule::{CALLER, Class, schedule, set_nice};
use pronto_expedite::scx::Counters;
use pronto_sched_policy::policy::weight::Weight;
use pronto_scx::{Flags as _, Loaded};
use pronto_sync::atomic::{AtomicBool, Ordering};

use machine::{Alone, Hogs, Numbered, flag, load, now, pause, pin};

/// CPU of the handlers, and CPU of the sender.
const CPUS: (usize, usize) = (0, 1);

/// Time of a measurement, in milliseconds.
const MEASURED: u16 = 2_000;

/// Time that a handler computes when it was woken, and time between two messages. A handler that is boosted has finished before the next
/// message, which wakes it again: without caps, it would use three quarters of a CPU.
const WORK: Duration = Duration::from_micros(150);
const PERIOD: Duration = Duration::from_micros(200);

/// Part of a CPU by which measured shares may exceed a cap, in percent.
const TOLERANCE: f64 = 2.0;

/// Results of greedy handlers.
#[derive(Debug)]
struct Greedy {
    /// CPU time of all handlers, and boosted time, in percent of a CPU.
    ran: f64,
    boosted: f64,
    counters: Counters,
}

/// Runs `count` flagged handlers on one CPU with 20 hogs, and sends each a message per period.
fn be_greedy(loaded: &Loaded, count: usize, nice: i32) -> Greedy {
    pin(CPUS.1);
    let _hogs = Hogs::start(&CPUS.0.to_string(), &[0; 20]);
    let ends = Arc::new(AtomicBool::new(false));
    let mut senders = Vec::new();
    let start = |_| {
        let (receiver, sender) = UnixStream::pair().unwrap();
        sender.set_nonblocking(true).unwrap();
        senders.push(sender);
        let ends = Arc::clone(&ends);
        let handler = Numbered::spawn(move || {
            pin(CPUS.0);
            set_nice(CALLER, nice).unwrap();
            // Takes all messages that have arrived, so that it sleeps after its work.
            let mut bytes = [0; 4096];
            while nix::unistd::read(&receiver, &mut bytes).unwrap() > 0 && !ends.load(Ordering::Relaxed) {
                let begun = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap();
                let ran = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap() - begun;
                while Duration::from(ran()) < WORK {}
            }
        });
        flag(loaded, handler.tid);
        handler
    };
    let handlers: Vec<_> = (0..count).map(start).collect();
    pause(200);
    let ran = || handlers.iter().map(Numbered::ran).sum::<Duration>();
    let (begun, ran_before, before) = (now(), ran(), loaded.counters());
    while begun.elapsed() < Duration::from_millis(MEASURED.into()) {
        for sender in &senders {
            // The buffer may be full.
            let _full = nix::unistd::write(sender, &[0]);
        }
        ppoll(&mut [], Some(PERIOD.into()), None).unwrap();
    }
    let elapsed = begun.elapsed().as_secs_f64() / 100.0;
    let (ran_after, counters) = (ran(), loaded.counters());
    ends.store(true, Ordering::Relaxed);
    drop(senders);
    handlers.into_iter().for_each(Numbered::join);
    Greedy {
        ran: (ran_after - ran_before).as_secs_f64() / elapsed,
        boosted: (counters.boosted_time() - before.boosted_time()).as_secs_f64() / elapsed,
        counters,
    }
}

/// Shows: operations.scx-caps
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_greedy_handler_gets_no_more_than_its_cap() {
    let _alone = Alone::take();
    let loaded = load();
    let greedy = be_greedy(&loaded, 1, 0);
    println!("{greedy:?}");
    // Its share without boosts would be one of 21.
    assert!(greedy.ran <= 10.0 + TOLERANCE && greedy.boosted <= 10.0, "{greedy:?}");
    assert!(greedy.boosted >= 1.0 && greedy.counters.denied_thread > 0, "{greedy:?}");
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn many_greedy_handlers_get_no_more_than_the_cap_of_their_user() {
    let _alone = Alone::take();
    let loaded = load();
    let greedy = be_greedy(&loaded, 6, 0);
    println!("{greedy:?}");
    assert!(greedy.boosted <= 25.0, "{greedy:?}");
    // Their share without boosts would be 6 of 26.
    assert!(greedy.ran <= 25.0 + TOLERANCE, "{greedy:?}");
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_niced_thread_is_not_boosted() {
    let _alone = Alone::take();
    let loaded = load();
    let greedy = be_greedy(&loaded, 1, 5);
    assert!(greedy.counters.boosts == 0 && greedy.counters.behind > 0, "{greedy:?}");
}

/// Disturbance of a boosted thread.
#[derive(Debug, Clone, Copy)]
enum Disturbance {
    End,
    OtherCpu,
    RealTime,
    Unflag,
}

const DISTURBANCES: [Disturbance; 4] =
    [Disturbance::End, Disturbance::OtherCpu, Disturbance::RealTime, Disturbance::Unflag];

/// Starts a flagged thread that waits for a message on the CPU of the hogs, and then computes for `work`.
fn waiting(loaded: &Loaded, work: Duration) -> (Numbered<()>, UnixStream) {
    let (receiver, sender) = UnixStream::pair().unwrap();
    let thread = Numbered::spawn(move || {
        pin(CPUS.0);
        while nix::unistd::read(&receiver, &mut [0]).unwrap() > 0 {
            let begun = now();
            while begun.elapsed() < work {}
        }
    });
    flag(loaded, thread.tid);
    thread.until_it_sleeps();
    (thread, sender)
}

/// A boost that ends in an unusual way must return what was reserved for it, or there would soon be none.
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn disturbed_boosts_return_their_reservations() {
    let _alone = Alone::take();
    pin(CPUS.1);
    let loaded = load();
    let _hogs = Hogs::start(&CPUS.0.to_string(), &[0; 3]);
    for index in 0..120 {
        let disturbance = DISTURBANCES[index % DISTURBANCES.len()];
        // Less than a slice, and more.
        let work = if index % 8 < 4 { 20 } else { 400 };
        let (thread, sender) = waiting(&loaded, Duration::from_micros(work));
        assert_eq!(nix::unistd::write(&sender, &[0]).unwrap(), 1);
        match disturbance {
            Disturbance::End => {}
            Disturbance::OtherCpu => {
                let mut set = CpuSet::new();
                set.set(CPUS.1).unwrap();
                sched_setaffinity(Pid::from_raw(thread.tid), &set).unwrap();
            }
            Disturbance::RealTime => {
                schedule(thread.tid, Class::Fifo(1)).unwrap();
                schedule(thread.tid, Class::Normal).unwrap();
            }
            Disturbance::Unflag => {
                loaded.unflag(thread_descriptor(thread.tid).unwrap().as_fd()).unwrap();
            }
        }
        drop(sender);
        thread.join();
    }
    // All budgets are full after some epochs.
    pause(200);
    let before = loaded.counters();
    println!("{before:?}");
    let (thread, sender) = waiting(&loaded, Duration::ZERO);
    for _ in 0..20 {
        assert_eq!(nix::unistd::write(&sender, &[0]).unwrap(), 1);
        pause(10);
        thread.until_it_sleeps();
    }
    let after = loaded.counters();
    drop(sender);
    thread.join();
    assert_eq!(after.denied(), before.denied(), "{after:?}");
    assert!(after.boosts >= before.boosts + 19, "{after:?}");
    assert_eq!(loaded.exit(), None);
}

/// Returns the CPU times of hogs within a measurement.
fn shares(cpus: &str, nice: &[i32]) -> Vec<u64> {
    pin(CPUS.1);
    measured(&Hogs::start(cpus, nice))
}

fn measured(hogs: &Hogs) -> Vec<u64> {
    pause(200);
    let before = hogs.times();
    pause(MEASURED);
    hogs.times().iter().zip(before).map(|(after, before)| after - before).collect()
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn nice_values_are_weights() {
    let _alone = Alone::take();
    let loaded = load();
    let times = shares("0", &[0, 5]);
    println!("nice 0 and 5: {times:?} ticks");
    // The weights are 1024 and 335.
    let ratio = times[0] as f64 / times[1] as f64;
    assert!((2.6..3.6).contains(&ratio), "{times:?}");
    let times = shares("0", &[-10, 0]);
    println!("nice -10 and 0: {times:?} ticks");
    // The weights are 9548 and 1024.
    let ratio = times[0] as f64 / times[1] as f64;
    assert!((7.0..13.0).contains(&ratio), "{times:?}");
    assert_eq!(loaded.exit(), None);
}

/// Processes get shares that are proportional to their weights, and none gets less than its part next to the largest weight.
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn weights_of_processes_multiply_those_of_nice_values() {
    let _alone = Alone::take();
    let loaded = load();
    pin(CPUS.1);
    let hogs = Hogs::start("0", &[0, 0, 5]);
    let main_threads: Vec<_> = hogs.ids().into_iter().map(|id| thread_descriptor(id).unwrap()).collect();
    let nice_5 = 335.0 / 1_024.0;
    // In hundredths. The third hog has the nice value 5.
    for given in [[100, 100, 100], [300, 100, 100], [100, 250, 400], [1_000, 100, 100], [100, 100, 100]] {
        for (main_thread, hundredths) in main_threads.iter().zip(given) {
            let removed = loaded.weigh(main_thread.as_fd(), Weight::hundredths(hundredths));
            // One that has no weight cannot lose it.
            assert!(removed.is_ok() || hundredths == 100, "{removed:?}");
        }
        let times = measured(&hogs);
        let weights = [given[0].into(), given[1].into(), f64::from(given[2]) * nice_5];
        let (sum, all) = (weights.iter().sum::<f64>(), times.iter().sum::<u64>() as f64);
        println!("weights {given:?}: {times:?} ticks");
        for (time, weight) in times.iter().zip(weights) {
            let (got, expected) = (*time as f64 / all, weight / sum);
            assert!(
                (got - expected).abs() <= 0.04,
                "{given:?}: {times:?}, {got:.3} instead of {expected:.3}"
            );
        }
    }
    assert_eq!(loaded.exit(), None);
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn three_hogs_share_two_cpus() {
    let _alone = Alone::take();
    println!("three hogs on two CPUs: {:?} ticks with the kernel's scheduler", shares("0,1", &[0; 3]));
    let loaded = load();
    let times = shares("0,1", &[0; 3]);
    println!("three hogs on two CPUs: {times:?} ticks");
    let (least, most) = (times.iter().min().unwrap(), times.iter().max().unwrap());
    assert!(most * 10 <= least * 14, "{times:?}");
    assert_eq!(loaded.exit(), None);
}

/// Returns the time that hackbench reports, in seconds.
fn hackbench() -> f64 {
    let output = Command::new("hackbench").args(["-g", "2", "-l", "200"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let time = text.lines().find_map(|line| line.strip_prefix("Time: ")).unwrap();
    time.trim().parse().unwrap()
}

/// Shows: operations.scx-throughput
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn hackbench_takes_at_most_a_twentieth_longer_than_with_the_kernels_scheduler() {
    let _alone = Alone::take();
    let (mut own, mut bpf) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..3 {
        let time = hackbench();
        let loaded = load();
        let with = hackbench();
        assert_eq!(loaded.exit(), None);
        println!("hackbench: {time} s with the kernel's scheduler, {with} s with pronto");
        (own, bpf) = (own.min(time), bpf.min(with));
    }
    println!("hackbench: {:.3} times as long", bpf / own);
    assert!(bpf <= 1.05 * own, "{own} {bpf}");
}
