//! `threshold`: a copy of a payload against setting its memory up for one message, and against a reference to memory that the peer knows.

use core::time::Duration;

use pronto::{Peer, WaitPolicy};

use crate::claim::{Claim, Verdict};
use crate::echo::{Provider, Wait};
use crate::experiment::{Cpus, Experiment, Rounds, Run};
use crate::params::{Axis, numbers};
use crate::placement::alone;
use crate::report::{Fields, Report, decimals};
use crate::sample::{Recorder, approximate};
use crate::traffic::blobs::{Blobs, Mode};
use crate::traffic::drive::Open;
use crate::traffic::receiver::Receiver;

/// All methods alternate for each size over one connection; the receiver reads every byte in place. Over TCP no memory is set up.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "threshold",
    question: "From which size is a reference better than a copy?",
    takes: [25, 6],
    paper: Some("comm-layer"),
    figure: Some("3.2"),
    about: "a copy of a payload against setting its memory up, and against a reference, by size",
    axes: &[Axis::PROVIDER, Axis::new("size", "Only these payload lengths, bytes", &SIZE_NAMES)],
    cpus: Cpus::Two,
    // 18 rows take 40 s, or 8 s in a quick run.
    rounds: [Rounds::new(10, 60), Rounds::new(4, 25)],
    claims: &["K32", "T1"],
    run,
    ..Experiment::DEFAULT
};

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let sizes = run.params.kept("size", SIZES, usize::to_string);
    let providers = Provider::kept(run.params);
    run.begin(providers.len() * sizes.len());
    let mut rows = Vec::new();
    for provider in providers {
        let wait = Wait(WaitPolicy::Spin);
        let receiver = Receiver::spawn(provider, wait, run.cpus.server)?;
        rows.extend(alone(run.cpus.caller, || {
            let (_node, peer) = receiver.meet(wait)?;
            let mut rows: Vec<Row> = sizes.iter().map(|size| Row::new(provider, *size)).collect();
            for row in &mut rows {
                let blobs = Blobs::new(row.size, Open(1))?;
                let label = |row: &Row| format!("{} {} B", provider.name(), row.size);
                run.in_turns(core::slice::from_mut(row), label, |row, budget| {
                    row.round(&blobs, &peer, budget)
                })?;
            }
            Ok(rows)
        })?);
    }
    let mut report = Report {
        params: run
            .fields()
            .with("receiver", "separate process, pinned; reads every byte in place")
            .with("wait", "spin")
            .with("library_references_from", LIBRARY),
        claims: claims(&rows),
        rows: rows.iter().map(Row::fields).collect(),
        ..Report::default()
    };
    report.note(
        "setup_ns is the time that a reference takes longer if its memory is new to the peer: it is announced and mapped for this \
         message, and an earlier one is unmapped. Allocating and filling it is not included. copy_ns copies between warm buffers",
    );
    Ok(report)
}

/// One row.
#[derive(Debug)]
struct Row {
    provider: Provider,
    size: usize,
    copied: Recorder,
    reference: Recorder,
    /// A reference to memory that the peer does not know yet; nothing over TCP.
    fresh: Recorder,
    /// The copy alone.
    copy: Recorder,
}

impl Row {
    fn new(provider: Provider, size: usize) -> Self {
        let [copied, reference, fresh, copy] = [(); 4].map(|()| Recorder::new());
        Self { provider, size, copied, reference, fresh, copy }
    }

    fn round(&mut self, blobs: &Blobs, peer: &Peer, budget: Duration) -> anyhow::Result<()> {
        blobs.measure(peer, Mode::Copied, budget, &mut self.copied)?;
        blobs.measure(peer, Mode::Reference, budget, &mut self.reference)?;
        if self.provider == Provider::Shm {
            blobs.measure_fresh(peer, budget, &mut self.fresh)?;
        }
        blobs.measure_copy(budget, &mut self.copy)
    }

    /// Returns the nanoseconds of setting memory up for one message; `None` if no memory is set up.
    fn setup_ns(&self) -> Option<f64> {
        let [fresh, known] = [&self.fresh, &self.reference].map(Recorder::sample);
        (fresh.count > 0).then(|| approximate(fresh.p50_ns) - approximate(known.p50_ns))
    }

    /// Returns the time by reference as a fraction of that of a copy.
    fn ratio(&self) -> f64 {
        let [reference, copied] = [&self.reference, &self.copied].map(|recorder| recorder.sample().p50_ns);
        approximate(reference) / approximate(copied)
    }

    fn fields(&self) -> Fields {
        let [copied, reference] = [&self.copied, &self.reference].map(Recorder::sample);
        Fields::default()
            .with("provider", self.provider.name())
            .with("size", self.size)
            .with("copied_ns", copied.p50_ns)
            .with("reference_ns", reference.p50_ns)
            .with("ratio", decimals(self.ratio(), 2))
            .with("copy_ns", decimals(self.copy.sample().batch_ns, 1))
            .with("setup_ns", self.setup_ns().map(|setup| decimals(setup, 0)))
            .with_aa(&copied)
            .with("reference_aa", reference.aa.map(|aa| decimals(aa, 2)))
    }
}

