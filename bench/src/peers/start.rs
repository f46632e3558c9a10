//! Starting the programs of `bench/peers`.

use core::time::Duration;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use super::build::on_path;

/// Returns a command, without its program, that is killed after `limit` together with the processes that it started.
pub(crate) fn within(limit: Duration) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=2", &limit.as_secs().to_string()]);
    command
}

/// Lets `mpirun` start the program that follows as two ranks on this host.
pub(crate) fn mpirun<'a>(command: &'a mut Command, options: &[&str]) -> anyhow::Result<&'a mut Command> {
    anyhow::ensure!(on_path("mpirun"), "mpirun is missing");
    // Allow measurements as root.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    Ok(command.args(["mpirun", "-np", "2", "--host", "localhost:2"]).args(options))
}

/// Runs a command, and returns its output. Fails if the program fails or does not end in time.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output().context("starting a round")?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("{}: {}", output.status, stderr.lines().next_back().unwrap_or("no error message"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Options of `mpirun` for shared memory, long messages copied once by the kernel (CMA), without yielding.
pub(crate) const MPI_VADER: &[&str] =
    &["--mca", "pml", "ob1", "--mca", "btl", "self,vader", "--mca", "mpi_yield_when_idle", "0"];

/// Options of `mpirun` for TCP, as its documentation has them.
pub(crate) const MPI_TCP: &[&str] = &["--mca", "btl", "self,tcp"];

/// Options of `mpirun` for TCP on the loopback interface, without yielding.
pub(crate) const MPI_TCP_ON_LO: &[&str] = &[
    "--mca",
    "pml",
    "ob1",
    "--mca",
    "btl",
    "self,tcp",
    "--mca",
    "btl_tcp_if_include",
    "lo",
    "--mca",
    "mpi_yield_when_idle",
    "0",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_program_is_an_error_with_its_last_line() {
        let mut shell = Command::new("sh");
        let error = output(shell.args(["-c", "echo first >&2; echo last >&2; exit 3"])).unwrap_err();
        assert_eq!(error.to_string(), "exit status: 3: last");
        assert_eq!(output(Command::new("echo").arg("text")).unwrap(), "text\n");
    }

    #[test]
    fn a_hanging_program_is_killed() {
        let error = output(within(Duration::from_secs(1)).args(["sleep", "600"])).unwrap_err();
        assert!(error.to_string().starts_with("exit status: 124"), "{error}");
    }
}
