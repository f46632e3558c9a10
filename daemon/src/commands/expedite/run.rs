//! `pronto expedite run`: starts a command and flags the files that it and its children open.

use std::collections::BTreeSet;
use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Arg, ArgMatches, Command, value_parser};
use nix::errno::Errno;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawnp};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use pronto_expedite::follow::Followed;
use pronto_expedite::process::{descendants, raise_descriptor_limit};

use super::{KINDS, Scanning, report, require_children_lists, terms, with_terms};
use crate::commands::Subcommand;
use crate::commands::signals::{self, Signals};

pub(super) const SUBCOMMAND: Subcommand = Subcommand { name: "run", describe, run };

fn describe() -> Command {
    with_terms(Command::new("run"))
        .about("Starts a command, and boosts its threads and those of its children when data arrives for them")
        .after_help(
            "Scans the command and its children for new sockets, and flags them. Threads that wait on eventfds and for RDMA are boosted as\n\
             well; those that wait on pipes are not. Ends when all of these processes have ended, also those in the background, with the\n\
             exit code of the command. SIGTERM and SIGHUP are passed on to the command, or to its children if it has ended; under nohup,\n\
             both it and the command ignore SIGHUP. If the command cannot be started, the exit code is 127 (not found) or 126, as a\n\
             shell's.\n\n\
             Examples:\n  pronto expedite run -- redis-server --port 7000\n  pronto expedite run --percent 5 -- mpirun -n 2 ./program",
        )
        .arg(
            Arg::new("command")
                .value_name("COMMAND")
                .required(true)
                .num_args(1..)
                .trailing_var_arg(true)
                .value_parser(value_parser!(OsString))
                .help("The command and its arguments"),
        )
}

fn run(options: &ArgMatches) -> anyhow::Result<ExitCode> {
    require_children_lists()?;
    let words: Vec<&OsString> = options.get_many("command").expect("clap asks for it").collect();
    let mut scanning = Scanning::begin(terms(options), &KINDS, Followed::New, options)?;
    // The children of processes that end become children of this one.
    prctl::set_child_subreaper(true).context("adopting the command's children")?;
    let mut signals = Signals::block(signals::ENDS.into_iter().chain([Signal::SIGCHLD]))?;
    let main = match start(&words)? {
        Ok(main) => main,
        Err(errno) => {
            report(&format!("cannot start {}: {}", words[0].to_string_lossy(), errno.desc()));
            return Ok(ExitCode::from(not_started(errno)));
        }
    };
    // Only now: the command keeps the limit with which this one was started.
    raise_descriptor_limit().context("raising RLIMIT_NOFILE to its hard limit")?;
    let mut code = None;
    loop {
        let family: BTreeSet<_> = descendants(std::process::id()).into_iter().collect();
        scanning.scan(&family);
        if let Some(received) = signals.next_within(scanning.pause())? {
            let has_ended = code.is_some();
            match received.signal {
                Signal::SIGCHLD => {}
                // The command has it already.
                Signal::SIGINT if received.is_from_terminal && !has_ended => {}
                signal if has_ended => family.iter().for_each(|pid| send(pid_of(*pid), signal)),
                // It is not reaped yet, so the number is its own.
                signal => send(main, signal),
            }
        }
        if reap(main, &mut code)? == Left::Nobody {
            break;
        }
    }
    scanning.end()?;
    Ok(ExitCode::from(code.unwrap_or(FAILURE)))
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

/// Returns the exit code for a command that cannot be started, as that of a shell: 127 if there is none of that name, else 126.
const fn not_started(errno: Errno) -> u8 {
    if matches!(errno, Errno::ENOENT) { 127 } else { 126 }
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
