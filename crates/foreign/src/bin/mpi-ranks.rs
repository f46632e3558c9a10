//! The two processes of the MPI test: `mpirun -np 2 mpi-ranks SOCKET alone|idle|timer`. Rank 0 sends 4 MiB while rank 1 computes.
//!
//! Rank 1 runs a node with this engine and the source, or without the source (`alone`). The ranks tell each other by a socket at
//! the path SOCKET what they do, so that rank 1 makes no call to MPI between its receive and the end of its computation. It prints:
//!
//! ```text
//! library WORD WORD...
//! end PLACE          where rank 1 was when the message had left rank 0 and was here: `computation`, or `progress` of its own
//! callback THREAD    the thread that found the message: `program` or `node`
//! bytes COUNT        received bytes with the sender's value
//! counters LOST MUTED PANICS
//! ```

#![forbid(unsafe_code)]

use core::hint::black_box;
use core::time::Duration;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::ThreadId;
use std::time::Instant;

use pronto::progress::{Engine, Registration};
use pronto::{Nanos, Node, WaitPolicy};
use pronto_foreign::mpi::{Mpi, MpiError, Rank, Tag};

/// Content of a message, and the thread that found it.
type Message = (ThreadId, Vec<u8>);
type Outcome<T> = Result<T, Box<dyn core::error::Error>>;

/// Length of the message, bytes: the sender announces it, and it moves when the receiver's MPI gets to run.
const LENGTH: usize = 4 << 20;
/// Value of each byte.
const BYTE: u8 = 7;
const GREETING: Tag = Tag(1);
const DATA: Tag = Tag(2);
/// Interval between polls of a node that sleeps.
const INTERVAL: Duration = Duration::from_millis(1);
/// Sleeps before the message comes: more than the 64 after which a descriptor without events is muted.
const SLEEPS: u64 = 100;
/// Period of the timer engine: that of PIOMan.
const PERIOD: Nanos = Nanos::from_millis(10);
/// Longest computation with the source.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest computation without the source, steps. With the source, the message takes a small fraction of it.
const STEPS: u64 = 200_000_000;
/// Steps between two checks of the socket.
const STEPS_PER_CHECK: u64 = 100_000;

/// Words on the socket: rank 1 asks for the message, and rank 0 reports its progress.
const GO: u8 = b'g';
const POSTED: u8 = b'p';
const LEFT: u8 = b'l';

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, how] = &arguments[..] else { return Err("usage: mpi-ranks SOCKET alone|idle|timer".into()) };
    let mpi = Arc::new(Mpi::open()?);
    if mpi.rank() == Some(Rank(0)) {
        send(&mpi, socket)?
    } else {
        receive(&mpi, socket, how)?
    }
    Ok(mpi.close()?)
}

fn send(mpi: &Mpi, socket: &str) -> Outcome<()> {
    greet(mpi, Rank(1))?;
    // The receiver has bound the socket before its greeting.
    let mut receiver = UnixStream::connect(socket)?;
    let mut word = [0];
    receiver.read_exact(&mut word)?;
    let (done, left) = channel();
    mpi.send(vec![BYTE; LENGTH], Rank(1), DATA, move |_| done.send(()).expect("this function waits"))?;
    receiver.write_all(&[POSTED])?;
    while left.try_recv().is_err() {
        mpi.poll();
    }
    receiver.write_all(&[LEFT])?;
    Ok(())
}

