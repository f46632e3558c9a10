//! `floor`: the cost of this machine's hardware and kernel primitives, on which everything else is built.

use serde_json::Value;

use crate::experiment::{Experiment, Rounds, Run};
use crate::floor::{self, Cores, Probe};
use crate::params::{Axis, names};
use crate::placement::ONE_CPU;
use crate::report::{Fields, Report, decimals};
use crate::sample::{Recorder, Sample, approximate};

/// All probes take turns in every round, so a noisy second affects all of them alike.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "floor",
    question: "What do this machine's own primitives cost?",
    takes: [35, 5],
    about: "cost of this machine's primitives: cache lines, wake-ups, sockets, system calls, copies",
    axes: &[Axis::new("name", "Only these rows", &NAMES)],
    // 15 rows take 30 s, or 3 s in a quick run.
    rounds: [Rounds::new(10, 200), Rounds::new(5, 40)],
    run,
    ..Experiment::DEFAULT
};

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let placement = run.placement;
    let (possible, skipped): (Vec<&Probe>, Vec<&Probe>) = run
        .params
        .kept("name", floor::PROBES, |probe| probe.name)
        .into_iter()
        .partition(|probe| probe.cores == Cores::One || placement.pair().is_some());
    if !skipped.is_empty() {
        let names: Vec<_> = skipped.iter().map(|probe| probe.name).collect();
        report.note(format!("{ONE_CPU}: {}", names.join(", ")));
    }
    let mut probes: Vec<_> = possible.into_iter().map(|probe| (probe, Recorder::new())).collect();
    run.begin(probes.len());
    run.in_turns(
        &mut probes,
        |(probe, _)| probe.name.to_owned(),
        |(probe, recorder), budget| probe.measure(placement, budget, recorder),
    )?;
    report.params = run.fields().with("partner", "thread of the same process, pinned");
    report.rows = probes.iter().map(|(probe, recorder)| row(probe, &recorder.sample())).collect();
    Ok(report)
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
const NAMES: [&str; floor::PROBES.len()] = names!(floor::PROBES);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Params;
    use crate::progress::Progress;

    #[test]
    fn the_rate_of_a_copy_is_in_bytes_per_nanosecond() {
        assert_eq!(gb_per_s(4096, 100.0), serde_json::json!(41.0));
        assert_eq!(gb_per_s(4096, 0.0), Value::Null);
    }

    #[test]
    fn only_chosen_rows_are_measured_and_in_the_order_of_the_list() {
        let mut params = Params::new();
        params.quick = true;
        params.choose("name", vec!["instant-now".into(), "syscall".into()]);
        let report = EXPERIMENT.measure(&params, &mut Progress::on_stderr("floor")).unwrap();
        let names: Vec<_> = report.rows.iter().filter_map(|row| row.value("name")).collect();
        assert_eq!(names, ["syscall", "instant-now"]);
    }
}
