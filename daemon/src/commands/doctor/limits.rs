//! Limits of this process: real-time scheduling, locked memory, descriptors.

use super::finding::Finding;
use super::machine::Machine;

/// capabilities(7).
const CAP_IPC_LOCK: u32 = 14;
const CAP_SYS_NICE: u32 = 23;
/// Locked memory for a few RDMA links (docs/operations.md, RDMA), bytes.
const ENOUGH_LOCKED: u64 = 64 << 20;
/// Descriptors for a node with a few hundred peers.
const ENOUGH_FILES: u64 = 1_024;

pub(super) fn probe(machine: &Machine) -> Vec<Finding> {
    vec![real_time(machine), throttle(machine), locked(machine), files(machine)]
}

/// Returns the soft limit with that name in `/proc/self/limits` (proc(5)); `u64::MAX` means unlimited.
fn limit(machine: &Machine, name: &str) -> Option<u64> {
    let limits = machine.text("proc/self/limits")?;
    let soft = limits.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?;
    if soft == "unlimited" { Some(u64::MAX) } else { soft.parse().ok() }
}

fn real_time(machine: &Machine) -> Finding {
    const SUBJECT: &str = "real-time";
    if machine.has_capability(CAP_SYS_NICE) {
        return Finding::ok(SUBJECT, "allowed, by CAP_SYS_NICE");
    }
    match limit(machine, "Max realtime priority") {
        Some(0) => Finding::note(
            SUBJECT,
            "not allowed: RLIMIT_RTPRIO is 0",
            "for boost = \"fifo\": LimitRTPRIO=2 in the systemd unit, `- rtprio 2` in /etc/security/limits.conf, or CAP_SYS_NICE",
        ),
        Some(most) => Finding::ok(SUBJECT, format!("allowed up to priority {most}")),
        None => Finding::note(SUBJECT, "its limit is not visible", "check ulimit -r"),
    }
}

/// Checks the CPU time that all real-time threads together may use (sched(7)).
fn throttle(machine: &Machine) -> Finding {
    const SUBJECT: &str = "real-time";
    match machine.number("proc/sys/kernel/sched_rt_runtime_us") {
        Some(0) => Finding::problem(
            SUBJECT,
            "no real-time thread may run: kernel.sched_rt_runtime_us is 0",
            "sysctl kernel.sched_rt_runtime_us=950000",
        ),
        Some(-1) => Finding::note(
            SUBJECT,
            "no limit stops a runaway real-time thread: kernel.sched_rt_runtime_us is -1",
            "sysctl kernel.sched_rt_runtime_us=950000, unless that is intended",
        ),
        Some(micros) => {
            Finding::ok(SUBJECT, format!("all real-time threads together may use {micros} us of each period"))
        }
        None => Finding::note(
            SUBJECT,
            "the CPU time of real-time threads is not visible",
            "check sysctl kernel.sched_rt_runtime_us",
        ),
    }
}

fn locked(machine: &Machine) -> Finding {
    const SUBJECT: &str = "memlock";
    if machine.has_capability(CAP_IPC_LOCK) {
        return Finding::ok(SUBJECT, "no limit, by CAP_IPC_LOCK");
    }
    let advice = "LimitMEMLOCK=infinity in the systemd unit, or ulimit -l unlimited, or CAP_IPC_LOCK";
    match limit(machine, "Max locked memory") {
        Some(u64::MAX) => Finding::ok(SUBJECT, "no limit"),
        Some(most) if most >= ENOUGH_LOCKED => {
            Finding::ok(SUBJECT, format!("{} MiB may be locked", most >> 20))
        }
        Some(most) => {
            let text = format!("{} KiB may be locked: an RDMA link needs 2 MiB or more", most >> 10);
            // Only RDMA locks memory.
            let has_rdma = !machine.names("sys/class/infiniband").is_empty();
            let finding = if has_rdma { Finding::problem } else { Finding::note };
            finding(SUBJECT, text, advice.to_owned())
        }
        None => Finding::note(SUBJECT, "its limit is not visible", "check ulimit -l"),
    }
}

fn files(machine: &Machine) -> Finding {
    const SUBJECT: &str = "descriptors";
    match limit(machine, "Max open files") {
        Some(most) if most < ENOUGH_FILES => Finding::problem(
            SUBJECT,
            format!("{most} may be open: each peer needs several"),
            "LimitNOFILE=65536 in the systemd unit, or ulimit -n",
        ),
        Some(most) => Finding::ok(SUBJECT, format!("{most} may be open")),
        None => Finding::note(SUBJECT, "their limit is not visible", "check ulimit -n"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn levels(name: &str, files: &[(&str, &str)]) -> Vec<Level> {
        probe(&Machine::recorded(name, files)).iter().map(|finding| finding.level).collect()
    }

    const LIMITS: &str = "Limit                     Soft Limit           Hard Limit           Units     \n\
        Max locked memory         8388608              8388608              bytes     \n\
        Max open files            20000                20000                files     \n\
        Max realtime priority     0                    0                              ";

    #[test]
    fn a_user_without_rights_gets_notes() {
        let files = [("proc/self/limits", LIMITS), ("proc/sys/kernel/sched_rt_runtime_us", "950000")];
        assert_eq!(levels("user", &files), [Level::Note, Level::Ok, Level::Note, Level::Ok]);
    }

    #[test]
    fn a_low_memlock_limit_is_a_problem_with_rdma() {
        let rdma = [("proc/self/limits", LIMITS), ("sys/class/infiniband/mlx5_0/node_guid", "1")];
        assert_eq!(levels("locked", &rdma)[2], Level::Problem);
        let root = [("proc/self/status", "CapEff:\t000001ffffffffff"), rdma[0], rdma[1]];
        assert_eq!(levels("root", &root), [Level::Ok, Level::Note, Level::Ok, Level::Ok]);
    }

    #[test]
    fn forbidden_real_time_is_a_problem() {
        assert_eq!(levels("none", &[("proc/sys/kernel/sched_rt_runtime_us", "0")])[1], Level::Problem);
        assert_eq!(levels("all", &[("proc/sys/kernel/sched_rt_runtime_us", "-1")])[1], Level::Note);
        let few = LIMITS.replace("20000 ", "256 ");
        assert_eq!(levels("few", &[("proc/self/limits", &few)])[3], Level::Problem);
    }
}
