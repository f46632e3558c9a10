//! `threshold`: the length from which a payload in a region is better sent by reference than copied.

use pronto::WaitPolicy;

use crate::claim::Claim;
use crate::echo::{Provider, Wait};
use crate::experiment::{Cpus, Experiment, Rounds, Run};
use crate::params::{Axis, numbers};
use crate::placement::alone;
use crate::report::{Fields, Report, decimals};
use crate::sample::{Recorder, approximate};
use crate::traffic::blobs::{Blobs, Mode};
use crate::traffic::drive::Open;
use crate::traffic::receiver::Receiver;

/// Both methods alternate for each size over one connection; the receiver reads every byte in place.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "threshold",
    paper: Some("comm-layer"),
    figure: Some("3.2"),
    about: "payloads copied and by reference, by size, and the size from which the reference is better",
    axes: &[Axis::PROVIDER, Axis::new("size", "Only these payload lengths, bytes", &SIZE_NAMES)],
    cpus: Cpus::Two,
    // 18 rows take 25 s, or 5 s in a quick run.
    rounds: [Rounds::new(10, 60), Rounds::new(4, 25)],
    claims: &["K32"],
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
                    blobs.measure(&peer, Mode::Copied, budget, &mut row.copied)?;
                    blobs.measure(&peer, Mode::Reference, budget, &mut row.reference)
                })?;
            }
            Ok(rows)
        })?);
    }
    Ok(Report {
        params: run
            .fields()
            .with("receiver", "separate process, pinned; reads every byte in place")
            .with("wait", "spin")
            .with("library_references_from", LIBRARY),
        claims: claims(&rows),
        rows: rows.iter().map(Row::fields).collect(),
        ..Report::default()
    })
}

/// One row.
#[derive(Debug)]
struct Row {
    provider: Provider,
    size: usize,
    copied: Recorder,
    reference: Recorder,
}

impl Row {
    fn new(provider: Provider, size: usize) -> Self {
        Self { provider, size, copied: Recorder::new(), reference: Recorder::new() }
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
    let text = "shm: size in bytes from which by reference is at least as fast as a copy; the library refers from the first length that \
                does not fit an inline message";
    // The smallest measured size is the first that the library sends by reference.
    vec![Claim::new("K32", text, found, found == Some(SIZES[0])).bar(LIBRARY)]
}

/// The shortest payload that the library sends by reference from a region where the transport can.
const LIBRARY: usize = pronto_wire::INLINE_PAYLOAD + 1;

numbers!(SIZES: usize, SIZE_NAMES = 41, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304);
const _: () = assert!(SIZES[0] == LIBRARY);

/// Medians that differ by less count as equal.
const NOISE: f64 = 0.05;

#[cfg(test)]
mod tests {
    use core::time::Duration;

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
        let verdict =
            |rows: &[Row]| claims(rows).first().map(|claim| (claim.measured.clone(), claim.holds()));
        assert_eq!(verdict(&rows), Some((1024.into(), false)));
        assert_eq!(verdict(&rows[..1]), Some((41.into(), true)));
        assert_eq!(
            verdict(&rows[..2]),
            Some((serde_json::Value::Null, false)),
            "a copy is better up to the end"
        );
        assert_eq!(verdict(&[]), None);
    }
}
