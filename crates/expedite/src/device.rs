//! `/dev/expedite`: a flag lasts until the device or the flagged file is closed; see `kernel/expedite/expedite.h`.
//!
//! # Invariants
//! 1. The structures have the layout that the header gives them: the request numbers hold their sizes, and the module
//!    refuses others.
//! 2. The device is open as long as a [`Device`] lives.
#![expect(unsafe_code, reason = "seven requests of one device; listed in docs/unsafe.md")]

use core::time::Duration;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use crate::process::{RAISE_LIMIT, descriptor_limit};

/// Path of the module's device.
const PATH: &str = "/dev/expedite";

/// Number that stands for the calling thread.
pub const THIS_THREAD: i32 = 0;

/// `struct expedite_flag`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct RawFlag {
    fd: i32,
    tid: i32,
    slice_ns: u64,
    percent: u32,
    options: u32,
    reserved: u64,
}

/// `EXPEDITE_SLEEPERS_ONLY`.
const SLEEPERS_ONLY: u32 = 1;

/// `struct expedite_wait`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct RawWait {
    fd: i32,
    reserved: u32,
    timeout_ns: u64,
}

/// `struct expedite_counts`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct RawCounts {
    calls: u64,
    direct: u64,
    worker: u64,
    running: u64,
    boosted: u64,
    realtime: u64,
    idle: u64,
    behind: u64,
    locked: u64,
    denied_thread: u64,
    denied_user: u64,
    denied_cpu: u64,
    denied_flag: u64,
    denied_group: u64,
    denied_memory: u64,
    drops: u64,
    replaced: u64,
    boosted_ns: u64,
    slept_ns: u64,
}

/// `struct expedite_query`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct RawQuery {
    tid: i32,
    reserved: u32,
    counts: RawCounts,
    left_ns: u64,
}

/// `struct expedite_totals`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct RawTotals {
    flags: u64,
    threads: u64,
    accounts: u64,
    by_way: [u64; 6],
    counts: RawCounts,
}

/// `struct expedite_caps`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct RawCaps {
    slice_us: u32,
    thread_percent: u32,
    user_percent: u32,
    cpu_percent: u32,
    sleepers_only: u32,
    even_if_idle: u32,
    user_flags: u32,
    reserved: u32,
}

nix::ioctl_write_ptr!(expedite_flag, b'E', 0xe0, RawFlag);
nix::ioctl_write_ptr!(expedite_unflag, b'E', 0xe1, i32);
nix::ioctl_readwrite!(expedite_query, b'E', 0xe2, RawQuery);
nix::ioctl_write_ptr!(expedite_wait, b'E', 0xe3, RawWait);
nix::ioctl_read!(expedite_totals, b'E', 0xe4, RawTotals);
nix::ioctl_write_ptr!(expedite_find, b'E', 0xe5, i32);
nix::ioctl_read!(expedite_caps, b'E', 0xe6, RawCaps);

/// Parameters of a flag.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flag {
    /// Thread to boost if the module cannot tell which thread waits; [`THIS_THREAD`] is the caller.
    pub thread: i32,
    /// Length of the boost after each arrival; zero is the maximum that the module grants.
    pub slice: Duration,
    /// Maximum share of a CPU that arrivals here may boost within any 100 ms, in percent; zero is no limit of the flag's own.
    /// The module's caps apply as well.
    pub percent: u32,
    /// As in the paper: boosts only threads that use less than 2 % of a CPU in total, boosted or not.
    pub sleepers_only: bool,
}

/// Counters of one thread since the module first saw it, or of all threads since it was loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Arrivals that were about to wake the thread.
    pub calls: u64,
    /// Boosts made immediately, by a thread that announced the arrival.
    pub direct: u64,
    /// Boosts made by the worker of the thread's CPU, after an interrupt announced the arrival.
    pub worker: u64,
    /// No boost: the thread was running already.
    pub running: u64,
    /// No boost: the thread was boosted already.
    pub boosted: u64,
    /// No boost: the thread has a real-time class of its own.
    pub realtime: u64,
    /// No boost: a CPU on which the thread may run was idle.
    pub idle: u64,
    /// No boost: the thread's group is to run after others (`cpu.idle`), or the thread is (a positive nice value, or `SCHED_IDLE`) and
    /// may not change that.
    pub behind: u64,
    /// No boost: the thread waited for a lock with priority inheritance, whose owner would have been boosted instead.
    pub locked: u64,
    /// No boost: the thread's own budget was spent.
    pub denied_thread: u64,
    /// No boost: its user's budget on that CPU was spent.
    pub denied_user: u64,
    /// No boost: the CPU's budget was spent.
    pub denied_cpu: u64,
    /// No boost: the flag's budget was spent.
    pub denied_flag: u64,
    /// No boost: the budget of a group with a limit of CPU time (`cpu.max`) was spent.
    pub denied_group: u64,
    /// No boost: memory was short, or the module stores too many threads or accounts.
    pub denied_memory: u64,
    /// Boosts that ended.
    pub drops: u64,
    /// Boosts that ended after another caller had set the thread's class.
    pub replaced: u64,
    /// Time that the thread ran boosted.
    pub boosted_time: Duration,
    /// Time that the thread slept boosted and was charged for, because another thread may have run in its place.
    pub slept_time: Duration,
}

