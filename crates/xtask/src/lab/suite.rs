//! Tests that run in the lab: their names, their needs, and the command that starts them.
//!
//! A test target named `lab` or `lab_*` is one. Its tests are ordinary ones, which are ignored outside the lab. The needs are in the
//! manifest, under `[package.metadata.pronto.lab]`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::accelerator::Accelerator;
use super::machine::Memory;
use super::portable::Fault;
use crate::workspace::{Package, Workspace};

/// The name of a test target that runs in the lab. An underscore and more text may follow.
const INSIDE: &str = "lab";

/// The name of a test target that runs on the host and starts machines itself.
const DRIVERS: &str = "drives_lab";

/// The needs of a package's tests.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Needs {
    /// Nodes with soft-RoCE devices. `lab-nodes` creates them before each test program and removes them after it.
    pub(crate) nodes: u32,
    /// Number of CPUs of the machine.
    pub(crate) cpus: u32,
    /// Numbers of CPUs for individual test targets of the package, by name.
    pub(crate) cpus_of: BTreeMap<String, u32>,
    /// Whether the machine has two NUMA nodes, and a network card on the second.
    pub(crate) numa: bool,
    /// How instructions are executed. Test programs with equal CPUs, NUMA nodes and accelerator share a machine.
    pub(crate) accelerator: Accelerator,
    /// Accelerators of individual test targets of the package, by name.
    pub(crate) accelerators: BTreeMap<String, Accelerator>,
    /// Parts of the names of tests that find more faults if they run longer: see [`super::soak`].
    pub(crate) soak: Vec<String>,
    /// Examples of the package that its tests start. They are built together with the tests.
    pub(crate) examples: Vec<String>,
    /// Folders of kernel modules, relative to the root of the tree. They are built before the machine boots;
    /// [`super::module::build`] says where.
    pub(crate) modules: Vec<String>,
    /// Faults of kernel/expedite, each of which is built as a module of its own before the machine boots ([`super::module::broken`]).
    pub(crate) faults: Vec<Fault>,
    /// Folders of BPF programs, relative to the root of the tree. They are built before the machine boots; [`super::bpf::place`]
    /// returns their paths.
    pub(crate) bpf: Vec<String>,
}

impl Default for Needs {
    fn default() -> Self {
        Self {
            nodes: 0,
            cpus: 2,
            cpus_of: BTreeMap::new(),
            numa: false,
            accelerator: Accelerator::default(),
            accelerators: BTreeMap::new(),
            soak: Vec::new(),
            examples: Vec::new(),
            modules: Vec::new(),
            faults: Vec::new(),
            bpf: Vec::new(),
        }
    }
}

impl Needs {
    /// Returns the needs of one test target of the package.
    fn of(&self, target: &str) -> Self {
        let accelerator = self.accelerators.get(target).copied().unwrap_or(self.accelerator);
        let cpus = self.cpus_of.get(target).copied().unwrap_or(self.cpus);
        Self { accelerator, cpus, ..self.clone() }
    }
}

/// A test target for the lab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) package: String,
    pub(crate) name: String,
    /// The working folder of its tests, as with cargo: the folder of the package.
    pub(crate) folder: PathBuf,
    pub(crate) needs: Needs,
}

/// A target that cargo has built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Program {
    pub(super) target: Target,
    pub(super) executable: PathBuf,
}

/// Returns the targets that run in the machine, in the order of their packages.
///
/// # Errors
/// The needs in a manifest are invalid.
pub(crate) fn targets(workspace: &Workspace) -> Result<Vec<Target>> {
    let mut targets = Vec::new();
    for package in &workspace.packages {
        let needs = needs(package)?;
        targets.extend(package.targets_of("test").filter(|name| is(name, INSIDE)).map(|name| Target {
            package: package.name.clone(),
            name: name.to_owned(),
            folder: package.folder.clone(),
            needs: needs.of(name),
        }));
    }
    Ok(targets)
}

/// Returns the targets that run on the host next to the machine, each with its package.
pub(crate) fn drivers(workspace: &Workspace) -> Vec<(&str, &str)> {
    let targets = workspace
        .packages
        .iter()
        .flat_map(|package| package.targets_of("test").map(|name| (package.name.as_str(), name)));
    targets.filter(|(_, name)| is(name, DRIVERS)).collect()
}

fn is(name: &str, kind: &str) -> bool {
    name.strip_prefix(kind).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}

fn needs(package: &Package) -> Result<Needs> {
    let Some(mark) = package.mark("lab") else { return Ok(Needs::default()) };
    Needs::deserialize(mark)
        .with_context(|| format!("[package.metadata.pronto.lab] of {} is invalid", package.name))
}

/// Groups the programs by the machine that they need, so that each machine boots once.
pub(super) fn machines(programs: Vec<Program>) -> BTreeMap<(u32, Memory, Accelerator), Vec<Program>> {
    let mut machines: BTreeMap<_, Vec<Program>> = BTreeMap::new();
    for program in programs {
        let Needs { cpus, numa, accelerator, .. } = program.target.needs;
        machines.entry((cpus, Memory::of(numa), accelerator)).or_default().push(program);
    }
    machines
}

