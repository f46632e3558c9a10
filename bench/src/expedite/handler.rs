//! A handler's process: threads that each sleep on a socket, reply to messages, and then may compute for a while.

use core::hint::black_box;
use core::time::Duration;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::thread;

use anyhow::Context as _;
use pronto_expedite::schedule::{CALLER, schedule};
use pronto_expedite::scx::Scheduler;
use pronto_expedite::{Device, Flag};

use super::load::{fibonacci, set_nice};
use super::node::Caller;
use super::{BYTES, HANDLER, Setting, Transport};
use crate::child::{self, Child};
use crate::clock;
use crate::params::Choice as _;

/// Work of a handler's process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) transport: Transport,
    pub(crate) setting: Setting,
    /// Number of connections, each with a thread.
    pub(crate) pairs: usize,
    /// Number of connections, from the first, that have the setting; the others are ordinary threads.
    pub(crate) flagged: usize,
    /// Computation of each thread after a reply.
    pub(crate) extra: Duration,
    /// Nice value of every thread.
    pub(crate) nice: i32,
}

impl Work {
    /// Returns the work of one connection without computation.
    pub(crate) fn one(transport: Transport, setting: Setting) -> Self {
        Self { transport, setting, pairs: 1, flagged: 1, extra: Duration::ZERO, nice: 0 }
    }
}

/// A socket of some kind.
pub(crate) trait Stream: Read + Write + AsFd + Send {}

impl<T: Read + Write + AsFd + Send> Stream for T {}

/// Sender's end of a connection.
pub(crate) enum Line {
    /// A bare socket.
    Bare(Box<dyn Stream>),
    /// A calling node.
    Node(Box<Caller>),
}

impl core::fmt::Debug for Line {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Bare(_) => "Bare",
            Self::Node(_) => "Node",
        })
    }
}

impl Line {
    /// Sends one message and waits for its reply. Returns the time from send to handler in nanoseconds. The time of the reply is
    /// meaningless under virtual time: the handler's CPU continues to compute, and its turn must end first.
    pub(crate) fn ping(&mut self) -> anyhow::Result<u64> {
        let sent = clock::shared_ns();
        let received = match self {
            Self::Bare(stream) => {
                let mut message = [0; BYTES];
                message[..8].copy_from_slice(&sent.to_le_bytes());
                stream.write_all(&message).context("sending a ping")?;
                stream.read_exact(&mut message).context("waiting for a pong")?;
                time_in(&message)
            }
            Self::Node(caller) => caller.ask()?,
        };
        Ok(received.saturating_sub(sent))
    }
}

/// Returns the time in the first eight bytes of a message.
fn time_in(message: &[u8; BYTES]) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *message;
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

/// A handler's process, and the senders' ends of its connections; killed when dropped.
#[derive(Debug)]
pub(crate) struct Handler {
    pub(crate) lines: Vec<Line>,
    _process: Child,
}

impl Handler {
    /// Starts the process, and connects to it. It serves when this returns. The inner error is a refusal of the system.
    pub(crate) fn start(work: &Work) -> anyhow::Result<Result<Self, String>> {
        let mut process = Child::spawn(
            &HANDLER,
            [
                work.transport.name().to_owned(),
                work.setting.name().into(),
                work.pairs.to_string(),
                work.flagged.to_string(),
                work.extra.as_micros().to_string(),
                work.nice.to_string(),
            ],
        )?;
        let address = process.hear()?;
        if let Some(why) = address.strip_prefix(REFUSED) {
            return Ok(Err(why.to_owned()));
        }
        let connect = |_| {
            Ok(match work.transport {
                Transport::Unix => Line::Bare(Box::new(connect_unix(&address)?)),
                Transport::BareTcp => {
                    let stream = TcpStream::connect(&address).context("connecting")?;
                    stream.set_nodelay(true).context("setting TCP_NODELAY")?;
                    Line::Bare(Box::new(stream))
                }
                Transport::Shm | Transport::Tcp => Line::Node(Box::new(Caller::meet(&address)?)),
            })
        };
        let lines = (0..work.pairs).map(connect).collect::<anyhow::Result<_>>()?;
        Ok(Ok(Self { lines, _process: process }))
    }
}

