//! A parallel job over Debian's Open MPI: `mpirun` starts a rank of `pronto-jobs` on each node, in its network namespace and on its CPU.
//!
//! Neither the program nor the library knows of a coscheduler. A shell stands in the place of each rank until the job may begin, and
//! then becomes the rank.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use pronto_parallel_jobs::master_slave::MasterSlave;
use serde::Deserialize;

use super::bed::{TestBed, TestNode};
use super::rank::{App, Class, Ran};
use crate::params::Choice as _;

/// Program that starts ranks.
const STARTER: &str = "mpirun.openmpi";

/// Longest time until all ranks wait for their start.
const START: core::time::Duration = crate::child::START;

/// Becomes a rank after it has read a line from the pipe of the rank.
const WAITS: &str = r#"
folder=$1; shift
echo $$ > "$folder/new.$OMPI_COMM_WORLD_RANK"
mv "$folder/new.$OMPI_COMM_WORLD_RANK" "$folder/rank.$OMPI_COMM_WORLD_RANK"
read -r _ < "$folder/go.$OMPI_COMM_WORLD_RANK"
exec "$@"
"#;

/// A job whose ranks wait for their start; ended when dropped.
#[derive(Debug)]
pub(crate) struct MpiJob {
    starter: Child,
    folder: Folder,
    ranks: Vec<u32>,
}

/// The files of a job; removed when dropped.
#[derive(Debug)]
struct Folder(PathBuf);

/// Result of a job, as `pronto-jobs` prints it.
#[derive(Debug, Deserialize)]
struct Printed {
    verified: bool,
    by_rank: Vec<Usage>,
}

#[derive(Debug, Deserialize)]
struct Usage {
    seconds: f64,
    user_seconds: f64,
    system_seconds: f64,
    major_faults: u64,
    voluntary_switches: u64,
    involuntary_switches: u64,
}

impl MpiJob {
    /// Starts the ranks of `program`. `yields` makes Open MPI leave the CPU to others while it polls.
    pub(crate) fn start(
        bed: &TestBed,
        program: &Path,
        yields: bool,
        app: App,
        class: Class,
    ) -> anyhow::Result<Self> {
        let folder = Folder::new()?;
        let nodes = bed.nodes();
        let places = app.places(nodes.len());
        for rank in 0..places.len() {
            mkfifo(&folder.0.join(format!("go.{rank}")), Mode::S_IRWXU).context("making a pipe")?;
        }
        let agent = folder.agent(nodes)?;
        let [first, ..] = nodes else { bail!("a test bed has nodes") };
        let ranks_on = |node: usize| places.iter().filter(|place| **place == node).count();
        let host = |(number, node): (usize, &TestNode)| format!("{}:{}", node.address, ranks_on(number));
        let hosts: Vec<_> = nodes.iter().enumerate().map(host).collect();
        let network = format!("{}/24", first.address);
        let mut command = Command::new(&agent);
        command
            .args([&first.address.to_string(), STARTER, "--allow-run-as-root", "--leave-session-attached"])
            .args(["--host", &hosts.join(","), "-np", &places.len().to_string(), "--bind-to", "none"])
            .args(["--mca", "plm_rsh_agent", &text(&agent)?])
            .args(["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", &network])
            .args(["--mca", "oob_tcp_if_include", &network])
            .args(["--mca", "mpi_yield_when_idle", if yields { "1" } else { "0" }])
            .args([&text(&folder.0.join("waits"))?, &text(&folder.0)?, &text(program)?])
            .args(words(app, class))
            .args(["--comm", "mpi", "--json"]);
        let errors = File::create(folder.errors()).context("creating a file for errors")?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        let starter = command.spawn().with_context(|| format!("starting {STARTER}"))?;
        let mut job = Self { starter, folder, ranks: Vec::new() };
        job.await_ranks(places.len())?;
        Ok(job)
    }

    /// Waits until each rank waits for its start.
    fn await_ranks(&mut self, count: usize) -> anyhow::Result<()> {
        let until = crate::clock::now() + START;
        while self.ranks.len() < count {
            let file = self.folder.0.join(format!("rank.{}", self.ranks.len()));
            if let Ok(number) = fs::read_to_string(file) {
                self.ranks.push(number.trim().parse().context("the process of a rank")?);
                continue;
            }
            let ended = self.starter.try_wait().context("waiting for mpirun")?;
            ensure!(
                ended.is_none() && crate::clock::now() < until,
                "the ranks do not start: {}",
                self.folder.said()
            );
            crate::clock::pause(core::time::Duration::from_millis(1));
        }
        Ok(())
    }

    /// Returns the processes of the ranks.
    pub(crate) fn processes(&self) -> impl Iterator<Item = u32> {
        self.ranks.iter().copied()
    }

