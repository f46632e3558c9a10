//! `straggler`: the effect of one buffer that is not released on a stream through the send ring.

use std::collections::VecDeque;
use std::sync::Arc;

use pronto_core::Nanos;
use pronto_core::buf::{Frame, Placement as Where, RingConfig, SendRing, SlotClass};
use pronto_core::fabric::HeapSendMemory;

use crate::claim::Claim;
use crate::clock;
use crate::experiment::{Experiment, Run};
use crate::params::{Axis, Choice as _, choices};
use crate::placement::alone;
use crate::report::{Fields, Report, decimals};
use crate::sample::Recorder;

/// One thread, one ring of the default size, a window of buffers; with a straggler and without. The counts do not depend on the
/// machine.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "straggler",
    question: "What does one buffer that is held for long do to other sends?",
    takes: [15, 5],
    paper: Some("comm-layer"),
    figure: Some("3.2"),
    about: "effect of one held send buffer: a circular buffer with and without the paper's fallback, and chunks (ours)",
    axes: &[Axis::new("policy", "Only these", Policy::NAMES)],
    claims: &["K27", "K27-ours"],
    run,
    ..Experiment::DEFAULT
};

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let messages = if run.params.quick { QUICK_MESSAGES } else { MESSAGES };
    let policies = Policy::kept(run.params, "policy");
    run.progress.begin(2 * policies.len() as u64);
    let rows: Vec<Row> = alone(run.cpus.caller, || {
        let cases = policies.iter().flat_map(|policy| [(*policy, false), (*policy, true)]);
        cases
            .map(|(policy, held)| {
                run.progress.step(policy.name());
                Row::measure(policy, held, messages)
            })
            .collect()
    })?;
    let mut report = Report {
        params: Fields::default()
            .with("memory_mib", MEMORY >> 20)
            .with("payload_bytes", BYTES)
            .with("window", WINDOW)
            .with("messages", messages),
        claims: claims(&rows),
        rows: rows.iter().map(Row::fields).collect(),
        ..Report::default()
    };
    report
        .note("a temporary buffer is plain memory here; a transport that pins memory would also register it");
    Ok(report)
}

choices! {
    /// Behaviour when the ring has no room.
    enum Policy {
        /// A circular buffer; the message is refused.
        None = "none",
        /// A circular buffer; the message is composed in memory that is allocated for it, as in the paper.
        Paper = "paper",
        /// Chunks, of which a straggler takes one out; overflow slots behind them.
        Ours = "ours",
    }
}

impl Policy {
    fn ring(self) -> anyhow::Result<Arc<SendRing>> {
        let circular = RingConfig {
            overflow: RingConfig::default().overflow.map(|class| SlotClass { count: 0, ..class }),
            placement: Where::Circular,
            ..RingConfig::default()
        };
        let config = if self == Self::Ours { RingConfig::default() } else { circular };
        let ring = Arc::new(SendRing::new(Arc::new(HeapSendMemory::new(MEMORY)), config)?);
        ring.tick(Nanos(1));
        // Prepare every chunk, as in a circular buffer that is registered when it is created.
        let mut full: Vec<Frame> = Vec::new();
        while let Ok(loan) = Arc::clone(&ring).loan(config.chunk_bytes as usize, 0) {
            full.push(loan.finish());
            let Some(chunk) = ring.commit_next() else { break };
            ring.open(chunk);
        }
        anyhow::ensure!(full.len() > 1, "the ring has only one chunk: a straggler needs at least two");
        drop(full);
        Ok(ring)
    }
}

/// A message's buffer: in the ring, or temporary.
type Buffer = (Option<Frame>, Vec<u8>);

/// One row.
#[derive(Debug)]
struct Row {
    policy: Policy,
    held: bool,
    sent: u64,
    temporary: u64,
    refused: u64,
    seen: Recorder,
}