/// Prefix of the line that replaces the address if the process cannot get its scheduling class.
pub(super) const REFUSED: &str = "refused: ";

fn name_of_process(process: u32) -> String {
    format!("pronto-expedite-{process}")
}

fn connect_unix(address: &str) -> anyhow::Result<UnixStream> {
    let address = SocketAddr::from_abstract_name(address).context("invalid socket name")?;
    UnixStream::connect_addr(&address).context("connecting")
}

/// Serves bare sockets until the parent ends this process.
pub(super) fn serve(work: &Work) -> anyhow::Result<()> {
    let class = work.setting.class();
    let tried = thread::spawn(move || schedule(CALLER, class)).join();
    if let Err(errno) = tried.expect("a system call does not panic") {
        child::say(&format!("{REFUSED}{errno}"))?;
        return Ok(());
    }
    // Flags last as long as the device is open.
    let device = match work.setting {
        Setting::Module => Some(Device::open()?),
        _ => None,
    };
    let flag = |index: usize, socket: BorrowedFd<'_>| match &device {
        Some(device) if index < work.flagged => device.flag(socket, Flag::default()).context("flagging"),
        _ => Ok(()),
    };
    let scheduler = match (work.setting == Setting::Scx).then(Scheduler::connect).transpose() {
        Ok(scheduler) => scheduler,
        Err(why) => {
            child::say(&format!("{REFUSED}{why}"))?;
            return Ok(());
        }
    };
    thread::scope(|scope| {
        let start = |index: usize, stream: Box<dyn Stream>| {
            flag(index, stream.as_fd())?;
            let has_setting = index < work.flagged;
            let scheduler = scheduler.as_ref().filter(|_| has_setting);
            scope.spawn(move || handle(work, has_setting, scheduler, stream));
            anyhow::Ok(())
        };
        match work.transport {
            Transport::Unix => {
                let name = name_of_process(std::process::id());
                let address = SocketAddr::from_abstract_name(&name).context("invalid socket name")?;
                let listener = UnixListener::bind_addr(&address).context("listening")?;
                child::say(&name)?;
                for index in 0..work.pairs {
                    start(index, Box::new(listener.accept().context("accepting")?.0))?;
                }
            }
            _ => {
                let listener = TcpListener::bind("127.0.0.1:0").context("listening")?;
                child::say(&listener.local_addr().context("reading the listening address")?.to_string())?;
                for index in 0..work.pairs {
                    let (stream, _) = listener.accept().context("accepting")?;
                    stream.set_nodelay(true).context("setting TCP_NODELAY")?;
                    start(index, Box::new(stream))?;
                }
            }
        }
        Ok(())
    })
}

/// Replies until the connection ends.
fn handle(
    work: &Work,
    has_setting: bool,
    scheduler: Option<&Scheduler>,
    mut stream: Box<dyn Stream>,
) -> anyhow::Result<()> {
    set_nice(work.nice)?;
    if let Some(scheduler) = scheduler {
        scheduler.flag_this_thread().context("flagging a handler")?;
    }
    if has_setting {
        schedule(CALLER, work.setting.class()).context("scheduling a handler")?;
    }
    let mut message = [0; BYTES];
    while stream.read_exact(&mut message).is_ok() {
        message[..8].copy_from_slice(&clock::shared_ns().to_le_bytes());
        stream.write_all(&message).context("replying")?;
        compute(work.extra);
    }
    Ok(())
}

/// Computes until the calling thread has run for `extra`.
pub(super) fn compute(extra: Duration) {
    if extra.is_zero() {
        return;
    }
    let end = clock::thread_ns() + clock::nanos(extra);
    while clock::thread_ns() < end {
        black_box(fibonacci(black_box(10)));
    }
}
