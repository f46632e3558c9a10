//! The process of the peers. One thread drives all of them; each has a session of its own and shares no node.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use anyhow::Context as _;
use pronto_core::Nanos;
use pronto_core::session::{Authenticated, Identity, Limits, Links, Session, agree, greet};
use pronto_fabric_tcp::{Handshake, Options, ReceivePool, TcpQueuePair};
use pronto_rpc::{Peer, Pending};
use pronto_wire::greeting::MAX_GREETING;
use pronto_wire::{Class, Epoch, Greeting, NodeId};

use super::{DONE, FIRST, PATIENCE, SHARE, UP, many_descriptors};
use crate::child;
use crate::clock;
use crate::echo::{Ask32, AskMany, LIVENESS, SERVER};
use crate::pair::{Nobody, Still};
use crate::side::{Arguments, Side};

/// The child with many peers.
pub(crate) const PEERS: Side =
    Side { name: "serve-many-peers", arguments: &["address", "count"], more: None, run: serve };

/// Descriptors other than those of the sessions, in either process.
const OTHERS: u64 = 100;
/// Number of threads that make links at the beginning.
const DIALLERS: usize = 4;
/// Time between two passes over all sessions, in which they send the heartbeats that are due.
const TICK: Duration = Duration::from_millis(250);
/// Number of calls that each sender keeps open.
const WINDOW: usize = 8;
/// Budget of the receive buffers that all peers share, bytes.
const POOL: usize = 64 << 20;

/// One peer.
struct Light {
    session: Arc<Session<TcpQueuePair>>,
    server: Peer<Still<TcpQueuePair>>,
    /// Time of its last tick.
    ticked: Nanos,
    /// Time when it needs the next one if nothing happens before.
    next_due: Nanos,
}

/// All peers.
struct Many {
    host: Arc<Still<TcpQueuePair>>,
    all: Vec<Light>,
    begun: Instant,
    ticked: Instant,
}

/// Connects the peers, and does what the parent asks for, until the parent ends this process.
fn serve(arguments: &Arguments<'_>) -> anyhow::Result<()> {
    let (limit, count) = (many_descriptors()?, arguments.get::<u16>("count")?);
    let needed = 2 * u64::from(count) + OTHERS;
    anyhow::ensure!(
        limit >= needed,
        "{count} sessions need {needed} descriptors, and this process may have {limit}: raise the limit (ulimit -Hn)"
    );
    let address = arguments.text("address")?.trim_start_matches("tcp:").parse().context("an address")?;
    let mut many = Many::connect(address, count)?;
    child::say(UP)?;
    let (lines, asked) = mpsc::channel();
    // A separate thread waits for lines, because the peers send heartbeats meanwhile.
    thread::spawn(move || {
        while let Ok(Some(line)) = child::listen() {
            if lines.send(line).is_err() {
                return;
            }
        }
    });
    loop {
        match asked.recv_timeout(TICK) {
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Ok(line) => many.obey(&line)?,
        }
        many.tick_all();
    }
}

impl Many {
    fn connect(address: SocketAddr, count: u16) -> anyhow::Result<Self> {
        let host = Arc::new(Still::alone());
        let pool = ReceivePool::new(POOL).context("receive buffers")?;
        let ids = Mutex::new(FIRST..FIRST + count);
        let next = || ids.lock().expect("no holder panics").next();
        let dial = || {
            let dialled = core::iter::from_fn(next).map(|id| {
                Light::dial(address, id, &pool, &host).with_context(|| format!("connecting peer {id}"))
            });
            dialled.collect::<anyhow::Result<Vec<_>>>()
        };
        let all = thread::scope(|threads| {
            let diallers: Vec<_> = (0..DIALLERS).map(|_| threads.spawn(dial)).collect();
            let all = diallers.into_iter().map(|dialler| dialler.join().expect("a dialler does not panic"));
            all.collect::<anyhow::Result<Vec<_>>>()
        })?;
        let now = clock::now();
        Ok(Self { host, all: all.into_iter().flatten().collect(), begun: now, ticked: now })
    }

