//! `pronto expedite flag`: flags the files of a running process.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use pronto_expedite::follow::Followed;
use pronto_expedite::process::{Kind, Process, descendants, open_files, raise_descriptor_limit};

use super::{KINDS, Scanning, report, require_children_lists, terms, with_terms};
use crate::commands::signals::{self, Signals};
use crate::commands::{Subcommand, write_stdout};

pub(super) const SUBCOMMAND: Subcommand = Subcommand { name: "flag", describe, run };

fn describe() -> Command {
    with_terms(Command::new("flag"))
        .about("Boosts the threads of a running process when data arrives for them")
        .after_help(
            "Flags last as long as this command: it ends when the process ends, or by SIGINT, SIGTERM or SIGHUP (not under nohup, where\n\
             SIGHUP stays ignored). Without FD it flags all sockets, eventfds and RDMA channels of the process, also those that are\n\
             opened later. It needs the same user and the permission to trace the process (kernel.yama.ptrace_scope), or root.\n\n\
             Examples:\n  pronto expedite flag $(pgrep -o nginx) --children\n  pronto expedite flag 1234 5 6",
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
    let with_children = options.get_flag("children");
    if with_children {
        require_children_lists()?;
    }
    raise_descriptor_limit().context("raising RLIMIT_NOFILE to its hard limit")?;
    let process = Process::find(pid)?;
    open_files(pid)?;
    process.check_access()?;
    let kinds: &[Kind] = if fds.is_empty() { &KINDS } else { &[] };
    let mut scanning = Scanning::begin(terms(options), kinds, Followed::Running, options)?;
    let mut signals = Signals::block(signals::ENDS)?;
    for fd in &fds {
        scanning.flag_one(&process, *fd)?;
        write_stdout(&format!("flagged descriptor {fd} of process {pid}\n"))?;
    }
    let mut is_silent = fds.is_empty();
    while !process.has_ended() {
        if fds.is_empty() {
            let mut pids = [pid].into();
            if with_children {
                std::collections::BTreeSet::extend(&mut pids, descendants(pid));
            }
            let scan = scanning.scan(&pids);
            for flagged in &scan.flagged {
                let (fd, kind) = (flagged.file.fd, flagged.file.kind.name());
                write_stdout(&format!("flagged descriptor {fd} ({kind}) of process {}\n", flagged.pid))?;
            }
            if core::mem::take(&mut is_silent) && scan.flagged.is_empty() {
                let whose = if with_children { " and its children" } else { "" };
                report(&format!(
                    "looking for sockets, eventfds and RDMA channels of process {pid}{whose}: none was found yet"
                ));
            }
            if let Some(reason) = scan.unreachable.iter().find(|reason| reason.pid() == pid) {
                anyhow::bail!(*reason);
            }
        }
        if signals.next_within(scanning.pause())?.is_some() {
            break;
        }
    }
    scanning.end()?;
    Ok(ExitCode::SUCCESS)
}
