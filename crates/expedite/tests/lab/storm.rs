//! Random concurrent operations (arrivals, waits, flags, closes, ends of threads and processes), and random requests.
//!
//! An oops is a panic on the test machine, so a broken kernel ends the machine and the test. The tests check the rest.

use core::ffi::{c_ulong, c_void};
use core::time::Duration;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::{Arc, Mutex};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;
use pronto_expedite::{Device, Flag};

use crate::log::assert_no_kernel_warnings;
use crate::machine::{Module, now, pin, until};
use crate::random::Random;

/// Duration of each of the two tests in seconds; overridden by `PRONTO_SOAK_SECONDS`.
const STORM_SECONDS: u64 = 10;
const REQUESTS_SECONDS: u64 = 20;

const THREADS: u64 = 6;

/// Connections that all threads share.
const PLACES: usize = 12;

/// Time that a thread waits for a message, in milliseconds.
const WAIT_MS: u8 = 3;

type Connection = Arc<(OwnedFd, OwnedFd)>;

fn duration(seconds: u64) -> Duration {
    let soak = std::env::var("PRONTO_SOAK_SECONDS").ok().map(|text| text.parse().unwrap());
    Duration::from_secs(soak.unwrap_or(seconds))
}

/// Creates a connection of a random kind; data written to its second end can be read from its first.
fn connection(random: &mut Random) -> Connection {
    let (one, other): (OwnedFd, OwnedFd) = match random.below(5) {
        0 => {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (one.into(), listener.accept().unwrap().0.into())
        }
        1 => nix::unistd::pipe().unwrap(),
        2 => {
            let event = EventFd::new().unwrap();
            (event.as_fd().try_clone_to_owned().unwrap(), event.into())
        }
        _ => {
            let (one, other) = UnixStream::pair().unwrap();
            (one.into(), other.into())
        }
    };
    // Two threads may try to read the same message; the later one must not block.
    for end in [&one, &other] {
        fcntl(end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    }
    Arc::new((one, other))
}

/// Waits for a message for a short time, and reads it.
fn wait(end: &OwnedFd) {
    let mut fds = [PollFd::new(end.as_fd(), PollFlags::POLLIN)];
    if poll(&mut fds, PollTimeout::from(WAIT_MS)) == Ok(1) {
        let _ = nix::unistd::read(end, &mut [0; 8]);
    }
}

/// Runs one thread of the storm.
fn run_thread(seed: u64, connections: &Mutex<Vec<Connection>>) {
    let mut random = Random::new(seed);
    let mut device = Device::open().unwrap();
    let (start, duration) = (now(), duration(STORM_SECONDS));
    while start.elapsed() < duration {
        let place = random.below(PLACES);
        let connection = Arc::clone(&connections.lock().unwrap()[place]);
        let (one, other) = &*connection;
        let slice = Duration::from_nanos(random.next() % 400_000);
        let percent = random.pick(&[0, 0, 5, 50]);
        match random.below(600) {
            0..=99 => drop(device.flag(one, Flag { slice, percent, ..Flag::default() })),
            100..=139 => drop(device.unflag(one)),
            140..=239 => wait(one),
            // The wait also ends when another thread removes the flag or closes the file.
            240..=279 => drop(device.wait(one, Some(Duration::from_millis(u64::from(WAIT_MS))))),
            280..=559 => {
                // The other end may be full or closed.
                let _ = nix::unistd::write(other, &1_u64.to_ne_bytes());
            }
            560..=579 => connections.lock().unwrap()[place] = self::connection(&mut random),
            580..=585 => device = Device::open().unwrap(),
            586..=590 => {
                // The thread may be raised, or about to be, when it ends.
                let connection = Arc::clone(&connection);
                std::thread::spawn(move || wait(&connection.0)).join().unwrap();
            }
            591..=598 => pin(random.below(2)),
            _ => {
                let mut cat = Command::new("cat");
                cat.stdin(one.try_clone().unwrap()).stdout(std::process::Stdio::null());
                let mut cat = cat.spawn().unwrap();
                let _ = poll(&mut [], PollTimeout::from(random.pick(&[0_u8, 1, 2])));
                cat.kill().unwrap();
                cat.wait().unwrap();
            }
        }
    }
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_storm_leaves_no_state_behind() {
    let module = Module::load(&["thread_percent=100", "user_percent=100", "cpu_percent=100"]);
    let mut random = Random::new(1);
    let connections: Vec<_> = (0..PLACES).map(|_| connection(&mut random)).collect();
    let connections = Mutex::new(connections);
    std::thread::scope(|scope| {
        for seed in 0..THREADS {
            let connections = &connections;
            scope.spawn(move || run_thread(seed + 2, connections));
        }
    });
    drop(connections);
    let counters = module.counters();
    println!("{counters:?}");
    assert!(counters["direct"] > 0 && counters["worker"] > 0, "the storm caused no boosts: {counters:?}");
    until("no flag is left", || module.counters()["flags"] == 0);
    until("every boost has ended", || {
        let counters = module.counters();
        counters["direct"] + counters["worker"] == counters["drops"]
    });
    until("every thread is forgotten", || module.counters()["threads"] == 0);
    assert_no_kernel_warnings();
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn random_requests_do_no_harm() {
    let module = Module::load(&[]);
    let mut random = Random::new(7);
    let device = Device::open().unwrap();
    let (one, _other) = UnixStream::pair().unwrap();
    let (reader, _writer) = nix::unistd::pipe().unwrap();
    let event = EventFd::new().unwrap();
    let fds =
        [one.as_raw_fd(), reader.as_raw_fd(), event.as_fd().as_raw_fd(), device.as_fd().as_raw_fd(), 0, 1, 2];
    let (start, duration) = (now(), duration(REQUESTS_SECONDS));
    let (mut done, mut refused) = (0_u64, 0_u64);
    while start.elapsed() < duration {
        let mut words = [0_u64; 32];
        for word in &mut words {
            *word = match random.below(8) {
                0..=3 => 0,
                4 => random.next(),
                5 => u64::from(random.pick(&fds).cast_unsigned()),
                6 => random.pick(&[1, u64::MAX, 1 << 31, 1 << 32, 0x7fff_ffff, u64::MAX >> 1]),
                _ => random.next() % 4096,
            };
        }
        if random.below(2) == 0 {
            words[0] = u64::from(random.pick(&fds).cast_unsigned());
        }
        let number: c_ulong = match random.below(6) {
            0 => 0x4020_45e0,
            1 => 0x4004_45e1,
            2 => 0xc0a8_45e2,
            3 => 0x80e0_45e4,
            4 => {
                // Bounds the wait, which could otherwise last forever.
                words[1] = random.next() % 100_000;
                0x4010_45e3
            }
            _ => random.next() & 0xffff_ffff,
        };
        let argument: *mut c_void = match random.below(8) {
            0 => core::ptr::without_provenance_mut(usize::try_from(random.next()).unwrap()),
            _ => words.as_mut_ptr().cast(),
        };
        // SAFETY: the kernel checks the argument. Only queries write to it, at most 224 bytes. A random address is very
        // unlikely to be one of the few that this process has mapped.
        let result = Errno::result(unsafe { libc::ioctl(device.as_fd().as_raw_fd(), number, argument) });
        match result {
            Ok(_) => done += 1,
            Err(_) => refused += 1,
        }
    }
    println!("{done} done, {refused} refused; {:?}", module.counters());
    assert!(done > 0 && refused > done, "{done} {refused}");
    drop((device, one, reader, event));
    until("no flag is left", || module.counters()["flags"] == 0);
    assert_no_kernel_warnings();
}
