//! `cargo xtask lab test`: builds the tests of the lab, boots one machine for all tests with the same needs, and passes on their
//! output.

use core::time::Duration;
use std::collections::BTreeSet;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use super::build::Image;
use super::build_root::BuildRoot;
use super::machine::{Ending, Machine};
use super::suite::{self, Program, Target};
use super::{LAB_FAILED, bpf, host, module};
use crate::child::CommandLine;
use crate::stages::unit;
use crate::workspace::Workspace;

/// Variable that names the form of the modules for tests.
const FORM: &str = "PRONTO_LAB_MODULE_FORM";

/// Options of test programs: run only tests that are ignored on the host, sequentially, because they share a machine.
const OPTIONS: &[&str] = &["--ignored", "--test-threads=1"];

#[derive(Debug, Args)]
pub(super) struct Options {
    /// Only tests of this package (repeatable)
    #[arg(long, short, value_name = "NAME")]
    package: Vec<String>,
    /// Only this test target (repeatable)
    #[arg(long, value_name = "TARGET")]
    test: Vec<String>,
    /// Time limit for a machine, boot included
    #[arg(long, default_value_t = 1_800, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
    /// Only tests whose names contain FILTER; options of the test programs may follow
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FILTER")]
    words: Vec<String>,
}

/// Prints for each test target why the lab cannot run here. In CI the result is a failure.
pub(super) fn skip(workspace: &Workspace, reason: &str) -> Result<ExitCode> {
    for target in suite::targets(workspace)? {
        println!("{} {} ... ignored, {reason}", target.package, target.name);
    }
    Ok(if host::is_ci() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Runs the chosen tests. Returns the exit code of cargo, or 125 if a machine failed.
///
/// # Errors
/// No test matches, or the tests do not build.
pub(super) fn run(workspace: &Workspace, image: &Image, options: &Options) -> Result<ExitCode> {
    let mut targets = suite::targets(workspace)?;
    let among = |list: &[String], name: &String| list.is_empty() || list.contains(name);
    targets.retain(|target| among(&options.package, &target.package) && among(&options.test, &target.name));
    ensure!(!targets.is_empty(), "no such test target; those for the lab are named `lab` or `lab_*`");
    let words: Vec<_> = OPTIONS.iter().copied().map(str::to_owned).chain(options.words.clone()).collect();

    let mut programs = Vec::new();
    for program in build(workspace, &options.package.iter().cloned().collect(), targets)? {
        if !tests_in(&program, &options.words)?.is_empty() {
            programs.push(program);
        } else {
            let Target { package, name, .. } = program.target;
            ensure!(
                !options.words.is_empty(),
                "{package} {name} has no test that is ignored outside the lab"
            );
        }
    }
    ensure!(!programs.is_empty(), "no test matches {}", options.words.join(" "));

    let variable = build_modules(workspace, image, &programs)?;
    let mut code = 0;
    for ((cpus, memory, accelerator), programs) in suite::machines(programs) {
        let command = suite::command(&programs, &words)?;
        let machine = Machine::new(image, workspace, cpus, None)?.with_memory(memory).with(accelerator);
        let machine = variable.iter().cloned().fold(machine, Machine::with_variable);
        code = code.max(match machine.run(&command, Duration::from_secs(options.timeout))? {
            Ending::Exited(code) => code,
            Ending::Failed(failure) => {
                eprintln!("lab: {failure}");
                LAB_FAILED
            }
        });
    }
    Ok(ExitCode::from(code))
}

/// Builds the targets with one cargo command, so that they share the build of the other stages of `cargo xtask test`.
///
/// # Errors
/// They do not build.
pub(super) fn build(
    workspace: &Workspace,
    packages: &BTreeSet<String>,
    targets: Vec<Target>,
) -> Result<Vec<Program>> {
    let selection = if packages.is_empty() {
        unit::selection(workspace)
    } else {
        CommandLine::cargo(["test"]).args(packages.iter().flat_map(|name| ["--package", name]))
    };
    build_examples(&targets)?;
    let mut names: Vec<_> = targets.iter().map(|target| target.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let line = selection
        .args(["--no-run", "--message-format=json-render-diagnostics"])
        .args(names.into_iter().flat_map(|name| ["--test", name]));
    let output =
        line.command().stderr(Stdio::inherit()).output().with_context(|| format!("cannot start `{line}`"))?;
    if !output.status.success() {
        bail!("the tests of the lab do not build");
    }
    suite::built(&String::from_utf8_lossy(&output.stdout), targets)
}

/// Builds the examples that tests of the targets start. `cargo test --example` would build them as test programs.
///
/// # Errors
/// They do not build.
fn build_examples(targets: &[Target]) -> Result<()> {
    let names: BTreeSet<_> = targets.iter().flat_map(|target| &target.needs.examples).collect();
    if names.is_empty() {
        return Ok(());
    }
    // With the features of the whole workspace, as the tests of all packages.
    let line = CommandLine::cargo(["build", "--workspace"])
        .args(names.into_iter().flat_map(|name| ["--example", name.as_str()]));
    let status = line.command().status().with_context(|| format!("cannot start `{line}`"))?;
    ensure!(status.success(), "the examples for the lab do not build");
    Ok(())
}

/// Builds the kernel modules and the BPF programs that the test programs need. Returns the variable that names the form of the modules, for
/// the tests.
///
/// # Errors
/// One of them does not build.
pub(super) fn build_modules(
    workspace: &Workspace,
    image: &Image,
    programs: &[Program],
) -> Result<Option<String>> {
    let folders: BTreeSet<_> = programs.iter().flat_map(|program| &program.target.needs.bpf).collect();
    for folder in folders {
        bpf::build(workspace, image, &workspace.root.join(folder))?;
    }
    let modules: BTreeSet<_> = programs.iter().flat_map(|program| &program.target.needs.modules).collect();
    if modules.is_empty() {
        return Ok(None);
    }
    let root = BuildRoot::provide(workspace, image)?;
    for folder in modules {
        module::build(workspace, &root, &workspace.root.join(folder))?;
    }
    let faults: BTreeSet<_> = programs.iter().flat_map(|program| &program.target.needs.faults).collect();
    for fault in faults {
        module::broken(workspace, &root, *fault)?;
    }
    Ok(Some(format!("{FORM}={}", root.form.name())))
}

/// Runs a test program on the host to list its tests for the lab that `words` choose.
///
/// # Errors
/// The program does not start, or rejects the words.
pub(super) fn tests_in(program: &Program, words: &[String]) -> Result<Vec<String>> {
    let mut list = Command::new(&program.executable);
    list.args(OPTIONS).args(words).args(["--list", "--format=terse"]).stdin(Stdio::null());
    let output = list.output().with_context(|| format!("cannot start {}", program.executable.display()))?;
    ensure!(output.status.success(), "{list:?} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8_lossy(&output.stdout);
    Ok(names.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}
