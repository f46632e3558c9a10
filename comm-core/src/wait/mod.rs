//! Waiting: decide, poll, arm, recheck, sleep.
//!
//! ```text
//!  decide ──► poll ──────── nothing within the polling time ───────► arm ──► recheck ──► sleep
//!               ▲                                                                 │         │
//!               └────────────────────────── disarm ◄──────── something came ──────┴─────────┘
//! ```
//!
//! Four kinds of threads wait, and all of them go through these steps:
//!
//! | thread | polls | sleeps in |
//! | --- | --- | --- |
//! | caller with the poller role | its session's queue pairs | the completion channels of its link |
//! | caller without it, a *follower* | its own call slot | its own wake-up word |
//! | sender without a credit | its session's queue pairs | the completion channels of its link |
//! | serving thread | every source of its node | one epoll of all sources |
//!
//! # Order of calls
//! 1. [`WaitHistory::decide`] combines the operator's override, the caller's request, the history and the executor's measurements
//!    into a [`Decision`]. The rule is [`pronto_sched_policy::policy::spin`].
//! 2. [`Wait::new`], and after each unsuccessful poll batch [`Wait::next`], which returns whether to poll, to sleep, or to give up.
//! 3. [`Wait::sleeps`], then [`arm_recheck_sleep`] on the thread's [`Sleeper`].
//! 4. [`Wait::ended`] when the thread goes on, which adds the wait to the history.
//!
//! Three parts coordinate the threads. [`PollerRole`] lets one waiting caller poll at a time. `arming` stores the events for which the
//! fabric is armed. `wanted`, `back_off` and [`YieldTimer`] pass the CPU to the thread that holds what another one needs.
//!
//! # Invariants
//! 1. A thread arms every source before it rechecks the first one. Therefore the recheck finds an event, or the event wakes the thread.
//! 2. A sleep that an event should end lasts at most [`SAFETY_NET`]. An event that is found only after the time limit is a lost wake-up and
//!    is counted, unless its wake-up occurs within [`LATE`].
//! 3. This module depends on no session, thread or clock: the caller passes the time as `now`, and the [`Executor`](crate::Executor)
//!    sleeps.

pub(crate) mod arming;
mod attempt;
pub(crate) mod back_off;
pub(crate) mod history;
pub(crate) mod poller_role;
mod serving;
mod sleep;
mod wait_override;
pub(crate) mod wanted;
mod yield_timer;

#[cfg(all(test, loom))]
pub(crate) mod loom_tests;

pub use attempt::{Next, PollWatch, Slept, Wait};
pub use back_off::BackOff;
pub use history::{Decision, WaitHistory};
pub use poller_role::{PollerRole, ServingState};
pub use serving::ServingWaits;
pub use sleep::{LATE, Outcome, Recheck, SAFETY_NET, Sleeper, Woken, arm_recheck_sleep};
pub(crate) use wait_override::OverrideCell;
pub use wait_override::WaitOverride;
pub use yield_timer::YieldTimer;
