//! `floor`: the cost of this machine's hardware and kernel primitives, on which everything else is built.

use core::time::Duration;

use serde_json::Value;

use crate::experiment::Experiment;
use crate::floor::{self, Cores, Probe};
use crate::params::{Axis, Params};
use crate::placement::Placement;
use crate::progress::Progress;
use crate::report::{Fields, Report, decimals};
use crate::sample::{Recorder, Sample, approximate};

/// The experiment. All probes take turns in every round, so a noisy second affects all of them alike.
#[derive(Debug)]
pub(crate) struct Floor;

impl Experiment for Floor {
    fn name(&self) -> &'static str {
        "floor"
    }

    fn paper(&self) -> Option<&'static str> {
        None
    }

    fn figure(&self) -> Option<&'static str> {
        None
    }

    fn about(&self) -> &'static str {
        "cost of this machine's primitives: cache lines, wake-ups, sockets, system calls, copies"
    }

    fn axes(&self) -> &'static [Axis] {
        &[Axis { column: "name", help: "Only these rows", values: &NAMES }]
    }

    fn run(&self, params: &Params, progress: &mut Progress) -> anyhow::Result<Report> {
        let mut report = Report::default();
        let placement = Placement::choose()?;
        let asked = floor::PROBES.iter().filter(|probe| params.keeps("name", probe.name));
        let (possible, left_out): (Vec<&Probe>, Vec<&Probe>) =
            asked.partition(|probe| probe.cores == Cores::One || placement.pair().is_some());
        if !left_out.is_empty() {
            let names: Vec<_> = left_out.iter().map(|probe| probe.name).collect();
            report.note(format!(
                "skipped: {}: needs two CPUs, but this process may use only one",
                names.join(", ")
            ));
        }
        let mut probes: Vec<_> = possible.into_iter().map(|probe| (probe, Recorder::new())).collect();
        let (rounds, budget) = if params.quick { (QUICK_ROUNDS, QUICK_BUDGET) } else { (ROUNDS, BUDGET) };
        progress.begin(u64::from(rounds) * probes.len() as u64);
        for _ in 0..rounds {
            for (probe, recorder) in &mut probes {
                progress.step(probe.name);
                probe.measure(placement, budget, recorder)?;
            }
        }
        report.params = Fields::default()
            .with("cpus", placement.numbers())
            .with("partner", "thread of the same process, pinned")
            .with("rounds", rounds)
            .with("round_ms", decimals(budget.as_secs_f64() * 1e3, 0));
        report.rows = probes.iter().map(|(probe, recorder)| row(probe, &recorder.sample())).collect();
        Ok(report)
    }
}

fn row(probe: &Probe, sample: &Sample) -> Fields {
    let rate = probe.bytes.map_or(Value::Null, |bytes| gb_per_s(bytes, sample.batch_ns));
    Fields::default().with("name", probe.name).with_sample(sample).with("gb_per_s", rate)
}

/// Bytes per nanosecond are 10^9 bytes per second.
fn gb_per_s(bytes: u32, ns: f64) -> Value {
    decimals(approximate(u64::from(bytes)) / ns, 1)
}

/// Names of all probes: the values of the column.
const NAMES: [&str; floor::PROBES.len()] = {
    let mut names = [""; floor::PROBES.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = floor::PROBES[index].name;
        index += 1;
    }
    names
};

/// 15 rows take 30 s.
const ROUNDS: u32 = 10;
const BUDGET: Duration = Duration::from_millis(200);

/// 15 rows take 3 s.
const QUICK_ROUNDS: u32 = 5;
const QUICK_BUDGET: Duration = Duration::from_millis(40);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_rated_in_bytes_per_nanosecond() {
        assert_eq!(gb_per_s(4096, 100.0), serde_json::json!(41.0));
        assert_eq!(gb_per_s(4096, 0.0), Value::Null);
    }

    #[test]
    fn only_chosen_rows_are_measured_and_in_the_order_of_the_list() {
        let mut params = Params::new();
        params.quick = true;
        params.choose("name", vec!["instant-now".into(), "syscall".into()]);
        let report = Floor.run(&params, &mut Progress::on_stderr("floor")).unwrap();
        let names: Vec<_> = report.rows.iter().filter_map(|row| row.value("name")).collect();
        assert_eq!(names, ["syscall", "instant-now"]);
    }
}
