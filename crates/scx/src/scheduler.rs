//! The scheduler while the kernel uses it: its load, its flags, its counters, and the reason of its end.

use core::fmt;
use std::fs;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::path::Path;

use nix::errno::Errno;
use pronto_bpf::{Attached, LoadError as Refusal, Messages, Object, OpenError};
use pronto_expedite::scx::{Counters, KERNEL, Prediction, PredictionTerms};
use pronto_sched_policy::policy::weight::Weight;

use crate::server::Flags;
use crate::settings::{NeverCovers, Settings};
use crate::shared::{
    RawFlag, RawParameters, RawPrediction, RawReport, RawTermsOfPrediction, RawWeight, VERSION,
};

/// Accounts of users: at least this number, and 64 for each CPU, as in the kernel module. An account takes 64 bytes.
const ACCOUNTS: u32 = 4_096;
const ACCOUNTS_PER_CPU: u32 = 64;

/// Folder of the sources.
const FOLDER: &str = "kernel/scx";

/// Bit of an exit code by which the kernel asks for another start (`SCX_ECODE_ACT_RESTART`).
const RESTART: i64 = 1 << 48;

/// Smallest exit kind that is an error (`SCX_EXIT_ERROR`).
const ERROR: u32 = 1_024;

/// Name of a scheduler, as the kernel reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(Box<str>);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reason why the scheduler cannot be loaded.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The kernel is older than Linux 6.12, or was built without BPF schedulers.
    #[error("this kernel was built without sched_ext (CONFIG_SCHED_CLASS_EXT, since Linux 6.12)")]
    NoSchedExt,
    /// Another BPF scheduler is loaded. The kernel has one at most.
    #[error("the kernel runs the scheduler {0} already: end its program first")]
    Occupied(Name),
    /// This process may not load BPF programs.
    #[error(
        "this process may not load BPF programs: it needs root, or CAP_BPF, CAP_PERFMON and CAP_SYS_ADMIN, and no kernel lockdown"
    )]
    NotPermitted,
    /// The object file cannot be opened.
    #[error(transparent)]
    Object(#[from] OpenError),
    /// A cap never covers a slice.
    #[error(transparent)]
    Settings(#[from] NeverCovers),
    /// The kernel rejects the program.
    #[error("the kernel rejects the BPF program: {0} (--verbose prints its reasons)")]
    Rejected(Errno),
    /// The kernel accepted the program, and did not start it.
    #[error("the kernel did not start the scheduler: {errno}{}", reason(.exit))]
    NotStarted {
        /// Error of the system.
        errno: Errno,
        /// Reason that the kernel reported.
        exit: Option<Exit>,
    },
    /// The number of CPUs is unknown.
    #[error("system error: {0}")]
    System(Errno),
}

fn reason(exit: &Option<Exit>) -> String {
    exit.as_ref().map_or_else(String::new, |exit| format!(": {exit}"))
}

/// The end of a scheduler, as the kernel reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Kind of the reason (`enum scx_exit_kind`).
    pub kind: u32,
    /// Code of the kernel or of the scheduler.
    pub code: i64,
    /// Reason of the kernel.
    pub reason: String,
    /// Details; may be empty.
    pub message: String,
}

impl Exit {
    /// Returns whether the kernel asks for another start of the scheduler, for example after the set of CPUs has changed.
    #[must_use]
    pub const fn asks_for_restart(&self) -> bool {
        self.kind < ERROR && self.code & RESTART != 0
    }

    /// Returns whether the kernel ended the scheduler because of an error.
    #[must_use]
    pub const fn is_error(&self) -> bool {
        self.kind >= ERROR
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        if self.message.is_empty() { Ok(()) } else { write!(f, " ({})", self.message) }
    }
}

/// The scheduler, in use by the kernel. It is detached when this is dropped, and also if the process is killed.
#[derive(Debug)]
pub struct Loaded(Attached);

/// Returns the name of the BPF scheduler that the kernel uses, if any.
#[must_use]
pub fn active() -> Option<Name> {
    let state = fs::read_to_string(format!("{KERNEL}/state")).unwrap_or_default();
    if matches!(state.trim(), "" | "disabled" | "disabling") {
        return None;
    }
    // The file is missing until the scheduler is enabled.
    let name = fs::read_to_string(format!("{KERNEL}/root/ops")).unwrap_or_else(|_| state.clone());
    Some(Name(name.trim().into()))
}

impl Loaded {
    /// Loads the scheduler from an object file, and lets the kernel use it.
    ///
    /// # Errors
    /// The kernel does not support BPF schedulers or uses another one, this process may not load it, or the file does not fit.
    pub fn load(file: &Path, settings: &Settings, messages: Messages) -> Result<Self, LoadError> {
        if !Path::new(KERNEL).exists() {
            return Err(LoadError::NoSchedExt);
        }
        if let Some(name) = active() {
            return Err(LoadError::Occupied(name));
        }
        let mut object = pronto_bpf::open(file, FOLDER, messages)?;
        let cpus = object.possible_cpus().map_err(LoadError::System)?;
        if !configure(&object, settings.parameters(cpus)?) {
            return Err(OpenError::OtherVersion { path: file.into(), folder: FOLDER }.into());
        }
        object.load().map_err(|refusal| match refusal {
            Refusal::Rejected(errno) => LoadError::Rejected(errno),
            _ => LoadError::NotPermitted,
        })?;
        match object.attach_scheduler(c"pronto") {
            Ok(attached) => Ok(Self(attached)),
            Err((_, Errno::EBUSY)) => {
                Err(LoadError::Occupied(active().unwrap_or_else(|| Name("(unknown)".into()))))
            }
            Err((_, Errno::EPERM)) => Err(LoadError::NotPermitted),
            Err((object, errno)) => Err(LoadError::NotStarted { errno, exit: exit(&object) }),
        }
    }

