//! `pronto expedite scx`: the scheduler is loaded, serves nodes, ends with its program, and gives the machine back to the kernel's own
//! scheduler.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue should stop")]

use core::time::Duration;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pronto_expedite::process::thread_descriptor;
use pronto_expedite::scx::{PredictionTerms, Scheduler};
use pronto_sched_policy::policy::share::Share;
use pronto_sched_policy::policy::weight::Weight;

const LIMIT: Duration = Duration::from_secs(60);

static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn object() -> PathBuf {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    target.join("lab-bpf").join(release.trim()).join("scx/pronto_scx.bpf.o")
}

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pronto"));
    command.args(["expedite", "scx", "--object"]).arg(object()).args(words).stdin(Stdio::null());
    command
}

/// The running command. It is killed when this is dropped.
struct Loader {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Loader {
    /// Starts the command, and waits until the scheduler is active.
    fn start() -> Self {
        let mut child = command(&[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert!(line.starts_with("the scheduler pronto is active; "), "{line}{}", errors(&mut child));
        assert_eq!((state(), name()), ("enabled".into(), "pronto".into()));
        Self { child, output }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Waits for the end. Returns whether the command succeeded, the rest of its output, and its errors.
    fn end(&mut self) -> (bool, String, String) {
        let mut text = String::new();
        self.output.read_to_string(&mut text).unwrap();
        let errors = errors(&mut self.child);
        (self.child.wait().unwrap().success(), text, errors)
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // It may have ended.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
        until("the kernel's own scheduler runs", || state() == "disabled");
    }
}

fn errors(child: &mut Child) -> String {
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    errors
}

fn state() -> String {
    fs::read_to_string("/sys/kernel/sched_ext/state").unwrap().trim().to_owned()
}

fn name() -> String {
    fs::read_to_string("/sys/kernel/sched_ext/root/ops").unwrap_or_default().trim().to_owned()
}

/// Waits until `is_so` returns true; `what` describes the condition.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    #[expect(clippy::disallowed_methods, reason = "time limits of tests use real time")]
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LIMIT, "timed out waiting until {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// A process that computes until this is dropped.
struct Hog(Child);

impl Hog {
    fn start() -> Self {
        Self(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap())
    }

    /// Returns its CPU time, in ticks of 10 ms.
    fn time(&self) -> u64 {
        time_of(self.0.id())
    }

    /// Waits until the process has run for some time more.
    fn runs_on(&self) {
        let before = self.time();
        until("the process runs on", || self.time() > before + 5);
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Shows: operations.scx-killed
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_killed_loader_gives_the_machine_back() {
    let _alone = alone();
    let hogs: Vec<_> = (0..4).map(|_| Hog::start()).collect();
    let mut loader = Loader::start();
    hogs.iter().for_each(Hog::runs_on);
    loader.signal(Signal::SIGKILL);
    loader.child.wait().unwrap();
    until("the kernel's own scheduler runs", || state() == "disabled");
    hogs.iter().for_each(Hog::runs_on);
    // Its socket is no obstacle.
    let again = Loader::start();
    hogs.iter().for_each(Hog::runs_on);
    drop(again);
}

/// Shows: operations.scx-end
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_signal_detaches_the_scheduler() {
    let _alone = alone();
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut loader = Loader::start();
        loader.signal(signal);
        let (succeeded, text, errors) = loader.end();
        assert!(
            succeeded && text.starts_with("the kernel's own scheduler runs\nboosts 0, "),
            "{text}{errors}"
        );
        assert_eq!(state(), "disabled");
        assert!(!Path::new(pronto_expedite::scx::SOCKET).exists());
    }
}

/// Shows: operations.scx-end
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn the_reason_of_the_kernel_is_printed() {
    let _alone = alone();
    let mut loader = Loader::start();
    // The key that ends every BPF scheduler.
    fs::write("/proc/sysrq-trigger", "S").unwrap();
    let (succeeded, text, errors) = loader.end();
    assert!(!succeeded && text.starts_with("boosts "), "{text}{errors}");
    assert!(errors.contains("the kernel ended the scheduler: disabled by sysrq-S"), "{errors}");
    assert!(errors.contains("the kernel's own scheduler runs"), "{errors}");
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn the_scheduler_starts_again_after_a_change_of_cpus() {
    let _alone = alone();
    let hogs: Vec<_> = (0..3).map(|_| Hog::start()).collect();
    let mut loader = Loader::start();
    let mut queue = Queue::new();
    queue.fill();
    let coscheduled = Coscheduled::with(&FOLLOWS, queue.end().into());
    for state in ["0", "1"] {
        fs::write("/sys/devices/system/cpu/cpu1/online", state).unwrap();
        let mut line = String::new();
        loader.output.read_line(&mut line).unwrap();
        assert!(line.ends_with("; started it again\n"), "{line}");
        until("the scheduler runs", || name() == "pronto");
        hogs.iter().for_each(Hog::runs_on);
        until("the weight follows the queues", || number("weight") >= 300.0);
    }
    queue.empty();
    until("the weight follows the queues", || number("weight") == 100.0);
    drop(coscheduled);
    loader.signal(Signal::SIGTERM);
    let (succeeded, text, errors) = loader.end();
    assert!(succeeded, "{text}{errors}");
}

/// Folder of the state of coschedulers.
const STATE: &str = "/tmp/lab-scx-state";

/// A program that computes on CPU 0, under `pronto coschedule run` with weights of the scheduler.
struct Coscheduled {
    run: Child,
    /// Number of the program.
    program: u32,
}

impl Coscheduled {
    fn start() -> Self {
        Self::with(&["--policy", "static"], Stdio::null())
    }

    /// Starts the program with these options of the coscheduler, and this standard input.
    fn with(options: &[&str], input: Stdio) -> Self {
        let mut run = Command::new(env!("CARGO_BIN_EXE_pronto"));
        run.args(["coschedule", "run", "--actuator", "scx", "--state", STATE]).args(options).stdin(input);
        run.args(["--", "taskset", "-c", "0", "sh", "-c", "echo $$; while :; do :; done"]);
        let mut run = run.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(run.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { run, program: line.trim().parse().unwrap() }
    }
}

impl Drop for Coscheduled {
    fn drop(&mut self) {
        // It may have ended.
        let _ended = kill(Pid::from_raw(self.program.cast_signed()), Signal::SIGKILL);
        let _ended = self.run.kill();
        let _reaped = self.run.wait();
    }
}

/// Returns the CPU time of one process divided by that of another, while both together use 2 s.
fn ratio(one: u32, other: u32) -> f64 {
    let times = || [one, other].map(time_of);
    let before = times();
    let mut used = [0; 2];
    until("the processes have run", || {
        let now = times();
        used = [now[0] - before[0], now[1] - before[1]];
        used.iter().sum::<u64>() > 200
    });
    println!("{used:?} ticks");
    f64::from(u32::try_from(used[0]).unwrap()) / f64::from(u32::try_from(used[1]).unwrap().max(1))
}

/// Returns the CPU time of a process, in ticks of 10 ms.
fn time_of(process: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.split(' ').nth(11).unwrap().parse().unwrap()
}

/// Shows: operations.coschedule-scx
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_coscheduled_program_has_its_weight_until_coscheduler_or_loader_is_killed() {
    let _alone = alone();
    let other = Command::new("taskset").args(["-c", "0", "sh", "-c", "while :; do :; done"]).spawn().unwrap();
    let other = Hog(other);
    let mut loader = Loader::start();
    let mut coscheduled = Coscheduled::start();
    // The weight is 4.
    until("the weight is given", || ratio(coscheduled.program, other.0.id()) > 3.0);
    let with_weight = ratio(coscheduled.program, other.0.id());
    assert!((3.0..5.0).contains(&with_weight), "{with_weight}");
    coscheduled.run.kill().unwrap();
    coscheduled.run.wait().unwrap();
    let without = ratio(coscheduled.program, other.0.id());
    assert!((0.7..1.4).contains(&without), "{without} after the end of the coscheduler");
    drop(coscheduled);
    let coscheduled = Coscheduled::start();
    until("the weight is given", || ratio(coscheduled.program, other.0.id()) > 3.0);
    let with_weight = ratio(coscheduled.program, other.0.id());
    assert!((3.0..5.0).contains(&with_weight), "{with_weight}");
    loader.signal(Signal::SIGKILL);
    loader.child.wait().unwrap();
    until("the kernel's own scheduler runs", || state() == "disabled");
    let without = ratio(coscheduled.program, other.0.id());
    assert!((0.7..1.4).contains(&without), "{without} after the end of the loader");
    let status = || pronto(&["coschedule", "top", "--json", "--count", "1", "--state", STATE]);
    until("the status says so", || status().contains("\"is_without_loader\":true"));
    // The next loader gives the weight again.
    let loader = Loader::start();
    until("the weight is given again", || ratio(coscheduled.program, other.0.id()) > 3.0);
    drop((coscheduled, other, loader));
}

/// Returns a number from the status of the only coscheduler; not a number if there is none yet.
fn number(key: &str) -> f64 {
    let status = pronto(&["coschedule", "top", "--json", "--count", "1", "--state", STATE]);
    let Some((_, value)) = status.split_once(&format!("\"{key}\":")) else { return f64::NAN };
    value[..value.find(|end: char| !end.is_ascii_digit() && end != '.').unwrap()].parse().unwrap()
}

/// Options by which the weight of a program follows its queues in the kernel.
const FOLLOWS: [&str; 6] = ["--policy", "pred", "--past", "0.5", "--sensor", "scx"];

/// A connection to the standard input of a program, which does not read it.
struct Queue {
    ours: UnixStream,
    theirs: UnixStream,
}

impl Queue {
    /// Messages in a full queue: a frequency of 40 packets and some bytes, and so a weight of 3.
    const FULL: usize = 40;
    const BYTES: usize = 16;

    fn new() -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        Self { ours, theirs }
    }

    /// Returns the program's end.
    fn end(&self) -> OwnedFd {
        self.theirs.try_clone().unwrap().into()
    }

    fn fill(&mut self) {
        for _ in 0..Self::FULL {
            self.ours.write_all(&[1; Self::BYTES]).unwrap();
        }
    }

    /// Reads all messages, in place of the program.
    fn empty(&mut self) {
        self.theirs.read_exact(&mut [0; Self::FULL * Self::BYTES]).unwrap();
    }
}

/// Shows: operations.coschedule-in-kernel
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn the_weight_of_a_program_follows_its_queues_in_the_kernel() {
    let _alone = alone();
    let other = Command::new("taskset").args(["-c", "0", "sh", "-c", "while :; do :; done"]).spawn().unwrap();
    let other = Hog(other);
    let loader = Loader::start();
    let mut queue = Queue::new();
    queue.fill();
    let mut coscheduled = Coscheduled::with(&FOLLOWS, queue.end().into());
    until("the weight has followed", || number("weight") >= 300.0);
    let with_queue = ratio(coscheduled.program, other.0.id());
    assert!((2.2..3.8).contains(&with_queue), "{with_queue}");
    assert!(number("frequency") > 39.0 && number("frequency") < 41.0, "{}", number("frequency"));
    until("samples are counted", || number("with_received") >= 100.0 && number("sockets") >= 1.0);
    queue.empty();
    until("the weight has followed", || number("weight") == 100.0);
    let without_queue = ratio(coscheduled.program, other.0.id());
    assert!((0.7..1.4).contains(&without_queue), "{without_queue}");
    queue.fill();
    until("the weight has followed", || number("weight") >= 300.0);
    // If the coscheduler is killed, nothing is left.
    coscheduled.run.kill().unwrap();
    coscheduled.run.wait().unwrap();
    let after = ratio(coscheduled.program, other.0.id());
    assert!((0.7..1.4).contains(&after), "{after} after the end of the coscheduler");
    drop((coscheduled, other, loader));
}

/// A process with 4,000 sockets: a sample takes longer than a period.
///
/// Shows: operations.coschedule-in-kernel-bounded
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn samples_take_a_twentieth_of_a_cpu_at_most() {
    let _alone = alone();
    let loader = Loader::start();
    setrlimit(Resource::RLIMIT_NOFILE, 8_192, 8_192).unwrap();
    let sockets: Vec<_> = (0..2_000).map(|_| UnixStream::pair().unwrap()).collect();
    let scheduler = Scheduler::connect().unwrap();
    let own = thread_descriptor(std::process::id().cast_signed()).unwrap();
    let terms = PredictionTerms {
        past: Share::HALF,
        most: Weight::LIMIT,
        counts_sent: true,
        period: Duration::from_millis(1),
    };
    scheduler.predict(own.as_fd(), terms).unwrap();
    let sampled = || scheduler.prediction(own.as_fd()).unwrap();
    until("samples are taken", || sampled().samples > 20);
    #[expect(clippy::disallowed_methods, reason = "compared with the time of the samples")]
    let (begun, before) = (Instant::now(), sampled());
    until("samples are taken", || sampled().samples > before.samples + 50);
    let after = sampled();
    let share = (after.worked - before.worked).as_secs_f64() / begun.elapsed().as_secs_f64();
    println!("{after:?}, {share:.3} of a CPU");
    assert!(after.sockets >= 4_000, "{after:?}");
    // One sample may have begun before.
    assert!(share < 0.055, "{share}");
    drop((sockets, loader));
}

/// Shows: operations.coschedule-in-kernel-refused
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn settings_that_need_a_coscheduler_are_refused_in_the_kernel() {
    let _alone = alone();
    let loader = Loader::start();
    let run = |options: &[&str]| {
        let mut run = Command::new(env!("CARGO_BIN_EXE_pronto"));
        run.args(["coschedule", "run", "--sensor", "scx", "--state", STATE])
            .args(options)
            .args(["--", "true"]);
        refusal(&run.output().unwrap())
    };
    let actuator = run(&["--actuator", "nice"]);
    assert!(actuator.contains("choose the actuator scx, too"), "{actuator}");
    let past = run(&["--actuator", "scx", "--past", "auto"]);
    assert!(past.contains("a number for P"), "{past}");
    let period = run(&["--actuator", "scx", "--period-ms", "20000"]);
    assert!(period.contains("10 s"), "{period}");
    drop(loader);
}

fn refusal(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Shows: operations.scx-refused
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn refusals_say_what_is_missing() {
    let _alone = alone();
    let short = refusal(&command(&["--slice-us", "2000"]).output().unwrap());
    assert!(short.contains("the cap of the thread never covers a slice"), "{short}");
    let mut missing = Command::new(env!("CARGO_BIN_EXE_pronto"));
    let missing = refusal(&missing.args(["expedite", "scx", "--object", "/nowhere.o"]).output().unwrap());
    assert!(missing.contains("cannot open /nowhere.o: ENOENT"), "{missing}");
    let folder = Path::new("/tmp/lab-scx-objects");
    fs::create_dir_all(folder).unwrap();
    let whole = fs::read(object()).unwrap();
    for (name, content) in [("text", &b"no program"[..]), ("empty", b""), ("half", &whole[..whole.len() / 2])]
    {
        let file = folder.join(name);
        fs::write(&file, content).unwrap();
        let mut invalid = Command::new(env!("CARGO_BIN_EXE_pronto"));
        let invalid = refusal(&invalid.args(["expedite", "scx", "--object"]).arg(&file).output().unwrap());
        // Which fault it is depends on the version of the library.
        let reasons = ["it is not an ELF file", "it contains no valid BPF programs"];
        let of =
            |reason: &&str| invalid.contains(&format!("{} is not a BPF program: {reason}", file.display()));
        assert!(reasons.iter().any(of), "{invalid}");
    }
    let pronto = env!("CARGO_BIN_EXE_pronto");
    let mut user = Command::new("setpriv");
    user.args(["--reuid=65534", "--clear-groups", pronto, "expedite", "scx", "--object"]).arg(object());
    let user = refusal(&user.output().unwrap());
    assert!(user.contains("may not load BPF programs: it needs root"), "{user}");
    let loader = Loader::start();
    let second = refusal(&command(&[]).output().unwrap());
    assert!(second.contains("another loader listens on"), "{second}");
    let elsewhere = refusal(&command(&["--socket", "/tmp/lab-scx-other.sock"]).output().unwrap());
    assert!(elsewhere.contains("the kernel runs the scheduler pronto"), "{elsewhere}");
    // The first one is not disturbed.
    assert_eq!(state(), "enabled");
    Scheduler::connect().unwrap().counters().unwrap();
    drop(loader);
    assert!(Scheduler::connect().is_err());
}

/// A node with `boost = "scx"`, which is killed when this is dropped.
struct Node {
    child: Child,
    config: String,
    log: Arc<Mutex<String>>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Node {
    /// Starts a node, and waits until it listens.
    fn start() -> Self {
        let folder = Path::new("/tmp/lab-scx");
        fs::create_dir_all(folder).unwrap();
        let file = folder.join("1.toml");
        fs::write(&file, "node = 1\nlisten = [\"shm:/tmp/lab-scx/1.sock\"]\nboost = \"scx\"\n").unwrap();
        let mut node = Command::new(env!("CARGO_BIN_EXE_prontod"));
        let mut child = node.arg("--config").arg(&file).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Arc::new(Mutex::new(String::new()));
        let writer = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                *writer.lock().unwrap() += &(line + "\n");
            }
        });
        let node = Self { child, config: file.to_str().unwrap().into(), log };
        until("the node listens", || node.log().contains("listens at"));
        node
    }

    fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Returns the boost in its status.
    fn boost(&self) -> String {
        let status = pronto(&["status", "--config", &self.config]);
        let boost =
            status.lines().find_map(|line| line.trim_start().strip_prefix("boost ")).unwrap_or(&status);
        boost.trim().to_owned()
    }

    /// Sends messages to the node. Returns the number of times that the scheduler has woken its flagged threads meanwhile.
    fn wakeups(&self) -> u64 {
        let scheduler = Scheduler::connect().unwrap();
        let wakeups = || {
            let counters = scheduler.counters().unwrap();
            counters.boosts + counters.idle + counters.denied()
        };
        let before = wakeups();
        pronto(&["ping", "--config", &self.config, "--count", "50"]);
        wakeups() - before
    }
}

fn pronto(words: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_pronto")).args(words).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Shows: operations.scx-node, operations.scx-flags
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn the_threads_of_a_node_are_boosted_on_request() {
    let _alone = alone();
    assert!(pronto(&["doctor"]).contains("scx is not available: the scheduler is not loaded"));
    let loader = Loader::start();
    assert!(pronto(&["doctor"]).contains("scx is available; enable it with boost = \"scx\""));
    let node = Node::start();
    assert_eq!(node.boost(), "scx");
    assert!(node.wakeups() > 0, "no thread of the node is flagged");
    drop((node, loader));
}

/// Shows: operations.scx-restart
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_node_uses_the_next_loader() {
    let _alone = alone();
    let node = Node::start();
    assert!(node.boost().starts_with("none (scx: the scheduler is not loaded: start "), "{}", node.boost());
    for number in 1..=2 {
        let mut loader = Loader::start();
        until("the node uses the loader", || node.boost() == "scx");
        assert!(node.wakeups() > 0, "no thread of the node is flagged");
        loader.signal(Signal::SIGKILL);
        loader.child.wait().unwrap();
        // Without a message or a pause in between: the status itself checks.
        let ended = "none (scx: the loader ended; restart it with `pronto expedite scx` as root)";
        assert_eq!(node.boost(), ended);
        let is_logged = || node.log().matches(ended).count() == number;
        until("the log says so", is_logged);
        drop(loader);
    }
    // Each change has one line, however many attempts there were.
    let lines = |text: &str| node.log().matches(text).count();
    let not_loaded = "without a boost boost=none (scx: the scheduler is not loaded";
    let counts = [lines(not_loaded), lines("the loader ended"), lines("boost of message handlers")];
    assert_eq!(counts, [1, 2, 2], "{}", node.log());
}
