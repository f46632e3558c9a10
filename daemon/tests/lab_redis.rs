//! redis-server of Debian, unmodified: time until it replies with and without boosts, while other processes compute on its CPU; and the
//! times from its wake-ups until it runs, which the kernel measures. All times are virtual.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue should stop")]

use core::time::Duration;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pronto_expedite::Device;
use pronto_expedite::process::descendants;
use pronto_lab_module::Module;

const LIMIT: Duration = Duration::from_secs(60);

/// CPU of the servers and of the processes that compute, and CPU of the client.
const SERVERS: usize = 0;
const CLIENT: usize = 1;

/// Processes that compute.
const HOGS: usize = 4;

/// Messages to each server, in alternation.
const MESSAGES: usize = 150;

/// Time between two messages to a server, in which it falls asleep and its budget is refilled: in sum two ticks of the kernel's clock,
/// because next to a tick virtual time shows its quantum (docs/measuring.md).
const PAUSE: Duration = Duration::from_millis(8);

/// A process that is ended when this is dropped, before the processes that it has started.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let family = descendants(self.0.id());
        let _ = self.0.kill();
        let _ = self.0.wait();
        for pid in family {
            let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
        }
    }
}

/// Starts a command on the CPU of the servers, by another command if `starter` is not empty.
fn start(starter: &[&str], words: &[&str]) -> Ended {
    let cpu = SERVERS.to_string();
    let pin = ["taskset", "-c", cpu.as_str()];
    let mut all = starter.iter().chain(&pin).chain(words);
    let mut command = Command::new(all.next().unwrap());
    // The machine has no other locale, without which the server does not start.
    command.args(all).env("LC_ALL", "C");
    Ended(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
}

#[expect(clippy::disallowed_methods, reason = "the test measures time")]
fn now() -> Instant {
    Instant::now()
}

/// Waits until `is_so` returns something.
fn until<T>(what: &str, mut is_so: impl FnMut() -> Option<T>) -> T {
    let start = now();
    loop {
        if let Some(result) = is_so() {
            return result;
        }
        assert!(start.elapsed() < LIMIT, "timed out waiting until {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// Times of the replies of a server.
#[derive(Default)]
struct Times {
    /// Time from the request to the reply.
    replies: Vec<Duration>,
    /// Part of it in which the server's main thread was runnable and did not run, as the scheduler counts it.
    waits: Vec<Duration>,
}

/// A server.
struct Server {
    pid: u32,
    stream: TcpStream,
    times: Times,
    _process: Ended,
}

impl Server {
    /// Starts redis-server without a database on disk, by another command if `starter` is not empty.
    fn start(starter: &[&str], port: u16) -> Self {
        let number = port.to_string();
        let process = start(
            starter,
            &["redis-server", "--bind", "127.0.0.1", "--port", &number, "--save", "", "--appendonly", "no"],
        );
        let stream = until("the server listens", || TcpStream::connect(("127.0.0.1", port)).ok());
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let is_server = |pid: &u32| {
            std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("redis"))
        };
        let pid = [process.0.id()].into_iter().chain(descendants(process.0.id())).find(is_server).unwrap();
        Self { pid, stream, times: Times::default(), _process: process }
    }

    /// Sends a request, and receives the reply.
    fn ping(&mut self) {
        let mut reply = [0; 7];
        self.stream.write_all(b"PING\r\n").unwrap();
        self.stream.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"+PONG\r\n");
    }

    /// Measures a request that finds the server asleep.
    fn measure(&mut self) {
        std::thread::park_timeout(PAUSE / 2);
        until("the server sleeps", || {
            let stat = std::fs::read_to_string(format!("/proc/{}/task/{0}/stat", self.pid)).unwrap();
            stat.rsplit_once(") ").unwrap().1.starts_with('S').then_some(())
        });
        let (waited, sent) = (self.waited(), now());
        self.ping();
        self.times.replies.push(sent.elapsed());
        let waited = self.waited() - waited;
        self.times.waits.push(waited);
    }

    /// Returns the total time that the server's main thread was runnable and did not run: the second number of `schedstat`.
    fn waited(&self) -> Duration {
        let text = std::fs::read_to_string(format!("/proc/{}/task/{0}/schedstat", self.pid)).unwrap();
        Duration::from_nanos(text.split_whitespace().nth(1).unwrap().parse().unwrap())
    }
}

/// `pronto expedite wakeups` for one process.
struct Recording {
    process: Ended,
    output: BufReader<ChildStdout>,
}

impl Recording {
    /// Starts it, and waits until it records.
    fn start(pid: u32) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pronto"));
        command.args(["expedite", "wakeups", "--verbose", "--json", "--pid", &pid.to_string(), "--object"]);
        let mut child = command.arg(wakeups()).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        output.read_line(&mut first).unwrap();
        assert!(first.starts_with('{'), "{first}");
        Self { process: Ended(child), output }
    }

    /// Ends it. Returns the last line.
    fn end(mut self) -> serde_json::Value {
        kill(Pid::from_raw(self.process.0.id().cast_signed()), Signal::SIGINT).unwrap();
        let mut text = String::new();
        self.output.read_to_string(&mut text).unwrap();
        serde_json::from_str(text.lines().last().unwrap()).unwrap()
    }
}

/// Returns the path of the BPF program for the running kernel.
fn wakeups() -> PathBuf {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    target.join("lab-bpf").join(release.trim()).join("wakeups/pronto_wakeups.bpf.o")
}

/// Returns the time that `hundredths` of the times do not exceed.
fn percentile(times: &[Duration], hundredths: usize) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times[(times.len() * hundredths / 100).min(times.len() - 1)]
}

