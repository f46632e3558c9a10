//! `pronto doctor`: inspects this machine for causes of slow messages and prints advice. Changes nothing.
//!
//! Each file inspects one subject, returns findings, and is listed in [`PROBES`].

mod boost;
mod busy_poll;
mod cgroup;
mod coschedule;
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

use super::{Subcommand, write_stdout};
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
    coschedule::probe,
    rdma::probe,
    busy_poll::probe,
    netdev::probe,
];

/// Exit code if there is a problem. Code 1 is a failed command, 2 an invalid command line.
const HAS_PROBLEMS: u8 = 3;

fn describe() -> Command {
    Command::new("doctor")
        .about("Finds settings of this machine that slow messages down, and says how to change them")
        .after_help(
            "Each line is ok, a note (something that may cost time, or is missing) or a problem (something that\n\
             costs time, or prevents Pronto from working). The command changes nothing: it uses only threads, sockets and\n\
             descriptors of its own. Run it as the user, and in the control group, of the nodes.\n\n\
             Exit code: 0 no problem, 3 at least one problem, 1 the command failed, 2 invalid command line.\n\n\
             Examples:\n  pronto doctor\n  pronto doctor --json | jq '.findings[] | select(.level == \"problem\")'",
        )
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print one JSON object on standard output"))
}

fn run(options: &ArgMatches) -> anyhow::Result<ExitCode> {
    let machine = Machine::here();
    let findings: Vec<_> = PROBES.iter().flat_map(|probe| probe(&machine)).collect();
    write_stdout(&if options.get_flag("json") { as_json(&findings) } else { as_text(&findings) })?;
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

    /// Shows: operations.doctor-lines, operations.doctor-json
    #[test]
    fn findings_are_shown_with_advice() {
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

    /// On any machine, every subject has findings, each of one line.
    ///
    /// Shows: operations.doctor-lines
    #[test]
    fn every_subject_has_findings_on_this_machine() {
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

    /// Without any file, no probe may panic.
    #[test]
    fn a_machine_without_files_has_findings() {
        let machine = Machine::recorded("nothing", &[]);
        assert!(PROBES.iter().all(|probe| !probe(&machine).is_empty()));
    }
}
