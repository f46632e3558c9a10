//! Coscheduling: the sensors and actuators that are available to this process.

use pronto_coschedule::actuator::{ActuateError, ActuatorKind, check};
use pronto_coschedule::diag::{Diag, DiagError};
use pronto_coschedule::sensor::{Choice, SenseError, Sensor};
use pronto_expedite::process::has_children_lists;

use super::finding::Finding;
use super::machine::Machine;

const SUBJECT: &str = "coschedule";

/// `1` if each session is a group of the scheduler (`CONFIG_SCHED_AUTOGROUP`).
const AUTOGROUP: &str = "proc/sys/kernel/sched_autogroup_enabled";

pub(super) fn probe(machine: &Machine) -> Vec<Finding> {
    let kinds = [ActuatorKind::Nice, ActuatorKind::Slice, ActuatorKind::Scheduler];
    let mut findings = vec![
        sensor(Diag::open().and_then(|mut diag| diag.all(|_, _| ()))),
        bpf(Sensor::new(&Choice::Bpf(Choice::PROGRAM.into()))),
    ];
    findings.extend(kinds.map(|kind| actuator(kind, check(kind))));
    if !has_children_lists() {
        findings.push(Finding::note(
            SUBJECT,
            "the kernel does not list the children of processes (CONFIG_PROC_CHILDREN)",
            "pronto coschedule run does not work; configure groups by control group in prontod",
        ));
    }
    findings.extend(autogroup(machine));
    findings
}

fn sensor(tried: Result<(), DiagError>) -> Finding {
    match tried {
        Ok(()) => Finding::ok(SUBJECT, "the queues of other processes' sockets can be read (sock_diag)"),
        Err(error) => Finding::note(SUBJECT, error.to_string(), "coscheduling has nothing to decide by"),
    }
}

fn bpf(tried: Result<Sensor, SenseError>) -> Finding {
    match tried {
        Ok(_) => Finding::ok(SUBJECT, "sensor bpf is available: it reads all sockets of a process together"),
        Err(error) => Finding::note(SUBJECT, "sensor bpf is not available", error.to_string()),
    }
}

fn actuator(kind: ActuatorKind, tried: Result<(), ActuateError>) -> Finding {
    match tried {
        Ok(()) if kind == ActuatorKind::Scheduler => {
            Finding::ok(SUBJECT, "actuator scx is available, and with it the sensor scx")
        }
        Ok(()) => Finding::ok(SUBJECT, format!("actuator {kind} is available")),
        Err(error) => Finding::note(SUBJECT, format!("actuator {kind} is not available"), error.to_string()),
    }
}

fn autogroup(machine: &Machine) -> Option<Finding> {
    (machine.text(AUTOGROUP).as_deref() == Some("1")).then(|| {
        Finding::note(
            SUBJECT,
            "autogroups are on: nice values act only among the processes of one session",
            "start program and competitors from one session, use control groups, or as root: sysctl kernel.sched_autogroup_enabled=0",
        )
    })
}

#[cfg(test)]
mod tests {
    use pronto_bpf::OpenError;

    use super::super::finding::Level;
    use super::*;

    #[test]
    fn autogroups_are_noted() {
        let machine = |value| Machine::recorded("autogroup", &[(AUTOGROUP, value)]);
        assert_eq!(autogroup(&machine("0")), None);
        assert_eq!(autogroup(&machine("1")).map(|finding| finding.level), Some(Level::Note));
    }

    #[test]
    fn a_missing_permission_is_noted_with_the_way_to_it() {
        let finding = actuator(ActuatorKind::Nice, Err(ActuateError::NicePermission));
        assert_eq!(finding.level, Level::Note);
        assert!(finding.advice.is_some_and(|advice| advice.contains("CAP_SYS_NICE")));
        assert_eq!(sensor(Err(DiagError::Malformed)).level, Level::Note);
        let finding = bpf(Err(SenseError::Open(OpenError::NoLibbpf)));
        assert!(finding.advice.is_some_and(|advice| advice.contains("libbpf1")));
    }
}
