//! Tests of what shares a processor.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// This thread, and those that it starts from now on, run on one processor, one of those that they may run on.
pub(crate) fn on_one_processor() {
    let allowed = sched_getaffinity(Pid::from_raw(0)).expect("it may be asked for");
    let first = (0..CpuSet::count()).find(|&cpu| allowed.is_set(cpu) == Ok(true)).expect("there is one");
    let mut one = CpuSet::new();
    one.set(first).expect("it was in the other set");
    sched_setaffinity(Pid::from_raw(0), &one).expect("it is allowed");
}
