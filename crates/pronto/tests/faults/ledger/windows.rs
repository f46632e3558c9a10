//! The limits of a run: how many calls and messages may be open, and how long a peer may be silent.

use core::time::Duration;

use pronto::{Limits, Nanos};

/// Liveness limit of both sides.
pub(super) const LIVENESS: Duration = Duration::from_millis(600);

/// Limits that both sides grant each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Windows {
    /// The default limits, more than four threads use.
    Wide,
    /// Fewer call slots than the threads use, and fewer credits than calls: after a resumption some requests must wait for room.
    Full,
    /// One call slot and one credit.
    Single,
}

impl Windows {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Wide => "wide",
            Self::Full => "full",
            Self::Single => "single",
        }
    }

    pub(super) fn parse(name: &str) -> Self {
        *[Self::Wide, Self::Full, Self::Single].iter().find(|windows| windows.name() == name).unwrap()
    }

    pub(super) fn limits(self) -> Limits {
        let limits = Limits::default().with_liveness(Some(Nanos::from_millis(600)), None);
        match self {
            Self::Wide => limits,
            Self::Full => Limits { calls: 8, requests: [2, 2], ..limits },
            Self::Single => Limits { calls: 1, requests: [1, 1], ..limits },
        }
    }
}
