//! Power management: idle states and frequency governors of the CPUs.

use std::collections::BTreeSet;

use super::finding::Finding;
use super::machine::Machine;

const CPU: &str = "sys/devices/system/cpu";
/// Exit latency from which an idle state costs more than the rest of a wake-up, microseconds.
const SLOW_EXIT: i64 = 20;

pub(super) fn probe(machine: &Machine) -> Vec<Finding> {
    vec![frequency(machine), idle(machine)]
}

fn cpus(machine: &Machine) -> Vec<String> {
    let is_one = |name: &String| {
        name.strip_prefix("cpu")
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
    };
    machine.names(CPU).into_iter().filter(is_one).collect()
}

fn frequency(machine: &Machine) -> Finding {
    const SUBJECT: &str = "frequency";
    let governor = |cpu: &String| machine.text(&format!("{CPU}/{cpu}/cpufreq/scaling_governor"));
    let governors: BTreeSet<_> = cpus(machine).iter().filter_map(governor).collect();
    let named = governors.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    if governors.is_empty() {
        return Finding::ok(
            SUBJECT,
            "not visible; this system does not control it (virtual machine, or firmware)",
        );
    }
    if named == "performance" {
        return Finding::ok(SUBJECT, "governor performance");
    }
    Finding::note(
        SUBJECT,
        format!("governor {named}: a CPU that was idle runs slowly at first"),
        "cpupower frequency-set -g performance",
    )
}

fn idle(machine: &Machine) -> Finding {
    const SUBJECT: &str = "idle";
    let driver = machine.text(&format!("{CPU}/cpuidle/current_driver")).unwrap_or_else(|| "none".into());
    let mut deepest: Option<(i64, String)> = None;
    for cpu in cpus(machine) {
        let folder = format!("{CPU}/{cpu}/cpuidle");
        for state in machine.names(&folder) {
            let state = format!("{folder}/{state}");
            if machine.number(&format!("{state}/disable")).unwrap_or(0) != 0 {
                continue;
            }
            let Some(exit) = machine.number(&format!("{state}/latency")) else { continue };
            if deepest.as_ref().is_none_or(|(known, _)| exit > *known) {
                deepest = Some((exit, machine.text(&format!("{state}/name")).unwrap_or_default()));
            }
        }
    }
    match deepest {
        None => Finding::ok(SUBJECT, format!("driver {driver}; idle states are not visible")),
        Some((exit, state)) if exit > SLOW_EXIT => Finding::note(
            SUBJECT,
            format!("driver {driver}: a CPU takes up to {exit} us to leave state {state}"),
            format!(
                "cpupower idle-set -D {SLOW_EXIT}, or hold /dev/cpu_dma_latency open, while latency matters"
            ),
        ),
        Some((exit, state)) => Finding::ok(
            SUBJECT,
            format!("driver {driver}: a CPU takes up to {exit} us to leave state {state}"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    const SERVER: [(&str, &str); 7] = [
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance"),
        ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance"),
        ("sys/devices/system/cpu/cpuidle/current_driver", "intel_idle"),
        ("sys/devices/system/cpu/cpu0/cpuidle/state1/latency", "2"),
        ("sys/devices/system/cpu/cpu0/cpuidle/state1/name", "C1"),
        ("sys/devices/system/cpu/cpu0/cpuidle/state3/latency", "133"),
        ("sys/devices/system/cpu/cpu0/cpuidle/state3/name", "C6"),
    ];

    #[test]
    fn a_deep_state_is_noted_unless_it_is_off() {
        let found = probe(&Machine::recorded("deep", &SERVER));
        assert_eq!((found[0].level, found[1].level), (Level::Ok, Level::Note));
        assert!(found[1].text.contains("133 us to leave state C6"), "{found:?}");
        let off = [&SERVER[..], &[("sys/devices/system/cpu/cpu0/cpuidle/state3/disable", "1")]].concat();
        let found = probe(&Machine::recorded("shallow", &off));
        assert!(found[1].level == Level::Ok && found[1].text.contains("2 us to leave state C1"), "{found:?}");
    }

    #[test]
    fn one_slow_cpu_is_noted() {
        let one =
            [&SERVER[..1], &[("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave")]].concat();
        let found = frequency(&Machine::recorded("governor", &one));
        assert!(found.level == Level::Note && found.text.contains("performance, powersave"), "{found:?}");
    }
}
