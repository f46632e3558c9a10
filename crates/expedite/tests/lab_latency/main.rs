//! Time until a message reaches its handler while other threads compute on the handler's CPU, and time until the end of a
//! connection reaches the peer. All times are virtual.
//!
//! In some boots the quantum of virtual time (docs/measuring.md) adds milliseconds to a fifth of the delays from send to handler,
//! with or without a boost. This time passes before the handler is on the run queue of its CPU. The tests therefore use a high
//! percentile of the run-queue time, which the scheduler counts, but only the median of the delays.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod ends;
#[path = "../lab/machine.rs"]
#[expect(dead_code, reason = "other targets use the rest")]
mod machine;

use core::time::Duration;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::mpsc::channel;

use nix::poll::ppoll;
use nix::sys::time::TimeSpec;
use nix::unistd::gettid;
use pronto_expedite::{Device, Flag};

use machine::{Module, Numbered, now, pin, receive, until};

/// CPU of handler and hogs, and CPU of the sender.
const CPUS: (usize, usize) = (0, 1);

/// Reason of a test that is skipped on a debug kernel.
const CHECKS: &str =
    "the checks of this kernel cost more than what is measured: run it with the stock kernel";

const HOGS: usize = 6;

/// Messages per setting and round, and number of rounds, in which the settings alternate.
const PINGS: u32 = 40;
const ROUNDS: u32 = 5;

/// Shortest pause between two messages, in which the budget is refilled and the handler falls asleep: two ticks of the kernel's clock.
const PAUSE: Duration = Duration::from_millis(8);

/// Time between two ticks of the kernel's clock. The messages of a round come at many phases of the tick, because shortly after one virtual
/// time shows its quantum (docs/measuring.md): with pauses of whole ticks, one setting would meet it in all messages of a round, and
/// another in none.
const TICK: Duration = Duration::from_millis(4);

/// Fortieths of a tick by which a pause is longer than whole ticks.
const SHIFT: u32 = 17;

/// Extra instructions that an arrival with a denied boost may cost, compared with one without a flag.
const DENIED: u128 = 310;

/// Instructions by which two medians of the same code may differ.
const UNFLAGGED: u128 = 100;

/// Virtual time of one instruction.
const NANOSECONDS_PER_INSTRUCTION: u128 = 2;

/// Scheduling of the handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Setting {
    Off,
    Module,
    AlwaysFifo,
}

const SETTINGS: [Setting; 3] = [Setting::Off, Setting::Module, Setting::AlwaysFifo];

/// Processes that compute on the handler's CPU until this is dropped.
struct Hogs(Vec<Child>);

impl Hogs {
    fn start() -> Self {
        let cpu = CPUS.0.to_string();
        let mut hog = Command::new("taskset");
        hog.args(["-c", &cpu, "sh", "-c", "while :; do :; done"]);
        Self((0..HOGS).map(|_| hog.spawn().unwrap()).collect())
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for hog in &mut self.0 {
            hog.kill().unwrap();
            hog.wait().unwrap();
        }
    }
}

/// Makes the calling thread real-time permanently.
fn set_fifo() {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: the structure outlives the call, and 0 is the calling thread.
    let done = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
    assert_eq!(done, 0);
}

/// Receiver and sender.
type Ends = (OwnedFd, OwnedFd);

fn unix() -> Ends {
    let (one, other) = UnixStream::pair().unwrap();
    (one.into(), other.into())
}

fn tcp() -> Ends {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    sender.set_nodelay(true).unwrap();
    (listener.accept().unwrap().0.into(), sender.into())
}

/// Timing of a message that the handler has received.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    /// Time from send to handler.
    delay: Duration,
    /// Part of the delay in which the handler was runnable and did not run, as counted by the scheduler of the handler's CPU.
    wait: Duration,
}

fn pause(time: Duration) {
    ppoll(&mut [], Some(TimeSpec::from(time)), None).unwrap();
}

/// Returns the total time that a thread of this process was runnable and did not run: the second number of `schedstat`.
fn waited(tid: i32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).unwrap();
    Duration::from_nanos(text.split_whitespace().nth(1).unwrap().parse().unwrap())
}

