//! While both sides poll, neither a call over shared memory nor a one-way message that waits for room makes a system call. The kernel
//! kills a process that does.
//!
//! Each scenario runs in a process of its own, for which this program is started again. Two nodes in it connect and warm up. Then
//! every thread that takes part in calls installs a filter that forbids system calls. The check is exact and independent of timing: it
//! also covers the work of a tick. The filter permits `sched_yield`. A thread that finds another one at its peer for 20 us, for example
//! because that thread was preempted on the same CPU, yields; here three polling threads may share two CPUs.
//!
//! Windows do not grow here: their queues would grow with them, once, and allocate.
//!
//! Both nodes spin, not only the caller: a node whose own thread sleeps arms its channels when it goes back to sleep between two calls,
//! and the next reply wakes it.
#![expect(unsafe_code, reason = "installing a seccomp filter")]

use core::time::Duration;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};

use nix::libc;
use pronto::{Builder, Limits, Message, Node, Peer, WaitPolicy};

#[derive(Message, Clone, Debug, PartialEq)]
#[message(name = "system_calls.echo")]
struct Echo {
    bytes: [u8; 32],
}

#[derive(Message, Clone, Debug)]
#[message(name = "system_calls.ask", reply = Echo)]
struct Ask {
    bytes: [u8; 32],
}

/// A notification, sent faster than it is handled.
#[derive(Message, Clone, Debug)]
#[message(name = "system_calls.tell")]
struct Tell {
    number: u64,
}

/// A request whose handler sends more notifications back than there are slots for, while the caller's thread uses the peer.
#[derive(Message, Clone, Debug)]
#[message(name = "system_calls.crowd", reply = CrowdReply)]
struct Crowd {}

/// Number of notifications that were sent.
#[derive(Message, Clone, Debug, PartialEq)]
#[message(name = "system_calls.told")]
struct CrowdReply {
    taken: u64,
}

/// A request after which the thread that runs the inline handler must not make a system call.
#[derive(Message, Clone, Debug)]
#[message(name = "system_calls.forbid", reply = ())]
struct Forbid {}

const SERVER: u16 = 1;
const CLIENT: u16 = 2;
const TIMEOUT: Duration = Duration::from_secs(20);
/// Notifications of a [`Crowd`]: more than the few for which a peer initially has slots while another thread uses it. Further slots are
/// allocated once, when first needed; a preempted thread may make others need them.
const CROWD: u64 = 32;
const WARM_UP: u64 = 500;
/// Calls under the filter, and their minimum duration, which is several ticks of a node however fast the machine is.
const CALLS: u64 = 1_000;
const TIME: Duration = Duration::from_millis(100);
/// Notifications under the filter: many windows.
const NOTES: u64 = 20_000;

const ROLE: &str = "PRONTO_SYSTEM_CALLS_ROLE";
/// The role whose caller sleeps while both serving threads spin. Its filter permits that the caller sleeps on a futex.
const FUTEX: &str = "caller-sleeps-on-futex";

/// Runs a process in `role` and returns its exit status.
fn exit_of(role: &str) -> ExitStatus {
    let program = std::env::current_exe().expect("procfs is mounted");
    let arguments = ["--exact", "run_role", "--nocapture", "--test-threads=1"];
    Command::new(program).args(arguments).env(ROLE, role).stdout(Stdio::null()).status().expect("a process")
}

#[test]
fn two_nodes_that_spin_make_no_system_call() {
    if pronto_skip::for_system_calls_of_a_sanitizer() {
        return;
    }
    let status = exit_of("all-spin");
    assert!(status.success(), "{status}");
}

/// The caller neither arms a channel nor sleeps in one.
#[test]
fn a_caller_next_to_a_serving_thread_that_spins_sleeps_on_a_futex() {
    if pronto_skip::for_system_calls_of_a_sanitizer() {
        return;
    }
    let status = exit_of(FUTEX);
    assert!(status.success(), "{status}");
}

#[test]
fn a_caller_that_sleeps_is_killed_by_the_filter() {
    assert_eq!(exit_of("caller-sleeps").signal(), Some(libc::SIGSYS));
}

#[test]
fn a_server_that_sleeps_is_killed_by_the_filter() {
    assert_eq!(exit_of("server-sleeps").signal(), Some(libc::SIGSYS));
}