/// Shows: operations.wakeups
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn redis_replies_sooner_if_it_is_started_by_expedite() {
    let _module = Module::load(&["even_if_idle=0"]);
    let device = Device::open().unwrap();
    let boosts = || device.totals().unwrap().counts.boosts();
    let mut client = CpuSet::new();
    client.set(CLIENT).unwrap();
    sched_setaffinity(Pid::from_raw(0), &client).unwrap();
    let mut plain = Server::start(&[], 7201);
    for _ in 0..MESSAGES {
        plain.measure();
    }
    let alone = core::mem::take(&mut plain.times);
    let mut boosted = Server::start(&[env!("CARGO_BIN_EXE_pronto"), "expedite", "run", "--"], 7202);
    let _hogs: Vec<_> = (0..HOGS).map(|_| start(&[], &["sh", "-c", "while :; do :; done"])).collect();
    let before = boosts();
    until("the connection is flagged", || {
        boosted.ping();
        (boosts() > before).then_some(())
    });
    let recordings = [plain.pid, boosted.pid].map(Recording::start);
    let before = boosts();
    for _ in 0..MESSAGES {
        plain.measure();
        boosted.measure();
    }
    let boosts = boosts() - before;
    let recorded = recordings.map(Recording::end);
    println!("{HOGS} hogs, {MESSAGES} messages to each server, {boosts} boosts; us: p50, p90, p99");
    let (plain, boosted) = (&plain.times, &boosted.times);
    for (name, times) in [("no hogs", &alone), ("plain", plain), ("boosted", boosted)] {
        let row = |times: &[Duration]| [50, 90, 99].map(|at| percentile(times, at).as_micros());
        println!("{name:8} replies {:6?}  waits for the CPU {:6?}", row(&times.replies), row(&times.waits));
    }
    assert!(boosts * 100 >= MESSAGES as u64 * 90, "{boosts} boosts for {MESSAGES} messages");
    let waits = [plain, boosted].map(|times| percentile(&times.waits, 90));
    assert!(4 * waits[1] < waits[0], "waits for the CPU, p90: {waits:?}");
    // In some boots the quantum of virtual time adds milliseconds to more than a tenth of the replies of both.
    let replies = [plain, boosted].map(|times| percentile(&times.replies, 50));
    assert!(2 * replies[1] < replies[0], "time until the reply, p50: {replies:?}");
    judge(&recorded);
}

/// Asserts that the kernel's own record agrees: of the plain server and of the boosted one.
fn judge(recorded: &[serde_json::Value; 2]) {
    for (name, record) in ["plain", "boosted"].iter().zip(recorded) {
        for class in ["ordinary", "real_time"] {
            let times = &record[class];
            println!(
                "{name:8} {class:9} wake-ups {}  ns until it ran: p50 {}, p90 {}, p99 {}, longest {}",
                times["count"], times["p50_ns"], times["p90_ns"], times["p99_ns"], times["longest_ns"]
            );
        }
        assert_eq!(record["missed"], 0);
    }
    let number = |server: usize, class: &str, key: &str| recorded[server][class][key].as_u64().unwrap_or(0);
    let messages = MESSAGES as u64;
    assert_eq!(number(0, "real_time", "count"), 0, "nothing boosts the plain server");
    assert!(number(0, "ordinary", "count") >= messages);
    assert!(number(1, "real_time", "count") * 100 >= messages * 90);
    assert!(4 * number(1, "real_time", "p90_ns") < number(0, "ordinary", "p90_ns"));
}