    /// Runs the job. Returns the results of the ranks.
    pub(crate) fn run(mut self) -> anyhow::Result<Vec<Ran>> {
        // Opened for both directions, a pipe does not wait for a rank that may have ended. It keeps the line while it is open.
        let mut pipes = Vec::new();
        for rank in 0..self.ranks.len() {
            let pipe = File::options().read(true).write(true).open(self.folder.0.join(format!("go.{rank}")));
            let mut pipe = pipe.context("opening the pipe of a rank")?;
            pipe.write_all(b"go\n").context("starting a rank")?;
            pipes.push(pipe);
        }
        let mut output = String::new();
        let stdout = self.starter.stdout.as_mut().context("mpirun has no standard output")?;
        stdout.read_to_string(&mut output).context("reading from mpirun")?;
        let status = self.starter.wait().context("waiting for mpirun")?;
        ensure!(status.success(), "mpirun ended with {status}: {}", self.folder.said());
        let line = output.lines().find(|line| line.starts_with('{')).context("the job printed no result")?;
        let printed: Printed = serde_json::from_str(line).context("the result of a job")?;
        let ran = |usage: &Usage| Ran {
            seconds: usage.seconds,
            verified: printed.verified,
            cpu_seconds: usage.user_seconds + usage.system_seconds,
            major_faults: usage.major_faults,
            sleeps: usage.voluntary_switches,
            preempted: usage.involuntary_switches,
        };
        Ok(printed.by_rank.iter().map(ran).collect())
    }
}

impl Drop for MpiJob {
    fn drop(&mut self) {
        if matches!(self.starter.try_wait(), Ok(None)) {
            // It ends its ranks at this signal.
            let _ended = kill(Pid::from_raw(self.starter.id().cast_signed()), Signal::SIGTERM);
            let _ended = self.starter.wait();
        }
    }
}

impl Folder {
    fn new() -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("pronto-bench-mpi-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("creating {}", folder.display()))?;
        let folder = Self(folder);
        folder.script("waits", WAITS)?;
        Ok(folder)
    }

    /// Writes the program with which Open MPI starts a command on a node. Each node has its own host name, because Open MPI takes hosts of
    /// one name for one host.
    fn agent(&self, nodes: &[TestNode]) -> anyhow::Result<PathBuf> {
        let mut text = "host=$1; shift\ncase $host in\n".to_owned();
        for (number, node) in nodes.iter().enumerate() {
            let TestNode { address, namespace, cpu } = node;
            text += &format!("{address}) namespace={namespace} cpu={} node=pronto-node-{number} ;;\n", cpu.0);
        }
        text += "*) echo \"unknown node $host\" >&2; exit 1 ;;\nesac\n";
        let folder = self.0.display();
        text += &format!("export TMPDIR={folder}/$node\nmkdir -p \"$TMPDIR\"\n");
        text += "exec ip netns exec \"$namespace\" unshare --uts taskset --cpu-list \"$cpu\" \
                 sh -c \"hostname $node; exec $*\"\n";
        self.script("agent", &text)
    }

    fn script(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let file = self.0.join(name);
        fs::write(&file, format!("#!/bin/sh\n{text}")).context("writing a script")?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o700)).context("making a script a program")?;
        Ok(file)
    }

    fn errors(&self) -> PathBuf {
        self.0.join("errors")
    }

    /// Returns what mpirun and the ranks have printed to stderr.
    fn said(&self) -> String {
        fs::read_to_string(self.errors()).unwrap_or_default().trim().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _left = fs::remove_dir_all(&self.0);
    }
}

/// Returns the words by which `pronto-jobs` runs a job.
fn words(app: App, class: Class) -> Vec<String> {
    let mut words = vec![app.name().to_owned()];
    match app {
        App::Is | App::Mg => words.extend(["--class".into(), class.name().to_uppercase()]),
        App::MasterSlave => {
            let MasterSlave { iterations, bytes, units } = class.master_slave();
            words.extend([format!("--iterations={iterations}"), format!("--bytes={bytes}")]);
            words.push(format!("--units={units}"));
        }
    }
    words
}

fn text(path: &Path) -> anyhow::Result<String> {
    path.to_str().map(str::to_owned).context("the path of a temporary folder is not text")
}

/// Builds the program of the ranks with Open MPI. Returns its path.
pub(crate) fn program() -> anyhow::Result<PathBuf> {
    let found = Command::new(STARTER).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    ensure!(found.is_ok_and(|status| status.success()), "it is not installed (Debian: openmpi-bin)");
    crate::lab::built_apart(&crate::lab::Apart {
        package: "pronto-parallel-jobs",
        feature: Some("mpi"),
        program: "pronto-jobs",
        needs: "libopenmpi-dev",
    })
}
