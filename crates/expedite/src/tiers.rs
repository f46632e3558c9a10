//! The tiers: which one is to be had here, and why a better one is not.

use core::fmt;
use core::time::Duration;

use nix::errno::Errno;
use pronto_core::boost::{BoostError, Booster, Tier};

use crate::device::{Device, Flag, Refused};
use crate::fifo::{Fifo, PRIORITY};
use crate::schedule::{CALLER, Class, schedule, slice};

/// The shortest time slice that the kernel gives (`kernel/sched/syscalls.c`).
pub const SLICE: Duration = Duration::from_micros(100);

/// What a thread with a deadline has: a tenth of a processor, as the module grants it, in pieces that outlast a handler.
pub const DEADLINE: Class =
    Class::Deadline { runtime: Duration::from_millis(1), period: Duration::from_millis(10) };

/// Tried in this order if nobody says which. A deadline only on request: its threads cannot be bound to a processor, and the
/// kernel holds them back when they have used their time.
const AUTO: [Tier; 4] = [Tier::Module, Tier::Fifo, Tier::Slice, Tier::None];

/// Why a tier is not to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Missing {
    /// The module does not serve this process.
    #[error(transparent)]
    Module(#[from] Refused),
    /// The scheduling class is not for this process.
    #[error(
        "it needs CAP_SYS_NICE, or a limit on real-time priorities (RLIMIT_RTPRIO) above 0, and in a cpu control group of version 1 real-time time of its own"
    )]
    NotPermitted,
    /// This kernel knows no time slices (it is older than 6.12), or the scheduler is another one.
    #[error("this kernel gives no short time slices")]
    NoEffect,
    /// Anything else.
    #[error("the system says: {0}")]
    System(Errno),
}

/// What was got, and why nothing better.
#[derive(Debug)]
pub struct Obtained {
    /// The booster.
    pub booster: Box<dyn Booster>,
    /// Tiers that would have been taken before it, each with the reason why it was not.
    pub missing: Vec<(Tier, Missing)>,
}

impl fmt::Display for Obtained {
    /// `slice (module: ...; fifo: ...)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.booster.tier())?;
        for (place, (tier, why)) in self.missing.iter().enumerate() {
            write!(f, "{}{tier}: {why}", if place == 0 { " (" } else { "; " })?;
        }
        if self.missing.is_empty() { Ok(()) } else { f.write_str(")") }
    }
}

/// The tier that was asked for, or the best one if that is left open. Where it is not to be had, a named tier gives none.
#[must_use]
pub fn obtain(wanted: Option<Tier>) -> Obtained {
    let order: &[Tier] = match &wanted {
        Some(tier) => &[*tier, Tier::None],
        None => &AUTO,
    };
    let mut missing = Vec::new();
    for tier in order {
        match get(*tier) {
            Ok(booster) => return Obtained { booster, missing },
            Err(why) => missing.push((*tier, why)),
        }
    }
    Obtained { booster: Box::new(Unboosted), missing }
}

/// Whether a tier is to be had: tried on a thread that ends, and given back.
///
/// # Errors
/// Why it is not.
pub fn available(tier: Tier) -> Result<(), Missing> {
    match tier {
        Tier::Module => Ok(Device::open().map(drop)?),
        Tier::Fifo => try_class(Class::Fifo(PRIORITY)),
        Tier::Slice => try_class(Class::Slice(SLICE)),
        Tier::Deadline => try_class(DEADLINE),
        Tier::None => Ok(()),
    }
}

fn get(tier: Tier) -> Result<Box<dyn Booster>, Missing> {
    if tier != Tier::Module {
        available(tier)?;
    }
    Ok(match tier {
        Tier::Module => Box::new(Flagged(Device::open()?)),
        Tier::Fifo => Box::new(Fifo::start().map_err(Missing::System)?),
        Tier::Slice => Box::new(Scheduled { tier, class: Class::Slice(SLICE) }),
        Tier::Deadline => Box::new(Scheduled { tier, class: DEADLINE }),
        Tier::None => Box::new(Unboosted),
    })
}

/// Whether a thread of this process can be scheduled so: one tries, and ends.
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

/// The module: what is watched is flagged, and it does the rest.
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
        match self.0.flag_number(fd, Flag::default()) {
            // Two names of one open socket.
            Ok(()) | Err(Refused::Flagged) => Ok(()),
            Err(Refused::Unsupported) => Err(BoostError::Unsupported),
            Err(Refused::NotPermitted | Refused::NotOwned) => Err(BoostError::System(libc::EPERM)),
            Err(Refused::Full) => Err(BoostError::System(libc::ENOSPC)),
            Err(Refused::System(errno)) => Err(BoostError::System(errno as i32)),
            Err(_) => Err(BoostError::System(libc::EIO)),
        }
    }

    fn before_wait(&self) {}

    fn worked(&self) {}
}

/// A class that a thread is given once.
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

/// Nothing at all.
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
