//! Boost tiers: which one is available here, and why a better one is not.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use nix::errno::Errno;
use pronto_core::boost::{BoostError, Booster, Tier};

use crate::device::{Device, Flag, Refused};
use crate::fifo::{Fifo, PRIORITY};
use crate::schedule::{CALLER, Class, schedule, slice};
use crate::scx::{self, FlaggedThreads, Renewal, Scheduler};

/// The shortest time slice that the kernel gives (`kernel/sched/syscalls.c`).
pub const SLICE: Duration = Duration::from_micros(100);

/// Parameters of the deadline class: a tenth of a CPU, as the module grants, in pieces that are longer than a handler.
pub const DEADLINE: Class =
    Class::Deadline { runtime: Duration::from_millis(1), period: Duration::from_millis(10) };

/// Tiers tried in this order if the caller names none. The deadline tier must be requested: its threads cannot be bound to a
/// CPU, and the kernel throttles them when they have used their runtime. So must the tier of the BPF scheduler, which replaces the
/// scheduler of the whole machine.
const AUTO: [Tier; 4] = [Tier::Module, Tier::Fifo, Tier::Slice, Tier::None];

/// Reason why a tier is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Missing {
    /// The module does not serve this process.
    #[error(transparent)]
    Module(#[from] Refused),
    /// The loader of the BPF scheduler does not serve this process.
    #[error(transparent)]
    Scx(#[from] scx::Refused),
    /// This process may not use the scheduling class.
    #[error(
        "it needs CAP_SYS_NICE or a real-time priority limit (RLIMIT_RTPRIO) above 0, and in a version 1 cpu control group a real-time runtime (cpu.rt_runtime_us) above 0"
    )]
    NotPermitted,
    /// This kernel does not support time slices (it is older than 6.12), or runs another scheduler.
    #[error(
        "this kernel does not support short time slices: boot Linux 6.12 or newer, with its own scheduler"
    )]
    NoEffect,
    /// Anything else.
    #[error(
        "the kernel refused the scheduling class with {0}: check the limits of processes and threads (ulimit -a)"
    )]
    System(Errno),
}

/// Booster that was obtained, and the reasons why no better one was.
#[derive(Debug)]
pub struct Obtained {
    /// The booster.
    pub booster: Arc<dyn Booster>,
    /// Preferred tiers, each with the reason why it was not available.
    pub missing: Vec<(Tier, Missing)>,
    /// The booster, if it may lose its loader and find another one.
    flagged: Option<Arc<FlaggedThreads>>,
}

impl Obtained {
    fn lasting(booster: impl Booster + 'static) -> Self {
        Self { booster: Arc::new(booster), missing: Vec::new(), flagged: None }
    }

    /// Returns a booster that uses each loader of the BPF scheduler, also one that starts later, unless the kernel has no sched_ext.
    fn scx() -> Result<Self, scx::Refused> {
        let flagged = Arc::new(FlaggedThreads::connect());
        let missing = match flagged.check() {
            Ok(()) => Vec::new(),
            Err(why @ scx::Refused::NoSchedExt) => return Err(why),
            Err(why) => vec![(Tier::Scx, why.into())],
        };
        Ok(Self { booster: Arc::<FlaggedThreads>::clone(&flagged), missing, flagged: Some(flagged) })
    }

    /// Checks whether the boost lasts, and tries once to restore it. Returns `None` if a tier was obtained that cannot end. Makes system
    /// calls, and may block for a tenth of a second, so no thread should call this on the path of a message.
    #[must_use]
    pub fn renew(&self) -> Option<Renewal> {
        self.flagged.as_ref().map(|flagged| flagged.renew())
    }
}

impl fmt::Display for Obtained {
    /// `slice (module: ...; fifo: ...)`. If the boost has ended since it was obtained, its reason is written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.flagged.as_ref().map(|flagged| flagged.check()) {
            None => {}
            Some(Ok(())) => return write!(f, "{}", Tier::Scx),
            Some(Err(why)) => return write!(f, "{} ({}: {why})", Tier::None, Tier::Scx),
        }
        write!(f, "{}", self.booster.tier())?;
        for (index, (tier, why)) in self.missing.iter().enumerate() {
            write!(f, "{}{tier}: {why}", if index == 0 { " (" } else { "; " })?;
        }
        if self.missing.is_empty() { Ok(()) } else { f.write_str(")") }
    }
}

/// Returns a booster of the requested tier, or of the best one if `wanted` is `None`. If a requested tier is not available, the
/// returned booster does nothing; that of `Tier::Scx` waits for a loader, which [`Obtained::renew`] looks for.
#[must_use]
pub fn obtain(wanted: Option<Tier>) -> Obtained {
    let order: &[Tier] = match &wanted {
        Some(tier) => &[*tier, Tier::None],
        None => &AUTO,
    };
    let mut missing = Vec::new();
    for tier in order {
        match get(*tier) {
            Ok(obtained) => {
                missing.extend(obtained.missing);
                return Obtained { missing, ..obtained };
            }
            Err(why) => missing.push((*tier, why)),
        }
    }
    Obtained { missing, ..Obtained::lasting(Unboosted) }
}

/// Checks whether a tier is available, by trying it on a thread that ends afterwards.
///
/// # Errors
/// The reason why it is not available.
pub fn available(tier: Tier) -> Result<(), Missing> {
    match tier {
        Tier::Module => Ok(Device::open().map(drop)?),
        Tier::Fifo => try_class(Class::Fifo(PRIORITY)),
        Tier::Slice => try_class(Class::Slice(SLICE)),
        Tier::Deadline => try_class(DEADLINE),
        Tier::Scx => Ok(Scheduler::connect().and_then(|scheduler| scheduler.counters()).map(drop)?),
        Tier::None => Ok(()),
    }
}

