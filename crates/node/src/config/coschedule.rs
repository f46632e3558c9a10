//! Coscheduling, in a configuration. `prontod` coschedules by it. A node itself uses only the policy: with `carried`, headers carry the
//! pressure of their sender.

use std::path::PathBuf;

use serde::Deserialize;

/// Coscheduling of processes on this machine, in a configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoscheduleConfig {
    /// `off`, `dyn`, `pred`, `carried` or `static`.
    #[serde(default = "default_policy")]
    pub policy: String,
    /// Time between two samples of the queues, in milliseconds.
    #[serde(default = "default_period")]
    pub period_ms: u64,
    /// Weight of the past in a frequency: a number from 0 to 1, or `"auto"`.
    #[serde(default)]
    pub past: PastConfig,
    /// Largest weight of a process, in percent of an ordinary one.
    #[serde(default = "default_max_weight")]
    pub max_weight: u32,
    /// `sock_diag` or `bpf`.
    #[serde(default = "default_sensor")]
    pub sensor: String,
    /// File of the BPF program for `bpf`. Default: `/usr/local/lib/pronto/pronto_queues.bpf.o`.
    pub sensor_program: Option<PathBuf>,
    /// `auto`, `nice`, `slice`, `nice+slice`, `cgroup` or `scx`.
    #[serde(default = "default_actuator")]
    pub actuator: String,
    /// Folder of the journal and the status. Default: `/run/pronto-coschedule` for root, else
    /// `pronto-coschedule` in the folder that `XDG_RUNTIME_DIR` names.
    pub state: Option<PathBuf>,
    /// The processes.
    #[serde(default)]
    pub groups: Vec<CoscheduleGroup>,
}

impl CoscheduleConfig {
    /// Returns whether nodes report their pressure to each other.
    pub(crate) fn is_carried(&self) -> bool {
        self.policy == "carried"
    }
}

/// Processes that are coscheduled, in a configuration: by one of the keys.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoscheduleGroup {
    /// Name, for human-readable output.
    pub name: String,
    /// Name of the processes, as `ps -o comm` shows it; their descendants belong to the group, too.
    pub command: Option<String>,
    /// Folder of their control group.
    pub cgroup: Option<PathBuf>,
}

/// Weight of the past, in a configuration.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(untagged)]
pub enum PastConfig {
    /// This number.
    Number(f64),
    /// `auto`.
    Word(String),
}

impl Default for PastConfig {
    fn default() -> Self {
        Self::Number(0.9)
    }
}

fn default_policy() -> String {
    "off".to_owned()
}

const fn default_period() -> u64 {
    10
}

const fn default_max_weight() -> u32 {
    400
}

fn default_sensor() -> String {
    "sock_diag".to_owned()
}

fn default_actuator() -> String {
    "auto".to_owned()
}