/// Sends the messages of one round to a handler that sleeps before each send.
fn round(ends: Ends, setting: Setting) -> Vec<Arrival> {
    let (receiver, sender) = ends;
    let device = Device::open().unwrap();
    if setting == Setting::Module {
        device.flag(&receiver, Flag::default()).unwrap();
    }
    let (arrived, arrivals) = channel();
    let handler = Numbered::spawn(move || {
        pin(CPUS.0);
        if setting == Setting::AlwaysFifo {
            set_fifo();
        }
        let tid = gettid().as_raw();
        let mut bytes = [0; 8];
        for _ in 0..PINGS {
            assert_eq!(nix::unistd::read(&receiver, &mut bytes).unwrap(), 8);
            arrived.send((now(), waited(tid))).unwrap();
        }
    });
    let send = |_| {
        pause(PAUSE + TICK * SHIFT / 40);
        handler.until_it_sleeps();
        let waited_before = waited(handler.tid);
        let sent = now();
        assert_eq!(nix::unistd::write(&sender, &[0; 8]).unwrap(), 8);
        let (at, waited) = receive(&arrivals);
        Arrival { delay: at.duration_since(sent), wait: waited - waited_before }
    };
    let all = (0..PINGS).map(send).collect();
    handler.join();
    all
}

/// Returns the time that `hundredths` of the times do not exceed.
fn percentile(times: impl Iterator<Item = Duration>, hundredths: usize) -> Duration {
    let mut times: Vec<_> = times.collect();
    times.sort_unstable();
    times[(times.len() * hundredths / 100).min(times.len() - 1)]
}

/// Figures of one setting that do not depend on the quantum of virtual time.
#[derive(Debug, Clone, Copy)]
struct Figures {
    /// Median delay of the best round.
    delay: Duration,
    /// 90th percentile of the waits of all rounds.
    wait: Duration,
}

impl Figures {
    fn of(rounds: &[Vec<Arrival>]) -> Self {
        let median = |round: &Vec<Arrival>| percentile(round.iter().map(|it| it.delay), 50);
        Self {
            delay: rounds.iter().map(median).min().unwrap(),
            wait: percentile(rounds.iter().flatten().map(|it| it.wait), 90),
        }
    }
}

/// Measures all settings in alternation and prints a table. Returns the figures in the order of the settings.
fn measure(name: &str, connect: fn() -> Ends) -> [Figures; SETTINGS.len()] {
    let module = Module::load(&[]);
    pin(CPUS.1);
    let _hogs = Hogs::start();
    let mut rounds = [const { Vec::new() }; SETTINGS.len()];
    for _ in 0..ROUNDS {
        for (rounds, setting) in rounds.iter_mut().zip(SETTINGS) {
            rounds.push(round(connect(), setting));
        }
    }
    println!("{name}, {HOGS} hogs, {} messages for each setting, us", ROUNDS * PINGS);
    for (rounds, setting) in rounds.iter().zip(SETTINGS) {
        let row = |time: fn(&Arrival) -> Duration| {
            let at = |hundredths| percentile(rounds.iter().flatten().map(time), hundredths).as_micros();
            [50, 90, 99].map(at)
        };
        let (delays, waits) = (row(|it| it.delay), row(|it| it.wait));
        let setting = format!("{setting:?}");
        println!(
            "{setting:12} delays p50, p90, p99 {delays:5?}  waits {waits:5?}  {:?}",
            Figures::of(rounds)
        );
    }
    let counters = module.counters();
    let boosts = counters["direct"] + counters["worker"];
    let messages = u64::from(ROUNDS * PINGS);
    assert!(boosts * 100 >= messages * 95, "{boosts} of {messages} were boosted: {counters:?}");
    rounds.map(|rounds| Figures::of(&rounds))
}

/// Returns whether the kernel has checks, which cost more than what these tests measure.
fn has_checks() -> bool {
    Path::new("/proc/self/fail-nth").exists()
}

