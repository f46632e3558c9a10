//! Schedulers and coscheduling policies on simulated clusters: a discrete-event simulation, in which one seed gives one
//! run.
//!
//! A [`cluster::Cluster`] consists of nodes with CPUs and a scheduler each, and of tasks that are connected by links.
//! It shows the effect of the papers' scheduling at cluster size and on the kernels of their time. The decisions
//! themselves (weights, frequencies, budgets, spinning) are those of [`pronto_sched_policy`], the code that ships.
//!
//! # The three seams
//!
//! | seam | input | output |
//! | --- | --- | --- |
//! | [`program::Program`] | the end of its last operation, and the message received | the next operation: compute,
//! sleep, send, receive (block, spin, adaptive), yield, exit |
//! | [`scheduler::Scheduler`] | wake-ups, ticks, elapsed time, classes | the task to run, preemptions and their
//! urgency, ends of sleeps |
//! | [`policy::Policy`] | sends, arrivals, waits, wake-ups, switches, ticks, its own timers and control messages |
//! weights; commands: raise, hold, renice, reschedule, timers, control messages |
//!
//! An event is handled in four steps. It changes tasks and sockets; hooks of the policy are called and their commands
//! carried out; schedulers name the CPUs that must reschedule; these CPUs pick a task. Of events at the same time,
//! timer interrupts come first, as accounting does in a kernel.
//!
//! ```
//! use pronto_sched_sim::cluster::{Cluster, Options};
//! use pronto_sched_sim::program::Wait;
//! use pronto_sched_sim::scheduler::linux2::{Linux2, Version};
//! use pronto_sched_sim::task::TaskOptions;
//! use pronto_sched_sim::workload::compute::Compute;
//! use pronto_sched_sim::workload::ping_pong::{self, Pair};
//! use pronto_sched_policy::policy::time::Nanos;
//!
//! let mut cluster = Cluster::new(Options::standard(1));
//! let nodes = [0, 1].map(|_| cluster.add_node(1, Box::new(Linux2::new(Version::V2_2))));
//! let pair = Pair::spawn(&mut cluster, nodes, ping_pong::Options {
//!     bytes: 500,
//!     pause: Nanos::from_millis(50),
//!     handling: Nanos::from_micros(30),
//!     extra: Nanos::ZERO,
//!     wait: Wait::Block,
//!     pings: 100,
//! }, TaskOptions::default());
//! cluster.spawn(nodes[1], TaskOptions::default(), Box::new(Compute::for_ever()));
//! cluster.run_until(Nanos::from_millis(10_000));
//! assert_eq!(cluster.records().of(pair.pinger, ping_pong::ROUND_TRIP).count(), 100);
//! ```
//!
//! # How to add
//!
//! * A workload: a file in `workload/`, with a program and a function that spawns and connects it. Ports are numbered
//!   per task in the order of [`cluster::Cluster::connect`]. Results go to [`record::Records`], in series of its own.
//! * A policy: a file in `policy/`. It keys its state by [`id::TaskId`] and never accesses schedulers. A policy made of
//!   two holds both and calls both.
//! * A scheduler: a file in `scheduler/`. It knows only its own node, by [`id::Slot`] and [`id::Core`].
//!
//! The papers' experiments in [`paper`] are made of these parts; `pronto-bench` runs them and reports the results.
//!
//! # Scope of the model
//!
//! Messages travel in fragments. A socket holds [`link::Link::buffer`] bytes in each direction, so a long message needs
//! its receiver on a CPU. Sent bytes count as the sender's (`sq`) until the acknowledgement, received ones as the
//! receiver's (`rq`) until they are read. Bytes occupy a line for their transmission time; the switch has no limit of
//! its own. Interrupts take no time, and the first CPU of a node handles them. Kernel work takes
//! [`cluster::Options::call`] and [`cluster::Options::switch`]; unlike in a real kernel, it can be preempted like other
//! work. Caches are not modelled. Neither is memory: a task has page faults
//! at equal intervals of its CPU time if its options say so ([`task::Faults`]), and sleeps while a disk reads its pages.
#![forbid(unsafe_code)]

pub mod clock;
pub mod cluster;
mod event;
pub mod id;
pub mod link;
pub mod message;
pub mod paper;
pub mod policy;
pub mod program;
pub mod random;
pub mod record;
pub mod scheduler;
pub mod task;
pub mod trace;
pub mod workload;
