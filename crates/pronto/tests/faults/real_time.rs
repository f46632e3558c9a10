//! A real-time thread waits for a lock whose holder is an ordinary thread of the same CPU: it has to let the holder run.
//!
//! The real-time thread runs in a process of its own, under a limit on the CPU time that it uses without blocking. A thread that
//! spins or yields reaches the limit, whose signal ends the process. The kernel leaves ordinary threads 5 % of the CPU next to a
//! real-time thread that never blocks, so that the holder would have come to its end long after the limit.

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

use crate::child::{Child, say};
use crate::rig::{Add, SOON, Sum, TRANSPORTS, address, beside_others, until};

/// CPU time that the real-time thread may use without blocking, in microseconds. The holder of the lock gets 5 % of it.
const LIMIT: u64 = 500_000;
/// CPU time for which the ordinary thread holds the lock once the other one is real-time.
const HELD: Duration = Duration::from_millis(150);

#[test]
fn a_real_time_thread_lets_an_ordinary_one_of_its_cpu_leave_the_engine() {
    let _beside = beside_others();
    for transport in TRANSPORTS {
        let waits = Child::start("real-time", &[&address(transport, "real-time")]);
        let entered = waits.hears("entered ");
        if entered == "not" {
            eprintln!("skipped: this process may not make a thread real-time");
            return;
        }
        assert_eq!(entered, "after its holder", "{transport}");
    }
}

/// What the child process does: node 1 computes in an inline handler, which holds the engine of its session, and a real-time thread
/// asks node 1 for its status, which needs the engine.
pub(crate) fn waits(listen: &str) {
    one_cpu();
    // The signal would leave a core file.
    for (resource, limit) in [(Resource::RLIMIT_RTTIME, LIMIT), (Resource::RLIMIT_CORE, 0)] {
        let (_, hard) = getrlimit(resource).unwrap();
        setrlimit(resource, limit.min(hard), hard).unwrap();
    }
    let [computes, is_real_time] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let (computing, begins) = (Arc::clone(&computes), Arc::clone(&is_real_time));
    // The serving threads have other work for so long that their peers would take them for dead.
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
    let peer = caller.wait_for_peer(1, SOON).unwrap();
    std::thread::scope(|scope| {
        // On a busy machine the call reaches its deadline before the handler has ended; the handler is what counts.
        scope.spawn(|| drop(peer.call(&Add { values: vec![] })));
        until("the handler runs", || computes.load(Ordering::Relaxed));
        let scheduled = schedule(CALLER, Class::Fifo(1));
        // From here on the handler's thread runs only while this one sleeps.
        is_real_time.store(true, Ordering::Relaxed);
        match scheduled {
            Err(Errno::EPERM) => return say("entered not"),
            done => done.unwrap(),
        }
        let status = holder.status();
        let order = if computes.load(Ordering::Relaxed) { "before its holder" } else { "after its holder" };
        schedule(CALLER, Class::Normal).unwrap();
        assert!(status.peers.iter().any(|peer| peer.linked));
        say(&format!("entered {order}"));
    });
    while !crate::child::command().is_empty() {}
}

/// This thread, and those that it starts, run on one CPU.
fn one_cpu() {
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let first = (0..CpuSet::count()).find(|&cpu| allowed.is_set(cpu) == Ok(true)).unwrap();
    let mut one = CpuSet::new();
    one.set(first).unwrap();
    sched_setaffinity(Pid::from_raw(0), &one).unwrap();
}

/// CPU time of this thread.
fn ran() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
    let part = |time: TimeVal| Duration::from_micros(u64::try_from(time.num_microseconds()).unwrap());
    part(usage.user_time()) + part(usage.system_time())
}
