//! `pronto expedite flag`: flags the files of a running process.

use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use pronto_expedite::follow::Follower;
use pronto_expedite::process::{Kind, Unreachable, descendants, open_files};

use super::{KINDS, Summary, period, require_children_lists, terms, with_terms};
use crate::commands::signals::Signals;
use crate::commands::{Subcommand, write_stdout};

pub(super) const SUBCOMMAND: Subcommand = Subcommand { name: "flag", describe, run };

fn describe() -> Command {
    with_terms(Command::new("flag"))
        .about("Boosts the threads of a running process when data arrives for them")
        .after_help(
            "Flags last as long as this command: it ends when the process ends, or by SIGINT or SIGTERM. Without FD it flags all sockets,\n\
             eventfds and RDMA channels of the process, also those that are opened later. It needs the same user and the permission to\n\
             trace the process (kernel.yama.ptrace_scope), or root.\n\n\
             Examples:\n  pronto expedite flag $(pidof -s nginx) --children\n  pronto expedite flag 1234 5 6",
        )
        .arg(Arg::new("pid").value_name("PID").required(true).value_parser(value_parser!(u32)).help("Number of the process"))
        .arg(
            Arg::new("fd")
                .value_name("FD")
                .num_args(0..)
                .value_parser(value_parser!(i32))
                .help("Only these descriptors of the process, which may also be reading ends of pipes"),
        )
        .arg(
            Arg::new("children")
                .long("children")
                .action(ArgAction::SetTrue)
                .conflicts_with("fd")
                .help("Also the files of its children and their children"),
        )
}

fn run(options: &ArgMatches) -> anyhow::Result<ExitCode> {
    let pid = *options.get_one::<u32>("pid").expect("clap asks for it");
    let fds: Vec<i32> = options.get_many("fd").map(|fds| fds.copied().collect()).unwrap_or_default();
    if options.get_flag("children") {
        require_children_lists()?;
    }
    open_files(pid)?;
    let kinds: &[Kind] = if fds.is_empty() { &KINDS } else { &[] };
    let mut follower = Follower::new(terms(options), kinds)?;
    let mut summary = Summary::begin(&follower)?;
    let mut signals = Signals::block()?;
    for fd in &fds {
        follower.flag_one(pid, *fd)?;
        write_stdout(&format!("flagged descriptor {fd} of process {pid}\n"))?;
    }
    loop {
        match open_files(pid) {
            Ok(_) => {}
            // It has ended meanwhile.
            Err(Unreachable::NoProcess(_)) => break,
            Err(reason) => anyhow::bail!(reason),
        }
        let mut pids = vec![pid];
        if options.get_flag("children") {
            pids.extend(descendants(pid));
        }
        let look = follower.look(&pids);
        for flagged in &look.flagged {
            let (fd, kind) = (flagged.file.fd, flagged.file.kind.name());
            write_stdout(&format!("flagged descriptor {fd} ({kind}) of process {}\n", flagged.pid))?;
        }
        summary.add(&look);
        if let [reason] = look.unreachable.as_slice() {
            anyhow::bail!(*reason);
        }
        if signals.next_within(period(options))?.is_some() {
            break;
        }
    }
    eprintln!("pronto expedite: {}", summary.text(&follower)?);
    Ok(ExitCode::SUCCESS)
}