    /// Returns the reason for which the kernel ended the scheduler, or `None` while it runs.
    #[must_use]
    pub fn exit(&self) -> Option<Exit> {
        exit(self.0.object())
    }
}

impl Flags for Loaded {
    fn flag(&self, thread: BorrowedFd<'_>, payer: u32) -> Result<(), Errno> {
        let map = self.0.object().map(c"flags").ok_or(Errno::ENOENT)?;
        map.set(&thread.as_raw_fd(), &RawFlag { payer, reserved: 0 })
    }

    fn unflag(&self, thread: BorrowedFd<'_>) -> Result<(), Errno> {
        self.0.object().map(c"flags").ok_or(Errno::ENOENT)?.remove(&thread.as_raw_fd())
    }

    fn weigh(&self, main_thread: BorrowedFd<'_>, weight: Weight) -> Result<(), Errno> {
        let map = self.0.object().map(c"weights").ok_or(Errno::ENOENT)?;
        if weight == Weight::ORDINARY {
            return map.remove(&main_thread.as_raw_fd());
        }
        map.set(&main_thread.as_raw_fd(), &RawWeight { hundredths: weight.as_hundredths(), reserved: 0 })
    }

    fn predict(&self, pid: u32, terms: &PredictionTerms) -> Result<(), Errno> {
        self.0.object().run(c"pronto_predict", RawTermsOfPrediction::new(pid, terms))
    }

    fn forget(&self, pid: u32) -> Result<(), Errno> {
        self.0.object().map(c"predictions").ok_or(Errno::ENOENT)?.remove(&pid)
    }

    fn prediction(&self, pid: u32) -> Result<Prediction, Errno> {
        let map = self.0.object().map(c"predictions").ok_or(Errno::ENOENT)?;
        map.get::<u32, RawPrediction>(&pid).map(|prediction| Prediction::from_values(prediction.report))
    }

    fn counters(&self) -> Counters {
        report(self.0.object())
            .map_or_else(Counters::default, |report| Counters::from_values(report.counters))
    }
}

/// Sets the parameters and the sizes of the maps. Returns false if the object has another version.
fn configure(object: &Object, parameters: RawParameters) -> bool {
    let accounts = ACCOUNTS.max(ACCOUNTS_PER_CPU.saturating_mul(parameters.cpus));
    let sizes =
        [(c"cpus", parameters.cpus), (c"cpu_accounts", parameters.cpus), (c"user_accounts", accounts)];
    let has_report = object.map(c".data.report").is_some_and(|map| map.initial::<RawReport>().is_some());
    let has_maps =
        sizes.iter().all(|(name, size)| object.map(name).is_some_and(|map| map.set_entries(*size).is_ok()));
    let values = [
        (c"flags", size_of::<RawFlag>()),
        (c"weights", size_of::<RawWeight>()),
        (c"predictions", size_of::<RawPrediction>()),
    ];
    let has_values =
        values.iter().all(|(name, size)| object.map(name).is_some_and(|map| map.value_size() == *size));
    let Some(map) = object.map(c".rodata.parameters") else { return false };
    let is_same = map.initial::<RawParameters>().is_some_and(|found| found.version == VERSION);
    has_maps && has_values && is_same && has_report && map.write(parameters)
}

fn report(object: &Object) -> Option<RawReport> {
    object.map(c".data.report")?.read()
}

fn exit(object: &Object) -> Option<Exit> {
    let report = report(object).filter(|report| report.has_exited != 0)?;
    let text = |bytes: &[u8]| {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
    };
    Some(Exit {
        kind: report.kind,
        code: report.code,
        reason: text(&report.reason),
        message: text(&report.message),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(kind: u32, code: i64, message: &str) -> Exit {
        Exit { kind, code, reason: "runnable task stall".into(), message: message.into() }
    }

    #[test]
    fn the_end_is_an_error_a_restart_or_neither() {
        assert!(exit(1_026, 0, "").is_error() && !exit(1_026, RESTART, "").asks_for_restart());
        assert!(exit(66, RESTART | 1 << 32, "").asks_for_restart());
        assert!(!exit(64, 0, "").is_error() && !exit(64, 0, "").asks_for_restart());
    }

    #[test]
    fn the_end_is_reported_in_the_words_of_the_kernel() {
        assert_eq!(exit(1_026, 0, "").to_string(), "runnable task stall");
        let not_started = LoadError::NotStarted { errno: Errno::EINVAL, exit: Some(exit(1_026, 0, "x")) };
        assert!(
            not_started.to_string().ends_with("Invalid argument: runnable task stall (x)"),
            "{not_started}"
        );
    }

    /// Shows: operations.scx-missing
    #[test]
    fn a_kernel_without_sched_ext_is_reported_first() {
        if Path::new(KERNEL).exists() {
            return pronto_skip::because("this kernel has sched_ext");
        }
        let refused =
            Loaded::load(Path::new("/nowhere"), &Settings::default(), Messages::Hidden).unwrap_err();
        assert_eq!(refused, LoadError::NoSchedExt);
        assert_eq!(active(), None);
    }
}
