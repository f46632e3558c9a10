//! Schedulers and coscheduling policies on simulated clusters: discrete events, one seed, one run.
//!
//! A [`cluster::Cluster`] is nodes with processors, a scheduler each, and tasks that are connected by links. It shows at the
//! size of a cluster, and for kernels of their time, what the papers' scheduling does; the decisions themselves
//! (weights, frequencies, budgets, spinning) are [`pronto_sched_policy`]'s, the same that ship.
//!
//! # The three seams
//!
//! | seam | is told | answers |
//! | --- | --- | --- |
//! | [`program::Program`] | that its last operation is complete, and the message it received | the next: compute, sleep, send, receive (block, spin, adaptive), yield, exit |
//! | [`scheduler::Scheduler`] | wake-ups, ticks, time that passed, classes | who runs, who is preempted and how soon, when sleeps end |
//! | [`policy::Policy`] | sends, arrivals, waits, wake-ups, switches, ticks, its own timers and control messages | weights; and commands: raise, hold, renice, reschedule, timers, control messages |
//!
//! One event is handled like this: what happened changes tasks and sockets, hooks of the policy are called and what
//! they order is carried out, schedulers say which processors are to look up, and these choose anew. Then the next
//! event. At one time, timer interrupts come first, as accounting does in a kernel.
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
//! * A workload: a file in `workload/`, with a program, and a function that spawns and connects it. Ports are numbered
//!   per task in the order of [`cluster::Cluster::connect`]. Results go to [`record::Records`], in series of its own.
//! * A policy: a file in `policy/`. Its state is kept by [`id::TaskId`]; it never looks into schedulers. A policy
//!   made of two holds both and calls both.
//! * A scheduler: a file in `scheduler/`. It knows its own node only, by [`id::Slot`] and [`id::Core`].
//!
//! The papers' experiments are made of these in [`paper`]; `pronto-bench` runs them and says what came out.
//!
//! # What is modelled, and what is not
//!
//! Messages travel in fragments; a socket holds [`link::Link::buffer`] bytes in each direction, so a long message needs its
//! receiver on a processor. Sent bytes are the sender's (`sq`) until the acknowledgement, received ones the receiver's (`rq`)
//! until they are read. Lines are occupied for as long as bytes take; the switch has no limit of its own. Interrupts
//! take no time, and are taken by a node's first processor. Kernel work takes [`cluster::Options::call`] and
//! [`cluster::Options::switch`]; it can be preempted like any other, unlike in a real kernel. There are no caches, no
//! memory and no disks: nothing is ever paged.
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
