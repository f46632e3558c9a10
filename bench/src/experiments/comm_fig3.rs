//! `comm-fig3`: the share of a synchronous send that is spent on its buffer.

use core::time::Duration;

use anyhow::Context as _;
use pronto::rpc::Host as _;
use pronto::{Class, Peer, WaitPolicy};
use pronto_core::buf::RingConfig;
use pronto_core::session::Doorbells;

use crate::clock;
use crate::echo::Wait;
use crate::experiment::Experiment;
use crate::lab::Lab;
use crate::params::{Axis, Params};
use crate::placement::{Placement, alone};
use crate::progress::Progress;
use crate::rdma::VERBS;
use crate::rdma::over::{self, PROVIDER_HELP, PROVIDERS};
use crate::report::{Claim, Fields, Report, decimals};
use crate::sample::{Recorder, approximate};
use crate::traffic::drive::PATIENCE;
use crate::traffic::sends::polled;

/// The experiment. Buffer allocations and sends of one size alternate over one connection.
#[derive(Debug)]
pub(crate) struct CommFig3;

impl Experiment for CommFig3 {
    fn name(&self) -> &'static str {
        "comm-fig3"
    }

    fn paper(&self) -> Option<&'static str> {
        Some("comm-layer")
    }

    fn figure(&self) -> Option<&'static str> {
        Some("Fig. 3")
    }

    fn about(&self) -> &'static str {
        "share of a synchronous send spent on allocating and releasing its buffer"
    }

    fn axes(&self) -> &'static [Axis] {
        &[
            Axis { column: "provider", help: PROVIDER_HELP, values: &PROVIDERS },
            Axis { column: "size", help: "Only these payload lengths, bytes", values: &SIZE_NAMES },
        ]
    }

    fn lab(&self, params: &Params) -> anyhow::Result<Option<Lab>> {
        over::lab(params)
    }

    fn run(&self, params: &Params, progress: &mut Progress) -> anyhow::Result<Report> {
        let mut report = Report::default();
        let placement = Placement::choose()?;
        let Some(cpus) = placement.pair() else {
            report.note("skipped: needs two CPUs, but this process may use only one");
            return Ok(report);
        };
        let (rounds, budget) = if params.quick { (QUICK_ROUNDS, QUICK_BUDGET) } else { (ROUNDS, BUDGET) };
        let sizes: Vec<usize> =
            SIZES.into_iter().filter(|size| params.keeps("size", &size.to_string())).collect();
        let nodes = over::nodes(params)?;
        let all = over::all(params, nodes.as_ref());
        progress.begin(u64::from(rounds) * (all.len() * sizes.len()) as u64);
        let mut rows = Vec::new();
        for over in all {
            let (provider, wait) = (over.name(), Wait(WaitPolicy::Spin));
            let receiver = over.spawn(wait, cpus.server, Doorbells::Shared)?;
            rows.extend(alone(cpus.caller, || {
                let (_node, peer) = receiver.meet(wait)?;
                let mut rows: Vec<Row> = sizes.iter().map(|size| Row::new(provider, *size)).collect();
                for _ in 0..rounds {
                    for row in &mut rows {
                        progress.step(&format!("{provider} {} B", row.size));
                        row.round(&peer, budget)?;
                    }
                }
                Ok(rows)
            })?);
        }
        report.params = Fields::default()
            .with("cpus", placement.numbers())
            .with("receiver", "process of its own, pinned; reads every byte")
            .with("wait", "spin")
            .with("buffers_per_timing", BUFFERS)
            .with("rounds", rounds)
            .with("round_ms", decimals(budget.as_secs_f64() * 1e3, 0));
        report.note("payloads of up to 40 B are sent inline in their descriptor and have no buffer");
        report.claims = claims(&rows);
        report.rows = rows.iter().map(Row::fields).collect();
        Ok(report)
    }
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
    /// sends is so long that other threads interrupt it every time).
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
            .with("aa", self.send.sample().aa.map(|aa| decimals(aa, 2)))
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
    let claim = |id, text: &str, published: f64, most: Option<f64>| {
        most.map(|share| Claim {
            id,
            text: text.into(),
            published: decimals(published, 3),
            measured: decimals(share, 4),
            holds: share <= published,
        })
    };
    let judged = |row: &Row| row.provider != "shm" || row.size >= 4096;
    [
        claim(
            "K40",
            "allocating and releasing the buffer take 3.5 to 6.6 % of a send; measured is the largest share over all sizes and transports",
            0.066,
            most(&|_| true),
        ),
        claim("K40-bar", "at most 3.5 % on tcp and verbs, and on shared memory from 4 KiB up", 0.035, most(&judged)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

const SIZES: [usize; 7] = [64, 256, 1024, 4096, 16_384, 65_536, 262_144];
const SIZE_NAMES: [&str; 7] = ["64", "256", "1024", "4096", "16384", "65536", "262144"];

/// Batch size that makes the cost of two clock readings negligible.
const BUFFERS: usize = 64;

/// 14 rows take 14 s.
const ROUNDS: u32 = 10;
const BUDGET: Duration = Duration::from_millis(100);

/// 14 rows take 3 s.
const QUICK_ROUNDS: u32 = 4;
const QUICK_BUDGET: Duration = Duration::from_millis(40);

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
    fn the_bar_leaves_small_sends_over_shared_memory_out() {
        assert!(claims(&[]).is_empty());
        let rows = [row("shm", 64, [10, 10, 200]), row("shm", 4096, [10, 10, 1_000])];
        let verdicts: Vec<_> = claims(&rows).iter().map(|claim| (claim.id, claim.holds)).collect();
        assert_eq!(verdicts, [("K40", false), ("K40-bar", true)]);
    }

    #[test]
    fn sizes_have_their_names() {
        assert_eq!(SIZES.map(|size| size.to_string()), SIZE_NAMES);
    }

    #[test]
    fn short_buffers_fill_at_most_an_arena_and_longer_ones_half_a_chunk() {
        assert_eq!(SIZES.map(|size| buffers("shm", size)), [64, 64, 64, 32, 8, 32, 8]);
        assert_eq!(SIZES.map(|size| buffers(VERBS, size)), [64, 64, 16, 4, 16, 4, 1]);
    }
}
