//! The crates in which faults are planted, and the tests that must detect each fault.

use anyhow::{Context, Result, ensure};

use super::list::{self, Mutation};
use crate::workspace::{Package, Workspace};

/// A crate with a list of faults.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) package: &'static str,
    /// The folder below the crate that the list's file names are relative to.
    pub(super) sources: &'static str,
    /// The faults that a bounded run plants.
    bounded: Bounded,
    /// Chooses the unit tests of the crate.
    unit: fn(&Package) -> Judging,
}

/// The faults of a subject that a bounded run plants.
#[derive(Debug, Clone, Copy)]
enum Bounded {
    FirstOfEachFile,
    All,
}

/// The arguments of `cargo test` that choose the tests which must detect a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Judging {
    pub(super) targets: Vec<String>,
    /// A part of the names of the tests to run.
    pub(super) filter: Option<&'static str>,
}

/// The package whose tests run whole sessions in a simulated world.
const SIMULATION: &str = "pronto-sim";

/// A test of the policies that inspects sources and compiled code. It would detect a fault by the form of the code, not by the
/// decisions of the policies.
const NOT_BEHAVIOUR: &str = "kernel_rules";

pub(super) const ALL: &[Subject] = &[
    Subject {
        package: "pronto-sched-policy",
        sources: "src/policy",
        bounded: Bounded::FirstOfEachFile,
        unit: |package| {
            let tests = package.targets_of("test").filter(|name| *name != NOT_BEHAVIOUR);
            Judging::new(package, "--lib", tests, None)
        },
    },
    Subject {
        package: "pronto-core",
        sources: "src",
        bounded: Bounded::All,
        unit: |package| Judging::new(package, "--lib", [], Some("session::")),
    },
];

impl Judging {
    fn new<'a>(
        package: &Package,
        lib: &str,
        tests: impl IntoIterator<Item = &'a str>,
        filter: Option<&'static str>,
    ) -> Self {
        let mut targets = vec!["--package".to_owned(), package.name.clone()];
        targets.extend((!lib.is_empty()).then(|| lib.to_owned()));
        targets.extend(tests.into_iter().flat_map(|name| ["--test".to_owned(), name.to_owned()]));
        Self { targets, filter }
    }
}

impl Subject {
    /// Returns the subject's package in this workspace.
    ///
    /// # Errors
    /// The workspace has no such package.
    pub(super) fn package<'w>(&self, workspace: &'w Workspace) -> Result<&'w Package> {
        find(workspace, self.package)
    }

    /// Returns all faults of the subject.
    ///
    /// # Errors
    /// The list cannot be read.
    pub(super) fn faults(&self, workspace: &Workspace) -> Result<Vec<Mutation>> {
        list::read(&self.package(workspace)?.folder)
    }

    /// Returns those of the faults `all` that a bounded run plants.
    pub(super) fn bounded<'a>(&self, all: &'a [Mutation]) -> Vec<&'a Mutation> {
        match self.bounded {
            Bounded::FirstOfEachFile => list::first_of_each_file(all),
            Bounded::All => all.iter().collect(),
        }
    }

    /// Returns the packages to copy: the subject, and those whose tests must detect the faults.
    pub(super) fn packages<'w>(
        &self,
        workspace: &'w Workspace,
        faults: &[&Mutation],
    ) -> Result<Vec<&'w Package>> {
        let mut packages = vec![self.package(workspace)?];
        if faults.iter().any(|fault| fault.simulation.is_some()) {
            packages.push(find(workspace, SIMULATION)?);
        }
        Ok(packages)
    }

    /// Returns the tests that must detect a fault: those of the crate, or the test `simulation` of `pronto-sim`.
    ///
    /// # Errors
    /// The package, or the test, does not exist.
    pub(super) fn judging(&self, workspace: &Workspace, simulation: Option<&str>) -> Result<Judging> {
        let Some(test) = simulation else { return Ok((self.unit)(self.package(workspace)?)) };
        let package = find(workspace, SIMULATION)?;
        ensure!(package.targets_of("test").any(|name| name == test), "{SIMULATION} has no test {test}");
        Ok(Judging::new(package, "", [test], None))
    }
}

fn find<'w>(workspace: &'w Workspace, name: &str) -> Result<&'w Package> {
    workspace
        .packages
        .iter()
        .find(|package| package.name == name)
        .with_context(|| format!("the workspace has no package {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::tests::workspace;
    use serde_json::Value;

    #[test]
    fn a_fault_is_judged_by_the_tests_of_its_subject_or_entry() {
        let workspace = workspace(&[
            ("pronto-sched-policy", Value::Null, &[("test", "golden"), ("test", NOT_BEHAVIOUR)]),
            ("pronto-core", Value::Null, &[("test", "typestate")]),
            ("pronto-sim", Value::Null, &[("test", "rare_states"), ("test", "storm")]),
        ]);
        let [policies, core] = ALL else { panic!("there are two subjects") };
        let line = |subject: &Subject, simulation| subject.judging(&workspace, simulation).unwrap();
        let unit = line(policies, None);
        assert_eq!(unit.targets, ["--package", "pronto-sched-policy", "--lib", "--test", "golden"]);
        let unit = line(core, None);
        assert_eq!(
            (unit.targets.join(" ").as_str(), unit.filter),
            ("--package pronto-core --lib", Some("session::"))
        );
        let rare = line(core, Some("rare_states"));
        assert_eq!(
            (rare.targets.join(" ").as_str(), rare.filter),
            ("--package pronto-sim --test rare_states", None)
        );
    }

    #[test]
    fn a_missing_test_is_an_error() {
        let workspace = workspace(&[
            ("pronto-core", Value::Null, &[]),
            ("pronto-sim", Value::Null, &[("test", "storm")]),
        ]);
        assert!(ALL[1].judging(&workspace, Some("rare_states")).is_err());
        assert!(ALL[0].judging(&workspace, None).is_err());
    }
}
