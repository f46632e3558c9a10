//! `threshold`: the length from which a payload in a region is better sent by reference than copied.

use core::time::Duration;

use pronto::WaitPolicy;

use crate::echo::{Provider, Wait};
use crate::experiment::Experiment;
use crate::params::{Axis, Params};
use crate::placement::{Placement, alone};
use crate::progress::Progress;
use crate::report::{Claim, Fields, Report, decimals};
use crate::sample::{Recorder, Sample, approximate};
use crate::traffic::blobs::{Blobs, Mode};
use crate::traffic::drive::Open;
use crate::traffic::receiver::Receiver;

/// The experiment. Both methods alternate for each size over one connection; the receiver reads every byte in place.
#[derive(Debug)]
pub(crate) struct Threshold;

impl Experiment for Threshold {
    fn name(&self) -> &'static str {
        "threshold"
    }

    fn paper(&self) -> Option<&'static str> {
        Some("comm-layer")
    }

    fn figure(&self) -> Option<&'static str> {
        Some("3.2")
    }

    fn about(&self) -> &'static str {
        "payloads copied and by reference, by size, and the size from which the reference is better"
    }

    fn axes(&self) -> &'static [Axis] {
        &[
            Axis { column: "provider", help: "Only these transports", values: &["shm", "tcp"] },
            Axis { column: "size", help: "Only these payload lengths, bytes", values: &SIZE_NAMES },
        ]
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
        let providers: Vec<_> =
            Provider::ALL.into_iter().filter(|p| params.keeps("provider", p.name())).collect();
        progress.begin(u64::from(rounds) * (providers.len() * sizes.len()) as u64);
        let mut rows = Vec::new();
        for provider in providers {
            let wait = Wait(WaitPolicy::Spin);
            let receiver = Receiver::spawn(provider, wait, cpus.server)?;
            rows.extend(alone(cpus.caller, || {
                let (_node, peer) = receiver.meet(wait)?;
                let mut rows = Vec::new();
                for size in &sizes {
                    let blobs = Blobs::new(*size, Open(1))?;
                    let mut row = Row::new(provider, *size);
                    for _ in 0..rounds {
                        progress.step(&format!("{} {size} B", provider.name()));
                        blobs.measure(&peer, Mode::Copied, budget, &mut row.copied)?;
                        blobs.measure(&peer, Mode::Reference, budget, &mut row.reference)?;
                    }
                    rows.push(row);
                }
                Ok(rows)
            })?);
        }
        report.params = Fields::default()
            .with("cpus", placement.numbers())
            .with("receiver", "separate process, pinned; reads every byte in place")
            .with("wait", "spin")
            .with("rounds", rounds)
            .with("round_ms", decimals(budget.as_secs_f64() * 1e3, 0))
            .with("library_references_from", LIBRARY);
        report.claims = claims(&rows);
        report.rows = rows.iter().map(Row::fields).collect();
        Ok(report)
    }
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
        let aa = |sample: &Sample| sample.aa.map(|aa| decimals(aa, 2));
        Fields::default()
            .with("provider", self.provider.name())
            .with("size", self.size)
            .with("copied_ns", copied.p50_ns)
            .with("reference_ns", reference.p50_ns)
            .with("ratio", decimals(self.ratio(), 2))
            .with("aa", aa(&copied))
            .with("reference_aa", aa(&reference))
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
    vec![Claim {
        id: "K32",
        text: "shm: size in bytes from which by reference is no slower than a copy; the library refers from the first length that \
               does not fit an inline message"
            .into(),
        published: LIBRARY.into(),
        measured: found.into(),
        // The smallest measured size is the first that the library sends by reference.
        holds: found == Some(SIZES[0]),
    }]
}

/// The shortest payload that the library sends by reference from a region where the transport can.
const LIBRARY: usize = pronto_wire::INLINE_PAYLOAD + 1;

const SIZES: [usize; 9] = [LIBRARY, 256, 1024, 4096, 16_384, 65_536, 262_144, 1 << 20, 4 << 20];
const SIZE_NAMES: [&str; SIZES.len()] =
    ["41", "256", "1024", "4096", "16384", "65536", "262144", "1048576", "4194304"];

/// Medians that differ by less count as equal.
const NOISE: f64 = 0.05;

/// 18 rows take 25 s.
const ROUNDS: u32 = 10;
const BUDGET: Duration = Duration::from_millis(60);

/// 18 rows take 5 s.
const QUICK_ROUNDS: u32 = 4;
const QUICK_BUDGET: Duration = Duration::from_millis(25);

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
    fn the_crossover_is_behind_the_last_size_that_is_better_copied() {
        let rows = [row(41, 100, 104), row(256, 100, 120), row(1024, 200, 150), row(4096, 400, 150)];
        let verdict = |rows: &[Row]| claims(rows).first().map(|claim| (claim.measured.clone(), claim.holds));
        assert_eq!(verdict(&rows), Some((1024.into(), false)));
        assert_eq!(verdict(&rows[..1]), Some((41.into(), true)));
        assert_eq!(
            verdict(&rows[..2]),
            Some((serde_json::Value::Null, false)),
            "a copy is better up to the end"
        );
        assert_eq!(verdict(&[]), None);
        assert_eq!(SIZES.map(|size| size.to_string()), SIZE_NAMES);
    }
}