    fn obey(&mut self, line: &str) -> anyhow::Result<()> {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["exchange"] => {
                for number in 0..self.all.len() {
                    self.exchange(number)?;
                    self.tick_if_due();
                }
                child::say(DONE)
            }
            ["call", senders, ms] => {
                let (senders, ms) = (senders.parse()?, ms.parse().map(Duration::from_millis)?);
                child::say(&self.call(senders, ms)?.to_string())
            }
            _ => anyhow::bail!("the parent asks for {line:?}"),
        }
    }

    /// One peer sends 1 MiB and receives it back.
    fn exchange(&self, number: usize) -> anyhow::Result<()> {
        let ask = AskMany { bytes: vec![7; SHARE - size_of::<u32>()] };
        let mut pending = self.all[number].server.start(&ask).context("a call of 1 MiB")?;
        let begun = clock::now();
        loop {
            if let Some(echo) = pending.poll() {
                anyhow::ensure!(
                    echo.context("a call of 1 MiB")?.bytes == ask.bytes,
                    "an echo differs from what was sent"
                );
                return Ok(());
            }
            anyhow::ensure!(begun.elapsed() < PATIENCE, "a call of 1 MiB got no reply");
            thread::yield_now();
        }
    }

    /// The first `senders` peers keep [`WINDOW`] calls of 32 bytes open for about `span`. Returns the number of calls per second.
    fn call(&mut self, senders: usize, span: Duration) -> anyhow::Result<f64> {
        type Open = VecDeque<Pending<Ask32, Still<TcpQueuePair>>>;
        let mut open: Vec<Open> = (0..senders).map(|_| VecDeque::with_capacity(WINDOW)).collect();
        let begun = clock::now();
        let mut calls = 0_u64;
        while begun.elapsed() < span {
            for (open, peer) in open.iter_mut().zip(&self.all) {
                let mut ended = 0;
                while let Some(reply) = open.front_mut().and_then(Pending::poll) {
                    reply.context("a call of 32 bytes")?;
                    open.pop_front();
                    ended += 1;
                }
                calls += ended;
                if open.len() < WINDOW {
                    let _together = peer.server.together();
                    while open.len() < WINDOW {
                        open.push_back(peer.server.start(&Ask32 { bytes: [7; 32] })?);
                    }
                }
            }
            self.tick_if_due();
        }
        let took = begun.elapsed();
        for pending in open.iter_mut().flatten() {
            let ends = clock::now();
            while pending.poll().is_none() {
                anyhow::ensure!(ends.elapsed() < PATIENCE, "a call of 32 bytes got no reply");
            }
        }
        Ok(calls as f64 / took.as_secs_f64())
    }

    fn tick_if_due(&mut self) {
        if self.ticked.elapsed() >= TICK {
            self.tick_all();
        }
    }

    /// Makes a turn of each session, and ticks those in which something happens or is due, as a node does.
    fn tick_all(&mut self) {
        self.ticked = clock::now();
        let now = nanos(self.begun.elapsed());
        for Light { session, ticked, next_due, .. } in &mut self.all {
            let progress = session.turn(1, || false, &mut Nobody, &*self.host);
            let is_idle = progress.is_none_or(|progress| progress.moved == 0) && session.open_calls() == 0;
            if is_idle && now < *next_due {
                continue;
            }
            let slept = now.since(*ticked);
            if let Some(tick) = session.tick(now, slept, &mut Nobody, &*self.host) {
                (*ticked, *next_due) = (now, tick.next_due);
            }
        }
    }
}

impl Light {
    fn dial(
        address: SocketAddr,
        id: u16,
        pool: &Arc<ReceivePool>,
        host: &Arc<Still<TcpQueuePair>>,
    ) -> anyhow::Result<Self> {
        let me =
            Identity { node: NodeId(id), epoch: Epoch(id.into()), name: String::new(), types: Vec::new() };
        let limits = Limits::default().with_liveness(Some(nanos(LIVENESS)), None);
        let mut handshake = Handshake::dial(address, PATIENCE, Options::default())?;
        handshake.send(&greet(&me, &limits, NodeId(SERVER), None).encode())?;
        let theirs = Greeting::decode(&handshake.receive(MAX_GREETING)?)?;
        let number = theirs.session.context("the answer names no session")?;
        let agreement = agree(&me, &limits, Authenticated::claimed(theirs), number, None)?;
        let link = handshake.establish(Class::ALL.map(|class| agreement.connection(class)), pool)?;
        let session = Arc::new(Session::new(NodeId(SERVER), limits));
        session.install(Links { pairs: [link.control, link.bulk], agreement }, &mut Nobody, &**host);
        let server = Peer::new(Arc::clone(&session), Arc::clone(host));
        Ok(Self { server, session, ticked: Nanos::ZERO, next_due: Nanos::ZERO })
    }
}

fn nanos(span: Duration) -> Nanos {
    Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}
