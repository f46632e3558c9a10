//! The messages of the ledger, and the server process that executes them.

use core::time::Duration;
use std::fs::{File, OpenOptions};
use std::sync::Arc;

use pronto::{Limits, Message, Nanos, Payload};

use super::books::{NAMELESS, append};
use crate::child::{command, report};
use crate::rig::{pause, server};

/// Liveness limit of both sides.
pub(super) const LIVENESS: Duration = Duration::from_millis(600);

/// Limits that both sides grant each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Windows {
    /// The default limits, more than four threads use.
    Wide,
    /// Fewer call slots than the threads use, and fewer credits than calls: after a resumption some requests must wait for room.
    Full,
    /// One call slot and one credit.
    Single,
}

impl Windows {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Wide => "wide",
            Self::Full => "full",
            Self::Single => "single",
        }
    }

    fn parse(name: &str) -> Self {
        *[Self::Wide, Self::Full, Self::Single].iter().find(|windows| windows.name() == name).unwrap()
    }

    pub(super) fn limits(self) -> Limits {
        let limits = Limits::default().with_liveness(Some(Nanos::from_millis(600)), None);
        match self {
            Self::Wide => limits,
            Self::Full => Limits { calls: 8, requests: [2, 2], ..limits },
            Self::Single => Limits { calls: 1, requests: [1, 1], ..limits },
        }
    }
}

/// Action of the handler after it has written the id to the log.
#[derive(Payload, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum React {
    Reply,
    /// Returns a handler error. A deferred handler drops its responder instead.
    Fail,
}

#[derive(Payload, Clone, Debug)]
pub(super) struct Entry {
    pub(super) id: u64,
    pub(super) react: React,
    /// Execution time after the id is in the log, in microseconds. Only handlers on the pool use it.
    pub(super) duration_us: u32,
    /// Bytes of the reply's body.
    pub(super) reply: u32,
    pub(super) body: Vec<u8>,
}

/// Bytes of an entry without its body.
pub(super) const ENTRY: usize = 8 + 1 + 4 + 4 + 4;

#[derive(Message, Debug)]
#[message(name = "faults.ledger.receipt")]
pub(super) struct Receipt {
    pub(super) id: u64,
    pub(super) body: Vec<u8>,
}

/// A receipt of the bulk class.
#[derive(Message, Debug)]
#[message(name = "faults.ledger.crossed-receipt", class = bulk)]
pub(super) struct CrossedReceipt {
    id: u64,
    body: Vec<u8>,
}

impl From<CrossedReceipt> for Receipt {
    fn from(CrossedReceipt { id, body }: CrossedReceipt) -> Self {
        Self { id, body }
    }
}

#[derive(Message, Debug)]
#[message(name = "faults.ledger.inline", reply = Receipt)]
pub(super) struct Inline {
    pub(super) entry: Entry,
}

#[derive(Message, Debug)]
#[message(name = "faults.ledger.pooled", reply = Receipt)]
pub(super) struct Pooled {
    pub(super) entry: Entry,
}

#[derive(Message, Debug)]
#[message(name = "faults.ledger.deferred", reply = Receipt)]
pub(super) struct Deferred {
    pub(super) entry: Entry,
}

#[derive(Message, Debug)]
#[message(name = "faults.ledger.bulk", reply = Receipt, class = bulk)]
pub(super) struct Bulk {
    pub(super) entry: Entry,
}

/// A request whose reply has the other class, so that the credit may return long before the reply.
#[derive(Message, Debug)]
#[message(name = "faults.ledger.crossed", reply = CrossedReceipt)]
pub(super) struct Crossed {
    pub(super) entry: Entry,
}

/// A request without a payload.
#[derive(Message, Debug)]
#[message(name = "faults.ledger.empty", reply = Receipt)]
pub(super) struct Empty {}

/// The byte that fills the body of an entry.
#[expect(clippy::cast_possible_truncation, reason = "any byte that differs between calls")]
pub(super) const fn fill(id: u64) -> u8 {
    (id ^ id >> 8 ^ id >> 40) as u8
}

/// Executes an entry: writes the log first, then does everything else.
fn executed(log: &File, entry: &Entry) -> Result<Receipt, u32> {
    append(log, entry.id);
    assert!(
        entry.body.iter().all(|byte| *byte == fill(entry.id)),
        "the body of {:#x} arrived damaged",
        entry.id
    );
    match entry.react {
        React::Reply => {
            Ok(Receipt { id: entry.id, body: vec![fill(entry.id); usize::try_from(entry.reply).unwrap()] })
        }
        React::Fail => Err(7),
    }
}

fn executed_for_a_while(log: &File, entry: &Entry) -> Result<Receipt, u32> {
    let outcome = executed(log, entry);
    if entry.duration_us > 0 {
        pause(Duration::from_micros(entry.duration_us.into()));
    }
    outcome
}

/// Runs the server in a child process: `LISTEN LOG WINDOWS`.
pub(crate) fn serve(arguments: &[&str]) {
    let log = Arc::new(OpenOptions::new().append(true).open(arguments[1]).unwrap());
    let logs = [(); 6].map(|()| Arc::clone(&log));
    let [inline, pooled, deferred, bulk, crossed, empty] = logs;
    let node = server(1, arguments[0])
        .limits(Windows::parse(arguments[2]).limits())
        .handle_inline(move |_, Inline { entry }| executed(&inline, &entry))
        .handle(move |_, Pooled { entry }| executed_for_a_while(&pooled, &entry))
        .handle_deferred(move |_, Deferred { entry }, responder| match executed(&deferred, &entry) {
            Ok(receipt) => responder.reply(&receipt),
            Err(_) => drop(responder),
        })
        .handle(move |_, Crossed { entry }| {
            executed_for_a_while(&crossed, &entry).map(|Receipt { id, body }| CrossedReceipt { id, body })
        })
        .handle(move |_, Bulk { entry }| executed_for_a_while(&bulk, &entry))
        .handle_inline(move |_, Empty {}| {
            append(&empty, NAMELESS);
            Receipt { id: NAMELESS, body: Vec::new() }
        })
        .start()
        .unwrap();
    report(&format!("listening {}", node.listening()[0]));
    while !command().is_empty() {}
}
