//! `pronto doctor`: what of this machine makes messages slow, and what to do about it. Changes nothing.
//!
//! One file per subject; each gives findings, and is listed in [`PROBES`].

mod boost;
mod busy_poll;
mod cgroup;
mod finding;
mod kernel;
mod limits;
mod machine;
mod memory;
mod netdev;
mod places;
mod power;
mod rdma;

use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::{Subcommand, say};
use finding::{Finding, Level};
use machine::Machine;

pub(super) const SUBCOMMAND: Subcommand = Subcommand { name: "doctor", describe, run };

/// All subjects, in the order of the output.
const PROBES: &[fn(&Machine) -> Vec<Finding>] = &[
    kernel::probe,
    limits::probe,
    boost::probe,
    memory::probe,
    power::probe,
    places::probe,
    cgroup::probe,
    rdma::probe,
    busy_poll::probe,
    netdev::probe,
];

/// What it exits with if there is a problem. 1 is a command that failed, 2 a command line that clap refuses.
const HAS_PROBLEMS: u8 = 3;

fn describe() -> Command {
    Command::new("doctor")
        .about("Inspects this machine: what makes messages slow here, and what to do about it")
        .after_help(
            "Each line is ok, a note (something that may cost time, or that is not there) or a problem (something that does cost\n\
             time, or keeps Pronto from working). Nothing is changed: trials are made on threads, sockets and descriptors of its\n\
             own. Run it as the user, and in the control group, that nodes run in.\n\n\
             Exit code: 0 no problem, 3 at least one problem, 1 it could not tell, 2 a wrong command line.\n\n\
             Examples:\n  pronto doctor\n  pronto doctor --json | jq '.findings[] | select(.level == \"problem\")'",
        )
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("One JSON object on standard output"))
}

fn run(options: &ArgMatches) -> anyhow::Result<ExitCode> {
    let machine = Machine::here();
    let findings: Vec<_> = PROBES.iter().flat_map(|probe| probe(&machine)).collect();
    say(&if options.get_flag("json") { as_json(&findings) } else { as_text(&findings) })?;
    let has_problems = findings.iter().any(|finding| finding.level == Level::Problem);
    Ok(if has_problems { ExitCode::from(HAS_PROBLEMS) } else { ExitCode::SUCCESS })
}

fn count(findings: &[Finding], level: Level) -> usize {
    findings.iter().filter(|finding| finding.level == level).count()
}

fn as_json(findings: &[Finding]) -> String {
    let each = findings.iter().map(|finding| {
        serde_json::json!({
            "level": finding.level.name(),
            "subject": finding.subject,
            "text": finding.text,
            "advice": finding.advice,
        })
    });
    let object = serde_json::json!({
        "findings": each.collect::<Vec<_>>(),
        "problems": count(findings, Level::Problem),
        "notes": count(findings, Level::Note),
    });
    format!("{object}\n")
}

fn as_text(findings: &[Finding]) -> String {
    use core::fmt::Write as _;
    let mut text = String::new();
    // Writing to a String cannot fail.
    for Finding { level, subject, text: what, advice } in findings {
        let _ = writeln!(text, "{:<8} {subject:<11} {what}", level.name());
        if let Some(advice) = advice {
            let _ = writeln!(text, "{:<20} -> {advice}", "");
        }
    }
    let (problems, notes) = (count(findings, Level::Problem), count(findings, Level::Note));
    let _ = writeln!(text, "problems: {problems}, notes: {notes}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_shown_with_what_to_do() {
        let findings = [
            Finding::ok("kernel", "Linux 6.18"),
            Finding::problem("clock", "time is read from hpet", "boot with clocksource=tsc"),
        ];
        let text = as_text(&findings);
        assert_eq!(
            text,
            "ok       kernel      Linux 6.18\nproblem  clock       time is read from hpet\n                     -> boot with \
             clocksource=tsc\nproblems: 1, notes: 0\n"
        );
        let json: serde_json::Value = serde_json::from_str(&as_json(&findings)).expect("JSON");
        assert_eq!((json["problems"].as_u64(), json["notes"].as_u64()), (Some(1), Some(0)));
        assert_eq!(json["findings"][1]["advice"], "boot with clocksource=tsc");
        assert!(json["findings"][0]["advice"].is_null());
    }

    /// Whatever this machine is, every subject has something to say about it, and says it in one line.
    #[test]
    fn every_subject_speaks_of_this_machine() {
        let machine = Machine::here();
        for probe in PROBES {
            let findings = probe(&machine);
            assert!(!findings.is_empty());
            for finding in findings {
                assert!(!finding.text.is_empty() && !finding.text.contains('\n'), "{finding:?}");
                assert_eq!(finding.level == Level::Ok, finding.advice.is_none(), "{finding:?}");
            }
        }
    }

    /// Nothing at all is said by files: no subject may fall over it.
    #[test]
    fn a_machine_that_tells_nothing_is_spoken_of() {
        let machine = Machine::recorded("nothing", &[]);
        assert!(PROBES.iter().all(|probe| !probe(&machine).is_empty()));
    }
}
