//! State of a coscheduler, for `pronto coschedule top`.

use serde::{Deserialize, Serialize};

use crate::process::Identity;
use crate::settings::Policy;

/// A running coscheduler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// Its process.
    pub process: Identity,
    /// Its state.
    #[serde(flatten)]
    pub coscheduler: Status,
}

/// State of a coscheduler. Sums count since its start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The policy.
    pub policy: Policy,
    /// The name of the sensor.
    pub sensor: String,
    /// The name of the actuator.
    pub actuator: String,
    /// Time between two samples, in microseconds.
    pub period_us: u64,
    /// Sockets that a sample reads.
    pub sockets: usize,
    /// Periods; those of the kernel if it takes the samples.
    pub ticks: u64,
    /// Samples of a process.
    pub samples: u64,
    /// Of these, samples with a receive queue that was not empty.
    pub with_received: u64,
    /// Of these, samples with a send queue that was not empty.
    pub with_sent: u64,
    /// Changes of the weight of a process.
    pub changes: u64,
    /// Time for which the coscheduler worked, and for which samples took a CPU in the kernel, in microseconds.
    pub worked_us: u64,
    /// The longest work of a period, in microseconds.
    pub longest_us: u64,
    /// The loader of the BPF scheduler has ended or does not reply, so all weights are ordinary until one does.
    #[serde(default)]
    pub is_without_loader: bool,
    /// The processes.
    pub processes: Vec<ProcessStatus>,
}

/// State of a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub command: String,
    /// The name of its group.
    pub group: String,
    /// Its frequency, in packets of 4096 bytes.
    pub frequency: f64,
    /// The frequency that other nodes report for the other ends of its connections, in packets.
    pub carried: f64,
    /// Its weight in hundredths.
    pub weight: u32,
    /// P, in millionths.
    pub past: u32,
    /// Changes of its weight.
    pub changes: u64,
    /// The kernel refused a change.
    pub is_refused: bool,
}
