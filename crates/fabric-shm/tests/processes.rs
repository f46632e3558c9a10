//! Two processes over one link: an echo, a death, a fork, and a process that must make no system call.
//!
//! Runs without the test harness, because it starts this program again in the other role, and forks.
#![expect(unsafe_code, reason = "fork and installing a system-call filter are unsafe")]

use core::time::Duration;
use std::os::fd::BorrowedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use pronto_core::fabric::{
    Armed, ConnectionLimits, DoorbellEvent, Extent, FabricError, Gather, Memory, Operation, PostError,
    QueuePair, RemoteRange, Rights, SendWork, Signal, WrId, poll_by_value,
};
use pronto_fabric_shm::{Handshake, Link, Listener, ShmQueuePair, ShmRegion};
use pronto_wire::RawHeader;

const LIMIT: Duration = Duration::from_secs(30);
const MESSAGES: u32 = 3000;
/// Length of the memory that is granted.
const MEMORY: usize = 3 << 20;
const GREETING: &[u8] = b"who are you?";
const PAYLOAD: u32 = 5000;
const LIMITS: ConnectionLimits = ConnectionLimits {
    send_depth: 16,
    receive_depth: 16,
    max_send_payload: PAYLOAD,
    max_receive_payload: PAYLOAD,
    send_memory: 1 << 20,
};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [_, "role", "echo", path] => echo(dial(path)),
        [_, "role", "sender", path] => send_and_hang(dial(path)),
        [_, "role", "reader", path] => read_by_grant(dial(path)),
        [_, "role", "forbidden", path] => {
            refuse_system_call(libc::SYS_process_vm_readv);
            read_by_grant(dial(path));
        }
        [_, "role", "polling"] => poll_under_filter(),
        [_, "role", "sleeping"] => sleep_under_filter(),
        _ => {
            let tests: [(&str, fn()); 6] = [
                ("messages_cross_between_processes", messages_cross_between_processes),
                ("a_killed_peer_is_noticed", a_killed_peer_is_noticed),
                ("memory_of_the_program_is_read_by_another_process", memory_of_the_program),
                ("a_forked_child_is_refused", a_forked_child_is_refused),
                ("a_link_leaves_nothing_behind", a_link_leaves_nothing_behind),
                ("polling_makes_no_system_call", polling_makes_no_system_call),
            ];
            let wanted = args.get(1).filter(|arg| !arg.starts_with('-'));
            let chosen = tests.iter().filter(|(name, _)| wanted.is_none_or(|part| name.contains(part)));
            let mut passed = 0;
            for (name, test) in chosen {
                print!("test {name} ... ");
                test();
                println!("ok");
                passed += 1;
            }
            // Same line as the test harness prints, for tools that count tests. A failed test ends the program before
            // it.
            println!("\ntest result: ok. {passed} passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
        }
    }
    ExitCode::SUCCESS
}

/// Runs an echo with inline payloads and payloads by reference. Waiting threads sleep.
fn messages_cross_between_processes() {
    let (mut link, mut child) = other_process("echo");
    let region = ShmRegion::allocate(PAYLOAD as usize).expect("memory is available");
    link.bulk.prepare(0..1 << 20).expect("memory is available");
    for number in 0..MESSAGES {
        let bytes = number.to_le_bytes();
        region.write(0, &bytes).expect("inside");
        let payload = match number % 2 {
            0 => Gather::Short(&bytes),
            _ => Gather::Region { region: &region, offset: 0, len: PAYLOAD },
        };
        post(&mut link.bulk, payload);
        assert_eq!(sleep_for(&mut link.bulk), number);
        while link.bulk.poll_send().is_some() {}
    }
    drop(link);
    assert!(child.wait().expect("a child of this process").success());
}

fn echo(mut link: Link) {
    let qp = &mut link.bulk;
    qp.prepare(0..1 << 20).expect("memory is available");
    for number in 0..MESSAGES {
        assert_eq!(sleep_for(qp), number);
        let bytes = number.to_le_bytes();
        match number % 2 {
            0 => post(qp, Gather::Short(&bytes)),
            _ => {
                let region = ShmRegion::allocate(PAYLOAD as usize).expect("memory is available");
                region.write(0, &bytes).expect("inside");
                post(qp, Gather::Region { region: &region, offset: 0, len: PAYLOAD });
            }
        }
        while qp.poll_send().is_some() {}
    }
    assert!(matches!(wait_for_message(qp), Err(FabricError::Lost)), "the parent closes first");
}

