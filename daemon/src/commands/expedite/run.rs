//! `pronto expedite run`: starts a command and flags the files that it and its children open.

use std::ffi::OsString;
use std::process::{Command as Program, ExitCode};

use anyhow::Context as _;
use clap::{Arg, ArgMatches, Command, value_parser};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use pronto_expedite::follow::Follower;
use pronto_expedite::process::descendants;

use super::{KINDS, Summary, period, require_children_lists, terms, with_terms};
use crate::commands::Subcommand;
use crate::commands::signals::Signals;

pub(super) const SUBCOMMAND: Subcommand = Subcommand { name: "run", describe, run };

fn describe() -> Command {
    with_terms(Command::new("run"))
        .about("Starts a command, and boosts its threads and those of its children when data arrives for them")
        .after_help(
            "Looks for new sockets of the command and its children, and flags them. Ends when all of them have ended, with the exit code\n\
             of the command. Threads that wait on eventfds and for RDMA are boosted as well; those that wait on pipes are not.\n\n\
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
    let mut words = options.get_many::<OsString>("command").expect("clap asks for it");
    let program = words.next().expect("clap asks for it");
    require_children_lists()?;
    let mut follower = Follower::new(terms(options), &KINDS)?;
    let mut summary = Summary::begin(&follower)?;
    // The children of processes that end become children of this one.
    prctl::set_child_subreaper(true).context("adopting the command's children")?;
    let child = Program::new(program).args(words).spawn();
    let child = child.with_context(|| format!("cannot start {}", program.display()))?;
    // The command would inherit blocked signals, so they are blocked after it was started.
    let mut signals = Signals::block()?;
    let main = Pid::from_raw(child.id().cast_signed());
    let mut code = None;
    loop {
        summary.add(&follower.look(&descendants(std::process::id())));
        match signals.next_within(period(options))? {
            // The terminal sends it to the command as well.
            None | Some(Signal::SIGINT) => {}
            Some(signal) => drop(kill(main, signal)),
        }
        if reap(main, &mut code)? == Left::Nobody {
            break;
        }
    }
    eprintln!("pronto expedite: {}", summary.text(&follower)?);
    Ok(ExitCode::from(code.unwrap_or(FAILURE)))
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
            Ok(_) => continue,
            Err(nix::errno::Errno::ECHILD) => return Ok(Left::Nobody),
            Err(nix::errno::Errno::EINTR) => continue,
            Err(errno) => return Err(errno).context("waiting for the command"),
        };
        if pid == main {
            *code = Some(its_code);
        }
    }
}
