//! While both sides poll, neither a call over shared memory nor a one-way message that waits for room makes a system call: the kernel
//! kills a process of which one thread does.
//!
//! Each story is a process of its own, this program started again: two nodes in it meet and warm up, then every thread that
//! takes part in calls puts itself under a filter that forbids all system calls. That is exact, and asks nothing of time: what
//! a thread does per tick is forbidden as well. One is left: `sched_yield`. A thread that has found another one at its peer for 20 us, as where
//! that one was taken off the processor that they share, gives it away for a moment; here two processors may have three threads that poll.
//!
//! Both nodes spin, and not only the caller: a node whose own thread sleeps arms its channels when it goes back to sleep between
//! two calls, and the next answer wakes it.
#![expect(unsafe_code, reason = "asking the kernel for a filter")]

use core::time::Duration;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};

use nix::libc;
use pronto::{Builder, Message, Node, Peer, WaitPolicy};

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

/// Sent faster than it is handled.
#[derive(Message, Clone, Debug)]
#[message(name = "system_calls.tell")]
struct Tell {
    number: u64,
}

/// The handler tells the sender more at once than there are places for, while its thread is at that peer.
#[derive(Message, Clone, Debug)]
#[message(name = "system_calls.crowd", reply = Told)]
struct Crowd {}

/// How many of them were taken.
#[derive(Message, Clone, Debug, PartialEq)]
#[message(name = "system_calls.told")]
struct Told {
    taken: u64,
}

/// The thread that runs the inline handler is to make no system call after this one.
#[derive(Message, Clone, Debug)]
#[message(name = "system_calls.forbid", reply = ())]
struct Forbid {}

const SERVER: u16 = 1;
const CLIENT: u16 = 2;
const PATIENCE: Duration = Duration::from_secs(20);
/// More than the few messages that a peer has a place for from the start while another thread is at it. The places for more
/// are made once, by the first that needs one; a thread that is taken off its processor at a bad moment makes others need them.
const CROWD: u64 = 32;
const WARM_UP: u64 = 500;
/// Under the filter. Longer than several ticks of a node, however quick the machine.
const CALLS: u64 = 1_000;
const TIME: Duration = Duration::from_millis(100);
/// One way, many windows full.
const NOTES: u64 = 20_000;

const ROLE: &str = "PRONTO_SYSTEM_CALLS_ROLE";

/// How the process of a role ends.
fn ended(role: &str) -> ExitStatus {
    let program = std::env::current_exe().expect("procfs is mounted");
    let arguments = ["--exact", "in_its_role", "--nocapture", "--test-threads=1"];
    Command::new(program).args(arguments).env(ROLE, role).stdout(Stdio::null()).status().expect("a process")
}

#[test]
fn two_nodes_that_spin_make_no_system_call() {
    let ended = ended("all-spin");
    assert!(ended.success(), "{ended}");
}

#[test]
fn a_caller_that_sleeps_is_killed_so_the_filter_works() {
    assert_eq!(ended("caller-sleeps").signal(), Some(libc::SIGSYS));
}

#[test]
fn a_server_that_sleeps_is_killed_so_the_filter_works_there_too() {
    assert_eq!(ended("server-sleeps").signal(), Some(libc::SIGSYS));
}

/// Nothing, but in a process that was started for a role.
#[test]
fn in_its_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    use WaitPolicy::{Block, Spin};
    let (server, client, caller) = match role.as_str() {
        "all-spin" => (Spin, Spin, Spin),
        "caller-sleeps" => (Spin, Block, Block),
        _ => (Block, Block, Spin),
    };
    let address = format!("shm:@pronto-system-calls-{role}-{}", std::process::id());
    let node = |id, policy| serving(Node::builder(id).wait(policy));
    let server = node(SERVER, server).listen(&address).start().expect("a node");
    let spins = client == Spin;
    let client = node(CLIENT, client).peer(SERVER, &address).start().expect("a node");
    let peer = client.wait_for_peer(SERVER, PATIENCE).expect("the nodes meet").waiting(caller);
    let back = server.wait_for_peer(CLIENT, PATIENCE).expect("the nodes meet").waiting(caller);
    (0..WARM_UP).for_each(|number| call(&peer, number));
    assert_eq!(peer.call_within(&Crowd {}, PATIENCE), Ok(Told { taken: CROWD }));
    if spins {
        assert_eq!(back.call_within(&Crowd {}, PATIENCE), Ok(Told { taken: CROWD }));
        (0..WARM_UP).for_each(|number| call(&back, number));
        back.call_within(&Forbid {}, PATIENCE).expect("the serving thread lives");
    }
    peer.call_within(&Forbid {}, PATIENCE).expect("the serving thread lives");
    forbid_system_calls();
    let started = now();
    let mut number = 0;
    while number < CALLS || started.elapsed() < TIME {
        call(&peer, number);
        number += 1;
    }
    (0..NOTES)
        .for_each(|number| peer.notify_within(&Tell { number }, PATIENCE).expect("there is room in time"));
    // Nothing may be dropped any more: unmapping would be a system call.
    leave()
}

fn serving(builder: Builder) -> Builder {
    builder
        .handle_inline(|_, ask: Ask| Echo { bytes: ask.bytes })
        .on_inline(|_, tell: Tell| {
            core::hint::black_box(tell.number);
        })
        .handle_inline(|context, _: Crowd| {
            let taken = (0..CROWD).filter(|&number| context.try_notify(&Tell { number }).is_ok()).count();
            Told { taken: taken as u64 }
        })
        .handle_inline(|_, _: Forbid| forbid_system_calls())
}

fn call(peer: &Peer, number: u64) {
    let bytes = core::array::from_fn(|at| number.to_le_bytes()[at % 8]);
    let echo = peer.call_within(&Ask { bytes }, PATIENCE).expect("the other node lives");
    assert_eq!(echo.bytes, bytes);
}

#[expect(clippy::disallowed_methods, reason = "a test is an edge")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}

/// Ends the process by the one system call that is left, with nothing before it.
fn leave() {
    // SAFETY: takes no pointer, and does not come back.
    unsafe { libc::syscall(libc::SYS_exit_group, 0) };
}

/// From now on the kernel kills this process when the calling thread makes a system call, but to end the process, to give way or to read
/// a clock: where the kernel maps its clock into processes, reading it is none.
fn forbid_system_calls() {
    const NUMBER: u32 = 0; // offset in struct seccomp_data
    let code = |code: u32| u16::try_from(code).expect("16 bits");
    let statement = |of: u32, k| libc::sock_filter { code: code(of), jt: 0, jf: 0, k };
    let equals = |number: libc::c_long, jt, jf| {
        let k = u32::try_from(number).expect("a small number");
        libc::sock_filter { code: code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K), jt, jf, k }
    };
    let mut filter = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, NUMBER),
        equals(libc::SYS_exit_group, 2, 0),
        equals(libc::SYS_sched_yield, 1, 0),
        equals(libc::SYS_clock_gettime, 0, 1),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_KILL_PROCESS),
    ];
    let program = libc::sock_fprog { len: 6, filter: filter.as_mut_ptr() };
    // SAFETY: takes no pointer; allows this thread less than before.
    let bound = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(bound, 0);
    // SAFETY: the program and its six instructions outlive the call, which copies them.
    let filtered =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!(filtered, 0);
}
