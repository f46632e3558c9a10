//! How long a message waits for its handler, beside threads that compute on the handler's processor, and how long the end
//! of a connection takes. In virtual time: what else the host does has no influence, and medians and the ninetieth
//! hundredth compare (docs/measuring.md).
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod ends;
#[path = "../lab/machine.rs"]
mod machine;

use core::time::Duration;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::sync::mpsc::channel;

use nix::poll::{PollTimeout, poll};
use pronto_expedite::{Device, Flag};

use machine::{Module, Numbered, now, pin, receive, until};

/// Where handler and hogs run, and where the sender does.
const CPUS: (usize, usize) = (0, 1);

const HOGS: usize = 6;

/// Messages for each setting and round, and rounds, in which the settings alternate.
const PINGS: usize = 40;
const ROUNDS: usize = 5;

/// Between two messages, milliseconds: the budget comes back, the handler is asleep. Two ticks of the kernel's clock: beside
/// a tick, virtual time shows its quantum (docs/measuring.md).
const PAUSE: u8 = 8;

/// What an arrival whose boost is denied may cost more than one without a flag, instructions.
const DENIED: u128 = 500;

/// By what two medians may differ where the same instructions run, instructions.
const UNFLAGGED: u128 = 100;

/// Of virtual time.
const NANOSECONDS_PER_INSTRUCTION: u128 = 2;

/// How the handler is scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Setting {
    Off,
    Module,
    AlwaysFifo,
}

const SETTINGS: [Setting; 3] = [Setting::Off, Setting::Module, Setting::AlwaysFifo];

/// Processes that compute on the handler's processor, until this is dropped.
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

/// Makes the calling thread real-time for good.
fn set_fifo() {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: the structure lives during the call, and 0 is the calling thread.
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

/// From send to handler, one number for each message.
fn delays(ends: Ends, setting: Setting) -> Vec<Duration> {
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
        let mut bytes = [0; 8];
        for _ in 0..PINGS {
            assert_eq!(nix::unistd::read(&receiver, &mut bytes).unwrap(), 8);
            arrived.send(now()).unwrap();
        }
    });
    let delays = (0..PINGS)
        .map(|_| {
            poll(&mut [], PollTimeout::from(PAUSE)).unwrap();
            handler.until_it_sleeps();
            let sent = now();
            assert_eq!(nix::unistd::write(&sender, &[0; 8]).unwrap(), 8);
            receive(&arrivals).duration_since(sent)
        })
        .collect();
    handler.join();
    delays
}

/// What so many hundredths of the delays do not exceed, nanoseconds.
fn at(delays: &mut [Duration], hundredths: usize) -> u128 {
    delays.sort_unstable();
    delays[(delays.len() * hundredths / 100).min(delays.len() - 1)].as_nanos()
}

/// Measures all settings in alternation, prints a table, and returns the ninetieth hundredths in the order of the settings.
fn table(name: &str, connect: fn() -> Ends) -> [u128; 3] {
    let module = Module::load(&[]);
    pin(CPUS.1);
    let _hogs = Hogs::start();
    let mut all = [const { Vec::new() }; SETTINGS.len()];
    for _ in 0..ROUNDS {
        for (delays_of, setting) in all.iter_mut().zip(SETTINGS) {
            delays_of.extend(delays(connect(), setting));
        }
    }
    println!("{name}, {HOGS} hogs, {} messages for each setting", ROUNDS * PINGS);
    for (delays, setting) in all.iter_mut().zip(SETTINGS) {
        let [p50, p90, p99] = [50, 90, 99].map(|hundredths| at(delays, hundredths) / 1_000);
        println!("{:12} p50 {p50:6} us  p90 {p90:6} us  p99 {p99:6} us", format!("{setting:?}"));
    }
    let counters = module.counters();
    let boosts = counters["direct"] + counters["worker"];
    let messages = u64::try_from(ROUNDS * PINGS).unwrap();
    assert!(boosts * 100 >= messages * 95, "{boosts} of {messages} were boosted: {counters:?}");
    all.map(|mut delays| at(&mut delays, 90))
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_flagged_unix_socket_is_hardly_slower_than_always_fifo() {
    let [off, module, fifo] = table("unix socket", unix);
    assert!(10 * module <= 16 * fifo, "{module} ns against {fifo} ns of always-FIFO");
    assert!(5 * module <= off, "{module} ns against {off} ns without the module");
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_flagged_tcp_connection_is_hardly_slower_than_always_fifo() {
    let [off, module, fifo] = table("tcp", tcp);
    assert!(10 * module <= 16 * fifo, "{module} ns against {fifo} ns of always-FIFO");
    assert!(5 * module <= off, "{module} ns against {off} ns without the module");
}

/// For how long a thread that goes on computing is boosted.
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
    until("the boost has ended", || device.query(greedy.tid).is_ok_and(|counts| counts.drops == 1));
    let time = device.query(greedy.tid).unwrap().boosted_time;
    greedy.join();
    time
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_shorter_slice_can_be_asked_for_and_a_longer_one_cannot() {
    let _module = Module::load(&["slice_us=2000", "thread_percent=50", "user_percent=50"]);
    pin(CPUS.1);
    // The least of some: the quantum of virtual time may come on top, in some boots half a millisecond every time.
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

/// The time that it takes to write a message to a reader that blocks, nanoseconds: the median, as few writes meet a tick or
/// find a shorter way.
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
        poll(&mut [], PollTimeout::from(PAUSE)).unwrap();
        reader.until_it_sleeps();
        let start = now();
        assert_eq!(nix::unistd::write(&sender, &[0; 8]).unwrap(), 8);
        start.elapsed().as_nanos()
    };
    let mut times: Vec<_> = (0..PINGS).map(write).collect();
    reader.join();
    times.sort_unstable();
    times[PINGS / 2]
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_denied_boost_costs_at_most_500_instructions() {
    for (cause, counter) in [
        ("thread_percent=0", "denied_thread"),
        ("user_percent=0", "denied_user"),
        ("cpu_percent=0", "denied_cpu"),
    ] {
        // Nobody has a budget.
        let module = Module::load(&[cause]);
        pin(CPUS.1);
        let device = Device::open().unwrap();
        let (plain, denied) = (time_of_write(None), time_of_write(Some(&device)));
        let counters = module.counters();
        let all = u64::try_from(PINGS).unwrap();
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
fn what_has_no_flag_costs_nothing() {
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
