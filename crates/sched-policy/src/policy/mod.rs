// SPDX-License-Identifier: MIT OR Apache-2.0
//! The decisions, one module each: state, event and time go in, state and decision come out.
//!
//! Nothing here reads a clock, draws a random number, allocates, uses floating point, panics or contains `unsafe`. User
//! space, the simulator and the kernel module compile these sources, so results of the simulator hold for the code that
//! ships.
//!
//! | module | decides | from |
//! | --- | --- | --- |
//! | [`budget`] | the boosted time that is left | Expedite, sections 3.2 and 3.4, in nanoseconds |
//! | [`caps`] | whether thread, user and CPU can all afford it | ours |
//! | [`boost`] | when a thread is raised, metered and dropped | Expedite, section 3.3 |
//! | [`occupancy`] | the contents of a socket's queues | coscheduling paper, algorithm 3; and ours |
//! | [`frequency`] | how much a task communicates | coscheduling paper, formula 1, per decision and per time |
//! | [`coschedule`] | the weight that this adds: LINUX, DYN, PRED | coscheduling paper, algorithm 2 |
//! | [`costs`] | that weight under PRED+: latency, page faults, switches | coscheduling paper, section 5 (future work); ours |
//! | [`weight`] | the share of a CPU that a communicating process gets, within a bound | coscheduling paper, section 2; ours |
//! | [`auto`] | the weight of the past, while running | coscheduling paper, section 5 (future work); ours |
//! | [`spin`] | how long to poll before sleeping | PIOMan, section 3.4; two-competitive rule; hints; wait history |
//! | [`contention`] | contention: whether to poll at all, from polls that were preempted; when to try again | ours |
//! | [`lanes`] | which lane is served next | comm-layer paper, section 3.1; ours |
//!
//! [`time`], [`share`] and [`level`] are the units.
//!
//! # Inclusion by path
//!
//! The kernel module declares `#[path = ".../crates/sched-policy/src/policy/mod.rs"] pub mod policy;`, below any module
//! and under any name. It must be `pub`, because items that the module does not use would be dead code.
//! `examples/included.rs` includes the file in this way, so that it keeps compiling. Hence:
//!
//! 1. Edition 2021 and Rust 1.85. The manifest's `rust-version` makes clippy reject newer library functions
//!    (`incompatible_msrv`). The edition rejects most newer *language* features, for example let chains. The lab
//!    compiles everything with the kernel's own compiler, as part of `kernel/hello`. This crate has no `clippy.toml`:
//!    it would replace the workspace's instead of adding to it.
//! 2. Paths begin with `super`, `self` or `core`, never with `crate`: in the kernel module, another crate is above this
//!    folder.
//! 3. No dependencies, not even within the workspace. This is why [`time::Nanos`] exists.
//! 4. No 128-bit integers: the kernel has no division for them. Products that might need them use [`share::Share::of`],
//!    which is exact in 64 bits.
//! 5. Arithmetic is saturating or checked, divisors are constants or `checked`, and iterators do not count (`enumerate`
//!    can overflow). The kernel is built with overflow checks, and a panic takes the machine down. The lints below
//!    reject the rest; `tests/kernel_rules.rs` compiles this file with overflow checks and searches the result for
//!    calls to a panic.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        clippy::string_slice,
        clippy::panic,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::unreachable,
        clippy::float_arithmetic,
        clippy::as_conversions
    )
)]

pub mod auto;
pub mod boost;
pub mod budget;
pub mod caps;
pub mod contention;
pub mod coschedule;
pub mod costs;
pub mod frequency;
pub mod lanes;
pub mod level;
pub mod occupancy;
pub mod share;
pub mod spin;
pub mod time;
pub mod weight;
