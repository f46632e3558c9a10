//! The decisions, one module each: state, event and time go in, state and decision come out.
//!
//! Nothing here reads a clock, draws a random number, allocates, computes with floating point, panics or contains
//! `unsafe`. The same sources serve threads in user space, the simulator and the kernel module, so what the simulator
//! says is said of the code that ships.
//!
//! | module | decides | from |
//! | --- | --- | --- |
//! | [`budget`] | how much boosted time is left | Expedite, sections 3.2 and 3.4, in nanoseconds |
//! | [`caps`] | whether thread, user and processor can all afford it | ours |
//! | [`boost`] | when a thread is raised, metered and dropped | Expedite, section 3.3 |
//! | [`occupancy`] | what a socket's queues hold | coscheduling paper, algorithm 3; and ours |
//! | [`frequency`] | how much a task communicates | coscheduling paper, formula 1, per decision and per time |
//! | [`coschedule`] | what that adds to its weight: LINUX, DYN, PRED | coscheduling paper, algorithm 2 |
//! | [`auto`] | the weight of the past, while running | coscheduling paper, section 5 (future work); ours |
//! | [`spin`] | how long to poll before sleeping | PIOMan, section 3.4; two-competitive rule; hints; learned |
//! | [`crowding`] | whether there is a processor to poll on, from polls that were taken off theirs; and when to try again | ours |
//! | [`lanes`] | which lane is served next | comm-layer paper, section 3.1; ours |
//!
//! [`time`], [`share`] and [`level`] are the units.
//!
//! # Inclusion by path
//!
//! The kernel module says `#[path = ".../crates/sched-policy/src/policy/mod.rs"] pub mod policy;` (`pub`, or what it does
//! not use would be dead code), below whatever module and by whatever name it likes. `examples/included.rs` does the
//! same, so that it keeps compiling. Hence:
//!
//! 1. Edition 2021 and Rust 1.85. The manifest's `rust-version` makes clippy refuse younger library functions
//!    (`incompatible_msrv`); younger *language* (let chains, for one) the edition refuses for the most part. The lab
//!    compiles it all with the kernel's own compiler, as part of `kernel/hello`. There is no `clippy.toml` in this
//!    crate: it would replace the workspace's, not add to it.
//! 2. Paths begin with `super`, `self` or `core`, never with `crate`: above this folder lies another crate there.
//! 3. No dependency, also none within the workspace; hence a [`time::Nanos`] of its own.
//! 4. No 128-bit integers: the kernel links no division for them. Products that could need them go through
//!    [`share::Share::of`], which is exact without.
//! 5. Arithmetic is saturating or checked, divisors are constants or `checked`, elements come by iterators that do not
//!    count (`enumerate` can overflow): the kernel is built with overflow checks, where a panic takes the machine down.
//!    The lints below deny the rest, and `tests/kernel_rules.rs` compiles this file so and looks for calls to a panic.
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
pub mod coschedule;
pub mod crowding;
pub mod frequency;
pub mod lanes;
pub mod level;
pub mod occupancy;
pub mod share;
pub mod spin;
pub mod time;
