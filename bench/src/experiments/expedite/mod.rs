//! Expedite on a real kernel: the paper's figures 1 to 5 and ours, in the lab, with the module, with the BPF scheduler, with the
//! existing alternatives, and without any boost.

mod computing;
mod conditions;
mod handlers;
mod late;
mod mpi;
mod nice;
mod pairs;
mod pings;
mod trial;

pub(super) use computing::EXPERIMENT as COMPUTING;
pub(super) use handlers::EXPERIMENT as HANDLERS;
pub(super) use late::EXPERIMENT as LATE;
pub(super) use mpi::EXPERIMENT as MPI;
pub(super) use nice::EXPERIMENT as NICE;
pub(super) use pairs::{PAIRS, TENTH};
pub(super) use pings::{PINGS_BOOSTED, PINGS_WITHOUT};

use trial::Traffic;

use crate::expedite::{Place, Preempt, Setting};
use crate::experiment::{Experiment, Rounds, Run};
use crate::lab::Lab;
use crate::params::{Axis, Choice as _};
use crate::report::Fields;

/// An experiment in the lab, in which the settings take turns.
const IN_THE_LAB: Experiment = Experiment {
    paper: Some("expedite"),
    rounds: [Rounds::new(5, 0); 2],
    lab: |params| Ok(Some(lab(params.quick))),
    ..Experiment::DEFAULT
};

/// The machine: handlers and background on one CPU, senders on the other.
const fn lab(quick: bool) -> Lab {
    Lab {
        virtual_time: true,
        module: Some("kernel/expedite"),
        limit: if quick { 900 } else { 6 * 3_600 },
        ..Lab::PLAIN
    }
}

/// The machine, with the BPF scheduler for the rows with [`Setting::Scx`].
const fn lab_with_scx(quick: bool) -> Lab {
    Lab { bpf: &["kernel/scx"], ..lab(quick) }
}

const SETTING: Axis = Axis::new("setting", "Only handlers with this boost", Setting::NAMES);
const PREEMPT: Axis = Axis::new("preempt", "Only under these preemption models", Preempt::NAMES);
const PLACE: Axis =
    Axis::new("place", "Only with handlers and background on one CPU, or on any", Place::NAMES);

/// Returns the parameters of a run with this traffic.
fn described(run: &Run<'_>, traffic: Traffic) -> Fields {
    Fields::default()
        .with("bytes", crate::expedite::BYTES)
        .with("interval_ms", u64::try_from(traffic.interval.as_millis()).unwrap_or(u64::MAX))
        .with("messages", traffic.count * run.rounds)
        .with("rounds", run.rounds)
}
