//! The machine of a result, as far as a reader needs it to judge the numbers.

use std::fs;
use std::thread;

use nix::sys::resource::{Resource, getrlimit};
use serde::Serialize;

use crate::placement::parse_cpu_list;

/// Properties of the host that affect the numbers; `None` if the kernel does not report them.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Host {
    /// Kernel release, as in `uname -r`.
    pub(crate) kernel: Option<String>,
    /// Name and version of the distribution.
    pub(crate) distribution: Option<String>,
    /// Model name of the CPU.
    pub(crate) cpu: Option<String>,
    /// Virtual machine: `none` on real hardware, otherwise a description. In the project's lab, the emulator and whether its time is
    /// virtual.
    pub(crate) accelerator: Option<String>,
    /// CPUs that are online.
    pub(crate) cores: usize,
    /// CPUs that this process may use, by its affinity mask and its quota.
    pub(crate) cores_allowed: usize,
    /// Clock source of the kernel; with any other than `tsc`, each timing costs a system call.
    pub(crate) clocksource: Option<String>,
    /// Preemption model: the active one if it is readable, otherwise that of the kernel's build.
    pub(crate) preemption: Option<String>,
    /// Limit of locked memory of this process in KiB; `None` if there is no limit.
    pub(crate) memlock_kib: Option<u64>,
    /// Load average over the last minute when the run began.
    pub(crate) load_1m: Option<f64>,
    /// Number of running or ready threads when the run began, including this one.
    pub(crate) runnable: Option<u64>,
    /// Whether there were more runnable threads than CPUs when the run began, so that every value includes scheduling delays.
    pub(crate) oversubscribed: bool,
    /// First part of the boot id; results with different ones are from different boots.
    pub(crate) boot_id: Option<String>,
    /// Compiler that built this program.
    pub(crate) rustc: &'static str,
    /// `release`, or `debug` for a build with meaningless numbers.
    pub(crate) profile: &'static str,
}

impl Host {
    /// Inspects this machine.
    pub(crate) fn inspect() -> Self {
        let cores_allowed = thread::available_parallelism().map_or(1, usize::from);
        let online = read("/sys/devices/system/cpu/online").map(|list| parse_cpu_list(&list).len());
        let cores = online.unwrap_or_default().max(cores_allowed);
        let (load_1m, runnable) = read("/proc/loadavg").map_or((None, None), |text| parse_loadavg(&text));
        let cores_wide = u64::try_from(cores).unwrap_or(u64::MAX);
        Self {
            kernel: read("/proc/sys/kernel/osrelease"),
            distribution: read("/etc/os-release").and_then(|text| parse_os_release(&text)),
            cpu: read("/proc/cpuinfo").and_then(|text| parse_cpu_model(&text)),
            accelerator: accelerator(),
            cores,
            cores_allowed,
            clocksource: read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            preemption: preemption(),
            memlock_kib: memlock_kib(),
            load_1m,
            runnable,
            oversubscribed: runnable.is_some_and(|runnable| runnable > cores_wide),
            boot_id: read("/proc/sys/kernel/random/boot_id").map(|id| id.chars().take(8).collect()),
            rustc: env!("PRONTO_BENCH_RUSTC"),
            profile: env!("PRONTO_BENCH_PROFILE"),
        }
    }

