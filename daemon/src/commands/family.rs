//! A command that `pronto` starts, and its descendants: signals are passed on, and ended processes are waited for.

use std::collections::BTreeSet;
use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStrExt as _;

use anyhow::Context as _;
use clap::{Arg, ArgMatches, value_parser};
use nix::errno::Errno;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawnp};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::signals::{self, Received, Signals};

/// A command and the processes that it has started, directly or indirectly.
pub(super) struct Family {
    main: Pid,
    /// Exit code of the command, when it has ended.
    code: Option<u8>,
}

/// Returns the argument for a command and its own arguments.
pub(super) fn argument() -> Arg {
    Arg::new("command")
        .value_name("COMMAND")
        .required(true)
        .num_args(1..)
        .trailing_var_arg(true)
        .value_parser(value_parser!(OsString))
        .help("The command and its arguments")
}

/// Returns the command and its arguments.
pub(super) fn words(options: &ArgMatches) -> Vec<&OsString> {
    options.get_many("command").expect("clap asks for it").collect()
}

/// The end of a command that cannot be started.
pub(super) struct NotStarted {
    /// Human-readable reason.
    pub(super) reason: String,
    /// Exit code, as that of a shell: 127 if there is no program of that name, else 126.
    pub(super) code: u8,
}

/// Signals that a command with a family receives.
pub(super) fn block_signals() -> anyhow::Result<Signals> {
    Signals::block(signals::ENDS.into_iter().chain([Signal::SIGCHLD]))
}

impl Family {
    /// Starts a command. The children of processes that end become children of this one.
    pub(super) fn start(words: &[&OsString]) -> anyhow::Result<Result<Self, NotStarted>> {
        prctl::set_child_subreaper(true).context("adopting the command's children")?;
        Ok(start(words)?.map(|main| Self { main, code: None }).map_err(|errno| NotStarted {
            reason: format!("cannot start {}: {}", words[0].to_string_lossy(), errno.desc()),
            // As a shell.
            code: if errno == Errno::ENOENT { 127 } else { 126 },
        }))
    }

    /// Passes a signal on: to the command, or to `members` if it has ended.
    pub(super) fn pass_on(&self, received: Received, members: &BTreeSet<u32>) {
        let has_ended = self.code.is_some();
        match received.signal {
            Signal::SIGCHLD => {}
            // The command has it already.
            Signal::SIGINT if received.is_from_terminal && !has_ended => {}
            signal if has_ended => members.iter().for_each(|pid| send(pid_of(*pid), signal)),
            // It is not reaped yet, so the number is its own.
            signal => send(self.main, signal),
        }
    }

    /// Waits for processes that have ended. Returns the exit code of the command when none is left.
    pub(super) fn reap(&mut self) -> anyhow::Result<Option<u8>> {
        match reap(self.main, &mut self.code)? {
            Left::Somebody => Ok(None),
            Left::Nobody => Ok(Some(self.code.unwrap_or(FAILURE))),
        }
    }
}

/// Sends a signal to a process, which may have ended.
fn send(to: Pid, signal: Signal) {
    let _ = kill(to, signal);
}

fn pid_of(pid: u32) -> Pid {
    Pid::from_raw(pid.cast_signed())
}

/// Starts a command with no signal blocked, and as `SIGPIPE` is by default: the runtime of this program ignores that signal.
/// The inner error is that of the system.
fn start(words: &[&OsString]) -> anyhow::Result<Result<Pid, Errno>> {
    let text = |bytes: &[u8]| CString::new(bytes).context("an argument or a variable contains a NUL byte");
    let arguments: Vec<_> = words.iter().map(|word| text(word.as_bytes())).collect::<Result<_, _>>()?;
    let variables =
        std::env::vars_os().map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat());
    let variables: Vec<_> = variables.map(|variable| text(&variable)).collect::<Result<_, _>>()?;
    let program = arguments.first().expect("clap asks for it");
    Ok(PosixSpawnAttr::init().and_then(|mut attributes| {
        attributes.set_sigmask(&SigSet::empty())?;
        attributes.set_sigdefault(&SigSet::from_iter([Signal::SIGPIPE]))?;
        attributes
            .set_flags(PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF)?;
        posix_spawnp(program, &PosixSpawnFileActions::init()?, &attributes, &arguments, &variables)
    }))
}

/// Exit code if that of the command is not known.
const FAILURE: u8 = 1;

#[derive(Debug, PartialEq, Eq)]
enum Left {
    Somebody,
    Nobody,
}

/// Waits for children that have ended. Stores the exit code of `main`: as a shell does, 128 plus the signal that has ended it.
fn reap(main: Pid, code: &mut Option<u8>) -> anyhow::Result<Left> {
    loop {
        let (pid, its_code) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) => (pid, u8::try_from(code).unwrap_or(FAILURE)),
            Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, 128 + u8::try_from(signal as i32).unwrap_or(0)),
            Ok(WaitStatus::StillAlive) => return Ok(Left::Somebody),
            Ok(_) | Err(Errno::EINTR) => continue,
            Err(Errno::ECHILD) => return Ok(Left::Nobody),
            // A real-time signal has ended a child, which this was not told.
            Err(Errno::EINVAL) if code.is_none() && kill(main, None) == Err(Errno::ESRCH) => (main, FAILURE),
            Err(Errno::EINVAL) => continue,
            Err(errno) => return Err(errno).context("waiting for the command"),
        };
        if pid == main {
            *code = Some(its_code);
        }
    }
}
