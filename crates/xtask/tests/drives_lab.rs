//! Machines that fail, and runners that are killed: the reports, and what is left behind.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use core::time::Duration;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Time limit for the descendants of a killed runner to end.
const END_LIMIT: Duration = Duration::from_secs(20);

/// The exit code for a machine that failed.
const LAB_FAILED: i32 = 125;

/// A kernel version that Debian does not have, of a series that it has.
const GONE: &str = "7.2.999-1~bpo13+1";

/// A running `cargo xtask lab`.
#[derive(Debug)]
struct Lab {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: PathBuf,
}

/// The result of a run.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Lab {
    /// Starts it in its own process group, as a shell does. Its stderr goes to the file `NAME.stderr`.
    fn start(name: &str, words: &[&str]) -> Self {
        Self::start_with(name, words, &[])
    }

    /// Starts it with additional variables.
    fn start_with(name: &str, words: &[&str], variables: &[(&str, &str)]) -> Self {
        let stderr = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.stderr"));
        // The test runner may ignore SIGINT, like a background job of a shell. A user's shell does not.
        let mut command = Command::new("env");
        command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_pronto-xtask"), "lab"]);
        command.args(words).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&stderr).unwrap());
        let mut child = command.envs(variables.iter().copied()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout, stderr }
    }

    /// Returns the next line of the output.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "no more output: {}", fs::read_to_string(&self.stderr).unwrap());
        line.trim_end().to_owned()
    }

    fn end(mut self) -> Ended {
        let mut stdout = String::new();
        self.stdout.read_to_string(&mut stdout).unwrap();
        let code = self.child.wait().unwrap().code();
        Ended { code, stdout, stderr: fs::read_to_string(&self.stderr).unwrap() }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// Returns its descendant processes: id and name.
    fn descendants(&self) -> HashMap<u32, String> {
        let all = processes();
        let mut found = HashMap::new();
        let mut parents = vec![self.child.id()];
        while let Some(parent) = parents.pop() {
            for (&process, (of, name)) in &all {
                if *of == parent {
                    found.insert(process, name.clone());
                    parents.push(process);
                }
            }
        }
        found
    }
}

/// Returns every process that is not a zombie: its parent and its name.
fn processes() -> HashMap<u32, (u32, String)> {
    let entries = fs::read_dir("/proc").unwrap();
    entries
        .filter_map(|entry| {
            let process: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
            let (start, rest) = stat.rsplit_once(") ")?;
            let mut fields = rest.split(' ');
            let is_alive = fields.next()? != "Z";
            let parent = fields.next()?.parse().ok()?;
            is_alive.then(|| (process, (parent, start.split_once('(').unwrap_or_default().1.to_owned())))
        })
        .collect()
}

#[expect(clippy::disallowed_methods, reason = "a user waits in real time")]
fn now() -> Instant {
    Instant::now()
}

/// Checks a condition repeatedly until it holds.
fn await_that(condition: &str, limit: Duration, mut holds: impl FnMut() -> bool) {
    let start = now();
    while !holds() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {condition}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

fn await_end_of(processes_then: &HashMap<u32, String>) {
    await_that(&format!("the end of {processes_then:?}"), END_LIMIT, || {
        let now = processes();
        processes_then.iter().all(|(process, name)| now.get(process).is_none_or(|(_, found)| found != name))
    });
}

fn mounts() -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    mounts
        .lines()
        .filter(|line| line.contains("pronto") || line.contains(" 9p "))
        .map(str::to_owned)
        .collect()
}

#[test]
#[ignore = "starts the lab: cargo xtask test --only lab"]
fn concurrent_runs_keep_their_outputs_and_codes_apart() {
    let share = Path::new(env!("CARGO_TARGET_TMPDIR")).join("shared");
    fs::create_dir_all(&share).unwrap();
    let shared = share.to_str().unwrap();
    let _ = fs::remove_file(share.join("left"));
    let runs = [
        Lab::start("three", &["run", "--", "sh", "-c", "echo one; echo apart >&2; exit 3"]),
        Lab::start("killed", &["run", "--", "sh", "-c", "echo two; kill -KILL $$"]),
        Lab::start("share", &["run", "--share", shared, "--", "sh", "-c", "nproc; pwd > left"]),
    ];
    let [three, killed, share_run] = runs.map(Lab::end);
    assert_eq!((three.code, three.stdout.as_str(), three.stderr.as_str()), (Some(3), "one\n", "apart\n"));
    assert_eq!((killed.code, killed.stdout.as_str()), (Some(128 + 9), "two\n"));
    assert_eq!((share_run.code, share_run.stdout.as_str()), (Some(0), "2\n"), "{}", share_run.stderr);
    assert_eq!(fs::read_to_string(share.join("left")).unwrap().trim_end(), shared);
}

