//! Random concurrent operations (arrivals, waits, flags, closes, ends of threads and processes), and random requests.
//!
//! An oops is a panic on the test machine, so a broken kernel ends the machine and the test. The tests check the rest.

use core::ffi::{c_ulong, c_void};
use core::time::Duration;
use std::collections::HashSet;
use std::ffi::OsStr;
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
use pronto_sync::atomic::{AtomicU64, Ordering};

use crate::coverage::Coverage;
use crate::log::assert_no_kernel_warnings;
use crate::machine::{Module, allow, now, pin, until};
use crate::random::Random;

/// Duration of each of the two tests in seconds; overridden by `PRONTO_SOAK_SECONDS`.
const STORM_SECONDS: u64 = 10;
const REQUESTS_SECONDS: u64 = 20;

const THREADS: u64 = 6;

/// Largest number of rounds of the storm.
const ROUNDS: u64 = 10;

/// Connections that all threads share.
const PLACES: usize = 12;

/// Time that a thread waits for a message, in milliseconds.
const WAIT_MS: u8 = 3;

type Connection = Arc<(OwnedFd, OwnedFd)>;

/// Returns the duration of a test.
pub(crate) fn duration(seconds: u64) -> Duration {
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

/// Binds the calling thread to one CPU, or to none.
fn bind(random: &mut Random) {
    let cpus = std::fs::read_dir("/sys/devices/system/cpu").unwrap();
    let count = cpus.filter(|entry| is_cpu(&entry.as_ref().unwrap().file_name())).count();
    if random.below(2) == 0 { pin(random.below(count)) } else { allow(count) }
}

/// Returns whether this is the folder of a CPU: `cpu0`.
fn is_cpu(name: &OsStr) -> bool {
    let digits = name.to_str().and_then(|name| name.strip_prefix("cpu"));
    digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Runs one thread of the storm.
fn run_thread(seed: u64, time: Duration, connections: &Mutex<Vec<Connection>>) {
    let mut random = Random::new(seed);
    let mut device = Device::open().unwrap();
    let start = now();
    while start.elapsed() < time {
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
            591..=598 => bind(&mut random),
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
    // On a busy host, a round may be too short for both kinds of boosts. In the soak, only the first one is long.
    for round in 1..=ROUNDS {
        let time = if round == 1 { duration(STORM_SECONDS) } else { Duration::from_secs(STORM_SECONDS) };
        std::thread::scope(|scope| {
            for seed in 0..THREADS {
                let connections = &connections;
                scope.spawn(move || run_thread(THREADS * round + seed, time, connections));
            }
        });
        let counters = module.counters();
        println!("{counters:?}");
        if counters["direct"] > 0 && counters["worker"] > 0 {
            break;
        }
        assert!(round < ROUNDS, "the storm caused no boosts: {counters:?}");
    }
    drop(connections);
    until("no flag is left", || module.counters()["flags"] == 0);
    until("every boost has ended", || {
        let counters = module.counters();
        counters["direct"] + counters["worker"] == counters["drops"]
    });
    until("every thread is forgotten", || module.counters()["threads"] == 0);
    assert_no_kernel_warnings();
}

/// A request of the device.
#[derive(Clone)]
struct Request {
    number: c_ulong,
    words: [u64; 32],
    /// An address instead of that of the words.
    wild: Option<usize>,
}

/// Numbers of the requests that the module knows, in the order of expedite.h.
const NUMBERS: [c_ulong; 7] =
    [0x4020_45e0, 0x4004_45e1, 0xc0a8_45e2, 0x4010_45e3, 0x80e0_45e4, 0x4004_45e5, 0x8020_45e6];

/// The request that waits, with its time limit in the second word.
const WAITS: c_ulong = NUMBERS[3];

impl Request {
    fn random(random: &mut Random, fds: &[i32]) -> Self {
        let mut words = [0_u64; 32];
        words.iter_mut().for_each(|word| *word = self::word(random, fds));
        if random.below(2) == 0 {
            words[0] = u64::from(random.pick(fds).cast_unsigned());
        }
        let number = match random.below(8) {
            0 => c_ulong::from(random.next() & 0xffff_ffff),
            _ => random.pick(&NUMBERS),
        };
        let wild = (random.below(8) == 0).then(|| usize::try_from(random.next()).unwrap());
        Self { number, words, wild }.bounded()
    }

    /// Returns the request with up to three changes.
    fn changed(&self, random: &mut Random, fds: &[i32]) -> Self {
        let mut changed = Self { wild: None, ..self.clone() };
        for _ in 0..=random.below(3) {
            let at = random.below(6);
            changed.words[at] = match random.below(4) {
                0 => changed.words[at] ^ (1 << random.below(64)),
                1 => changed.words[at].wrapping_add(random.pick(&[1, u64::MAX, 1 << 32])),
                _ => word(random, fds),
            };
        }
        changed.bounded()
    }

    /// Bounds the wait, which could otherwise last for ever.
    fn bounded(mut self) -> Self {
        if self.number == WAITS {
            self.words[1] %= 100_000;
        }
        self
    }

    /// Makes the request. Returns whether the module granted it.
    fn make(&mut self, device: &Device) -> bool {
        let argument: *mut c_void = match self.wild {
            Some(address) => core::ptr::without_provenance_mut(address),
            None => self.words.as_mut_ptr().cast(),
        };
        // SAFETY: the kernel checks the argument. Only queries write to it, at most 224 bytes. A random address is very
        // unlikely to be one of the few that this process has mapped.
        Errno::result(unsafe { libc::ioctl(device.as_fd().as_raw_fd(), self.number, argument) }).is_ok()
    }
}

fn word(random: &mut Random, fds: &[i32]) -> u64 {
    match random.below(8) {
        0..=3 => 0,
        4 => random.next(),
        5 => u64::from(random.pick(fds).cast_unsigned()),
        6 => random.pick(&[1, u64::MAX, 1 << 31, 1 << 32, 0x7fff_ffff, u64::MAX >> 1]),
        _ => random.next() % 4096,
    }
}

/// Requests that have reached new code of the module, and that code. The threads of the fuzzer share them.
#[derive(Default)]
struct Corpus {
    requests: Vec<Request>,
    reached: HashSet<u64>,
}

/// Requests, by result.
#[derive(Default)]
struct Made {
    granted: AtomicU64,
    refused: AtomicU64,
}

/// Makes requests until the time is over. If the kernel records which code they reach, most of them are changed from one that has reached
/// new code.
fn make_requests(seed: u64, devices: &[Device], fds: &[i32], corpus: &Mutex<Corpus>, made: &Made) {
    let mut random = Random::new(seed);
    let coverage = Coverage::begin();
    let (start, duration) = (now(), duration(REQUESTS_SECONDS));
    while start.elapsed() < duration {
        let device = &devices[random.below(devices.len())];
        let known = {
            let corpus = corpus.lock().unwrap();
            let is_changed = random.below(4) > 0 && !corpus.requests.is_empty();
            is_changed.then(|| corpus.requests[random.below(corpus.requests.len())].clone())
        };
        let mut request = match known {
            Some(known) => known.changed(&mut random, fds),
            None => Request::random(&mut random, fds),
        };
        let original = request.clone();
        let is_granted = match &coverage {
            Some(coverage) => {
                let (is_granted, reached) = coverage.of(|| request.make(device));
                corpus.lock().unwrap().learn(original, &reached);
                is_granted
            }
            None => request.make(device),
        };
        let counter = if is_granted { &made.granted } else { &made.refused };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl Corpus {
    /// Keeps a request that has reached new code.
    fn learn(&mut self, request: Request, reached: &[u64]) {
        let before = self.reached.len();
        self.reached.extend(reached);
        if self.reached.len() > before {
            self.requests.push(request);
        }
    }
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn random_requests_do_no_harm() {
    let module = Module::load(&[]);
    let devices: Vec<_> = (0..3).map(|_| Device::open().unwrap()).collect();
    let (one, _other) = UnixStream::pair().unwrap();
    let (reader, _writer) = nix::unistd::pipe().unwrap();
    let event = EventFd::new().unwrap();
    let fds = [
        one.as_raw_fd(),
        reader.as_raw_fd(),
        event.as_fd().as_raw_fd(),
        devices[0].as_fd().as_raw_fd(),
        0,
        1,
        2,
    ];
    let (corpus, made) = (Mutex::default(), Made::default());
    std::thread::scope(|scope| {
        for seed in 0..THREADS {
            let (devices, fds, corpus, made) = (&devices, &fds, &corpus, &made);
            scope.spawn(move || make_requests(seed + 7, devices, fds, corpus, made));
        }
    });
    let Corpus { requests, reached } = corpus.into_inner().unwrap();
    let (done, refused) = (made.granted.load(Ordering::Relaxed), made.refused.load(Ordering::Relaxed));
    println!(
        "{done} done, {refused} refused; {} addresses reached, by {} requests; {:?}",
        reached.len(),
        requests.len(),
        module.counters()
    );
    assert!(done > 0 && refused > done, "{done} {refused}");
    if Coverage::begin().is_some() {
        assert!(requests.len() > NUMBERS.len(), "{} requests have reached new code", requests.len());
    }
    drop((devices, one, reader, event));
    until("no flag is left", || module.counters()["flags"] == 0);
    assert_no_kernel_warnings();
}