fn receive(mpi: &Arc<Mpi>, socket: &str, how: &str) -> Outcome<()> {
    let listener = UnixListener::bind(socket)?;
    greet(mpi, Rank(0))?;
    let (mut sender, _) = listener.accept()?;
    let engine = if how == "timer" { Engine::Timer(PERIOD) } else { Engine::Idle };
    // Without an event the idle engine sleeps immediately, so that it needs the timer of the source.
    let node = Node::builder(1).engine(engine).wait(WaitPolicy::Block).start()?;
    let registration = (how != "alone").then(|| mpi.register(node.manager(), INTERVAL)).transpose()?;

    let (done, received) = channel();
    mpi.receive(LENGTH, Rank(0), DATA, move |bytes| {
        done.send((std::thread::current().id(), bytes)).expect("this function waits");
    })?;
    if how == "idle" {
        timer_wakes(&node)?;
    }
    sender.write_all(&[GO])?;
    let mut word = [0];
    sender.read_exact(&mut word)?;
    assert_eq!(word, [POSTED], "the sender announces the message first");
    sender.set_nonblocking(true)?;
    let found = compute(&mut sender, &received, registration.as_ref())?;
    let end = if found.is_some() { "computation" } else { "progress" };
    let (thread, bytes) = match found {
        Some(message) => message,
        None => progress(mpi, &mut sender, &received)?,
    };

    let is_own = thread == std::thread::current().id();
    let counters = node.manager().counters();
    println!("library {}", mpi.version());
    println!("end {end}");
    println!("callback {}", if is_own { "program" } else { "node" });
    println!("bytes {}", bytes.iter().filter(|byte| **byte == BYTE).count());
    println!("counters {} {} {}", counters.lost_wake_ups, counters.muted, counters.panics);
    Ok(())
}

/// Waits until the timer of the open request has ended many sleeps of the node.
#[expect(clippy::disallowed_methods, reason = "the wait is bounded")]
fn timer_wakes(node: &Node) -> Outcome<()> {
    let begun = Instant::now();
    let slept = node.manager().counters().sleeps;
    while node.manager().counters().sleeps < slept + SLEEPS {
        if begun.elapsed() > PATIENCE {
            return Err("nothing ends the sleeps of the node".into());
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// Computes, without a call to MPI, until the message is here and the sender reports that it has left. Returns the message, or `None` if
/// neither has happened by the end of the computation.
#[expect(clippy::disallowed_methods, reason = "the computation is bounded")]
fn compute(
    sender: &mut UnixStream,
    received: &Receiver<Message>,
    registration: Option<&Registration>,
) -> Outcome<Option<Message>> {
    let begun = Instant::now();
    let (mut message, mut has_left) = (None, false);
    let mut value = 0x9e37_79b9_7f4a_7c15_u64;
    let mut steps = 0;
    while if registration.is_some() { begun.elapsed() < PATIENCE } else { steps < STEPS } {
        for _ in 0..STEPS_PER_CHECK {
            value = black_box(value ^ value << 13);
        }
        steps += STEPS_PER_CHECK;
        has_left = has_left || reports_left(sender)?;
        message = message.or_else(|| received.try_recv().ok());
        if has_left && message.is_some() {
            return Ok(message);
        }
    }
    if has_left || message.is_some() {
        Err("only half of the message has progressed".into())
    } else {
        Ok(None)
    }
}

/// Progresses MPI on this thread until the message is here and the sender reports that it has left.
fn progress(mpi: &Mpi, sender: &mut UnixStream, received: &Receiver<Message>) -> Outcome<Message> {
    let (mut message, mut has_left) = (None, false);
    loop {
        mpi.poll();
        has_left = has_left || reports_left(sender)?;
        match message.take().or_else(|| received.try_recv().ok()) {
            Some(message) if has_left => return Ok(message),
            other => message = other,
        }
    }
}

fn reports_left(sender: &mut UnixStream) -> Outcome<bool> {
    let mut word = [0];
    match sender.read(&mut word) {
        Ok(1) if word == [LEFT] => Ok(true),
        Ok(_) => Err("the sender has ended".into()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Exchanges a byte with the other rank, so that both directions are connected.
fn greet(mpi: &Mpi, other: Rank) -> Result<(), MpiError> {
    let (arrived, arrivals) = channel();
    let left = arrived.clone();
    mpi.receive(1, other, GREETING, move |_| arrived.send(()).expect("this function waits"))?;
    mpi.send(vec![0], other, GREETING, move |_| left.send(()).expect("this function waits"))?;
    for _ in 0..2 {
        while arrivals.try_recv().is_err() {
            mpi.poll();
        }
    }
    Ok(())
}