impl Row {
    /// Sends a stream of messages in order of completion, while a buffer allocated before the first one is held until after the last.
    fn measure(policy: Policy, held: bool, messages: u64) -> anyhow::Result<Self> {
        let ring = policy.ring()?;
        let straggler = held.then(|| Arc::clone(&ring).loan(BYTES, STRAGGLER)).transpose();
        let straggler = straggler.map_err(|_| anyhow::anyhow!("an empty ring has no room"))?;
        let mut row = Self { policy, held, sent: 0, temporary: 0, refused: 0, seen: Recorder::new() };
        let mut under_way: VecDeque<Buffer> = VecDeque::with_capacity(WINDOW);
        let mut seen = Recorder::new();
        for _ in 0..ROUNDS {
            seen.as_round(|seen| {
                for _ in 0..messages / ROUNDS / u64::from(BATCH) {
                    let before = clock::now();
                    for _ in 0..BATCH {
                        if under_way.len() == WINDOW {
                            drop(under_way.pop_front());
                        }
                        under_way.extend(row.compose(&ring));
                    }
                    let took = before.elapsed();
                    seen.record_batch(BATCH, took);
                    seen.record_single(took / BATCH);
                }
            });
        }
        drop(straggler);
        Ok(Self { seen, ..row })
    }

    /// Returns the next message's buffer, with the first byte of each page written.
    fn compose(&mut self, ring: &Arc<SendRing>) -> Option<Buffer> {
        let write = |bytes: &mut [u8]| bytes.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        let buffer = match Arc::clone(ring).loan(BYTES, 0) {
            Ok(mut loan) => {
                write(loan.as_mut_slice());
                (Some(loan.finish()), Vec::new())
            }
            Err(_) if self.policy == Policy::Paper => {
                self.temporary += 1;
                let mut bytes = vec![0; BYTES];
                write(&mut bytes);
                (None, bytes)
            }
            Err(_) => {
                self.refused += 1;
                return None;
            }
        };
        self.sent += 1;
        Some(buffer)
    }

    fn fields(&self) -> Fields {
        let sample = self.seen.sample();
        Fields::default()
            .with("policy", self.policy.name())
            .with("straggler", self.held)
            .with("sent", self.sent)
            .with("temporary", self.temporary)
            .with("refused", self.refused)
            .with("buffer_ns", decimals(sample.batch_ns, 1))
            .with("p99_ns", sample.p99_ns)
            .with_aa(&sample)
    }
}

/// Evaluates the counts, which do not depend on the machine.
fn claims(rows: &[Row]) -> Vec<Claim> {
    let held = |policy| rows.iter().find(|row| row.policy == policy && row.held);
    let paper = held(Policy::Paper).map(|row| {
        let detail = "number of temporary buffers";
        Claim::new("K27", detail, row.temporary, row.temporary > 0 && row.refused == 0)
    });
    let ours = held(Policy::Ours).map(|row| {
        let lost = row.temporary + row.refused;
        Claim::new("K27-ours", "number of such sends", lost, lost == 0).bar(0)
    });
    [paper, ours].into_iter().flatten().collect()
}

/// Send memory of a connection by default, bytes.
const MEMORY: usize = 32 << 20;
/// Length of a page with its header.
const BYTES: usize = 4096 + 64;
/// Number of messages under way.
const WINDOW: usize = 32;
/// Holder of the straggler, for the ring's report.
const STRAGGLER: u32 = 7;

/// Numbers of messages, at least ten times around the ring.
const MESSAGES: u64 = 1 << 20;
const QUICK_MESSAGES: u64 = 1 << 17;
/// Number of messages between two clock readings.
const BATCH: u32 = 64;
/// Number of parts of a stream; even ones are compared with odd ones.
const ROUNDS: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_straggler_stops_a_circular_buffer_and_not_ours() {
        let row = |policy, held| Row::measure(policy, held, QUICK_MESSAGES).unwrap();
        for policy in Policy::ALL {
            let free = row(*policy, false);
            assert_eq!((free.sent, free.temporary, free.refused), (QUICK_MESSAGES, 0, 0), "{policy:?}");
        }
        let [none, paper, ours] = [Policy::None, Policy::Paper, Policy::Ours].map(|policy| row(policy, true));
        assert!(none.refused > 0 && none.sent + none.refused == QUICK_MESSAGES, "{}", none.refused);
        assert!(paper.temporary > 0 && paper.sent == QUICK_MESSAGES);
        assert_eq!((ours.sent, ours.temporary, ours.refused), (QUICK_MESSAGES, 0, 0));
        assert!(claims(&[paper, ours]).iter().all(|claim| claim.holds()));
        // A circular buffer in which nothing gets stuck, and chunks that refuse.
        let [mut paper, mut ours] = [Policy::Paper, Policy::Ours].map(|policy| row(policy, false));
        (paper.held, ours.held, ours.refused) = (true, true, 1);
        assert!(claims(&[paper, ours]).iter().all(|claim| !claim.holds()));
    }
}