impl Counts {
    /// Returns the counts since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        self.combined(before, u64::saturating_sub, Duration::saturating_sub)
    }

    /// Returns the sum of these counts and others.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        self.combined(other, u64::saturating_add, Duration::saturating_add)
    }

    fn combined(
        &self,
        other: &Self,
        count: fn(u64, u64) -> u64,
        time: fn(Duration, Duration) -> Duration,
    ) -> Self {
        Self {
            calls: count(self.calls, other.calls),
            direct: count(self.direct, other.direct),
            worker: count(self.worker, other.worker),
            running: count(self.running, other.running),
            boosted: count(self.boosted, other.boosted),
            realtime: count(self.realtime, other.realtime),
            idle: count(self.idle, other.idle),
            behind: count(self.behind, other.behind),
            locked: count(self.locked, other.locked),
            denied_thread: count(self.denied_thread, other.denied_thread),
            denied_user: count(self.denied_user, other.denied_user),
            denied_cpu: count(self.denied_cpu, other.denied_cpu),
            denied_flag: count(self.denied_flag, other.denied_flag),
            denied_group: count(self.denied_group, other.denied_group),
            denied_memory: count(self.denied_memory, other.denied_memory),
            drops: count(self.drops, other.drops),
            replaced: count(self.replaced, other.replaced),
            boosted_time: time(self.boosted_time, other.boosted_time),
            slept_time: time(self.slept_time, other.slept_time),
        }
    }

    /// Returns all counters by their names in `expedite.h`; times are in nanoseconds.
    #[must_use]
    pub fn by_name(&self) -> [(&'static str, u64); 19] {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        [
            ("calls", self.calls),
            ("direct", self.direct),
            ("worker", self.worker),
            ("running", self.running),
            ("boosted", self.boosted),
            ("realtime", self.realtime),
            ("idle", self.idle),
            ("behind", self.behind),
            ("locked", self.locked),
            ("denied_thread", self.denied_thread),
            ("denied_user", self.denied_user),
            ("denied_cpu", self.denied_cpu),
            ("denied_flag", self.denied_flag),
            ("denied_group", self.denied_group),
            ("denied_memory", self.denied_memory),
            ("drops", self.drops),
            ("replaced", self.replaced),
            ("boosted_ns", ns(self.boosted_time)),
            ("slept_ns", ns(self.slept_time)),
        ]
    }

    /// Returns the number of boosts.
    pub const fn boosts(&self) -> u64 {
        self.direct + self.worker
    }

    /// Returns the number of arrivals without a boost because a budget was spent, or memory was short.
    pub const fn denied(&self) -> u64 {
        self.denied_thread
            + self.denied_user
            + self.denied_cpu
            + self.denied_flag
            + self.denied_group
            + self.denied_memory
    }
}

impl From<RawCounts> for Counts {
    fn from(raw: RawCounts) -> Self {
        Self {
            calls: raw.calls,
            direct: raw.direct,
            worker: raw.worker,
            running: raw.running,
            boosted: raw.boosted,
            realtime: raw.realtime,
            idle: raw.idle,
            behind: raw.behind,
            locked: raw.locked,
            denied_thread: raw.denied_thread,
            denied_user: raw.denied_user,
            denied_cpu: raw.denied_cpu,
            denied_flag: raw.denied_flag,
            denied_group: raw.denied_group,
            denied_memory: raw.denied_memory,
            drops: raw.drops,
            replaced: raw.replaced,
            boosted_time: Duration::from_nanos(raw.boosted_ns),
            slept_time: Duration::from_nanos(raw.slept_ns),
        }
    }
}

/// State and counters of one thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadState {
    /// Counters since the module first saw the thread.
    pub counts: Counts,
    /// Time that the thread may run boosted now, by its own budget.
    pub left: Duration,
}

