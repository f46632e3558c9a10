//! The messages of the ledger, and the handlers that execute them.

use core::time::Duration;
use std::fs::File;
use std::sync::Arc;

use pronto::{Builder, Message, Payload};

use super::books::{NAMELESS, append};
use crate::rig::pause;

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
pub(crate) const fn fill(id: u64) -> u8 {
    (id ^ id >> 8 ^ id >> 40) as u8
}

/// Describes the first run of bytes of a body that are not `fill`, or returns `None` if there is none. Its offset, length and value show
/// where the bytes came from: a page of zeros was reclaimed, a run of another value belongs to another call.
pub(super) fn damage(body: &[u8], fill: u8) -> Option<String> {
    let first = body.iter().position(|byte| *byte != fill)?;
    let found = body[first];
    let run = body[first..].iter().take_while(|byte| **byte == found).count();
    let wrong = body.iter().filter(|byte| **byte != fill).count();
    let len = body.len();
    Some(format!("{wrong} of {len} bytes are not {fill:#04x}; from byte {first} on, {run} are {found:#04x}"))
}

/// Executes an entry: writes the log first, then does everything else.
fn executed(log: &File, entry: &Entry) -> Result<Receipt, u32> {
    append(log, entry.id);
    if let Some(damage) = damage(&entry.body, fill(entry.id)) {
        panic!("the body of {:#x} arrived damaged: {damage}", entry.id);
    }
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

/// Adds the ledger's handlers to a node. They write each id to `log`.
pub(super) fn handlers(node: Builder, log: File) -> Builder {
    let log = Arc::new(log);
    let logs = [(); 6].map(|()| Arc::clone(&log));
    let [inline, pooled, deferred, bulk, crossed, empty] = logs;
    node.handle_inline(move |_, Inline { entry }| executed(&inline, &entry))
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
}