#[test]
#[ignore = "starts the lab: cargo xtask test --only lab"]
fn a_panic_is_reported_within_ten_seconds() {
    let mut run = Lab::start("panic", &["run", "--", "sh", "-c", "echo begun; echo c > /proc/sysrq-trigger"]);
    assert_eq!(run.line(), "begun");
    let start = now();
    let ended = run.end();
    assert!(start.elapsed() < Duration::from_secs(10), "it took {:?}", start.elapsed());
    assert_eq!(ended.code, Some(LAB_FAILED));
    assert!(ended.stderr.contains("lab: kernel panic: sysrq triggered crash"), "{}", ended.stderr);
    assert!(ended.stderr.contains("sysrq_handle_crash"), "no trace: {}", ended.stderr);
}

#[test]
#[ignore = "starts the lab: cargo xtask test --only lab"]
fn a_time_out_shows_the_process_and_where_it_waited() {
    let words = ["run", "--timeout", "25", "--", "sh", "-c", "echo begun; exec sleep 4321"];
    let ended = Lab::start("time-out", &words).end();
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(LAB_FAILED), "begun\n"), "{}", ended.stderr);
    assert!(ended.stderr.contains("lab: time-out: not done after 25 s"), "{}", ended.stderr);
    assert!(ended.stderr.contains("sleep 4321"), "what ran is not named: {}", ended.stderr);
}

#[test]
#[ignore = "starts the lab: cargo xtask test --only lab"]
fn a_runner_that_is_killed_leaves_nothing() {
    let words = ["run", "--", "sh", "-c", "echo begun; exec sleep 4321"];
    let mounted_before = mounts();
    let mut runs = ["hard", "soft", "from-the-keyboard"].map(|name| Lab::start(name, &words));
    let mut started = HashMap::new();
    for run in &mut runs {
        assert_eq!(run.line(), "begun");
        let descendants = run.descendants();
        assert!(descendants.values().any(|name| name.starts_with("qemu")), "no machine: {descendants:?}");
        started.extend(descendants);
    }
    let [hard, soft, keyboard] = &runs;
    kill(hard.pid(), Signal::SIGKILL).unwrap();
    kill(soft.pid(), Signal::SIGTERM).unwrap();
    // To the whole process group, as a terminal does.
    kill(Pid::from_raw(-keyboard.pid().as_raw()), Signal::SIGINT).unwrap();
    for run in runs {
        let Ended { code, stderr, .. } = run.end();
        assert_eq!(code, None, "the runner was not killed by its signal: {stderr}");
    }
    await_end_of(&started);
    let left: Vec<_> = mounts().into_iter().filter(|mount| !mounted_before.contains(mount)).collect();
    assert_eq!(left, Vec::<String>::new());
}

/// Creates a cache with the packages of this machine's cache, except one.
fn cache_without_a_package(name: &str) -> PathBuf {
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&parent);
    let debs = parent.join("pronto-lab/debs");
    fs::create_dir_all(&debs).unwrap();
    let real = std::env::var_os("XDG_CACHE_HOME")
        .map_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache"), PathBuf::from);
    for entry in fs::read_dir(real.join("pronto-lab/debs")).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap();
        if path.is_file() && !file.starts_with("perftest_") && file != "lock" {
            // Packages are never modified, so a hard link is sufficient, if the file system permits it.
            fs::hard_link(&path, debs.join(file))
                .or_else(|_| fs::copy(&path, debs.join(file)).map(drop))
                .unwrap();
        }
    }
    parent
}

