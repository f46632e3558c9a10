//! The overlap of a send and its receiver's computation over an MPI of this machine: `bench/peers/c/overlap.c`.

use core::time::Duration;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use super::{Repetition, Repetitions};
use crate::echo::Provider;
use crate::params::choices;
use crate::peers::build::{Program, on_path};
use crate::placement::CpuPair;

choices! {
    /// An MPI, as packaged by Debian, at its defaults.
    pub(crate) enum Mpi {
        /// Open MPI.
        Open = "openmpi",
        /// MPICH.
        Mpich = "mpich",
    }
}

/// Result of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ran {
    /// Version, as the MPI reports it.
    pub(crate) version: String,
    /// Repetitions by size in bytes.
    pub(crate) sizes: BTreeMap<u64, Repetitions>,
}

impl Mpi {
    /// Repeats all sizes. If a tool is missing, the error names the command that installs it.
    pub(crate) fn run(
        self,
        provider: Provider,
        sizes: &[u64],
        times: u32,
        computing: Duration,
        cpus: CpuPair,
    ) -> anyhow::Result<Ran> {
        let (program, runner) = match self {
            Self::Open => (Program::OpenMpiOverlap, "mpirun.openmpi"),
            Self::Mpich => (Program::MpichOverlap, "mpirun.mpich"),
        };
        let program = program.build()?;
        if !on_path(runner) {
            bail!("{runner} is missing; it comes with the compiler's package");
        }
        let mut command = Command::new(runner);
        let options: &[&str] = match (self, provider) {
            (Self::Open, Provider::Shm) => &OPEN,
            (Self::Open, Provider::Tcp) => &[OPEN.as_slice(), &["--mca", "btl", "self,tcp"]].concat(),
            (Self::Mpich, Provider::Shm) => &["-np", "2"],
            // Without shared memory, neither its own nor that of the underlying UCX.
            (Self::Mpich, Provider::Tcp) => {
                &["-np", "2", "-genv", "MPIR_CVAR_NOLOCAL", "1", "-genv", "UCX_TLS", "tcp,self"]
            }
        };
        command.args(options);
        command.arg(program).args([computing.as_millis().to_string(), times.to_string()]);
        // The sender shares no CPU with the computation.
        command.args([cpus.server, cpus.caller].map(|cpu| cpu.0.to_string()));
        Ran::of(command.args(sizes.iter().map(u64::to_string)), || Ok(()))
    }
}

impl Ran {
    /// Runs the program by this command. Once its ranks are connected, `background` starts other processes, which run until the program ends.
    pub(crate) fn of<T>(
        command: &mut Command,
        background: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<Self> {
        let runner = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("starting {runner}"))?;
        let stdout = child.stdout.take().context("the child has no standard output")?;
        let mut stderr = child.stderr.take().context("the child has no standard error")?;
        let (mut output, mut text, mut errors) = (BufReader::new(stdout), String::new(), Vec::new());
        std::thread::scope(|scope| {
            // Otherwise a child that writes many errors would wait for a reader.
            let reader = scope.spawn(|| stderr.read_to_end(&mut errors));
            let is_connected = output.read_line(&mut text).context("reading from a child")? > 0;
            let running = is_connected.then(background);
            output.read_to_string(&mut text).context("reading from a child")?;
            running.transpose()?;
            let read = reader.join().map_err(|_| anyhow::anyhow!("reading from a child panicked"))?;
            read.map(drop).context("reading from a child")
        })?;
        if !child.wait().with_context(|| format!("waiting for {runner}"))?.success() {
            let stderr = String::from_utf8_lossy(&errors);
            bail!("{runner}: {}", stderr.lines().find(|line| !line.trim().is_empty()).unwrap_or("it failed"));
        }
        parse(&text)
    }

    /// Returns the repetitions of all sizes during which the receiver computed.
    pub(crate) fn computing(&self) -> impl Iterator<Item = &Repetition> {
        self.sizes.values().flat_map(|all| &all.computing)
    }
}

/// Two ranks, which pin themselves.
const OPEN: [&str; 6] = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", "2"];

fn parse(text: &str) -> anyhow::Result<Ran> {
    let mut run = Ran::default();
    for line in text.lines() {
        if let Some(version) = line.strip_prefix("version ") {
            run.version = version.split_whitespace().collect::<Vec<_>>().join(" ");
            continue;
        }
        let words: Vec<_> = line.split(' ').collect();
        let [size, how, send, wait, compute, before, alone] = words[..] else {
            bail!("malformed line of the MPI program: {line}")
        };
        let number = |word: &str| {
            word.parse::<f64>().with_context(|| format!("malformed line of the MPI program: {line}"))
        };
        let repetition = Repetition {
            send_us: number(send)?,
            wait_us: number(wait)?,
            compute_us: number(compute)?,
            before_end: before == "1",
        };
        let all = run.sizes.entry(size.parse().context("invalid size")?).or_default();
        if how == "beside" {
            all.computing.push(repetition);
        } else {
            all.alone.push(repetition);
            all.compute_alone_us.push(number(alone)?);
        }
    }
    Ok(run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_the_program_is_parsed() {
        let text = "version Open MPI v4.1.4\n1024 alone 2.5 0.5 0.0 0 50000.5\n1024 beside 50000.0 900.5 50001.0 1 0.0\n";
        let run = parse(text).unwrap();
        assert_eq!(run.version, "Open MPI v4.1.4");
        let all = &run.sizes[&1024];
        assert_eq!((all.alone.len(), all.computing.len(), all.compute_alone_us[0]), (1, 1, 50_000.5));
        assert!(all.computing[0].before_end && !all.alone[0].before_end);
        assert!(parse("1024 beside").is_err());
    }
}