/// Runs a scenario in a process that was started for one; does nothing otherwise.
#[test]
fn run_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    use WaitPolicy::{Block, Spin};
    let (server, client, caller) = match role.as_str() {
        "all-spin" => (Spin, Spin, Spin),
        "caller-sleeps" => (Spin, Block, Block),
        FUTEX => (Spin, Spin, Block),
        _ => (Block, Block, Spin),
    };
    let address = format!("shm:@pronto-system-calls-{role}-{}", std::process::id());
    let node = |id, policy| serving(Node::builder(id).wait(policy));
    let server = node(SERVER, server).listen(&address).start().expect("a node");
    let spins = client == Spin;
    let client = node(CLIENT, client).peer(SERVER, &address).start().expect("a node");
    let peer = client.wait_for_peer(SERVER, TIMEOUT).expect("the nodes connect").waiting(caller);
    let back = server.wait_for_peer(CLIENT, TIMEOUT).expect("the nodes connect").waiting(caller);
    // Sleeping callers are slow next to threads that spin on their CPUs.
    let (warm_up, calls) = if caller == Spin { (WARM_UP, CALLS) } else { (WARM_UP / 10, CALLS / 10) };
    (0..warm_up).for_each(|number| call(&peer, number));
    assert_eq!(peer.call_within(&Crowd {}, TIMEOUT), Ok(CrowdReply { taken: CROWD }));
    if spins {
        assert_eq!(back.call_within(&Crowd {}, TIMEOUT), Ok(CrowdReply { taken: CROWD }));
        (0..warm_up).for_each(|number| call(&back, number));
        back.call_within(&Forbid {}, TIMEOUT).expect("the serving thread is alive");
    }
    peer.call_within(&Forbid {}, TIMEOUT).expect("the serving thread is alive");
    forbid_system_calls();
    let started = now();
    let mut number = 0;
    while number < calls || started.elapsed() < TIME {
        call(&peer, number);
        number += 1;
    }
    // A sender that may sleep pauses until there is room.
    let notes = if caller == Spin { NOTES } else { 0 };
    (0..notes)
        .for_each(|number| peer.notify_within(&Tell { number }, TIMEOUT).expect("there is room in time"));
    // The process must exit without dropping anything, because unmapping would be a system call.
    exit_process()
}

fn serving(builder: Builder) -> Builder {
    let limits = Limits::default();
    builder
        .limits(Limits { requests: limits.first_requests, ..limits })
        .handle_inline(|_, ask: Ask| Echo { bytes: ask.bytes })
        .on_inline(|_, tell: Tell| {
            core::hint::black_box(tell.number);
        })
        .handle_inline(|context, _: Crowd| {
            let taken = (0..CROWD).filter(|&number| context.try_notify(&Tell { number }).is_ok()).count();
            CrowdReply { taken: taken as u64 }
        })
        .handle_inline(|_, _: Forbid| forbid_system_calls())
}

fn call(peer: &Peer, number: u64) {
    let bytes = core::array::from_fn(|at| number.to_le_bytes()[at % 8]);
    let echo = peer.call_within(&Ask { bytes }, TIMEOUT).expect("the other node is alive");
    assert_eq!(echo.bytes, bytes);
}

#[expect(clippy::disallowed_methods, reason = "a test may read the clock")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}

/// Ends the process with the one permitted system call, and no other before it.
fn exit_process() {
    // SAFETY: the call takes no pointer, and does not return.
    unsafe { libc::syscall(libc::SYS_exit_group, 0) };
}

/// Makes the kernel kill this process if the calling thread makes a system call other than to end the process, to yield, to read a
/// clock, or to sleep on a futex in the role [`FUTEX`]. If the kernel maps its clock into processes, reading the clock is no system call.
fn forbid_system_calls() {
    const NUMBER: u32 = 0; // offset in struct seccomp_data
    let code = |code: u32| u16::try_from(code).expect("16 bits");
    let statement = |of: u32, k| libc::sock_filter { code: code(of), jt: 0, jf: 0, k };
    let equals = |number: libc::c_long, jt, jf| {
        let k = u32::try_from(number).expect("a small number");
        libc::sock_filter { code: code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K), jt, jf, k }
    };
    let [first, second] = if std::env::var(ROLE).is_ok_and(|role| role == FUTEX) {
        // A thread queries its scheduling class before it sleeps.
        [libc::SYS_futex, libc::SYS_sched_getattr]
    } else {
        [libc::SYS_exit_group; 2]
    };
    let mut filter = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, NUMBER),
        equals(libc::SYS_exit_group, 4, 0),
        equals(first, 3, 0),
        equals(second, 2, 0),
        equals(libc::SYS_sched_yield, 1, 0),
        equals(libc::SYS_clock_gettime, 0, 1),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_KILL_PROCESS),
    ];
    let program = libc::sock_fprog { len: 8, filter: filter.as_mut_ptr() };
    // SAFETY: the call takes no pointer, and only reduces the thread's privileges.
    let bound = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(bound, 0);
    // SAFETY: the program and its eight instructions outlive the call, which copies them.
    let filtered =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!(filtered, 0);
}