/// Returns the smallest size from which a reference is never slower than a copy by more than two equal medians may differ.
fn crossover(rows: &[&Row]) -> Option<usize> {
    let worse = rows.iter().rposition(|row| row.ratio() > 1.0 + NOISE);
    rows.get(worse.map_or(0, |worse| worse + 1)).map(|row| row.size)
}

fn claims(rows: &[Row]) -> Vec<Claim> {
    let shm: Vec<&Row> = rows.iter().filter(|row| row.provider == Provider::Shm).collect();
    if shm.is_empty() {
        return Vec::new();
    }
    let found = crossover(&shm);
    let text = "the bar is the first length that does not fit an inline message, which the library sends by reference";
    // The smallest measured size is the first that the library sends by reference.
    let ours = Claim::new("T1", text, found, found == Some(SIZES[0])).bar(LIBRARY);
    setup_or_copy(&shm).into_iter().chain([ours]).collect()
}

/// Evaluates the paper's claim for small payloads; `None` if none was measured.
fn setup_or_copy(shm: &[&Row]) -> Option<Claim> {
    let costs = |row: &&Row| {
        row.setup_ns().map(|setup| (row.size, setup / row.copy.sample().batch_ns.max(f64::EPSILON)))
    };
    let ratios: Vec<(usize, f64)> = shm.iter().filter_map(costs).collect();
    let small = ratios.iter().filter(|(size, _)| *size <= SMALL).map(|(_, ratio)| *ratio);
    let least = small.min_by(f64::total_cmp)?;
    let crossover = ratios.iter().find(|(_, ratio)| *ratio <= 1.0);
    let crossover =
        crossover.map_or_else(|| "at no measured size".to_owned(), |(size, _)| format!("from {size} B on"));
    let detail = format!("over shared memory; a copy costs as much as setting up {crossover}");
    Some(copy_is_cheap(detail, least))
}

/// Evaluates the least cost of setting a buffer up, as a multiple of its copy, of all buffers up to [`SMALL`].
pub(crate) fn copy_is_cheap(detail: impl Into<String>, least: f64) -> Claim {
    let verdict = Verdict::graded(least >= MUCH, least > 1.0);
    Claim::new("K32", detail, decimals(least, 1), verdict).bar(MUCH)
}

/// The shortest payload that the library sends by reference from a region where the transport can.
const LIBRARY: usize = pronto_wire::INLINE_PAYLOAD + 1;

numbers!(SIZES: usize, SIZE_NAMES = 41, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304);
const _: () = assert!(SIZES[0] == LIBRARY);

/// Longest payload that counts as small, bytes: a page. Chosen by us; no source.
pub(crate) const SMALL: usize = 4096;
/// Least ratio that counts as "much" in the paper's claim. Chosen by us; no source.
const MUCH: f64 = 3.0;

/// Medians that differ by less count as equal.
const NOISE: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;

    fn row(size: usize, copied: u64, reference: u64) -> Row {
        let mut row = Row::new(Provider::Shm, size);
        row.copied.record_single(Duration::from_nanos(copied));
        row.reference.record_single(Duration::from_nanos(reference));
        row
    }

    #[test]
    fn the_crossover_follows_the_last_size_that_is_better_copied() {
        let rows = [row(41, 100, 104), row(256, 100, 120), row(1024, 200, 150), row(4096, 400, 150)];
        let verdict = |rows: &[Row]| claims(rows).last().map(|claim| (claim.measured.clone(), claim.holds()));
        assert_eq!(verdict(&rows), Some((1024.into(), false)));
        assert_eq!(verdict(&rows[..1]), Some((41.into(), true)));
        assert_eq!(
            verdict(&rows[..2]),
            Some((serde_json::Value::Null, false)),
            "a copy is better up to the end"
        );
        assert_eq!(verdict(&[]), None);
    }

    #[test]
    fn setting_up_is_compared_with_the_copy_of_small_payloads() {
        let with = |size, fresh, copy| {
            let mut row = row(size, 500, 500);
            row.fresh.record_single(Duration::from_nanos(fresh));
            row.copy.record_single(Duration::from_nanos(copy));
            row.copy.record_batch(1, Duration::from_nanos(copy));
            row
        };
        let verdict =
            |rows: &[Row]| claims(rows).iter().find(|claim| claim.id == "K32").map(|claim| claim.verdict);
        let large = || with(65536, 600, 1_000);
        assert_eq!(verdict(&[with(41, 4_500, 10), large()]), Some(Verdict::Holds));
        assert_eq!(verdict(&[with(41, 4_500, 10), with(4096, 700, 100)]), Some(Verdict::InPart));
        assert_eq!(verdict(&[with(41, 4_500, 10), with(4096, 550, 100)]), Some(Verdict::DoesNotHold));
        assert_eq!(
            (verdict(&[large()]), verdict(&[row(41, 100, 100)])),
            (None, None),
            "nothing small was set up"
        );
        let detail = &claims(&[with(41, 4_500, 10), large()])[0].detail;
        assert!(detail.ends_with("from 65536 B on"), "{detail}");
    }
}
