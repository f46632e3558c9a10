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
//! 2. [`Wait::new`], and after each unsuccessful poll batch [`Wait::next`], which says whether to poll on, to sleep, or to give up.
//! 3. [`Wait::sleeps`], then [`arm_recheck_sleep`] on the thread's [`Sleeper`].
//! 4. [`Wait::ended`] when the thread goes on, which adds the wait to the history.
//!
//! The parts that keep polling threads out of each other's way: [`PollerRole`] lets one waiting caller poll at a time, `arming` says
//! which events the fabric is asked for, and `wanted`, `back_off` and [`YieldTimer`] pass the CPU to the thread that holds what
//! another one needs.
//!
//! # Invariants
//! 1. A thread arms every source before it rechecks the first one. So an event either is found by the recheck or wakes the thread.
//! 2. A sleep that an event should end lasts [`SAFETY_NET`] at most. An event that only the time limit has found is a lost wake-up and
//!    is counted, unless its wake-up comes within [`LATE`].
//! 3. Nothing here names a session, a thread or a clock: time comes in as `now`, and the [`Executor`](crate::Executor) sleeps.

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
mod loom_tests;

pub use attempt::{Next, PollWatch, Slept, Wait};
pub use back_off::BackOff;
pub use history::{Decision, WaitHistory};
pub use poller_role::{PollerRole, ServingState};
pub use serving::ServingWaits;
pub use sleep::{LATE, Outcome, Recheck, SAFETY_NET, Sleeper, Woken, arm_recheck_sleep};
pub(crate) use wait_override::OverrideCell;
pub use wait_override::WaitOverride;
pub use yield_timer::YieldTimer;
