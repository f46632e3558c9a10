//! The machine a result was made on, as far as a reader needs it to judge the numbers.

use std::fs;
use std::thread;

use nix::sys::resource::{Resource, getrlimit};
use serde::Serialize;

use crate::placement::parse_cpu_list;

/// Everything about the host that moves the numbers; `None` where the kernel does not say.
#[derive(Clone, Debug, Serialize)]
pub struct Host {
    /// Kernel release, as in `uname -r`.
    pub kernel: Option<String>,
    /// Name and version of the distribution.
    pub distribution: Option<String>,
    /// The processor's own name.
    pub cpu: Option<String>,
    /// Who carries out the instructions: `none` on the machine itself, else what is known of the virtual machine. In the
    /// project's lab that is the emulator and whether its time is virtual.
    pub accelerator: Option<String>,
    /// CPUs that are online.
    pub cores: usize,
    /// CPUs that this process may use, by its affinity mask and its quota.
    pub cores_allowed: usize,
    /// Where the kernel takes its time from; anything but `tsc` makes each timing cost a system call.
    pub clocksource: Option<String>,
    /// Preemption model: the active one if it is readable, else what the kernel was built with.
    pub preemption: Option<String>,
    /// How much memory this process may lock, in KiB; `None` is no limit.
    pub memlock_kib: Option<u64>,
    /// Load average over the last minute when the run began.
    pub load_1m: Option<f64>,
    /// Threads that were running or ready when the run began, this one among them.
    pub runnable: Option<u64>,
    /// More runnable threads than CPUs when the run began: then every value carries scheduling delays.
    pub oversubscribed: bool,
    /// The first part of the boot's id: results with different ones are from different boots.
    pub boot_id: Option<String>,
    /// The compiler that built this program.
    pub rustc: &'static str,
    /// `release`, or `debug` for a build whose numbers mean nothing.
    pub profile: &'static str,
}

impl Host {
    /// Looks at this machine now.
    #[must_use]
    pub fn inspect() -> Self {
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

    /// One line for a reader, with what moves the numbers most.
    #[must_use]
    pub fn summary(&self) -> String {
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

/// The lab says what it is; other virtual machines show by a flag of the processor, and some by their maker's name.
fn accelerator() -> Option<String> {
    let said = std::env::var("PRONTO_LAB_ACCELERATOR").ok();
    said.or_else(|| virtualisation(&read("/proc/cpuinfo")?, read("/sys/class/dmi/id/sys_vendor")))
}

/// Only x86 has the flag.
fn virtualisation(cpuinfo: &str, vendor: Option<String>) -> Option<String> {
    let flags = cpuinfo.lines().find_map(|line| line.strip_prefix("flags"))?;
    if !flags.split_whitespace().any(|flag| flag == "hypervisor") {
        return Some("none".to_owned());
    }
    Some(vendor.map_or_else(|| "virtual machine".to_owned(), |vendor| format!("virtual machine of {vendor}")))
}

/// The limit in KiB, or `None` for none (or an unreadable one).
fn memlock_kib() -> Option<u64> {
    let (soft, _hard) = getrlimit(Resource::RLIMIT_MEMLOCK).ok()?;
    (soft != nix::libc::RLIM_INFINITY).then_some(soft / 1024)
}

/// debugfs names the active model to root; the version string names what the kernel was built with to everyone.
fn preemption() -> Option<String> {
    read("/sys/kernel/debug/sched/preempt")
        .and_then(|text| parse_active_preemption(&text))
        .or_else(|| read("/proc/sys/kernel/version").and_then(|text| parse_built_preemption(&text)))
}

/// `none voluntary (full)` names the active one in parentheses.
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

/// Load of the last minute, and the runnable threads out of `3/85`.
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
    fn the_kernels_files_are_read_as_it_writes_them() {
        assert_eq!(parse_loadavg("0.52 0.58 0.59 3/85 12345"), (Some(0.52), Some(3)));
        assert_eq!(parse_loadavg("nonsense"), (None, None));
        assert_eq!(parse_active_preemption("none voluntary (full)"), Some("full".into()));
        assert_eq!(parse_built_preemption("#1 SMP PREEMPT_DYNAMIC Tue"), Some("PREEMPT_DYNAMIC".into()));
        assert_eq!(parse_built_preemption("#1 SMP Tue"), None);
        assert_eq!(parse_os_release("ID=x\nPRETTY_NAME=\"Some Linux 1\"\n"), Some("Some Linux 1".into()));
        assert_eq!(parse_cpu_model("cpu\t: 1\nmodel name\t: Fast One\n"), Some("Fast One".into()));
    }

    #[test]
    fn a_virtual_machine_is_known_by_a_flag() {
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
