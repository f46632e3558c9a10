//! Control groups: the CPU time that they leave to this process.

use super::finding::Finding;
use super::machine::Machine;

const SUBJECT: &str = "cgroup";

pub(super) fn probe(machine: &Machine) -> Vec<Finding> {
    let groups = machine.text("proc/self/cgroup").unwrap_or_default();
    let mut found = Vec::new();
    for group in groups.lines() {
        // NUMBER:CONTROLLERS:PATH (cgroups(7)); version 2 has no controllers here.
        let mut parts = group.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        if controllers.is_empty() {
            for mount in ["sys/fs/cgroup", "sys/fs/cgroup/unified"] {
                upwards(path, |path| found.extend(version_2(machine, &format!("{mount}{path}"))));
            }
        } else if controllers.split(',').any(|name| name == "cpu") {
            for mount in [format!("sys/fs/cgroup/{controllers}"), "sys/fs/cgroup/cpu".into()] {
                upwards(path, |path| found.extend(version_1(machine, &format!("{mount}{path}"))));
            }
        }
    }
    found.dedup();
    if found.is_empty() {
        found.push(Finding::ok(SUBJECT, "no limit on CPU time"));
    }
    found
}

/// Calls `visit` for a group and each group that contains it.
fn upwards(path: &str, mut visit: impl FnMut(&str)) {
    let mut path = path.trim_end_matches('/');
    visit(path);
    while let Some((above, _)) = path.rsplit_once('/') {
        path = above;
        visit(path);
    }
}

/// Checks version 2 (Documentation/admin-guide/cgroup-v2.rst): `cpu.max` holds quota and period.
fn version_2(machine: &Machine, folder: &str) -> Vec<Finding> {
    let max = machine.text(&format!("{folder}/cpu.max")).unwrap_or_default();
    let mut words = max.split_whitespace().map(str::parse::<u64>);
    match (words.next(), words.next()) {
        (Some(Ok(quota)), Some(Ok(period))) => limited(machine, folder, "cpu.max", quota, period),
        _ => Vec::new(),
    }
}

/// Checks version 1 (Documentation/scheduler/sched-bwc.rst).
fn version_1(machine: &Machine, folder: &str) -> Vec<Finding> {
    let number = |name: &str| machine.number(&format!("{folder}/{name}"));
    let period = number("cpu.cfs_period_us").and_then(|period| u64::try_from(period).ok());
    let mut found = match (number("cpu.cfs_quota_us").map(u64::try_from), period) {
        (Some(Ok(quota)), Some(period)) => limited(machine, folder, "cpu.cfs_quota_us", quota, period),
        _ => Vec::new(),
    };
    // The root group is not limited and has no such file.
    if number("cpu.rt_runtime_us") == Some(0) {
        found.push(Finding::note(
            SUBJECT,
            format!("/{folder} has no CPU time for real-time threads: boost = \"fifo\" is refused"),
            format!("echo 100000 > /{folder}/cpu.rt_runtime_us, or use another group"),
        ));
    }
    found
}

fn limited(machine: &Machine, folder: &str, file: &str, quota: u64, period: u64) -> Vec<Finding> {
    let stat = machine.text(&format!("{folder}/cpu.stat")).unwrap_or_default();
    let times = stat.lines().find_map(|line| line.strip_prefix("nr_throttled ")).unwrap_or("0");
    let text = format!("/{folder} may use {quota} us of CPU time in each {period} us");
    let advice = format!(
        "remove the limit (/{folder}/{file}): a polling thread uses it up, and the process is then stopped until the next period"
    );
    if times == "0" {
        vec![Finding::note(SUBJECT, text, advice)]
    } else {
        vec![Finding::problem(SUBJECT, format!("{text}, and was stopped {times} times (throttled)"), advice)]
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn limits_of_enclosing_groups_count() {
        let files = [
            ("proc/self/cgroup", "0::/system.slice/prontod.service"),
            ("sys/fs/cgroup/system.slice/prontod.service/cpu.max", "max 100000"),
            ("sys/fs/cgroup/system.slice/cpu.max", "150000 100000"),
        ];
        let found = probe(&Machine::recorded("above", &files));
        assert!(found.len() == 1 && found[0].level == Level::Note, "{found:?}");
        assert_eq!(
            found[0].text,
            "/sys/fs/cgroup/system.slice may use 150000 us of CPU time in each 100000 us"
        );
        let stopped =
            [&files[..], &[("sys/fs/cgroup/system.slice/cpu.stat", "usage_usec 5\nnr_throttled 17")]]
                .concat();
        let found = probe(&Machine::recorded("stopped", &stopped));
        assert!(
            found[0].level == Level::Problem && found[0].text.ends_with("was stopped 17 times (throttled)"),
            "{found:?}"
        );
    }

    #[test]
    fn version_1_is_understood() {
        let files = [
            ("proc/self/cgroup", "3:cpuset:/\n1:cpu,cpuacct:/nodes"),
            ("sys/fs/cgroup/cpu,cpuacct/nodes/cpu.cfs_quota_us", "50000"),
            ("sys/fs/cgroup/cpu,cpuacct/nodes/cpu.cfs_period_us", "100000"),
            ("sys/fs/cgroup/cpu,cpuacct/nodes/cpu.rt_runtime_us", "0"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1"),
        ];
        let found = probe(&Machine::recorded("first", &files));
        assert!(found.len() == 2 && found.iter().all(|finding| finding.level == Level::Note), "{found:?}");
    }

    #[test]
    fn a_group_without_limits_is_fine() {
        let files =
            [("proc/self/cgroup", "0::/user.slice"), ("sys/fs/cgroup/user.slice/cpu.max", "max 100000")];
        assert_eq!(probe(&Machine::recorded("free", &files))[0].level, Level::Ok);
    }
}