/// Returns the command of a machine that runs these programs, each with `options`. `lab/lab-tests` parses it.
///
/// # Errors
/// A path is not valid UTF-8.
pub(super) fn command(programs: &[Program], options: &[String]) -> Result<Vec<String>> {
    let text = |path: &Path| path.to_str().map(str::to_owned).context("a path is not valid UTF-8");
    let mut words = vec!["lab-tests".to_owned(), options.len().to_string()];
    words.extend_from_slice(options);
    for Program { target, executable } in programs {
        words.extend([
            format!("{} {}", target.package, target.name),
            text(&target.folder)?,
            text(executable)?,
            target.needs.nodes.to_string(),
        ]);
    }
    Ok(words)
}

/// Returns the programs that cargo reports for `targets`, from lines of `--message-format=json`.
///
/// # Errors
/// One of them is missing.
pub(super) fn built(messages: &str, targets: Vec<Target>) -> Result<Vec<Program>> {
    let artifacts: Vec<_> = messages.lines().filter_map(artifact).collect();
    let mut programs = Vec::new();
    for target in targets {
        let built = |(manifest, name, _): &&(PathBuf, String, PathBuf)| {
            manifest.parent() == Some(&target.folder) && *name == target.name
        };
        let Some((_, _, executable)) = artifacts.iter().find(built) else {
            bail!("cargo did not build the test {} of {}", target.name, target.package);
        };
        programs.push(Program { executable: executable.clone(), target });
    }
    Ok(programs)
}

/// Returns the manifest, name and file of a test program.
fn artifact(message: &str) -> Option<(PathBuf, String, PathBuf)> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    let is_test = message["reason"] == "compiler-artifact" && message["target"]["kind"][0] == "test";
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    let manifest = text(&message["manifest_path"]).filter(|_| is_test)?;
    Some((manifest.into(), text(&message["target"]["name"])?, text(&message["executable"])?.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::tests::workspace;
    use serde_json::{Value, json};

    fn sample() -> Vec<Target> {
        let workspace = workspace(&[
            ("verbs", json!({ "lab": { "nodes": 2 } }), &[("lib", "verbs"), ("test", "lab_queue_pairs")]),
            ("xtask", Value::Null, &[("test", "lab"), ("test", "drives_lab"), ("test", "labels_no")]),
        ]);
        assert_eq!(drivers(&workspace), [("xtask", "drives_lab")]);
        targets(&workspace).unwrap()
    }

    #[test]
    fn tests_are_found_by_name_and_get_the_needs_of_their_manifest() {
        let targets = sample();
        let found: Vec<_> = targets.iter().map(|t| (t.name.as_str(), t.needs.nodes)).collect();
        assert_eq!(found, [("lab_queue_pairs", 2), ("lab", 0)]);
    }

    #[test]
    fn a_target_may_have_another_accelerator_than_its_package() {
        let lab = json!({ "accelerators": { "lab_latency": "virtual-time" } });
        let workspace =
            workspace(&[("expedite", json!({ "lab": lab }), &[("test", "lab"), ("test", "lab_latency")])]);
        let clocks: Vec<_> = targets(&workspace).unwrap().iter().map(|it| it.needs.accelerator).collect();
        assert_eq!(clocks, [Accelerator::Emulation, Accelerator::VirtualTime]);
    }

    #[test]
    fn a_misspelt_need_is_an_error() {
        let workspace = workspace(&[("verbs", json!({ "lab": { "node": 2 } }), &[("test", "lab")])]);
        let error = format!("{:#}", targets(&workspace).unwrap_err());
        assert!(error.contains("of verbs is invalid") && error.contains("node"), "{error}");
    }

    #[test]
    fn built_programs_are_found_by_package_and_name() {
        let message = |package: &str, name: &str, kind: &str| {
            json!({ "reason": "compiler-artifact", "manifest_path": format!("/w/{package}/Cargo.toml"),
                "target": { "name": name, "kind": [kind] }, "executable": format!("/t/{package}-{name}") })
            .to_string()
        };
        let mut messages =
            [message("xtask", "lab", "test"), message("other", "lab_queue_pairs", "test")].join("\n");
        assert!(built(&messages, sample()).unwrap_err().to_string().contains("lab_queue_pairs of verbs"));
        messages.push('\n');
        messages.push_str(&message("verbs", "lab_queue_pairs", "test"));
        let programs = built(&messages, sample()).unwrap();
        let words = command(&programs, &["--ignored".to_owned()]).unwrap();
        assert_eq!(words[..3], ["lab-tests", "1", "--ignored"]);
        assert_eq!(words[3..7], ["verbs lab_queue_pairs", "/w/verbs", "/t/verbs-lab_queue_pairs", "2"]);
    }

    #[test]
    fn programs_that_need_the_same_machine_share_it() {
        let program = |cpus, accelerator, numa| {
            let mut target = sample().remove(0);
            target.needs = Needs { cpus, numa, accelerator, ..Needs::default() };
            Program { target, executable: "/t/x".into() }
        };
        let (real, virtual_time) = (Accelerator::Emulation, Accelerator::VirtualTime);
        let machines = machines(vec![
            program(2, real, false),
            program(1, real, false),
            program(2, real, false),
            program(2, virtual_time, false),
            program(2, real, true),
        ]);
        let counts: Vec<_> = machines.into_values().map(|programs| programs.len()).collect();
        assert_eq!(counts, [1, 2, 1, 1]);
    }
}
