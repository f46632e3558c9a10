//! One calling thread of the ledger. Every call has its own id and one line in the thread's record.

use core::time::Duration;
use std::sync::Arc;

use pronto::rpc::codec::encode_message;
use pronto::{CallError, DEFAULT_TIMEOUT, Executed, Peer, Pending, Region, Request, WaitPolicy};
use pronto_sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::books::{Claim, Line, NAMELESS, claim, id};
use super::server::{
    Bulk, Crossed, Deferred, ENTRY, Empty, Entry, Inline, Pooled, React, Receipt, damage, fill,
};
use crate::rig::Watch;

/// Maximum number of started calls that a thread leaves open.
const BATCH: u64 = 5;
/// Maximum payload in bytes.
const LONGEST: u64 = 60 << 10;
/// Additional time for a busy machine.
const GRACE: Duration = Duration::from_secs(10);
/// Deadline of most calls, which expires only while the server is stopped.
const FAR: Duration = Duration::from_secs(2);
/// Time after which a call counts as hanging. A call waits for room until its deadline, and then for its end as long again. The calls of a
/// batch are waited for one after the other, and a call by reference has the default deadline.
pub(super) const LONGEST_CALL: Duration = {
    assert!(
        2 * FAR.as_secs() <= DEFAULT_TIMEOUT.as_secs() && BATCH * FAR.as_secs() <= DEFAULT_TIMEOUT.as_secs()
    );
    Duration::from_secs(DEFAULT_TIMEOUT.as_secs() + GRACE.as_secs())
};

/// Seeded pseudorandom numbers: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number below `bound`.
    pub(super) const fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Counters of a caller, shared with the driver.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Calls that have started, and calls that have ended.
    pub(super) begun: AtomicU64,
    pub(super) ended: AtomicU64,
    pub(super) replies: AtomicU64,
    /// Calls that were refused because the windows were full.
    pub(super) no_room: AtomicU64,
    /// Set by the driver.
    pub(super) stop: AtomicBool,
}

/// Message types of the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mix {
    /// Only types whose reply has the class of the request.
    Straight,
    /// All types.
    Crossed,
}

impl Mix {
    const fn kinds(self) -> u64 {
        match self {
            Self::Straight => 5,
            Self::Crossed => 6,
        }
    }
}

/// A calling thread.
pub(super) struct Caller {
    thread: usize,
    peer: Peer,
    mix: Mix,
    random: Random,
    clock: Arc<Watch>,
    progress: Arc<Progress>,
    /// Pause after a call that was refused.
    after_refusal: Duration,
    lines: Vec<Line>,
}

/// A call that was started and has not ended.
enum Open {
    Inline(Pending<Inline>),
    Pooled(Pending<Pooled>),
    Deferred(Pending<Deferred>),
    Bulk(Pending<Bulk>),
    Crossed(Pending<Crossed>),
}

/// Applies one action to each message type.
macro_rules! each {
    ($open:expr, $pending:ident => $action:expr) => {
        match $open {
            Open::Inline($pending) => $action,
            Open::Pooled($pending) => $action,
            Open::Deferred($pending) => $action,
            Open::Bulk($pending) => $action,
            Open::Crossed($pending) => $action,
        }
    };
}

impl Caller {
    pub(super) fn new(
        thread: usize,
        peer: &Peer,
        mix: Mix,
        random: Random,
        clock: &Arc<Watch>,
        progress: &Arc<Progress>,
        after_refusal: Duration,
    ) -> Self {
        // Covers threads that sleep immediately and threads that poll first.
        let policy = if thread == 0 { WaitPolicy::Adaptive } else { WaitPolicy::Block };
        let (clock, progress) = (Arc::clone(clock), Arc::clone(progress));
        let peer = peer.waiting(policy);
        Self { thread, peer, mix, random, clock, progress, after_refusal, lines: Vec::new() }
    }