    /// Returns one human-readable line with the properties that affect the numbers most.
    pub(crate) fn summary(&self) -> String {
        let or_unknown = |value: &Option<String>| value.as_deref().unwrap_or("unknown").to_owned();
        format!(
            "{} x {} (accelerator: {}), Linux {} ({}), {}, clock {}, {}, {} build",
            self.cores,
            or_unknown(&self.cpu),
            or_unknown(&self.accelerator),
            or_unknown(&self.kernel),
            or_unknown(&self.preemption),
            or_unknown(&self.distribution),
            or_unknown(&self.clocksource),
            self.rustc,
            self.profile,
        )
    }
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// Returns the description of the virtual machine: the lab reports it, others are recognised by a CPU flag and their vendor.
fn accelerator() -> Option<String> {
    let reported = std::env::var("PRONTO_LAB_ACCELERATOR").ok();
    reported.or_else(|| virtualisation(&read("/proc/cpuinfo")?, read("/sys/class/dmi/id/sys_vendor")))
}

/// Detects a virtual machine by its CPU flag, which only x86 has.
fn virtualisation(cpuinfo: &str, vendor: Option<String>) -> Option<String> {
    let flags = cpuinfo.lines().find_map(|line| line.strip_prefix("flags"))?;
    if !flags.split_whitespace().any(|flag| flag == "hypervisor") {
        return Some("none".to_owned());
    }
    Some(vendor.map_or_else(|| "virtual machine".to_owned(), |vendor| format!("virtual machine of {vendor}")))
}

/// Returns the limit of locked memory in KiB; `None` if there is none, or if it is unreadable.
fn memlock_kib() -> Option<u64> {
    let (soft, _hard) = getrlimit(Resource::RLIMIT_MEMLOCK).ok()?;
    (soft != nix::libc::RLIM_INFINITY).then_some(soft / 1024)
}

/// Returns the active preemption model from debugfs, which only root can read, or that of the build from the version string.
fn preemption() -> Option<String> {
    read("/sys/kernel/debug/sched/preempt")
        .and_then(|text| parse_active_preemption(&text))
        .or_else(|| read("/proc/sys/kernel/version").and_then(|text| parse_built_preemption(&text)))
}

/// Returns the active model, which is in parentheses, as in `none voluntary (full)`.
fn parse_active_preemption(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('(')?;
    rest.split_once(')').map(|(active, _)| active.to_owned())
}

fn parse_built_preemption(version: &str) -> Option<String> {
    version.split_whitespace().find(|word| word.starts_with("PREEMPT")).map(str::to_owned)
}

fn parse_os_release(text: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(line.trim_matches('"').to_owned())
}

fn parse_cpu_model(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, name)| name.trim().to_owned())
}

/// Returns the load of the last minute, and the number of runnable threads, which is 3 in `3/85`.
fn parse_loadavg(text: &str) -> (Option<f64>, Option<u64>) {
    let mut fields = text.split_whitespace();
    let load = fields.next().and_then(|field| field.parse().ok());
    let runnable =
        fields.nth(2).and_then(|field| field.split_once('/')).and_then(|(now, _)| now.parse().ok());
    (load, runnable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_parsed() {
        assert_eq!(parse_loadavg("0.52 0.58 0.59 3/85 12345"), (Some(0.52), Some(3)));
        assert_eq!(parse_loadavg("nonsense"), (None, None));
        assert_eq!(parse_active_preemption("none voluntary (full)"), Some("full".into()));
        assert_eq!(parse_built_preemption("#1 SMP PREEMPT_DYNAMIC Tue"), Some("PREEMPT_DYNAMIC".into()));
        assert_eq!(parse_built_preemption("#1 SMP Tue"), None);
        assert_eq!(parse_os_release("ID=x\nPRETTY_NAME=\"Some Linux 1\"\n"), Some("Some Linux 1".into()));
        assert_eq!(parse_cpu_model("cpu\t: 1\nmodel name\t: Fast One\n"), Some("Fast One".into()));
    }

    #[test]
    fn a_virtual_machine_is_recognised_by_a_flag() {
        let read = |flags: &str, vendor: Option<&str>| virtualisation(flags, vendor.map(str::to_owned));
        assert_eq!(read("model\t: 1\nflags\t\t: fpu vme\n", Some("Maker")), Some("none".into()));
        assert_eq!(read("flags\t\t: fpu hypervisor\n", None), Some("virtual machine".into()));
        assert_eq!(read("flags: hypervisor", Some("QEMU")), Some("virtual machine of QEMU".into()));
        assert_eq!(read("Features : fp asimd\n", None), None);
    }

    #[test]
    fn this_machine_is_described() {
        let host = Host::inspect();
        assert!(host.cores_allowed >= 1 && host.cores >= host.cores_allowed && host.kernel.is_some());
        assert!(host.rustc.starts_with("rustc "), "{}", host.rustc);
    }
}
