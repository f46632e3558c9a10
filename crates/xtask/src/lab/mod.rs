//! `cargo xtask lab`: a QEMU machine with a stock Debian kernel, for tests that this host's kernel cannot run.

mod accelerator;
mod apt;
mod bpf;
mod build;
mod build_root;
mod cache;
mod console;
mod cpio;
mod debug_kernel;
mod dkms;
mod guest;
mod host;
mod kernel;
mod machine;
mod mirror;
mod module;
mod modules;
mod portable;
mod programs;
mod progress;
mod prune;
mod recipe;
mod rust_metadata;
mod soak;
mod std_source;
mod suite;
mod test;
mod vmlinux;

use core::time::Duration;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};

use crate::workspace::Workspace;
use build::Image;
use build_root::BuildRoot;
use machine::{Ending, Machine, Memory};

pub(crate) use host::{is_ci, unavailable};
pub(crate) use std_source::{cargo as std_cargo, provide as provide_std_source};
pub(crate) use suite::{drivers, targets};

/// The exit code of `lab run` if the machine failed, not the command.
const LAB_FAILED: u8 = 125;

/// Time limit of `lab check`, which boots, creates two nodes and sends 2,000 small messages.
const CHECK_LIMIT: Duration = Duration::from_secs(240);

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
    /// Debian's version of the kernel (7.3.4, or 7.2.12-1~bpo13+1; 6.12.117-rt has PREEMPT_RT) instead of the one in lab/lab.toml
    #[arg(long, global = true, value_name = "VERSION")]
    kernel: Option<String>,
    /// Boot a kernel of the same version with debugging checks (`locks` without a value), for tests of modules; build it if necessary
    #[arg(long, global = true, value_enum, value_name = "KIND", num_args = 0..=1, require_equals = true, default_missing_value = "locks")]
    debug_kernel: Option<debug_kernel::Kind>,
    /// Form of modules that have two; without it, `rust` if the kernel has Rust
    #[arg(long, global = true, value_enum)]
    form: Option<portable::Form>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Fetch the kernel and the tools, and build the image. Does nothing if it exists.
    Build,
    /// Build a kernel with debugging checks: that of `--debug-kernel`. Takes 15 minutes to an hour, once.
    DebugKernel,
    /// Remove from the cache what was not used for a month (images: for two days).
    Clean(prune::Options),
    /// Boot, run a command, return its output and its exit code (125: the machine failed).
    Run(RunOptions),
    /// Run the tests of the lab; tests that need the same machine share one.
    Test(test::Options),
    /// Run the tests that find more faults if they run longer, each for half an hour in its own machine.
    Soak(soak::Options),
    /// Boot, and get a shell at this terminal.
    Shell(MachineOptions),
    /// Build a kernel module against the stock kernel, load it, and print its messages.
    Module(module::Options),
    /// Make a Debian package from which DKMS compiles kernel/expedite on any machine.
    Dkms(dkms::Options),
    /// Build a BPF program for the kernel, and print the path of its object.
    Bpf(bpf::Options),
    /// Measure `ibv_rc_pingpong` between two soft-RoCE nodes, and load modules.
    Check,
}

#[derive(Debug, Args)]
struct RunOptions {
    #[command(flatten)]
    machine: MachineOptions,
    /// Time limit for the machine, boot included
    #[arg(long, default_value_t = 300, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
    /// The program and its arguments; for a shell line use `sh -c "..."`
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    words: Vec<String>,
}

#[derive(Debug, Args)]
struct MachineOptions {
    /// Number of CPUs of the machine
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    cpus: u32,
    /// Create two NUMA nodes, each with at least one CPU, and a network card on the second
    #[arg(long)]
    numa: bool,
    #[command(flatten)]
    accelerator: accelerator::Choice,
    /// Folder that the machine may write to, at the same path; the command starts in it
    #[arg(long, value_name = "DIR")]
    share: Option<PathBuf>,
}

impl MachineOptions {
    fn machine<'a>(&self, workspace: &Workspace, image: &'a Image) -> Result<Machine<'a>> {
        let accelerator = self.accelerator.accelerator()?;
        let machine = Machine::new(image, workspace, self.cpus, self.share.as_deref())?;
        Ok(machine.with_memory(Memory::of(self.numa)).with(accelerator))
    }
}

/// Runs one command of the lab.
///
/// # Errors
/// A package is not available, a program of the host is missing, or QEMU does not start. A command or a machine that fails is an
/// exit code, not an error.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let image = || {
        let image = build::provide(workspace, options.kernel.as_deref())?.with_form(options.form);
        match options.debug_kernel {
            Some(kind) => debug_kernel::provide(workspace, image, kind),
            None => Ok(image),
        }
    };
    let code = match &options.command {
        Command::Build => {
            let image = image()?;
            let root = BuildRoot::provide(workspace, &image)?;
            println!("{image}");
            println!("modules   {}", root.folder.display());
            return Ok(ExitCode::SUCCESS);
        }
        Command::DebugKernel => {
            let kind = options.debug_kernel.unwrap_or(debug_kernel::Kind::Locks);
            let stock = build::provide(workspace, options.kernel.as_deref())?;
            println!("{}", debug_kernel::provide(workspace, stock, kind)?);
            return Ok(ExitCode::SUCCESS);
        }
        Command::Clean(options) => return prune::run(options).map(|()| ExitCode::SUCCESS),
        Command::Test(options) => {
            return match unavailable() {
                Some(reason) => test::skip(workspace, &reason),
                None => test::run(workspace, &image()?, options),
            };
        }
        Command::Soak(options) => {
            if let Some(reason) = unavailable() {
                anyhow::bail!("{reason}");
            }
            return soak::run(workspace, &image()?, options);
        }
        Command::Bpf(options) => {
            println!("{}", bpf::build(workspace, &image()?, &options.folder)?.display());
            return Ok(ExitCode::SUCCESS);
        }
        Command::Run(run) => {
            let limit = Duration::from_secs(run.timeout);
            run.machine.machine(workspace, &image()?)?.run(&run.words, limit)?
        }
        Command::Shell(shell) => shell.machine(workspace, &image()?)?.shell()?,
        Command::Module(module) => module::run(workspace, &image()?, module)?,
        Command::Dkms(dkms) => dkms::run(workspace, &image()?, dkms)?,
        Command::Check => {
            let image = image()?;
            let root = BuildRoot::provide(workspace, &image)?;
            module::check_policy(workspace, &root)?;
            let hello = module::hello(workspace, &root)?;
            let words = ["lab-check".into(), hello, module::portable_expedite(workspace, &root)?];
            let words = words.map(|word| word.into_os_string().into_string());
            let words: Result<Vec<_>, _> = words.into_iter().collect();
            let words = words.ok().context("the path of a module is not valid UTF-8")?;
            Machine::new(&image, workspace, 2, None)?.run(&words, CHECK_LIMIT)?
        }
    };
    Ok(ExitCode::from(match code {
        Ending::Exited(code) => code,
        Ending::Failed(failure) => {
            eprintln!("lab: {failure}");
            LAB_FAILED
        }
    }))
}