    /// Makes calls until the driver stops it. Returns one line for each call.
    pub(super) fn run(mut self) -> Vec<Line> {
        // SYNC: a stop flag; orders nothing.
        while !self.progress.stop.load(Ordering::Relaxed) {
            match self.random.below(32) {
                0 => self.empty(),
                1 => self.by_reference(),
                2..=9 => self.batch(),
                _ => self.one(),
            }
        }
        self.lines
    }

    fn now(&self) -> u32 {
        u32::try_from(self.clock.passed().as_millis()).unwrap()
    }

    /// Opens a line, with an invalid end.
    fn begin(&mut self, id: u64, way: &'static str, len: usize) -> usize {
        let (len, now) = (u32::try_from(len).unwrap(), self.now());
        self.lines.push(Line { id, claim: Claim::Reply, end: "open", way, len, span: [now, now] });
        self.progress.begun.fetch_add(1, Ordering::Relaxed);
        self.lines.len() - 1
    }

    /// Records the end of the call in line `at`, once.
    fn end(&mut self, at: usize, react: React, end: &Result<Receipt, CallError>) {
        let now = self.now();
        let line = &mut self.lines[at];
        assert_eq!(line.end, "open", "{:#x} ended twice", line.id);
        (line.claim, line.end) = claim(end);
        line.span[1] = now;
        let took = Duration::from_millis((now - line.span[0]).into());
        assert!(took < LONGEST_CALL, "{line:?} took {took:?}");
        match end {
            Ok(receipt) => {
                assert_eq!((receipt.id, react), (line.id, React::Reply), "the reply of another call");
                assert_eq!(
                    damage(&receipt.body, fill(line.id)),
                    None,
                    "the reply to {:#x} is damaged",
                    line.id
                );
                self.progress.replies.fetch_add(1, Ordering::Relaxed);
            }
            Err(CallError::Handler(error)) => {
                assert_eq!(
                    (error.decode::<u32>(), react),
                    (Ok(7), React::Fail),
                    "the failure of another call"
                );
            }
            Err(CallError::MalformedReply(_)) => panic!("{line:?}: {end:?}"),
            Err(CallError::Rejected(pronto::CallRejection::Here(refused))) => {
                if refused.ends_by_messages() {
                    self.progress.no_room.fetch_add(1, Ordering::Relaxed);
                }
                // Without a link or room, another attempt would be refused immediately.
                std::thread::park_timeout(self.after_refusal);
            }
            Err(_) => {}
        }
        self.progress.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the next entry, with sizes around the limits of each payload path.
    fn entry(&mut self) -> Entry {
        let id = id(self.thread, self.lines.len());
        let random = &mut self.random;
        let body = match random.below(16) {
            0 | 1 => 0,
            2..=6 => random.below(41 - ENTRY as u64),
            7..=10 => random.below(233 - ENTRY as u64),
            11..=13 => random.below(4096),
            _ => random.below(LONGEST - ENTRY as u64),
        };
        let react = if random.below(8) == 0 { React::Fail } else { React::Reply };
        let duration_us = if random.below(4) == 0 { random.below(3_000) } else { 0 };
        let reply = match random.below(8) {
            0..=4 => random.below(28),
            5 | 6 => random.below(232),
            _ => random.below(LONGEST),
        };
        let (duration_us, reply) = (u32::try_from(duration_us).unwrap(), u32::try_from(reply).unwrap());
        Entry { id, react, duration_us, reply, body: vec![fill(id); usize::try_from(body).unwrap()] }
    }

    /// Returns a deadline: far away, or so close that it expires before sending, in flight, or at the server.
    fn deadline(&mut self) -> Duration {
        match self.random.below(8) {
            0 => Duration::from_micros(self.random.below(500)),
            1 => Duration::from_millis(1 + self.random.below(40)),
            2 => Duration::from_millis(100 + self.random.below(900)),
            _ => FAR,
        }
    }

    fn one(&mut self) {
        let (entry, timeout) = (self.entry(), self.deadline());
        match self.random.below(self.mix.kinds()) {
            0 | 1 => self.call("call inline", Inline { entry: entry.clone() }, &entry, timeout),
            2 => self.call("call pooled", Pooled { entry: entry.clone() }, &entry, timeout),
            3 => self.call("call deferred", Deferred { entry: entry.clone() }, &entry, timeout),
            4 => self.call("call bulk", Bulk { entry: entry.clone() }, &entry, timeout),
            _ => self.call("call crossed", Crossed { entry: entry.clone() }, &entry, timeout),
        }
    }

    fn call<M: Request<Reply: Into<Receipt>>>(
        &mut self,
        way: &'static str,
        request: M,
        entry: &Entry,
        timeout: Duration,
    ) {
        let at = self.begin(entry.id, way, ENTRY + entry.body.len());
        let end = self.peer.call_within(&request, timeout).map(Into::into);
        self.end(at, entry.react, &end);
    }

    fn empty(&mut self) {
        let (at, timeout) = (self.begin(NAMELESS, "call empty", 0), self.deadline());
        let end = self.peer.call_within(&Empty {}, timeout);
        self.end(at, React::Reply, &end);
    }

    /// Makes a call whose request is encoded in a region.
    fn by_reference(&mut self) {
        let entry = self.entry();
        let len = ENTRY + entry.body.len();
        let at = self.begin(entry.id, "by reference", len);
        let mut bytes = vec![0; len];
        let react = entry.react;
        assert_eq!(encode_message(&Bulk { entry }, &mut bytes), Ok(len));
        let region: Region = pronto::region(len).unwrap();
        region.write(0, &bytes).unwrap();
        let started = self.peer.start_from::<Bulk>(&region, 0..len as u64);
        let end = started.and_then(Pending::wait);
        self.end(at, react, &end);
    }

    /// Starts several calls before any of them is waited for, polled or dropped.
    fn batch(&mut self) {
        let mut open = Vec::new();
        for _ in 0..1 + self.random.below(BATCH) {
            let (entry, timeout) = (self.entry(), self.deadline());
            let (react, len) = (entry.react, ENTRY + entry.body.len());
            let peer = self.peer.clone();
            let at = self.begin(entry.id, "start", len);
            let started = match self.random.below(self.mix.kinds()) {
                0 | 1 => peer.start_within(&Inline { entry }, timeout).map(Open::Inline),
                2 => peer.start_within(&Pooled { entry }, timeout).map(Open::Pooled),
                3 => peer.start_within(&Deferred { entry }, timeout).map(Open::Deferred),
                4 => peer.start_within(&Bulk { entry }, timeout).map(Open::Bulk),
                _ => peer.start_within(&Crossed { entry }, timeout).map(Open::Crossed),
            };
            match started {
                Ok(pending) => open.push((at, react, pending)),
                Err(refused) => self.end(at, react, &Err(refused)),
            }
        }
        for (at, react, pending) in open {
            let (way, end) = match self.random.below(8) {
                0 => {
                    drop(pending);
                    ("start, drop", Err(CallError::Cancelled { executed: Executed::Maybe }))
                }
                1 => ("start, cancel", Err(each!(pending, pending => pending.cancel()))),
                2 => ("start, poll, wait", each!(pending, pending => self.polled(pending))),
                _ => ("start, wait", each!(pending, pending => waited(pending))),
            };
            self.lines[at].way = way;
            self.end(at, react, &end);
        }
    }

    /// Polls several times, then waits. An end that was returned does not occur again.
    fn polled<M: Request<Reply: Into<Receipt>>>(
        &mut self,
        mut pending: Pending<M>,
    ) -> Result<Receipt, CallError> {
        for _ in 0..self.random.below(20) {
            if let Some(end) = pending.poll() {
                assert!(pending.poll().is_none(), "a call ended twice");
                return end.map(Into::into);
            }
            std::thread::yield_now();
        }
        pending.wait().map(Into::into)
    }
}

fn waited<M: Request<Reply: Into<Receipt>>>(pending: Pending<M>) -> Result<Receipt, CallError> {
    pending.wait().map(Into::into)
}
