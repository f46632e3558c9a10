//! The kernel: its version, how it preempts, what time is read from.

use super::finding::Finding;
use super::machine::Machine;

pub(super) fn probe(machine: &Machine) -> Vec<Finding> {
    vec![version(machine), preemption(machine), clock(machine)]
}

/// The first two numbers of a release such as `6.18.4-amd64`.
fn numbers(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn version(machine: &Machine) -> Finding {
    const SUBJECT: &str = "kernel";
    let release = machine.text("proc/sys/kernel/osrelease").unwrap_or_default();
    match numbers(&release) {
        None => Finding::note(SUBJECT, format!("its version {release:?} says nothing"), "look at uname -r"),
        Some(version) if version < (6, 9) => Finding::note(
            SUBJECT,
            format!(
                "Linux {release}: no polling of devices in the serving thread's sleeps, no short time slices"
            ),
            "Linux 6.9 brings the first (tcp.busy_poll_us), 6.12 the second (boost = \"slice\")",
        ),
        Some(version) if version < (6, 12) => Finding::note(
            SUBJECT,
            format!("Linux {release}: no short time slices"),
            "Linux 6.12 brings them (boost = \"slice\")",
        ),
        Some(_) => Finding::ok(SUBJECT, format!("Linux {release}")),
    }
}

/// By the scheduler itself where it tells (root only), else by the command line and how the kernel was built.
fn preemption(machine: &Machine) -> Finding {
    const SUBJECT: &str = "preemption";
    let built = machine.text("proc/sys/kernel/version").unwrap_or_default();
    let line = machine.text("proc/cmdline").unwrap_or_default();
    let asked = line.split_whitespace().find_map(|word| word.strip_prefix("preempt=")).map(str::to_owned);
    let has = |word: &str| built.split_whitespace().any(|found| found == word);
    let (model, how) = if has("PREEMPT_RT") {
        ("full".into(), "real-time kernel")
    } else if let Some(now) = machine.chosen("sys/kernel/debug/sched/preempt") {
        (now, "as the scheduler says")
    } else if let Some(asked) = asked {
        (asked, "as it was booted")
    } else if has("PREEMPT_DYNAMIC") {
        return Finding::note(
            SUBJECT,
            "chosen at boot, and hidden from this process",
            "as root: mount -t debugfs none /sys/kernel/debug; cat /sys/kernel/debug/sched/preempt; full is best",
        );
    } else if has("PREEMPT_LAZY") {
        ("lazy".into(), "as it was built")
    } else if has("PREEMPT") {
        ("full".into(), "as it was built")
    } else {
        ("none".into(), "as it was built")
    };
    let text = format!("{model}, {how}");
    match &*model {
        "full" => Finding::ok(SUBJECT, text),
        "lazy" => Finding::note(
            SUBJECT,
            format!("{text}: a thread that is woken may wait for the next tick beside one that computes"),
            "boot with preempt=full, or use boost = \"module\" or \"fifo\" (docs/operations.md, Boost)",
        ),
        _ => Finding::note(
            SUBJECT,
            format!("{text}: a thread that is woken waits until others leave the kernel"),
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
        // Those that the vDSO reads without a system call.
        Some(
            source @ ("tsc"
            | "arch_sys_counter"
            | "kvm-clock"
            | "hyperv_clocksource_tsc_page"
            | "riscv_clocksource"),
        ) => Finding::ok(SUBJECT, format!("time is read from {source}, without a system call")),
        Some(source) => Finding::problem(
            SUBJECT,
            format!("time is read from {source}: each look at the clock may be a system call"),
            format!("boot with clocksource= one of: {others}; tsc where it is stable"),
        ),
        None => {
            Finding::note(SUBJECT, "what time is read from is not visible", "look at dmesg for clocksource")
        }
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
    fn a_kernel_of_today_is_fine() {
        let files = [
            ("proc/sys/kernel/osrelease", "6.12.48-amd64"),
            ("proc/sys/kernel/version", "#1 SMP PREEMPT_DYNAMIC Debian 6.12.48-1"),
            ("sys/kernel/debug/sched/preempt", "none voluntary (full) lazy"),
            (CLOCK, "tsc"),
        ];
        assert_eq!(levels("today", &files), [Level::Ok; 3]);
    }

    #[test]
    fn what_is_slow_is_noted() {
        let files = [
            ("proc/sys/kernel/osrelease", "6.1.0-30-amd64"),
            ("proc/sys/kernel/version", "#1 SMP PREEMPT_DYNAMIC"),
            ("proc/cmdline", "quiet preempt=lazy"),
            (CLOCK, "hpet"),
        ];
        assert_eq!(levels("slow", &files), [Level::Note, Level::Note, Level::Problem]);
    }

    #[test]
    fn models_of_preemption_are_told_apart() {
        let model = |version: &str, line: &str| {
            let files = [("proc/sys/kernel/version", version), ("proc/cmdline", line)];
            preemption(&Machine::recorded("models", &files)).text
        };
        assert_eq!(model("#1 SMP PREEMPT_RT", ""), "full, real-time kernel");
        assert_eq!(model("#1 SMP PREEMPT", ""), "full, as it was built");
        assert!(model("#1 SMP", "").starts_with("none, as it was built"));
        assert!(model("#1 SMP PREEMPT_LAZY", "").starts_with("lazy, "));
        assert!(model("#1 SMP PREEMPT_DYNAMIC", "").contains("hidden"));
        assert!(
            model("#1 SMP PREEMPT_DYNAMIC", "preempt=voluntary").starts_with("voluntary, as it was booted")
        );
    }
}
