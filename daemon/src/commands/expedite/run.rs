//! `pronto expedite run`: starts a command and flags the files that it and its children open.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{ArgMatches, Command};
use pronto_expedite::follow::Followed;
use pronto_expedite::process::{descendants, raise_descriptor_limit};

use super::{KINDS, Scanning, report, require_children_lists, terms, with_terms};
use crate::commands::Subcommand;
use crate::commands::family::{self, Family, NotStarted};

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
        .arg(family::argument())
}

fn run(options: &ArgMatches) -> anyhow::Result<ExitCode> {
    require_children_lists()?;
    let words: Vec<&OsString> = family::words(options);
    let mut scanning = Scanning::begin(terms(options), &KINDS, Followed::New, options)?;
    let mut signals = family::block_signals()?;
    let mut family = match Family::start(&words)? {
        Ok(family) => family,
        Err(NotStarted { reason, code }) => {
            report(&reason);
            return Ok(ExitCode::from(code));
        }
    };
    // Only now: the command keeps the limit with which this one was started.
    raise_descriptor_limit().context("raising RLIMIT_NOFILE to its hard limit")?;
    let code = loop {
        let members: BTreeSet<_> = descendants(std::process::id()).into_iter().collect();
        scanning.scan(&members);
        if let Some(received) = signals.next_within(scanning.pause())? {
            family.pass_on(received, &members);
        }
        if let Some(code) = family.reap()? {
            break code;
        }
    };
    scanning.end()?;
    Ok(ExitCode::from(code))
}