/// Kills a process while it sleeps: its published messages arrive, and then its end.
fn a_killed_peer_is_noticed() {
    let (mut link, mut child) = other_process("sender");
    assert_eq!(sleep_for(&mut link.bulk), 0);
    assert!(!link.lifeline.is_cut().expect("a poll"));
    assert!(poll_by_value(&mut link.bulk).is_ok_and(|message| message.is_none()));
    post(&mut link.bulk, Gather::Ring(Extent { offset: 0, len: 100 }));
    child.kill().expect("a child of this process");
    for fd in link.lifeline.descriptors() {
        assert!(readable(fd), "the lifeline reports the death");
    }
    assert!(link.lifeline.is_cut().expect("a poll"));
    assert!(
        matches!(wait_for_message(&mut link.bulk), Err(FabricError::Lost)),
        "the channel reports the death"
    );
    link.bulk.close();
    let flushed = link.bulk.poll_send().expect("the unread message is flushed");
    assert_eq!(flushed.status, pronto_core::fabric::Status::Flushed);
    child.wait().expect("a child of this process");
}

fn send_and_hang(mut link: Link) {
    post(&mut link.bulk, Gather::Short(&0u32.to_le_bytes()));
    // Waits for messages until the parent kills this process.
    while let Ok(()) = wait_for_message(&mut link.bulk).map(drop) {}
}

/// A peer reads memory of this program, by its address if its kernel lets it, else in a copy. One peer is forbidden to.
fn memory_of_the_program() {
    let contents: Vec<u8> = (0..MEMORY).map(|at| u8::try_from(at % 253).unwrap_or(0)).collect();
    for role in ["reader", "forbidden"] {
        let (mut link, mut child) = other_process(role);
        let memory = Memory::from_owner(contents.clone());
        // The first grant makes the child try. It then says what it can.
        let first = link.bulk.grant(memory.region(), 0..1, Rights::READ).expect("granted");
        post(&mut link.bulk, Gather::Short(&[0; 8]));
        let by_address = sleep_for(&mut link.bulk) == 0;
        link.bulk.revoke(first.id).expect("the grant exists");
        assert!(role == "reader" || !by_address, "the filter works");
        if !by_address && role == "reader" {
            println!("reads by address are forbidden on this machine");
        }
        let grant = link.bulk.grant(memory.region(), 0..MEMORY as u64, Rights::READ).expect("granted");
        assert_eq!(mappings_of_regions(), usize::from(!by_address), "a copy is a region");
        post(&mut link.bulk, Gather::Short(&grant.remote.key.to_le_bytes()));
        assert_eq!(sleep_for(&mut link.bulk), contents.iter().map(|byte| u32::from(*byte)).sum::<u32>());
        link.bulk.revoke(grant.id).expect("the grant exists");
        assert_eq!((mappings_of_regions(), memory.is_held_elsewhere()), (0, false));
        drop(link);
        assert!(child.wait().expect("a child of this process").success());
    }
}

/// Returns the number of mappings that have the length of the granted memory.
fn mappings_of_regions() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("procfs is mounted");
    let is_one = |line: &&str| {
        let (first, rest) = line.split_once('-').expect("a range");
        let end = rest.split(' ').next().expect("a range");
        let [first, end] = [first, end].map(|at| usize::from_str_radix(at, 16).expect("an address"));
        line.contains("memfd:pronto") && end - first == MEMORY
    };
    maps.lines().filter(is_one).count()
}

fn read_by_grant(mut link: Link) {
    let qp = &mut link.bulk;
    assert_eq!((qp.reads_by_address(), wait_for_key(qp)), (None, 0));
    // The announcement came before the message, and a poll without a message receives it.
    while qp.reads_by_address().is_none() {
        assert!(poll_by_value(qp).expect("alive").is_none());
    }
    let failure = qp.reads_by_address().map_or(0, |tried| tried.err().unwrap_or(0));
    post(qp, Gather::Short(&failure.to_le_bytes()));
    let message = wait_for_key(qp);
    let into = ShmRegion::allocate(MEMORY).expect("memory is available");
    let remote = RemoteRange { key: message, offset: 0, len: MEMORY as u64 };
    let read = Operation::Read { local: &into, local_offset: 0, remote };
    qp.post(SendWork { signal: Signal::Unsignalled, operation: read }).expect("granted");
    let mut bytes = vec![0; MEMORY];
    into.read(0, &mut bytes).expect("the whole region");
    let sum: u32 = bytes.iter().map(|byte| u32::from(*byte)).sum();
    post(qp, Gather::Short(&sum.to_le_bytes()));
    assert!(matches!(wait_for_message(qp), Err(FabricError::Lost)), "the parent closes first");
}

