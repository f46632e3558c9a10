//! CPUs that go online and offline while the module is loaded: each online CPU has its own worker, and no boost is lost.

use std::fs;
use std::net::{TcpListener, TcpStream};

use pronto_expedite::{Device, Flag};

use crate::machine::{Module, Numbered, pin, until};
use crate::waiting::{GENEROUS, is_settled, read, write};

/// The CPU that the tests take offline and online.
const SECOND: usize = 1;

/// Messages per measurement.
const ROUNDS: u64 = 5;

fn set_online(is_online: bool) {
    let path = format!("/sys/devices/system/cpu/cpu{SECOND}/online");
    fs::write(path, if is_online { "1" } else { "0" }).unwrap();
}

/// Guard that brings the second CPU online again.
struct OnlineAgain;

impl Drop for OnlineAgain {
    fn drop(&mut self) {
        set_online(true);
    }
}

/// Returns the module's threads, each with the CPUs on which it may run.
fn workers() -> Vec<(String, String)> {
    let processes = fs::read_dir("/proc").unwrap();
    let status = processes.filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("status")).ok());
    let mut workers: Vec<_> = status
        .filter_map(|status| {
            let field =
                |name| Some(status.lines().find_map(|line| line.strip_prefix(name))?.trim().to_owned());
            Some((field("Name:")?, field("Cpus_allowed_list:")?))
        })
        .filter(|(name, _)| name.starts_with("expedite/"))
        .collect();
    workers.sort();
    workers
}

fn named(workers: &[(&str, &str)]) -> Vec<(String, String)> {
    workers.iter().map(|(name, cpus)| ((*name).to_owned(), (*cpus).to_owned())).collect()
}

/// Lets a thread read messages from a TCP connection, whose arrivals are announced by interrupts. Returns the number of boosts
/// made by the worker.
fn boosts(cpu: Option<usize>) -> u64 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap().into();
    let receiver = listener.accept().unwrap().0.into();
    let device = Device::open().unwrap();
    device.flag(&receiver, Flag::default()).unwrap();
    let handler = Numbered::spawn(move || {
        if let Some(cpu) = cpu {
            pin(cpu);
        }
        for _ in 0..ROUNDS {
            read(&receiver);
        }
    });
    let settled = || device.query(handler.tid).map_or(true, |state| is_settled(&state));
    for round in 1..=ROUNDS {
        handler.until_it_sleeps();
        until("every boost has ended", settled);
        write(&sender);
        until("the arrival is counted", || {
            device.query(handler.tid).is_ok_and(|it| it.counts.calls >= round)
        });
    }
    until("every boost has ended", settled);
    let counts = device.query(handler.tid).unwrap().counts;
    handler.join();
    assert_eq!(counts.direct + counts.worker, counts.drops, "{counts:?}");
    counts.worker
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_cpu_that_goes_online_later_gets_a_worker() {
    let _again = OnlineAgain;
    set_online(false);
    let _module = Module::load(GENEROUS);
    let first = [("expedite/0", "0"), ("expedite/any", "0-1")];
    let both = [("expedite/0", "0"), ("expedite/1", "1"), ("expedite/any", "0-1")];
    assert_eq!(workers(), named(&first));
    assert!(boosts(None) >= ROUNDS - 1);
    set_online(true);
    assert_eq!(workers(), named(&both));
    assert!(boosts(Some(SECOND)) >= ROUNDS - 1);
    set_online(false);
    assert_eq!(workers(), named(&first));
    assert!(boosts(None) >= ROUNDS - 1);
}

/// Guard during which no thread can be created.
struct NoThreads(String);

/// Maximum number of threads in the system.
const THREADS_MAX: &str = "/proc/sys/kernel/threads-max";

impl NoThreads {
    fn begin() -> Self {
        let before = fs::read_to_string(THREADS_MAX).unwrap();
        // The minimum that the kernel accepts; more threads already exist.
        fs::write(THREADS_MAX, "20").unwrap();
        Self(before)
    }
}

impl Drop for NoThreads {
    fn drop(&mut self) {
        fs::write(THREADS_MAX, self.0.trim()).unwrap();
    }
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn the_spare_worker_serves_a_cpu_without_a_worker() {
    let _again = OnlineAgain;
    set_online(false);
    let _module = Module::load(GENEROUS);
    let none = NoThreads::begin();
    set_online(true);
    drop(none);
    assert_eq!(workers(), named(&[("expedite/0", "0"), ("expedite/any", "0-1")]));
    assert!(boosts(Some(SECOND)) >= ROUNDS - 1);
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn no_boost_is_lost_when_cpus_go_offline() {
    let _again = OnlineAgain;
    let module = Module::load(GENEROUS);
    let handlers: Vec<_> =
        (0..4).map(|_| Numbered::spawn(|| (0..3).map(|_| boosts(None)).sum::<u64>())).collect();
    for _ in 0..3 {
        set_online(false);
        set_online(true);
    }
    let boosts: u64 = handlers.into_iter().map(Numbered::join).sum();
    let counters = module.counters();
    println!("{boosts} boosts by workers; {counters:?}");
    assert!(boosts > 0 && counters["direct"] + counters["worker"] == counters["drops"], "{counters:?}");
}
