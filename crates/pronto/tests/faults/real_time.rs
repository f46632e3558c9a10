//! A real-time thread waits for a lock whose holder is an ordinary thread on the same CPU: it must let the holder run.
//!
//! The real-time thread runs in a child process with a limit on the CPU time that it may use without blocking. If the thread spins or
//! yields, it reaches the limit, and a signal ends the process. The kernel leaves ordinary threads 5 % of the CPU next to a real-time
//! thread that never blocks, so the holder would finish long after the limit.

use core::time::Duration;

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::time::{TimeVal, TimeValLike as _};
use nix::unistd::Pid;
use pronto::{Node, WaitPolicy};
use pronto_core::Nanos;
use pronto_core::session::Limits;
use pronto_expedite::schedule::{CALLER, Class, schedule};
use pronto_sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use crate::child::{Child, report};
use crate::rig::{Add, Sum, TIMEOUT, TRANSPORTS, address, shared_run, until};

/// CPU time that the real-time thread may use without blocking, in microseconds. The lock holder gets 5 % of it.
const LIMIT: u64 = 500_000;
/// CPU time for which the ordinary thread holds the lock after the other one has become real-time.
const HELD: Duration = Duration::from_millis(150);

#[test]
fn a_real_time_thread_lets_an_ordinary_one_on_its_cpu_release_the_engine() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let waits = Child::start("real-time", &[&address(transport, "real-time")]);
        let entered = waits.expect_line("entered ");
        if entered == "not" {
            return pronto_skip::because("this process may not make a thread real-time");
        }
        assert_eq!(entered, "after its holder", "{transport}");
    }
}

/// Runs the child process. Node 1 computes in an inline handler, which holds the engine of its session. A real-time thread queries the
/// status of node 1, which needs the engine.
pub(crate) fn run(listen: &str) {
    bind_to_one_cpu();
    // Prevents a core file when the signal ends the process.
    for (resource, limit) in [(Resource::RLIMIT_RTTIME, LIMIT), (Resource::RLIMIT_CORE, 0)] {
        let (_, hard) = getrlimit(resource).unwrap();
        setrlimit(resource, limit.min(hard), hard).unwrap();
    }
    let [computes, is_real_time] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let (computing, begins) = (Arc::clone(&computes), Arc::clone(&is_real_time));
    // The serving threads are busy for longer than the usual liveness limit.
    let hour = Nanos::from_secs(3600);
    let limits = Limits::default().with_liveness(Some(hour), Some(hour));
    let node = |id: u16| Node::builder(id).wait(WaitPolicy::Block).limits(limits);
    let holder = node(1).listen(listen).handle_inline(move |_, _: Add| {
        computing.store(true, Ordering::Relaxed);
        while !begins.load(Ordering::Relaxed) {}
        let begun = ran();
        while ran() - begun < HELD {}
        computing.store(false, Ordering::Relaxed);
        Sum { total: 0 }
    });
    let holder = holder.start().unwrap();
    let caller = node(2).peer(1, &holder.listening()[0].to_string()).start().unwrap();
    let peer = caller.wait_for_peer(1, TIMEOUT).unwrap();
    std::thread::scope(|scope| {
        // On a busy machine the call may reach its deadline before the handler has ended; only the handler matters.
        scope.spawn(|| drop(peer.call(&Add { values: vec![] })));
        until("the handler runs", || computes.load(Ordering::Relaxed));
        let scheduled = schedule(CALLER, Class::Fifo(1));
        // From here on the handler's thread runs only while this one sleeps.
        is_real_time.store(true, Ordering::Relaxed);
        match scheduled {
            Err(Errno::EPERM) => return report("entered not"),
            done => done.unwrap(),
        }
        let status = holder.status();
        let order = if computes.load(Ordering::Relaxed) { "before its holder" } else { "after its holder" };
        schedule(CALLER, Class::Normal).unwrap();
        assert!(status.peers.iter().any(|peer| peer.linked));
        report(&format!("entered {order}"));
    });
    while !crate::child::command().is_empty() {}
}

/// Binds this thread, and threads that it starts, to one CPU.
fn bind_to_one_cpu() {
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let first = (0..CpuSet::count()).find(|&cpu| allowed.is_set(cpu) == Ok(true)).unwrap();
    let mut one = CpuSet::new();
    one.set(first).unwrap();
    sched_setaffinity(Pid::from_raw(0), &one).unwrap();
}

/// Returns the CPU time of this thread.
fn ran() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
    let part = |time: TimeVal| Duration::from_micros(u64::try_from(time.num_microseconds()).unwrap());
    part(usage.user_time()) + part(usage.system_time())
}
