//! `comm-fig3`: the share of a synchronous send that is spent on its buffer.

use core::time::Duration;

use anyhow::Context as _;
use pronto::rpc::Host as _;
use pronto::{Class, Peer, WaitPolicy};
use pronto_core::buf::RingConfig;
use pronto_core::session::Doorbells;

use crate::claim::Claim;
use crate::clock;
use crate::echo::Wait;
use crate::experiment::{Cpus, Experiment, Rounds, Run};
use crate::params::{Axis, numbers};
use crate::placement::alone;
use crate::rdma::VERBS;
use crate::rdma::over::{self, PROVIDER_HELP, PROVIDERS};
use crate::report::{Fields, Report, decimals};
use crate::sample::{Recorder, approximate};
use crate::traffic::drive::PATIENCE;
use crate::traffic::sends::polled;

/// Buffer allocations and sends of one size alternate over one connection.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "comm-fig3",
    question: "What share of a send goes to its buffer?",
    takes: [15, 4],
    paper: Some("comm-layer"),
    figure: Some("Fig. 3"),
    about: "share of a synchronous send spent on allocating and releasing its buffer",
    axes: &[
        Axis::new("provider", PROVIDER_HELP, &PROVIDERS),
        Axis::new("size", "Only these payload lengths, bytes", &SIZE_NAMES),
    ],
    cpus: Cpus::Two,
    // 14 rows take 14 s, or 3 s in a quick run.
    rounds: [Rounds::new(10, 100), Rounds::new(4, 40)],
    lab: over::lab,
    claims: &["K40", "K40-bar"],
    run,
    ..Experiment::DEFAULT
};

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let sizes = run.params.kept("size", SIZES, usize::to_string);
    let nodes = over::nodes(run.params)?;
    let all = over::all(run.params, nodes.as_ref());
    run.begin(all.len() * sizes.len());
    let mut rows = Vec::new();
    for over in all {
        let (provider, wait) = (over.name(), Wait(WaitPolicy::Spin));
        let receiver = over.spawn(wait, run.cpus.server, Doorbells::Shared)?;
        rows.extend(alone(run.cpus.caller, || {
            let (_node, peer) = receiver.meet(wait)?;
            let mut rows: Vec<Row> = sizes.iter().map(|size| Row::new(provider, *size)).collect();
            let label = |row: &Row| format!("{provider} {} B", row.size);
            run.in_turns(&mut rows, label, |row, budget| row.round(&peer, budget))?;
            Ok(rows)
        })?);
    }
    let mut report = Report {
        params: run
            .fields()
            .with("receiver", "separate process, pinned; reads every byte")
            .with("wait", "spin")
            .with("buffers_per_timing", BUFFERS),
        claims: claims(&rows),
        rows: rows.iter().map(Row::fields).collect(),
        ..Report::default()
    };
    report.note("payloads of up to 40 B are sent inline in their descriptor and have no buffer");
    Ok(report)
}

/// One row.
#[derive(Debug)]
struct Row {
    provider: &'static str,
    size: usize,
    alloc: Recorder,
    release: Recorder,
    send: Recorder,
}

impl Row {
    fn new(provider: &'static str, size: usize) -> Self {
        Self { provider, size, alloc: Recorder::new(), release: Recorder::new(), send: Recorder::new() }
    }

    fn round(&mut self, peer: &Peer, budget: Duration) -> anyhow::Result<()> {
        let session = peer.session();
        let mut started = clock::now();
        let asked = started;
        let mut loans = Vec::with_capacity(BUFFERS);
        let count = buffers(self.provider, self.size);
        while started.elapsed() < budget / 4 {
            let before = clock::now();
            let taken = (0..count)
                .try_for_each(|_| session.loan(Class::Bulk, self.size, 0).map(|loan| loans.push(loan)));
            let allocated = clock::now();
            loans.clear();
            let released = clock::now();
            match taken {
                Ok(()) => {}
                // Sends of other sizes have used up the prepared chunks, and no send is under way that would cause more to be prepared.
                Err(refused) if refused.is_retryable() && asked.elapsed() < PATIENCE => {
                    peer.host().pause();
                    started = clock::now();
                    continue;
                }
                Err(refused) => return Err(refused).context("a buffer"),
            }
            let count = u32::try_from(count).context("few buffers")?;
            for (recorder, time) in
                [(&mut self.alloc, allocated - before), (&mut self.release, released - allocated)]
            {
                recorder.record_single(time / count);
                recorder.record_batch(count, time);
            }
        }
        polled(peer, self.size, budget * 3 / 4, &mut self.send)
    }

