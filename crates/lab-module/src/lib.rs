//! The kernel module expedite in tests of the lab: loaded while a value exists, or kept out.
//!
//! A package whose tests use it lists the module in its manifest, which makes `cargo xtask lab test` build it before the boot:
//!
//! ```toml
//! [package.metadata.pronto]
//! lab = { modules = ["kernel/expedite"] }
//! ```
//!
//! # Invariants
//! 1. One value exists at a time in a process: tests that load the module, or depend on its absence, wait for each other. The lab runs
//!    test programs one after another.
#![forbid(unsafe_code)]
#![expect(clippy::expect_used, reason = "a test that cannot continue should stop")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Name of the module.
const NAME: &str = "expedite";

/// Folder below cargo's target folder in which the lab places modules.
const MODULES: &str = "lab-modules";

/// Variable by which the lab names the form in which the module was built. Each form has a folder.
const FORM: &str = "PRONTO_LAB_MODULE_FORM";

/// Lock of the only value.
static ALONE: Mutex<()> = Mutex::new(());

/// The loaded module. It is unloaded when this is dropped.
#[derive(Debug)]
#[must_use = "the module is unloaded when this is dropped"]
pub struct Module {
    _alone: Absent,
}

/// The absence of the module, as long as this exists.
#[derive(Debug)]
#[must_use = "another test may load the module when this is dropped"]
pub struct Absent {
    _alone: MutexGuard<'static, ()>,
}

impl Absent {
    /// Waits until no other test uses the module, and unloads a module that a failed test has left loaded.
    pub fn hold() -> Self {
        // A failed test has poisoned the lock, which protects no data.
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        if is_loaded() {
            succeeds(Command::new("rmmod").arg(NAME));
        }
        Self { _alone: alone }
    }

    /// Loads the module with parameters `name=value`. Threads are boosted even while a CPU is idle (`even_if_idle=1`) unless
    /// `parameters` say otherwise, because most tests run on an idle machine.
    pub fn load(self, parameters: &[&str]) -> Module {
        let loaded = self.try_to_load(parameters);
        assert!(loaded.status.success(), "{parameters:?}: {loaded:?}");
        Module { _alone: self }
    }

    /// Tries to load the module, as [`load`](Self::load) does. Returns the output of `insmod`.
    pub fn try_to_load(&self, parameters: &[&str]) -> Output {
        Self::insert(&format!("{NAME}-{}", form()), parameters)
    }

    /// Tries to load a module with a fault, which the package lists as well (`faults = ["raise"]`). Returns the output of `insmod`.
    pub fn try_to_load_without(&self, fault: &str) -> Output {
        Self::insert(&format!("{NAME}-without-{fault}"), &[])
    }

    fn insert(folder: &str, parameters: &[&str]) -> Output {
        let mut insert = Command::new("insmod");
        insert.arg(path(folder)).args(parameters);
        if !parameters.iter().any(|parameter| parameter.starts_with("even_if_idle=")) {
            insert.arg("even_if_idle=1");
        }
        insert.output().expect("insmod is in the image of the lab")
    }
}

impl Module {
    /// Loads the module: see [`Absent::hold`] and [`Absent::load`].
    pub fn load(parameters: &[&str]) -> Self {
        Absent::hold().load(parameters)
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A process of the failed test may still have the device open. The next test unloads the module.
            let _in_use = Command::new("rmmod").arg(NAME).output();
        } else {
            succeeds(Command::new("rmmod").arg(NAME));
        }
    }
}

fn is_loaded() -> bool {
    PathBuf::from("/sys/module").join(NAME).exists()
}

/// Returns the form in which the module was built for these tests.
fn form() -> String {
    std::env::var(FORM).unwrap_or_else(|_| panic!("{FORM} is not set: run cargo xtask lab test"))
}

/// Returns the path of the module in a folder of those that were built for the running kernel.
fn path(folder: &str) -> PathBuf {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("every kernel has this file");
    let program = std::env::current_exe().expect("a test program has a path");
    let modules = program.ancestors().map(|folder| folder.join(MODULES)).find(|folder| folder.exists());
    let modules = modules.unwrap_or_else(|| {
        panic!("no folder {MODULES} above {}: run cargo xtask lab test", program.display())
    });
    modules.join(release.trim()).join(folder).join(format!("{NAME}.ko"))
}

fn succeeds(command: &mut Command) {
    let output = command.output().expect("the program is in the image of the lab");
    assert!(output.status.success(), "{command:?}: {output:?}");
}
