//! The records of a ledger run: how each call ended, how often the server executed it, and where the two disagree.

use core::fmt;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};

use pronto::{CallError, Executed};

/// Bytes of a record in the log: the id, and its complement, which reveals an incomplete record.
pub(crate) const RECORD: usize = 16;

/// The common id of all calls without a payload, which cannot be distinguished.
pub(super) const NAMELESS: u64 = u64::MAX;

/// Returns the id of call `number` of a thread.
pub(crate) const fn id(thread: usize, number: usize) -> u64 {
    (thread as u64) << 40 | number as u64
}

/// Appends an id to the log. The log is open for appending, so one write(2) makes one record.
pub(crate) fn append(mut log: &File, id: u64) {
    let mut record = [0; RECORD];
    record[..8].copy_from_slice(&id.to_le_bytes());
    record[8..].copy_from_slice(&(!id).to_le_bytes());
    assert_eq!(log.write(&record).unwrap(), RECORD, "a record must be appended completely");
}

/// Claim of a call's end about its execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    Reply,
    Yes,
    No,
    Maybe,
}

impl Claim {
    const fn allows(self, executions: u32) -> bool {
        match self {
            Self::Reply | Self::Yes => executions == 1,
            Self::No => executions == 0,
            Self::Maybe => executions <= 1,
        }
    }
}

/// One call, from its start to its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(super) id: u64,
    pub(super) claim: Claim,
    /// The kind of the end.
    pub(super) end: &'static str,
    /// How the call was made, and its message type.
    pub(super) way: &'static str,
    /// Bytes of the request.
    pub(super) len: u32,
    /// Times of start and end, in milliseconds since the run began.
    pub(super) span: [u32; 2],
}

/// Returns the claim of a call's end, and the kind of the end.
pub(super) fn claim<R>(end: &Result<R, CallError>) -> (Claim, &'static str) {
    let Err(error) = end else { return (Claim::Reply, "reply") };
    let claim = match error.executed() {
        Executed::Yes => Claim::Yes,
        Executed::No => Claim::No,
        Executed::Maybe => Claim::Maybe,
    };
    let kind = match error {
        CallError::Handler(_) => "handler error",
        CallError::NoReply(_) => "no reply",
        CallError::Deadline { .. } => "deadline",
        CallError::Cancelled { .. } => "cancelled",
        CallError::PeerDown { .. } => "peer down",
        CallError::Rejected(_) => "rejected",
        CallError::MalformedReply(_) => "malformed reply",
        _ => "unknown",
    };
    (claim, kind)
}

/// Numbers of calls by the claims of their ends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(super) calls: usize,
    pub(super) replies: usize,
    pub(super) yes: usize,
    pub(super) no: usize,
    pub(super) maybe: usize,
    /// Calls with the claim `Maybe` that ended because the peer went down.
    pub(super) maybe_down: usize,
}

impl Totals {
    fn of<'a>(lines: impl Iterator<Item = &'a Line>) -> Self {
        let mut totals = Self::default();
        for line in lines {
            totals.calls += 1;
            totals.maybe_down += usize::from(line.claim == Claim::Maybe && line.end == "peer down");
            *match line.claim {
                Claim::Reply => &mut totals.replies,
                Claim::Yes => &mut totals.yes,
                Claim::No => &mut totals.no,
                Claim::Maybe => &mut totals.maybe,
            } += 1;
        }
        totals
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { calls, replies, yes, no, maybe, maybe_down } = self;
        write!(f, "calls={calls} replies={replies} yes={yes} no={no} maybe={maybe} (peer down {maybe_down})")
    }
}

/// A call whose end does not match the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mismatch {
    pub(super) line: Line,
    pub(super) executions: u32,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Line { id, claim, end, way, len, span } = self.line;
        let (thread, number, times) = (id >> 40, id & 0xff_ffff_ffff, self.executions);
        write!(
            f,
            "id {thread}/{number}: {claim:?} ({end}), in the log {times} times; {way}, {len} B, {span:?} ms"
        )
    }
}

/// Compares the lines of all threads with the log. Line `n` of thread `t` has id `id(t, n)` unless it is nameless.
///
/// # Panics
/// If the log is incomplete, contains an unused id, or has a wrong number of nameless executions.
pub(super) fn compare(lines: &[Vec<Line>], log: &mut File) -> (Totals, Vec<Mismatch>) {
    let mut executions: Vec<Vec<u32>> = lines.iter().map(|lines| vec![0; lines.len()]).collect();
    let mut nameless = 0;
    let mut bytes = Vec::new();
    log.seek(SeekFrom::Start(0)).unwrap();
    log.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len() % RECORD, 0, "the log ends with an incomplete record");
    for record in bytes.chunks_exact(RECORD) {
        let half = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().unwrap());
        let id = half(0);
        assert_eq!(half(8), !id, "a record is incomplete");
        if id == NAMELESS {
            nameless += 1;
            continue;
        }
        let (thread, number) =
            (usize::try_from(id >> 40).unwrap(), usize::try_from(id & 0xff_ffff_ffff).unwrap());
        let count = executions.get_mut(thread).and_then(|counts| counts.get_mut(number));
        *count.unwrap_or_else(|| panic!("id {thread}/{number} was executed, but never called")) += 1;
    }
    let all = || lines.iter().flatten();
    let Totals { replies, yes, maybe, .. } = Totals::of(all().filter(|line| line.id == NAMELESS));
    assert!(
        (replies + yes..=replies + yes + maybe).contains(&nameless),
        "{nameless} nameless executions: {replies} replies, {yes} yes, {maybe} maybe"
    );
    let counted = lines.iter().zip(&executions).flat_map(|(lines, counts)| lines.iter().zip(counts));
    let wrong = counted.filter(|(line, times)| line.id != NAMELESS && !line.claim.allows(**times));
    let mismatches =
        wrong.map(|(line, executions)| Mismatch { line: *line, executions: *executions }).collect();
    (Totals::of(all()), mismatches)
}

/// Checks that the comparison detects each disagreement.
#[test]
fn disagreements_with_the_log_are_detected() {
    let memory = nix::sys::memfd::memfd_create("books", nix::sys::memfd::MFdFlags::MFD_CLOEXEC).unwrap();
    let mut log = File::from(memory);
    let claims = [Claim::Reply, Claim::Yes, Claim::No, Claim::Maybe];
    let line = |number| Line {
        id: id(0, number),
        claim: claims[number % 4],
        end: "",
        way: "",
        len: 0,
        span: [0, 0],
    };
    // Each claim occurs with no execution, then with one, then with two.
    let lines: Vec<Line> = (0..12).map(line).collect();
    for number in 0..12 {
        (0..number / 4).for_each(|_| append(&log, id(0, number)));
    }
    let (totals, mismatches) = compare(&[lines], &mut log);
    assert_eq!((totals.calls, totals.replies, totals.maybe), (12, 3, 3));
    let wrong: Vec<_> = mismatches.iter().map(|mismatch| mismatch.line.id).collect();
    assert_eq!(wrong, [0, 1, 6, 8, 9, 10, 11]);
}
