//! Measures the cost of the provider: 56-byte ping-pongs over loopback, with raw sockets and with queue pairs, blocking
//! and spinning.
//!
//! Two pinned threads run the variants in alternation, so that other load on the machine affects all of them. The
//! result is the median of the ratios of the rounds. `raw-poll` is the cost of any design that sleeps on a descriptor
//! before it reads. `pingpong VARIANT ROUNDS` runs one variant alone, for use with strace -f -c.
#![expect(clippy::unwrap_used, reason = "an example that cannot go on should stop")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]
#![expect(clippy::print_stdout, reason = "it prints its results")]

use core::time::Duration;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use pronto_core::fabric::{
    Armed, ConnectionLimits, DoorbellEvent, Gather, Operation, QueuePair, SendWork, Signal, poll_by_value,
};
use pronto_fabric_tcp::{Handshake, Link, Listener, Options, ReceivePool, TcpQueuePair};
use pronto_wire::RawHeader;

const MESSAGE: usize = 56;
const PAYLOAD: usize = 32;
const ROUNDS: usize = 15;
const WARM_UP: usize = 200;
const PATIENCE: Duration = Duration::from_secs(10);
const LIMITS: ConnectionLimits = ConnectionLimits {
    send_depth: 64,
    receive_depth: 64,
    max_send_payload: 1 << 20,
    max_receive_payload: 1 << 20,
    send_memory: 1 << 20,
};

/// One end of a ping-pong.
trait End: Send {
    fn send(&mut self);
    fn receive(&mut self);
}

struct Raw {
    stream: TcpStream,
    polls: bool,
}

impl End for Raw {
    fn send(&mut self) {
        self.stream.write_all(&[7; MESSAGE]).unwrap();
    }

    fn receive(&mut self) {
        let mut bytes = [0; MESSAGE];
        let mut filled = 0;
        if self.polls {
            sleep(self.stream.as_fd());
        }
        while filled < MESSAGE {
            match self.stream.read(&mut bytes[filled..]) {
                Ok(n) => filled += n,
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
            }
        }
    }
}

struct Queue {
    qp: TcpQueuePair,
    wait: Wait,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    Block,
    Spin,
}

impl End for Queue {
    fn send(&mut self) {
        let header = RawHeader::default();
        let operation = Operation::Send { header: &header, payload: Gather::Short(&[7; PAYLOAD]) };
        self.qp.post(SendWork { signal: Signal::Unsignalled, operation }).unwrap();
        self.qp.ring_doorbell(DoorbellEvent::Solicited).unwrap();
    }

    /// Polls as an engine does until a message has arrived. A blocking end arms first: a poll of the socket right after
    /// sending would find nothing and cost a system call.
    fn receive(&mut self) {
        if self.wait == Wait::Block {
            self.qp.arm(Armed::All).unwrap();
        }
        loop {
            let mut received = 0;
            while let Some(message) = poll_by_value(&mut self.qp).unwrap() {
                assert_eq!(message.payload.len(), PAYLOAD);
                received += 1;
            }
            while self.qp.poll_send().is_some() {}
            if received > 0 {
                return;
            }
            if self.wait == Wait::Block {
                sleep(self.qp.as_fd());
                self.qp.arm(Armed::Nothing).expect("disarming never fails");
            }
        }
    }
}

fn sleep(channel: BorrowedFd<'_>) {
    poll(&mut [PollFd::new(channel, PollFlags::POLLIN)], PollTimeout::NONE).unwrap();
}

fn raw_pair(nonblocking: bool, polls: bool) -> [Box<dyn End>; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    [near, far].map(|stream| {
        stream.set_nodelay(true).unwrap();
        stream.set_nonblocking(nonblocking).unwrap();
        Box::new(Raw { stream, polls }) as Box<dyn End>
    })
}

fn queue_pair(wait: Wait) -> [Box<dyn End>; 2] {
    let listener = Arc::new(Listener::bind("127.0.0.1:0", Options::default()).unwrap());
    let pool = ReceivePool::new(8 << 20).unwrap();
    let dialler = Handshake::dial(listener.local_addr().unwrap(), PATIENCE, Options::default()).unwrap();
    let acceptor = listener.accept().unwrap().begin(PATIENCE).unwrap().unwrap();
    let second =
        thread::spawn(move || assert!(listener.accept().unwrap().begin(PATIENCE).unwrap().is_none()));
    let far = {
        let pool = Arc::clone(&pool);
        thread::spawn(move || acceptor.establish([LIMITS; 2], &pool).unwrap())
    };
    let near = dialler.establish([LIMITS; 2], &pool).unwrap();
    second.join().unwrap();
    [near, far.join().unwrap()]
        .map(|Link { control, .. }| Box::new(Queue { qp: control, wait }) as Box<dyn End>)
}

fn pin(cpu: usize) {
    let mut cpus = CpuSet::new();
    cpus.set(cpu).unwrap();
    // With one CPU only, the measurement continues unpinned.
    let _ = sched_setaffinity(Pid::from_raw(0), &cpus);
}

/// Returns the median of `count` round trips, in nanoseconds.
fn measure(variant: &str, count: usize) -> f64 {
    let [mut near, mut far] = match variant {
        "raw-block" => raw_pair(false, false),
        "raw-poll" => raw_pair(true, true),
        "raw-spin" => raw_pair(true, false),
        "qp-block" => queue_pair(Wait::Block),
        "qp-spin" => queue_pair(Wait::Spin),
        other => panic!("unknown variant {other}"),
    };
    let (over, ended) = mpsc::channel::<()>();
    let server = thread::spawn(move || {
        pin(1);
        for _ in 0..count + WARM_UP {
            far.receive();
            far.send();
        }
        // Stays connected until the client has finished.
        ended.recv().unwrap_err();
    });
    pin(0);
    let mut nanos = Vec::with_capacity(count);
    for n in 0..count + WARM_UP {
        let start = Instant::now();
        near.send();
        near.receive();
        if n >= WARM_UP {
            nanos.push(start.elapsed().as_nanos());
        }
    }
    drop(over);
    server.join().unwrap();
    nanos.sort_unstable();
    nanos[count / 2] as f64
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [variant, rounds] = &arguments[..] {
        println!("{variant}: p50 {:.0} ns", measure(variant, rounds.parse().unwrap()));
        return;
    }
    // Each row has the floor to which it is compared.
    let rows =
        [("raw-poll", "raw-block", 4000), ("qp-block", "raw-block", 4000), ("qp-spin", "raw-spin", 20_000)];
    for (variant, floor, count) in rows {
        let mut ratios = Vec::new();
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            theirs.push(measure(floor, count));
            ours.push(measure(variant, count));
            ratios.push(ours[ours.len() - 1] / theirs[theirs.len() - 1]);
        }
        println!(
            "{variant:<8} p50 {:>6.0} ns, {floor:<9} p50 {:>6.0} ns, ratio {:.3} ({:.3} to {:.3} in {ROUNDS} rounds)",
            median(&mut ours),
            median(&mut theirs),
            median(&mut ratios),
            ratios[0],
            ratios[ROUNDS - 1],
        );
    }
}

fn median(all: &mut [f64]) -> f64 {
    all.sort_unstable_by(f64::total_cmp);
    all[all.len() / 2]
}