#[test]
#[ignore = "starts the lab: cargo xtask test --only lab"]
fn a_killed_build_leaves_no_apt_and_the_next_one_finds_a_kernel() {
    let cache = cache_without_a_package("killed-build");
    let here = ("XDG_CACHE_HOME", cache.to_str().unwrap());
    let words = ["--kernel", GONE, "build"];

    // An archive that accepts a request and never replies.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mirror = format!("http://{}/debian", silent.local_addr().unwrap());
    silent.set_nonblocking(true).unwrap();
    let variables = [here, ("PRONTO_LAB_MIRROR", mirror.as_str()), ("no_proxy", "127.0.0.1")];
    let killed = Lab::start_with("killed-build", &words, &variables);
    let mut connection = None;
    await_that("apt's request", Duration::from_secs(60), || {
        connection = silent.accept().ok();
        connection.is_some()
    });
    let started = killed.descendants();
    assert!(started.values().any(|name| name.starts_with("apt-get")), "{started:?}");
    kill(killed.pid(), Signal::SIGKILL).unwrap();
    await_end_of(&started);
    assert_eq!(killed.end().code, None);

    // Two concurrent builds, as from two checkouts.
    let words = ["--kernel", GONE, "run", "--", "uname", "-r"];
    let builds = ["first-build", "second-build"].map(|name| Lab::start_with(name, &words, &[here]));
    let builds = builds.map(Lab::end);
    for ended in &builds {
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert!(ended.stdout.starts_with("7.2."), "{}", ended.stdout);
    }
    let named = format!("Debian has no kernel {GONE} any more; using 7.2.");
    let both = builds.map(|ended| ended.stderr).concat();
    assert!(both.contains(&named), "{both}");
    assert_eq!(both.matches("initramfs:").count(), 1, "both have built: {both}");
    fs::remove_dir_all(cache).unwrap();
}

#[test]
#[ignore = "starts the lab: cargo xtask test --only lab"]
fn a_second_build_does_nothing() {
    let [first, second] = ["build-once", "build-twice"].map(|name| Lab::start(name, &["build"]).end());
    assert_eq!(first.code, Some(0), "{}", first.stderr);
    assert_eq!((second.code, second.stderr.as_str()), (Some(0), ""));
    assert_eq!(first.stdout, second.stdout);
}

/// Loads the module that breaks its kernel in this way. A task that waits for five seconds counts as hung.
fn faulty(fault: &str) -> Ended {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel/faults");
    let built = Lab::start("faults", &["module", "--build-only", folder.to_str().unwrap()]).end();
    assert_eq!(built.code, Some(0), "{}", built.stderr);
    let script = "cd /proc/sys/kernel; echo 1 > hung_task_check_interval_secs; echo 5 > hung_task_timeout_secs; \
        exec insmod \"$@\"";
    let parameter = format!("fault={fault}");
    let words = ["run", "--", "sh", "-c", script, "sh", built.stdout.trim_end(), &parameter];
    Lab::start(fault, &words).end()
}

#[test]
#[ignore = "starts the lab: cargo xtask test --only lab"]
fn an_oops_is_reported_with_its_trace() {
    let ended = faulty("oops");
    assert_eq!(ended.code, Some(LAB_FAILED), "{}", ended.stderr);
    let verdict = "lab: kernel oops: BUG: kernel NULL pointer dereference";
    assert!(ended.stderr.contains(verdict), "{}", ended.stderr);
    assert!(ended.stderr.contains("faults_init+0x"), "no trace: {}", ended.stderr);
}

#[test]
#[ignore = "starts the lab: cargo xtask test --only lab"]
fn a_task_that_hangs_is_reported() {
    let ended = faulty("hang");
    assert_eq!(ended.code, Some(LAB_FAILED), "{}", ended.stderr);
    assert!(ended.stderr.contains("lab: hung task: INFO: task insmod:"), "{}", ended.stderr);
    assert!(ended.stderr.contains("[faults]"), "no trace: {}", ended.stderr);
}

#[test]
#[ignore = "starts the lab: cargo xtask test --only lab"]
fn virtual_time_passes_when_nothing_runs_and_is_named() {
    let script = "nproc; sleep 400; echo \"$PRONTO_LAB_ACCELERATOR\"; cut -d. -f1 /proc/uptime";
    // The machine gets less than 400 s of the host's time.
    let words = ["run", "--virtual-time", "--cpus", "1", "--timeout", "300", "--", "sh", "-c", script];
    let ended = Lab::start("virtual-time", &words).end();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let [cpus, name, uptime] = ended.stdout.lines().collect::<Vec<_>>()[..] else {
        panic!("{}", ended.stdout)
    };
    assert_eq!(cpus, "1");
    assert!(name.contains("virtual time"), "{name}");
    assert!(uptime.parse::<u64>().unwrap() > 400, "{uptime}");
}