/// Number of arrivals by the way in which the thread waited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ByWay {
    /// In `read`, `recv` and similar calls.
    pub read: u64,
    /// In `poll` or `select`.
    pub poll: u64,
    /// In `epoll_wait`, also through nested epolls.
    pub epoll: u64,
    /// By `io_uring`.
    pub io_uring: u64,
    /// In [`Device::wait`].
    pub wait: u64,
    /// Unknown: the module used the thread that the flag names.
    pub named: u64,
}

/// State and counters of the whole module.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Flags that are set.
    pub flags: u64,
    /// Threads for which data has arrived lately.
    pub threads: u64,
    /// Accounts of users and groups.
    pub accounts: u64,
    /// Arrivals by way of waiting.
    pub by_way: ByWay,
    /// Counters over all threads.
    pub counts: Counts,
}

/// Parameters with which the module was loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Caps {
    /// Maximum length of a boost.
    pub slice: Duration,
    /// Maximum boosted share of a CPU within any 100 ms for a thread, in percent.
    pub thread_percent: u32,
    /// Maximum for all threads of a user on a CPU, in percent.
    pub user_percent: u32,
    /// Maximum for all threads on a CPU, in percent.
    pub cpu_percent: u32,
    /// Only threads that use less than 2 % of a CPU in total are boosted.
    pub sleepers_only: bool,
    /// Threads are boosted even while a CPU is idle.
    pub even_if_idle: bool,
    /// Maximum number of flags of a user.
    pub user_flags: u32,
}

/// Reason why the module refused a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The module is not loaded.
    #[error(
        "the module expedite is not loaded: load it as root, with modprobe expedite or insmod expedite.ko (kernel/expedite/README.md)"
    )]
    NotLoaded,
    /// This user may not open the device.
    #[error(
        "this user may not open {PATH}: as root, usermod -aG expedite USER, and log in again (without the package: chgrp GROUP {PATH} && chmod 660 {PATH})"
    )]
    NotPermitted,
    /// The thread is another user's.
    #[error("the thread belongs to another user: run this as that user, or with CAP_SYS_NICE")]
    NotOwned,
    /// The file behind the descriptor cannot be flagged.
    #[error(
        "only Unix and IP sockets, reading ends of pipes, eventfds and completion channels of RDMA can be flagged: flag the one from which \
         the thread reads"
    )]
    Unsupported,
    /// The file already has a flag through this device.
    #[error("the file already has a flag through this device: remove it first to set other terms")]
    Flagged,
    /// The file has no flag, or nothing has arrived for that thread lately.
    #[error(
        "the module has no flag of this device for the file, or no counters for the thread: set a flag first, or ask within two seconds of \
         an arrival for the thread"
    )]
    Unknown,
    /// There is no such thread.
    #[error("no thread has this number: it has ended, or the number is wrong; name a thread that exists")]
    NoThread,
    /// This process has as many open descriptors as it may have. The number is the limit.
    #[error(
        "the device cannot be opened, because this program may have only {0} open files (RLIMIT_NOFILE): {RAISE_LIMIT}"
    )]
    TooManyDescriptors(u64),
    /// The device, the file or the user has as many flags as it can have.
    #[error(
        "the device, the file or the user has its maximum number of flags: remove one first, or load the module with a higher user_flags"
    )]
    Full,
    /// The kernel, or the memory control group of this process, has no memory for the request.
    #[error(
        "the kernel has no memory for the request: end programs, or raise the memory limit of the group of this one"
    )]
    NoMemory,
    /// The percentage of the flag never covers a slice.
    #[error("the percentage of the flag is too small for a single slice: raise it, or shorten the slice")]
    TooSmall,
    /// Anything else.
    #[error(
        "the module failed with {0}: check that it has the same version as this program, and read the kernel's log (dmesg)"
    )]
    System(Errno),
}

impl From<Errno> for Refused {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::ENXIO | Errno::ENODEV => Self::NotLoaded,
            // From a request, EPERM always concerns a thread.
            Errno::EPERM => Self::NotOwned,
            Errno::EOPNOTSUPP => Self::Unsupported,
            Errno::EEXIST => Self::Flagged,
            Errno::ENOENT => Self::Unknown,
            Errno::ESRCH => Self::NoThread,
            Errno::ENOSPC => Self::Full,
            Errno::ENOMEM => Self::NoMemory,
            Errno::EMFILE => Self::TooManyDescriptors(descriptor_limit()),
            other => Self::System(other),
        }
    }
}