/// Checks that a boost makes the handler's delay close to that of always-FIFO, and its waits for other threads `factor` times shorter.
fn check_boost(name: &str, connect: fn() -> Ends, factor: u32) {
    if has_checks() {
        return pronto_skip::because(CHECKS);
    }
    let [off, module, fifo] = measure(name, connect);
    assert!(
        10 * module.delay <= 16 * fifo.delay,
        "delay {:?} with a boost, {:?} with always-FIFO",
        module.delay,
        fifo.delay
    );
    // Not `<=`: a kernel that does not count waits reports 0 for all settings.
    assert!(
        factor * module.wait < off.wait,
        "waits {:?} with a boost, {:?} without the module",
        module.wait,
        off.wait
    );
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_flagged_unix_socket_is_nearly_as_fast_as_always_fifo() {
    check_boost("unix socket", unix, 15);
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_flagged_tcp_connection_is_nearly_as_fast_as_always_fifo() {
    check_boost("tcp", tcp, 10);
}

/// Measures how long a thread that keeps computing is boosted.
fn time_boosted(slice: Duration) -> Duration {
    let device = Device::open().unwrap();
    let (receiver, sender) = unix();
    device.flag(&receiver, Flag { slice, ..Flag::default() }).unwrap();
    let greedy = Numbered::spawn(move || {
        pin(CPUS.0);
        nix::unistd::read(&receiver, &mut [0; 8]).unwrap();
        // Longer than any slice.
        let start = now();
        while start.elapsed() < Duration::from_millis(20) {}
    });
    greedy.until_it_sleeps();
    assert_eq!(nix::unistd::write(&sender, &[0; 8]).unwrap(), 8);
    until("the boost has ended", || device.query(greedy.tid).is_ok_and(|state| state.counts.drops == 1));
    let time = device.query(greedy.tid).unwrap().counts.boosted_time;
    greedy.join();
    time
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_flag_can_shorten_the_slice_but_not_extend_it() {
    let _module = Module::load(&["slice_us=2000", "thread_percent=50", "user_percent=50"]);
    pin(CPUS.1);
    // Takes the minimum of several runs: in some boots the quantum of virtual time adds half a millisecond every time.
    let least = |slice| {
        let times: Vec<_> = (0..6).map(|_| time_boosted(slice)).collect();
        println!("{slice:?}: {times:?}");
        times.into_iter().min().unwrap()
    };
    let [short, most, longer] =
        [Duration::from_micros(100), Duration::ZERO, Duration::from_secs(3_600)].map(least);
    println!("slices of 100 us, 2 ms, an hour: {short:?} {most:?} {longer:?}");
    assert!(2 * short < most, "{short:?} {most:?}");
    assert!(longer < 2 * most, "{longer:?} {most:?}");
}

/// Returns the median time in nanoseconds to write a message to a blocked reader. The median excludes the few writes that coincide
/// with a tick or take a shorter path.
fn time_of_write(flag_through: Option<&Device>) -> u128 {
    let (receiver, sender) = unix();
    if let Some(device) = flag_through {
        device.flag(&receiver, Flag::default()).unwrap();
    }
    let reader = Numbered::spawn(move || {
        pin(CPUS.0);
        for _ in 0..PINGS {
            nix::unistd::read(&receiver, &mut [0; 8]).unwrap();
        }
    });
    let write = |_| {
        pause(PAUSE);
        reader.until_it_sleeps();
        let start = now();
        assert_eq!(nix::unistd::write(&sender, &[0; 8]).unwrap(), 8);
        start.elapsed().as_nanos()
    };
    let mut times: Vec<_> = (0..PINGS).map(write).collect();
    reader.join();
    times.sort_unstable();
    times[times.len() / 2]
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_denied_boost_costs_at_most_310_instructions() {
    if has_checks() {
        return pronto_skip::because(CHECKS);
    }
    for (cause, counter) in [
        ("thread_percent=0", "denied_thread"),
        ("user_percent=0", "denied_user"),
        ("cpu_percent=0", "denied_cpu"),
    ] {
        // No thread has a budget.
        let module = Module::load(&[cause]);
        pin(CPUS.1);
        let device = Device::open().unwrap();
        let (plain, denied) = (time_of_write(None), time_of_write(Some(&device)));
        let counters = module.counters();
        let all = u64::from(PINGS);
        assert_eq!((counters[counter], counters["calls"]), (all, all), "{counters:?}");
        let instructions = denied.saturating_sub(plain) / NANOSECONDS_PER_INSTRUCTION;
        println!(
            "{cause}: a write {plain} ns, {denied} ns with a flag that is denied: {instructions} instructions"
        );
        assert!(instructions <= DENIED, "{instructions} instructions");
    }
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_file_without_a_flag_costs_nothing() {
    let module = Module::load(&[]);
    pin(CPUS.1);
    let device = Device::open().unwrap();
    let (flagged, _other) = unix();
    device.flag(&flagged, Flag::default()).unwrap();
    let with = time_of_write(None);
    drop(device);
    drop(module);
    let without = time_of_write(None);
    println!("a write without a flag: {with} ns with the module, {without} ns without it");
    assert!(with.abs_diff(without) <= UNFLAGGED * NANOSECONDS_PER_INSTRUCTION, "{with} {without}");
}
