//! A child process that runs this program again: the other side of an experiment, in its own address space.

use std::env;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{self, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::Context as _;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use pronto::Node;

use crate::placement::unpinned;
use crate::side::Side;

/// Longer than a node or a child takes to start on a busy machine.
pub(crate) const START: core::time::Duration = core::time::Duration::from_secs(20);

/// A child; killed when dropped.
#[derive(Debug)]
pub(crate) struct Child {
    process: process::Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

/// A stopped child; it continues when this is dropped.
#[derive(Debug)]
#[must_use = "the child continues immediately"]
pub(crate) struct Stopped<'a>(&'a Child);

impl Child {
    /// Starts this program as that side, with these arguments. The child has the affinity of the process, even if the calling thread
    /// is pinned.
    pub(crate) fn spawn(
        side: &Side,
        args: impl IntoIterator<Item: AsRef<std::ffi::OsStr>>,
    ) -> anyhow::Result<Self> {
        let program = env::current_exe().context("asking for this program's path")?;
        let mut command = Command::new(program);
        command.arg(side.name).args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = unpinned(|| command.spawn())?.context("starting a child")?;
        let stdout = process.stdout.take().context("the child has no standard output")?;
        let stdin = process.stdin.take().context("the child has no standard input")?;
        Ok(Self { process, stdin, stdout: BufReader::new(stdout) })
    }

    /// Writes a line to the child.
    pub(crate) fn tell(&mut self, line: &str) -> anyhow::Result<()> {
        writeln!(self.stdin, "{line}").and_then(|()| self.stdin.flush()).context("writing to a child")
    }

    /// Reads the next line that the child writes with [`say`].
    pub(crate) fn hear(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line).context("reading from a child")?;
        anyhow::ensure!(line.ends_with('\n'), "a child ended too early");
        Ok(line.trim_end().to_owned())
    }

    /// Reads the next line of the child, which has to be `line`.
    pub(crate) fn expect(&mut self, line: &str) -> anyhow::Result<()> {
        let heard = self.hear()?;
        anyhow::ensure!(heard == line, "expected {line:?} from a child, got {heard:?}");
        Ok(())
    }

    /// Stops the child until the guard is dropped, so that it leaves its CPU to others. Returns once the child has stopped.
    pub(crate) fn stop(&self) -> anyhow::Result<Stopped<'_>> {
        kill(self.pid(), Signal::SIGSTOP).context("stopping a child")?;
        let stopped = Stopped(self);
        match waitpid(self.pid(), Some(WaitPidFlag::WUNTRACED)).context("waiting for a child to stop")? {
            WaitStatus::Stopped(..) => Ok(stopped),
            other => anyhow::bail!("a child did not stop: {other:?}"),
        }
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns the child's resident memory in bytes.
    pub(crate) fn resident(&self) -> anyhow::Result<u64> {
        resident(self.process.id())
    }

    /// Returns the CPU time that the child's threads have used so far, in nanoseconds.
    pub(crate) fn cpu_ns(&self) -> anyhow::Result<u64> {
        let threads = format!("/proc/{}/task", self.process.id());
        let mut ns = 0;
        for thread in std::fs::read_dir(threads).context("listing the threads of a child")? {
            // A thread may end between the two system calls.
            let Ok(ran) = std::fs::read_to_string(thread?.path().join("schedstat")) else { continue };
            ns += ran.split(' ').next().and_then(|ran| ran.parse::<u64>().ok()).unwrap_or(0);
        }
        Ok(ns)
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.process.id().cast_signed())
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        // Fails only if the child has ended, which its next use reports.
        let _ = kill(self.0.pid(), Signal::SIGCONT);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Both fail only if the child has ended and was waited for.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the resident memory of a process in bytes: private pages and shared ones.
pub(crate) fn resident(process: u32) -> anyhow::Result<u64> {
    status_kib(&process.to_string(), "VmRSS").map(|kib| kib * 1024)
}

/// Returns a field of `/proc/PROCESS/status` that is a number of KiB.
pub(crate) fn status_kib(process: &str, field: &str) -> anyhow::Result<u64> {
    let path = format!("/proc/{process}/status");
    let status = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok());
    kib.with_context(|| format!("{path} has no {field}"))
}

/// Writes a line to the parent.
pub(crate) fn say(line: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).context("writing to the parent")
}

/// Writes the address at which `node` listens to the parent.
pub(crate) fn announce(node: &Node) -> anyhow::Result<()> {
    say(&node.listening().first().context("the node does not listen")?.to_string())
}

/// Reads the next line of the parent; `None` at the end of the input. The input is not locked between two lines.
pub(crate) fn listen() -> anyhow::Result<Option<String>> {
    Ok(io::stdin().lines().next().transpose()?)
}

/// Sleeps until the parent ends this process.
pub(crate) fn park() -> ! {
    loop {
        std::thread::park();
    }
}

/// Makes the kernel end the calling process when the thread that started it ends.
pub(crate) fn end_with_parent() -> anyhow::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL).context("asking to end with the parent")
}