/// A forked child has none of the memory, and the parent's link is not affected.
fn a_forked_child_is_refused() {
    let (mut link, other) = Link::pair([LIMITS; 2]).expect("memory is available");
    let mut far = other.bulk;
    // SAFETY: this process has one thread, so the child may do whatever its parent may.
    match unsafe { fork() }.expect("fork succeeds") {
        ForkResult::Child => {
            let refused = try_post(&mut link.bulk) == Err(PostError::Failed(FabricError::Lost))
                && matches!(poll_by_value(&mut link.bulk), Err(FabricError::Lost))
                && link.bulk.ring_doorbell(DoorbellEvent::Solicited).is_err()
                && link.bulk.arm(Armed::All).is_err();
            drop((link, far));
            std::process::exit(if refused { 7 } else { 1 });
        }
        ForkResult::Parent { child } => {
            assert_eq!(waitpid(child, None).expect("a child of this process"), WaitStatus::Exited(child, 7));
        }
    }
    assert_eq!(try_post(&mut link.bulk), Ok(()));
    link.bulk.ring_doorbell(DoorbellEvent::Solicited).expect("alive");
    assert!(poll_by_value(&mut far).expect("alive").is_some());
}

/// Creates and drops links; descriptors and mappings must not accumulate, and no thread is left that closes foreign descriptors.
fn a_link_leaves_nothing_behind() {
    let count = |of: &str| std::fs::read_dir(of).expect("procfs is mounted").count();
    let mappings = || {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("procfs is mounted");
        maps.lines().filter(|line| line.contains("memfd:pronto")).count()
    };
    drop(Link::pair([LIMITS; 2]));
    let (fds, mapped) = (count("/proc/self/fd"), mappings());
    assert_eq!(mapped, 0);
    for _ in 0..20 {
        let (mut near, mut far) = Link::pair([LIMITS; 2]).expect("memory is available");
        let region = ShmRegion::allocate(PAYLOAD as usize).expect("memory is available");
        near.bulk.grant(&region, 0..8, Rights::ALL).expect("the first grant fits");
        post(&mut near.bulk, Gather::Region { region: &region, offset: 0, len: PAYLOAD });
        assert!(poll_by_value(&mut far.bulk).expect("alive").is_some());
        assert!(mappings() > 8);
    }
    assert_eq!((count("/proc/self/fd"), mappings()), (fds, 0));
    let tasks = std::fs::read_dir("/proc/self/task").expect("procfs is mounted").flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    let names: Vec<_> = names.collect();
    assert!(!names.is_empty() && !names.iter().any(|name| name.starts_with("pronto-closer")), "{names:?}");
}

/// A process that the kernel kills at its first system call can send and receive; one that wakes a sleeper is killed.
fn polling_makes_no_system_call() {
    if pronto_skip::for_system_calls_of_a_sanitizer() {
        return;
    }
    let program = std::env::current_exe().expect("procfs is mounted");
    let ended = |role| Command::new(&program).args(["role", role]).status().expect("the program starts");
    let polling = ended("polling");
    assert!(polling.success(), "{polling}");
    assert_eq!(ended("sleeping").signal(), Some(libc::SIGSYS), "the filter works");
}

fn poll_under_filter() {
    let (mut near, mut far) = Link::pair([LIMITS; 2]).expect("memory is available");
    let region = ShmRegion::allocate(PAYLOAD as usize).expect("memory is available");
    near.bulk.prepare(0..1 << 20).expect("memory is available");
    let payloads = [
        Gather::Short(b"four"),
        Gather::Ring(Extent { offset: 0, len: PAYLOAD }),
        Gather::Region { region: &region, offset: 0, len: PAYLOAD },
    ];
    let mut exchange = |payload| {
        post(&mut near.bulk, payload);
        assert!(poll_by_value(&mut near.bulk).is_ok_and(|message| message.is_none()));
        let message = poll_by_value(&mut far.bulk).expect("alive").expect("it was posted");
        message.payload.copy_to(0, &mut [0; 4]).expect("long enough");
        drop(message);
        assert!(near.bulk.poll_send().is_some());
    };
    // The first exchange announces the region and lets the heap grow.
    payloads.into_iter().for_each(&mut exchange);
    forbid_system_calls();
    payloads.into_iter().cycle().take(10_000).for_each(&mut exchange);
    // Nothing may be dropped after this: unmapping would be a system call.
    leave()
}

fn sleep_under_filter() {
    let (mut near, mut far) = Link::pair([LIMITS; 2]).expect("memory is available");
    far.bulk.arm(Armed::All).expect("alive");
    forbid_system_calls();
    post(&mut near.bulk, Gather::Short(b"wake up"));
    // Not reached, because waking a sleeper takes a system call.
    leave()
}

/// Ends the process by the only permitted system call.
fn leave() {
    // SAFETY: takes no pointer, and does not return.
    unsafe { libc::syscall(libc::SYS_exit_group, 0) };
}