    /// Returns the nanoseconds of allocation and release (medians of batches) and of a send (median of single sends, as a batch of
    /// sends is long enough that other threads always interrupt it).
    fn times(&self) -> [f64; 3] {
        let [alloc, release, send] = [&self.alloc, &self.release, &self.send].map(Recorder::sample);
        [alloc.batch_ns, release.batch_ns, approximate(send.p50_ns)]
    }

    fn share(&self) -> f64 {
        let [alloc, release, send] = self.times();
        (alloc + release) / send
    }

    fn fields(&self) -> Fields {
        let [alloc, release, send] = self.times();
        Fields::default()
            .with("provider", self.provider)
            .with("size", self.size)
            .with("alloc_ns", decimals(alloc, 1))
            .with("release_ns", decimals(release, 1))
            .with("send_ns", decimals(send, 0))
            .with("buffer_share", decimals(self.share(), 4))
            .with_aa(&self.send.sample())
    }
}

/// Returns the number of buffers of one size that are held at a time. They all lie where the one buffer of a synchronous send would be:
/// short ones in the thread's arena, others in the first half of the first chunk.
fn buffers(provider: &str, size: usize) -> usize {
    let config = if provider == VERBS { RingConfig::pinned() } else { RingConfig::default() };
    let [arena, chunk] = [config.arena_bytes, config.first_chunk_bytes].map(|bytes| bytes as usize);
    // No buffer takes more than a quarter of a thread arena.
    let room = if size <= arena / 4 { arena } else { chunk / 2 };
    (room / size).clamp(1, BUFFERS)
}

/// Evaluates the paper's range, and the bar, which applies where a send is long enough for a meaningful share.
fn claims(rows: &[Row]) -> Vec<Claim> {
    let most =
        |of: &dyn Fn(&Row) -> bool| rows.iter().filter(|row| of(row)).map(Row::share).max_by(f64::total_cmp);
    let judged = |row: &Row| row.provider != "shm" || row.size >= 4096;
    [
        most(&|_| true).map(|share| {
            let detail = "largest share of any size and transport; the paper's range begins at 0.035";
            Claim::new("K40", detail, decimals(share, 4), share <= PUBLISHED)
        }),
        most(&judged).map(|share| {
            Claim::at_most("K40-bar", "TCP, verbs, and shared memory from 4 KiB on", BAR, share, 4)
        }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Largest share in the paper (Fig. 3).
const PUBLISHED: f64 = 0.066;
/// The bar, which is the smallest share in the paper.
const BAR: f64 = 0.035;

numbers!(SIZES: usize, SIZE_NAMES = 64, 256, 1024, 4096, 16384, 65536, 262144);

/// Batch size that makes the cost of two clock readings negligible.
const BUFFERS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn row(provider: &'static str, size: usize, [alloc, release, send]: [u64; 3]) -> Row {
        let mut row = Row::new(provider, size);
        for (recorder, ns) in [(&mut row.alloc, alloc), (&mut row.release, release), (&mut row.send, send)] {
            recorder.record_single(Duration::from_nanos(ns));
            recorder.record_batch(10, Duration::from_nanos(10 * ns));
        }
        row
    }

    #[test]
    fn a_share_is_that_of_both_ends_of_a_buffer() {
        let row = row("tcp", 64, [100, 200, 10_000]);
        assert!((row.share() - 0.03).abs() < 1e-3, "{}", row.share());
        assert_eq!(row.fields().value("alloc_ns"), Some(&serde_json::json!(100.0)));
    }

    #[test]
    fn the_bar_excludes_small_sends_over_shared_memory() {
        assert!(claims(&[]).is_empty());
        let rows = [row("shm", 64, [10, 10, 200]), row("shm", 4096, [10, 10, 1_000])];
        let verdicts: Vec<_> = claims(&rows).iter().map(|claim| (claim.id, claim.holds())).collect();
        assert_eq!(verdicts, [("K40", false), ("K40-bar", true)]);
        let rows = [row("tcp", 64, [20, 20, 1_000])];
        let verdicts: Vec<_> = claims(&rows).iter().map(|claim| (claim.id, claim.holds())).collect();
        assert_eq!(verdicts, [("K40", true), ("K40-bar", false)]);
    }

    #[test]
    fn short_buffers_fill_at_most_an_arena_and_longer_ones_half_a_chunk() {
        assert_eq!(SIZES.map(|size| buffers("shm", size)), [64, 64, 64, 32, 8, 32, 8]);
        assert_eq!(SIZES.map(|size| buffers(VERBS, size)), [64, 64, 16, 4, 16, 4, 1]);
    }
}