fn get(tier: Tier) -> Result<Obtained, Missing> {
    if !matches!(tier, Tier::Module | Tier::Scx) {
        available(tier)?;
    }
    Ok(match tier {
        Tier::Module => Obtained::lasting(Flagged(Device::open()?)),
        Tier::Fifo => Obtained::lasting(Fifo::start().map_err(Missing::System)?),
        Tier::Slice => Obtained::lasting(Scheduled { tier, class: Class::Slice(SLICE) }),
        Tier::Deadline => Obtained::lasting(Scheduled { tier, class: DEADLINE }),
        Tier::Scx => Obtained::scx()?,
        Tier::None => Obtained::lasting(Unboosted),
    })
}

/// Checks whether a thread of this process can have this class, by trying it on a short-lived thread.
fn try_class(class: Class) -> Result<(), Missing> {
    let probe = std::thread::Builder::new().name("pronto-probe".into()).spawn(move || {
        schedule(CALLER, class)?;
        slice(CALLER)
    });
    let probe = probe.map_err(|error| Missing::System(Errno::from_raw(error.raw_os_error().unwrap_or(0))))?;
    match (probe.join().unwrap_or(Err(Errno::UnknownErrno)), class) {
        (Ok(got), Class::Slice(asked)) if got != asked => Err(Missing::NoEffect),
        (Ok(_), _) => Ok(()),
        (Err(Errno::EPERM), _) => Err(Missing::NotPermitted),
        (Err(errno), _) => Err(Missing::System(errno)),
    }
}

/// The kernel module, which boosts the threads that wait on a watched descriptor.
#[derive(Debug)]
struct Flagged(Device);

impl Booster for Flagged {
    fn tier(&self) -> Tier {
        Tier::Module
    }

    fn adopt(&self) -> Result<(), BoostError> {
        Ok(())
    }

    fn watch(&self, fd: i32) -> Result<(), BoostError> {
        self.watch_nested(fd, 0)
    }

    fn before_wait(&self) {}

    fn worked(&self) {}
}

/// Maximum depth of nested epolls (`EP_MAX_NESTS` in `fs/eventpoll.c`).
const MAX_NESTS: u32 = 4;

impl Flagged {
    /// Flags the file of a descriptor; in place of an epoll instance, the files in it, of which one at least must be flagged.
    fn watch_nested(&self, fd: i32, depth: u32) -> Result<(), BoostError> {
        match self.0.flag_number(fd, Flag::default()) {
            // `Flagged` means that another descriptor of the same file was flagged.
            Ok(()) | Err(Refused::Flagged) => Ok(()),
            Err(Refused::Unsupported) if depth < MAX_NESTS => {
                let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap_or_default();
                let results: Vec<_> = members(&info).map(|fd| self.watch_nested(fd, depth + 1)).collect();
                let is_watched = results.iter().any(Result::is_ok);
                if is_watched {
                    Ok(())
                } else {
                    results.into_iter().next().unwrap_or(Err(BoostError::Unsupported))
                }
            }
            Err(Refused::Unsupported) => Err(BoostError::Unsupported),
            Err(Refused::NotPermitted | Refused::NotOwned) => Err(BoostError::System(libc::EPERM)),
            Err(Refused::Full) => Err(BoostError::System(libc::ENOSPC)),
            Err(Refused::System(errno)) => Err(BoostError::System(errno as i32)),
            Err(_) => Err(BoostError::System(libc::EIO)),
        }
    }
}

/// Returns the descriptors in an epoll instance, from its `fdinfo` (`man 5 proc_pid_fdinfo`): lines `tfd: NUMBER events: ...`.
fn members(info: &str) -> impl Iterator<Item = i32> {
    info.lines().filter_map(|line| line.strip_prefix("tfd:")?.split_whitespace().next()?.parse().ok())
}

/// A scheduling class that each adopted thread gets once.
#[derive(Debug)]
struct Scheduled {
    tier: Tier,
    class: Class,
}

impl Booster for Scheduled {
    fn tier(&self) -> Tier {
        self.tier
    }

    fn adopt(&self) -> Result<(), BoostError> {
        schedule(CALLER, self.class).map_err(|errno| BoostError::System(errno as i32))
    }

    fn watch(&self, _: i32) -> Result<(), BoostError> {
        Ok(())
    }

    fn before_wait(&self) {}

    fn worked(&self) {}
}

/// A booster that does nothing.
#[derive(Debug)]
struct Unboosted;

impl Booster for Unboosted {
    fn tier(&self) -> Tier {
        Tier::None
    }

    fn adopt(&self) -> Result<(), BoostError> {
        Ok(())
    }

    fn watch(&self, _: i32) -> Result<(), BoostError> {
        Ok(())
    }

    fn before_wait(&self) {}

    fn worked(&self) {}
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

    use super::*;

    #[test]
    fn the_members_of_an_epoll_are_found() {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
        let (one, other) = nix::unistd::pipe().unwrap();
        epoll.add(&one, EpollEvent::new(EpollFlags::EPOLLIN, 1)).unwrap();
        epoll.add(&other, EpollEvent::new(EpollFlags::EPOLLOUT, 2)).unwrap();
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", epoll.0.as_raw_fd())).unwrap();
        let mut found: Vec<_> = members(&info).collect();
        found.sort_unstable();
        let mut expected = [one.as_raw_fd(), other.as_raw_fd()];
        expected.sort_unstable();
        assert_eq!(found, expected, "{info}");
        assert_eq!(members("pos:\t0\nflags:\t02").count(), 0);
    }
}