/// Makes the kernel kill this process at any later system call except exit_group.
fn forbid_system_calls() {
    filter(libc::SYS_exit_group, libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_KILL_PROCESS);
}

/// Makes a system call fail from now on.
fn refuse_system_call(number: libc::c_long) {
    let fails = libc::SECCOMP_RET_ERRNO | u32::try_from(libc::EPERM).expect("a small number");
    filter(number, fails, libc::SECCOMP_RET_ALLOW);
}

/// Installs a filter that treats one system call in one way, and all others in another.
fn filter(number: libc::c_long, that: u32, others: u32) {
    const NUMBER: u32 = 0; // offset in struct seccomp_data
    let statement =
        |code: u32, k| libc::sock_filter { code: u16::try_from(code).expect("16 bits"), jt: 0, jf: 0, k };
    let number = u32::try_from(number).expect("a small number");
    let mut filter = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, NUMBER),
        libc::sock_filter { jf: 1, ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number) },
        statement(libc::BPF_RET | libc::BPF_K, that),
        statement(libc::BPF_RET | libc::BPF_K, others),
    ];
    let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    // SAFETY: takes no pointer; only restricts this process.
    let bound = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(bound, 0);
    // SAFETY: the program and its four instructions outlive the call, which copies them.
    let filtered =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!(filtered, 0);
}

/// Starts this program in another role and establishes a link to it.
fn other_process(role: &str) -> (Link, Child) {
    let path = socket_path(role);
    let listener = Listener::bind(&path).expect("the path is unused");
    let program = std::env::current_exe().expect("procfs is mounted");
    let child = Command::new(program).args(["role", role]).arg(&path).spawn().expect("the program starts");
    let mut handshake = listener.accept().expect("the child dials");
    assert_eq!(handshake.peer().pid, i32::try_from(child.id()).expect("a process id"));
    assert!(handshake.peer().same_user());
    assert_eq!(handshake.receive(100).expect("a greeting"), GREETING);
    handshake.send(GREETING).expect("the child listens");
    (handshake.establish([LIMITS; 2]).expect("a link"), child)
}

fn dial(path: &str) -> Link {
    let mut handshake = Handshake::dial(Path::new(path), LIMIT).expect("the parent listens");
    handshake.send(GREETING).expect("the parent listens");
    assert_eq!(handshake.receive(100).expect("a greeting"), GREETING);
    handshake.establish([LIMITS; 2]).expect("a link")
}

fn socket_path(role: &str) -> PathBuf {
    std::env::temp_dir().join(format!("pronto-shm-{role}-{}.sock", std::process::id()))
}

fn try_post(qp: &mut ShmQueuePair) -> Result<(), PostError> {
    let operation = Operation::Send { header: &RawHeader::default(), payload: Gather::Short(b"x") };
    qp.post(SendWork { signal: Signal::Unsignalled, operation })
}

fn post(qp: &mut ShmQueuePair, payload: Gather<'_>) {
    let signal = Signal::Signalled(WrId { slot: 0, generation: 0 });
    let operation = Operation::Send { header: &RawHeader::default(), payload };
    qp.post(SendWork { signal, operation }).expect("one message at a time fits");
    qp.ring_doorbell(DoorbellEvent::Solicited).expect("alive");
}

/// Sleeps until there is a message, and returns the number at its start.
fn sleep_for(qp: &mut ShmQueuePair) -> u32 {
    wait_for_message(qp).expect("alive")
}

fn wait_for_message(qp: &mut ShmQueuePair) -> Result<u32, FabricError> {
    wait_for_bytes(qp).map(u32::from_le_bytes)
}

fn wait_for_key(qp: &mut ShmQueuePair) -> u64 {
    wait_for_bytes(qp).map(u64::from_le_bytes).expect("alive")
}

fn wait_for_bytes<const N: usize>(qp: &mut ShmQueuePair) -> Result<[u8; N], FabricError> {
    loop {
        qp.arm(Armed::All)?;
        let found = poll_by_value(qp)?;
        if found.is_none() {
            let channel = qp.channel().expect("a live queue pair has a channel").fd;
            // SAFETY: the channel stays open while the queue pair is borrowed and not closed.
            assert!(readable(unsafe { BorrowedFd::borrow_raw(channel) }), "an event within the time limit");
        }
        qp.arm(Armed::Nothing).expect("disarming never fails");
        if let Some(message) = found {
            let mut bytes = [0; N];
            message.payload.copy_to(0, &mut bytes).expect("long enough");
            return Ok(bytes);
        }
    }
}

fn readable(fd: BorrowedFd<'_>) -> bool {
    let limit = PollTimeout::try_from(LIMIT).expect("it fits");
    poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], limit).expect("a poll") > 0
}