/// Reason why a wait ended although nothing arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unwoken {
    /// The time limit has passed.
    #[error("nothing arrived within the time limit: wait again, or for longer")]
    TimedOut,
    /// A signal interrupted the wait, which is not restarted.
    #[error("a signal interrupted the wait: wait again")]
    Interrupted,
    /// The flag ended: it was removed, or the last descriptor of the flagged file was closed.
    #[error("the flag was removed, or the flagged file was closed, during the wait: flag the file again")]
    Ended,
    /// The module refused the wait.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// The module's device.
#[derive(Debug)]
pub struct Device(OwnedFd);

impl Device {
    /// Opens the device. Executed programs do not inherit the descriptor.
    ///
    /// # Errors
    /// The module is not loaded, or this user may not open the device.
    pub fn open() -> Result<Self, Refused> {
        match open(PATH, OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty()) {
            Ok(device) => Ok(Self(device)),
            Err(Errno::ENOENT) => Err(Refused::NotLoaded),
            // The file's mode or a device control group denies access.
            Err(Errno::EACCES | Errno::EPERM) => Err(Refused::NotPermitted),
            Err(other) => Err(other.into()),
        }
    }

    /// Flags the file behind a descriptor: threads that wait for it to become readable are boosted when it does.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn flag(&self, what: impl AsFd, flag: Flag) -> Result<(), Refused> {
        self.flag_number(what.as_fd().as_raw_fd(), flag)
    }

    /// Flags the file behind a descriptor number, which the kernel checks.
    pub(crate) fn flag_number(&self, fd: i32, flag: Flag) -> Result<(), Refused> {
        let raw = RawFlag {
            fd,
            tid: flag.thread,
            slice_ns: u64::try_from(flag.slice.as_nanos()).unwrap_or(u64::MAX),
            percent: flag.percent,
            options: if flag.sleepers_only { SLEEPERS_ONLY } else { 0 },
            ..RawFlag::default()
        };
        // SAFETY: I1 and I2.
        match unsafe { expedite_flag(self.0.as_raw_fd(), &raw const raw) } {
            Ok(_) => Ok(()),
            Err(Errno::EINVAL) if (1..=100).contains(&flag.percent) => Err(Refused::TooSmall),
            Err(other) => Err(other.into()),
        }
    }

    /// Removes the flag. This is optional: the flag ends when the flagged file is closed.
    ///
    /// # Errors
    /// The file has no flag through this device.
    pub fn unflag(&self, what: impl AsFd) -> Result<(), Refused> {
        let fd = what.as_fd().as_raw_fd();
        // SAFETY: I1 and I2.
        unsafe { expedite_unflag(self.0.as_raw_fd(), &raw const fd) }?;
        Ok(())
    }

    /// Returns whether the file has a flag through this device.
    ///
    /// # Errors
    /// The module failed.
    pub fn is_flagged(&self, what: impl AsFd) -> Result<bool, Refused> {
        let fd = what.as_fd().as_raw_fd();
        // SAFETY: I1 and I2.
        match unsafe { expedite_find(self.0.as_raw_fd(), &raw const fd) } {
            Ok(_) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(other) => Err(other.into()),
        }
    }

    /// Waits until data arrives at a file that has a flag through this device, or returns immediately if data is available. `None`
    /// means no time limit. The thread is boosted as in any other wait, on every kernel that supports the module. Another thread
    /// may read the data first. Unlike `read` or `poll`, the wait does not hold the file open.
    ///
    /// # Errors
    /// Nothing has arrived; see [`Unwoken`].
    pub fn wait(&self, what: impl AsFd, limit: Option<Duration>) -> Result<(), Unwoken> {
        let timeout_ns = limit.map_or(u64::MAX, |limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        let raw = RawWait { fd: what.as_fd().as_raw_fd(), timeout_ns, ..RawWait::default() };
        // SAFETY: I1 and I2.
        let result = unsafe { expedite_wait(self.0.as_raw_fd(), &raw const raw) };
        result.map(drop).map_err(|errno| match errno {
            Errno::ETIMEDOUT => Unwoken::TimedOut,
            Errno::EINTR => Unwoken::Interrupted,
            Errno::ECANCELED => Unwoken::Ended,
            other => Unwoken::Refused(other.into()),
        })
    }

    /// Returns state and counters of a thread of the same owner.
    ///
    /// # Errors
    /// Nothing happened to it within the last two seconds, or this process may not see it.
    pub fn query(&self, thread: i32) -> Result<ThreadState, Refused> {
        let mut raw = RawQuery { tid: thread, ..RawQuery::default() };
        // SAFETY: I1 and I2.
        unsafe { expedite_query(self.0.as_raw_fd(), &raw mut raw) }?;
        Ok(ThreadState { counts: raw.counts.into(), left: Duration::from_nanos(raw.left_ns) })
    }

    /// Returns state and counters of the whole module.
    ///
    /// # Errors
    /// The module failed.
    pub fn totals(&self) -> Result<Totals, Refused> {
        let mut raw = RawTotals::default();
        // SAFETY: I1 and I2.
        unsafe { expedite_totals(self.0.as_raw_fd(), &raw mut raw) }?;
        let [read, poll, epoll, io_uring, wait, named] = raw.by_way;
        Ok(Totals {
            flags: raw.flags,
            threads: raw.threads,
            accounts: raw.accounts,
            by_way: ByWay { read, poll, epoll, io_uring, wait, named },
            counts: raw.counts.into(),
        })
    }

    /// Returns the parameters with which the module was loaded.
    ///
    /// # Errors
    /// The module is older than this request.
    pub fn caps(&self) -> Result<Caps, Refused> {
        let mut raw = RawCaps::default();
        // SAFETY: I1 and I2.
        unsafe { expedite_caps(self.0.as_raw_fd(), &raw mut raw) }?;
        Ok(Caps {
            slice: Duration::from_micros(raw.slice_us.into()),
            thread_percent: raw.thread_percent,
            user_percent: raw.user_percent,
            cpu_percent: raw.cpu_percent,
            sleepers_only: raw.sleepers_only != 0,
            even_if_idle: raw.even_if_idle != 0,
            user_flags: raw.user_flags,
        })
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = include_str!("../../../kernel/expedite/expedite.h");

    #[test]
    fn every_refusal_suggests_an_action() {
        let refusals = [
            (Refused::from(Errno::ENXIO), "load it as root"),
            (Refused::NotPermitted, "chgrp GROUP /dev/expedite && chmod 660 /dev/expedite"),
            (Refused::from(Errno::EPERM), "run this as that user, or with CAP_SYS_NICE"),
            (Refused::from(Errno::EOPNOTSUPP), "flag the one from which the thread reads"),
            (Refused::from(Errno::EEXIST), "remove it first"),
            (Refused::from(Errno::ENOENT), "set a flag first"),
            (Refused::from(Errno::ESRCH), "name a thread that exists"),
            (Refused::from(Errno::ENOSPC), "remove one first"),
            (Refused::TooSmall, "raise it, or shorten the slice"),
            (Refused::TooManyDescriptors(64), "only 64 open files (RLIMIT_NOFILE): raise the hard limit"),
            (Refused::from(Errno::ENOMEM), "end programs, or raise the memory limit"),
            (Refused::from(Errno::EIO), "read the kernel's log"),
        ];
        for (refused, action) in refusals {
            let text = refused.to_string();
            assert!(text.contains(action), "{text}");
        }
    }

    #[test]
    fn the_numbers_are_those_of_the_header() {
        for (name, number, structure) in [
            ("FLAG", "0xe0", "flag"),
            ("UNFLAG", "0xe1", ""),
            ("QUERY", "0xe2", "query"),
            ("WAIT", "0xe3", "wait"),
            ("TOTALS", "0xe4", "totals"),
            ("FIND", "0xe5", ""),
            ("CAPS", "0xe6", "caps"),
        ] {
            let line = HEADER.lines().find(|line| line.starts_with(&format!("#define EXPEDITE_{name} ")));
            let line = line.unwrap_or_else(|| panic!("no request {name}"));
            assert!(line.contains(number) && line.contains(structure), "{line}");
        }
        assert_eq!(size_of::<RawTotals>(), 224);
        assert_eq!((size_of::<RawFlag>(), size_of::<RawQuery>(), size_of::<RawWait>()), (32, 168, 16));
        assert_eq!(size_of::<RawCaps>(), 32);
    }

    #[test]
    fn fields_are_in_the_order_of_the_header() {
        let counts = HEADER.split_once("struct expedite_counts {").unwrap().1;
        let words = counts.split("};").next().unwrap().lines().filter_map(|line| {
            let field = line.trim().strip_prefix("__u64 ")?;
            Some(field.trim_end_matches(';').to_owned())
        });
        let text = format!("{:?}", RawCounts::default());
        let fields = text.strip_prefix("RawCounts { ").unwrap().split(", ");
        let ours = fields.map(|field| field.split(':').next().unwrap().to_owned());
        assert_eq!(words.collect::<Vec<_>>(), ours.collect::<Vec<_>>());
    }
}
