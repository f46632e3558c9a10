//! CPU affinity of test threads.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// Binds this thread, and threads that it starts from now on, to one of the permitted CPUs.
pub(crate) fn bind_to_one_cpu() {
    let allowed = sched_getaffinity(Pid::from_raw(0)).expect("the call is permitted");
    let first = (0..CpuSet::count())
        .find(|&cpu| allowed.is_set(cpu) == Ok(true))
        .expect("at least one CPU is permitted");
    let mut one = CpuSet::new();
    one.set(first).expect("the CPU is valid");
    sched_setaffinity(Pid::from_raw(0), &one).expect("the CPU is permitted");
}
