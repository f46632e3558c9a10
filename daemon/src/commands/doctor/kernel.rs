//! The kernel: its version, its preemption model and its clock source.

use super::finding::Finding;
use super::machine::Machine;

pub(super) fn probe(machine: &Machine) -> Vec<Finding> {
    vec![version(machine), preemption(machine), clock(machine)]
}

/// Returns the first two numbers of a release such as `6.18.4-amd64`.
fn numbers(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn version(machine: &Machine) -> Finding {
    const SUBJECT: &str = "kernel";
    let release = machine.text("proc/sys/kernel/osrelease").unwrap_or_default();
    match numbers(&release) {
        None => Finding::note(SUBJECT, format!("cannot parse its version {release:?}"), "check uname -r"),
        Some(version) if version < (6, 9) => Finding::note(
            SUBJECT,
            format!(
                "Linux {release}: no device polling while the serving thread sleeps, no short time slices"
            ),
            "Linux 6.9 has device polling (tcp.busy_poll_us), 6.12 has short time slices (boost = \"slice\")",
        ),
        Some(version) if version < (6, 12) => Finding::note(
            SUBJECT,
            format!("Linux {release}: no short time slices"),
            "Linux 6.12 has them (boost = \"slice\")",
        ),
        Some(_) => Finding::ok(SUBJECT, format!("Linux {release}")),
    }
}

/// Reads the model from the scheduler (visible to root only), else from the kernel command line, else from the build flags.
fn preemption(machine: &Machine) -> Finding {
    const SUBJECT: &str = "preemption";
    let built = machine.text("proc/sys/kernel/version").unwrap_or_default();
    let line = machine.text("proc/cmdline").unwrap_or_default();
    let boot_option =
        line.split_whitespace().find_map(|word| word.strip_prefix("preempt=")).map(str::to_owned);
    let has = |word: &str| built.split_whitespace().any(|found| found == word);
    let (model, how) = if has("PREEMPT_RT") {
        ("full".into(), "real-time kernel")
    } else if let Some(now) = machine.chosen("sys/kernel/debug/sched/preempt") {
        (now, "reported by the scheduler")
    } else if let Some(model) = boot_option {
        (model, "set at boot")
    } else if has("PREEMPT_DYNAMIC") {
        return Finding::note(
            SUBJECT,
            "set at boot, but not visible to this process",
            "as root: mount -t debugfs none /sys/kernel/debug; cat /sys/kernel/debug/sched/preempt; full is best",
        );
    } else if has("PREEMPT_LAZY") {
        ("lazy".into(), "set at build time")
    } else if has("PREEMPT") {
        ("full".into(), "set at build time")
    } else {
        ("none".into(), "set at build time")
    };
    let text = format!("{model}, {how}");
    match &*model {
        "full" => Finding::ok(SUBJECT, text),
        "lazy" => Finding::note(
            SUBJECT,
            format!(
                "{text}: a woken thread may wait for the next tick if another thread computes on its CPU"
            ),
            "boot with preempt=full, or use boost = \"module\" or \"fifo\" (docs/operations.md, Boost)",
        ),
        _ => Finding::note(
            SUBJECT,
            format!("{text}: a woken thread waits until the running thread leaves the kernel"),
            "boot with preempt=full",
        ),
    }
}

fn clock(machine: &Machine) -> Finding {
    const SUBJECT: &str = "clock";
    const FOLDER: &str = "sys/devices/system/clocksource/clocksource0";
    let source = machine.text(&format!("{FOLDER}/current_clocksource"));
    let others = machine.text(&format!("{FOLDER}/available_clocksource")).unwrap_or_default();
    match source.as_deref() {
        // Clock sources that the vDSO reads without a system call.
        Some(
            source @ ("tsc"
            | "arch_sys_counter"
            | "kvm-clock"
            | "hyperv_clocksource_tsc_page"
            | "riscv_clocksource"),
        ) => Finding::ok(SUBJECT, format!("time is read from {source}, without a system call")),
        Some(source) => Finding::problem(
            SUBJECT,
            format!("time is read from {source}: each reading may be a system call"),
            format!("boot with clocksource= and one of: {others}; prefer tsc if it is stable"),
        ),
        None => Finding::note(SUBJECT, "the clock source is not visible", "search dmesg for clocksource"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    const CLOCK: &str = "sys/devices/system/clocksource/clocksource0/current_clocksource";

    fn levels(name: &str, files: &[(&str, &str)]) -> [Level; 3] {
        let found = probe(&Machine::recorded(name, files));
        [found[0].level, found[1].level, found[2].level]
    }

    #[test]
    fn a_current_kernel_is_fine() {
        let files = [
            ("proc/sys/kernel/osrelease", "6.12.48-amd64"),
            ("proc/sys/kernel/version", "#1 SMP PREEMPT_DYNAMIC Debian 6.12.48-1"),
            ("sys/kernel/debug/sched/preempt", "none voluntary (full) lazy"),
            (CLOCK, "tsc"),
        ];
        assert_eq!(levels("today", &files), [Level::Ok; 3]);
    }

    #[test]
    fn slow_settings_are_noted() {
        let files = [
            ("proc/sys/kernel/osrelease", "6.1.0-30-amd64"),
            ("proc/sys/kernel/version", "#1 SMP PREEMPT_DYNAMIC"),
            ("proc/cmdline", "quiet preempt=lazy"),
            (CLOCK, "hpet"),
        ];
        assert_eq!(levels("slow", &files), [Level::Note, Level::Note, Level::Problem]);
    }

    #[test]
    fn preemption_models_are_distinguished() {
        let model = |version: &str, line: &str| {
            let files = [("proc/sys/kernel/version", version), ("proc/cmdline", line)];
            preemption(&Machine::recorded("models", &files)).text
        };
        assert_eq!(model("#1 SMP PREEMPT_RT", ""), "full, real-time kernel");
        assert_eq!(model("#1 SMP PREEMPT", ""), "full, set at build time");
        assert!(model("#1 SMP", "").starts_with("none, set at build time"));
        assert!(model("#1 SMP PREEMPT_LAZY", "").starts_with("lazy, "));
        assert!(model("#1 SMP PREEMPT_DYNAMIC", "").contains("not visible"));
        assert!(model("#1 SMP PREEMPT_DYNAMIC", "preempt=voluntary").starts_with("voluntary, set at boot"));
    }
}
