//! A child process that runs this program again: the other side of an experiment, in an address space of its own.

use std::env;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{self, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::Context as _;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::placement::unpinned;

/// A child; killed when dropped.
#[derive(Debug)]
pub struct Child {
    process: process::Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

/// A child that does not run; it goes on when this is dropped.
#[derive(Debug)]
#[must_use = "it goes on at once"]
pub struct Stopped<'a>(&'a Child);

impl Child {
    /// Starts this program again, with other arguments. It may run wherever this process might, though the calling thread be pinned.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn spawn<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> anyhow::Result<Self> {
        let program = env::current_exe().context("asking for this program's path")?;
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = unpinned(|| command.spawn())?.context("starting a child")?;
        let stdout = process.stdout.take().context("the child's output was asked for")?;
        let stdin = process.stdin.take().context("the child's input was asked for")?;
        Ok(Self { process, stdin, stdout: BufReader::new(stdout) })
    }

    /// Says a line to it.
    ///
    /// # Errors
    /// If it is gone.
    pub fn tell(&mut self, line: &str) -> anyhow::Result<()> {
        writeln!(self.stdin, "{line}").and_then(|()| self.stdin.flush()).context("writing to a child")
    }

    /// The next line that it says with [`say`].
    ///
    /// # Errors
    /// If it ended without one.
    pub fn hear(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line).context("reading from a child")?;
        anyhow::ensure!(line.ends_with('\n'), "a child ended too early");
        Ok(line.trim_end().to_owned())
    }

    /// Stops it until the guard is dropped: it leaves its CPU to somebody else. Returns when it stands still.
    ///
    /// # Errors
    /// If it is gone.
    pub fn stop(&self) -> anyhow::Result<Stopped<'_>> {
        kill(self.pid(), Signal::SIGSTOP).context("stopping a child")?;
        let stopped = Stopped(self);
        match waitpid(self.pid(), Some(WaitPidFlag::WUNTRACED)).context("waiting for a child to stop")? {
            WaitStatus::Stopped(..) => Ok(stopped),
            other => anyhow::bail!("a child was to stop: {other:?}"),
        }
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Its resident memory, bytes.
    ///
    /// # Errors
    /// If it is gone.
    pub fn resident(&self) -> anyhow::Result<u64> {
        resident(self.process.id())
    }

    /// Processor time of its threads so far, nanoseconds.
    ///
    /// # Errors
    /// If it is gone.
    pub fn cpu_ns(&self) -> anyhow::Result<u64> {
        let threads = format!("/proc/{}/task", self.process.id());
        let mut ns = 0;
        for thread in std::fs::read_dir(threads).context("the threads of a child")? {
            // A thread may end between the two looks.
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
        // It fails only if the child is gone, which the next call to it reports.
        let _ = kill(self.0.pid(), Signal::SIGCONT);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Either fails only if it has ended and was waited for.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The resident memory of a process, bytes: private pages, and those that it shares.
///
/// # Errors
/// If it is gone.
pub fn resident(process: u32) -> anyhow::Result<u64> {
    let status =
        std::fs::read_to_string(format!("/proc/{process}/status")).context("reading a process's status")?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    Ok(kib.context("its resident memory")?.trim().parse::<u64>().context("a number of KiB")? * 1024)
}

/// Says a line to the parent.
///
/// # Errors
/// If the parent is gone.
pub fn say(line: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).context("writing to the parent")
}

/// Ends the calling process when the thread that started it does, whatever becomes of that.
///
/// # Errors
/// If the system refuses.
pub fn end_with_parent() -> anyhow::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL).context("asking to end with the parent")
}
