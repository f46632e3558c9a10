//! Runs the machine: QEMU without a disk, with four ports to it, and with a guaranteed end.
//!
//! # Invariants
//! 1. QEMU dies with this process, for any reason: the kernel kills it (`setpriv --pdeathsig`), and it has only unnamed sockets of
//!    ours. No file, mount or process is left behind.
//! 2. Two machines share only files that neither of them writes.

use core::fmt;
use core::time::Duration;
use std::io::{BufRead, BufReader, IsTerminal as _, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

use anyhow::{Context, Result, bail};
use command_fds::{CommandFdExt as _, FdMapping};

use super::accelerator::{Accelerator, VARIABLE};
use super::build::Image;
use super::console::Console;
use super::guest::{Access, Report, Request, Share, TRACE};
use super::{host, progress};
use crate::child::now;
use crate::tools::find;
use crate::workspace::Workspace;

/// Memory of the machine, MiB.
const MEMORY: u32 = 2_048;

/// Time for a machine to shut down after its command ended, its kernel failed, or its time limit was reached.
/// On a busy host, a kernel with debugging checks takes most of it to write a trace.
const GRACE: Duration = Duration::from_secs(20);

/// Time limit of a shell, which its user ends.
const NO_LIMIT: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Time limits of a machine.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// For the command.
    limit: Duration,
    /// After the command, for the shutdown.
    grace: Duration,
}

/// Parameters that this file relies on: the port and the level of the console, and that a kernel failure ends the machine (`panic=-1`
/// reboots it, and QEMU exits on a reboot). The others are in lab/lab.toml.
const PARAMETERS: &str = "console=ttyS0 quiet loglevel=5 panic=-1 oops=panic sysctl.kernel.hung_task_panic=1";

/// Software emulation sometimes executes a breakpoint that the kernel has already removed, which no CPU does.
const EMULATORS_FAULT: &str = "Oops: int3";
/// Maximum number of machines for a command, if that fault ends them.
const ATTEMPTS: u32 = 3;

/// Prefixes of this process's variables that are passed on to the command.
const PASSED_ON: &[&str] = &["PRONTO_", "RUST_BACKTRACE", "RUST_LOG"];

/// The sockets between QEMU and this process: name, and descriptor in QEMU's process.
const PORTS: [(&str, i32); 4] = [("console", 3), ("control", 4), ("out", 5), ("err", 6)];

/// A machine that can be started.
#[derive(Debug)]
pub(super) struct Machine<'a> {
    image: &'a Image,
    cpus: u32,
    memory: Memory,
    accelerator: Accelerator,
    shares: Vec<Share>,
    folder: std::path::PathBuf,
    variables: Vec<String>,
}

/// The layout of the machine's memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Memory {
    /// One NUMA node.
    #[default]
    Whole,
    /// Two NUMA nodes: the first CPU is on one, all others and a network card, `eth0`, are on the second.
    TwoNodes,
}

impl Memory {
    /// Returns the layout for the option `numa`.
    pub(super) const fn of(numa: bool) -> Self {
        if numa { Self::TwoNodes } else { Self::Whole }
    }
}

/// The end of a run.
#[derive(Debug)]
pub(super) enum Ending {
    /// The command ended with this code.
    Exited(u8),
    Failed(Failure),
}

/// The reason why there is no valid exit code.
#[derive(Debug)]
pub(super) enum Failure {
    /// The kernel failed. Contains the reason, in one line.
    Kernel(String),
    TimedOut(Duration),
    /// The machine ended before its command did.
    Vanished(String),
    Guest(String),
}

/// A line that a thread has read from the machine.
#[derive(Debug)]
enum Event {
    Console(String),
    Control(String),
}

/// The input and output of the command of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Talk {
    Output,
    Terminal,
}

impl<'a> Machine<'a> {
    /// Returns a machine that has this tree and cargo's build results read-only, and `share` writable, all at the host's paths.
    ///
    /// # Errors
    /// `share` is not a folder, or is the root of the file system.
    pub(super) fn new(
        image: &'a Image,
        workspace: &Workspace,
        cpus: u32,
        share: Option<&Path>,
    ) -> Result<Self> {
        let real = |path: &Path| path.canonicalize().with_context(|| format!("no folder {}", path.display()));
        let share = share.map(real).transpose()?;
        if share.as_deref().is_some_and(|folder| folder.parent().is_none() || !folder.is_dir()) {
            bail!("--share needs a folder other than the root");
        }
        let root = real(&workspace.root)?;
        let target = workspace.target.canonicalize().ok();
        let here = std::env::current_dir().context("no current folder")?;
        let folder = share.clone().unwrap_or(here);
        let accelerator = Accelerator::default();
        let shares = shares(root, target, share);
        Ok(Self {
            image,
            cpus,
            memory: Memory::default(),
            accelerator,
            shares,
            folder,
            variables: Vec::new(),
        })
    }

    /// Sets the layout of the memory.
    pub(super) fn with_memory(mut self, memory: Memory) -> Self {
        self.memory = memory;
        self
    }

    /// Returns QEMU's options for two nodes. The second node has all CPUs except the first, and its own bus. These options must follow
    /// those of all other devices, which QEMU would otherwise put on that bus.
    fn two_nodes(&self) -> Vec<String> {
        let last = self.cpus.max(2) - 1;
        let half = MEMORY / 2;
        let mut options = Vec::new();
        for (node, cpus) in ["0".to_owned(), format!("1-{last}")].iter().enumerate() {
            options.extend(["-object".into(), format!("memory-backend-ram,id=memory{node},size={half}M")]);
            options.extend(["-numa".into(), format!("node,nodeid={node},cpus={cpus},memdev=memory{node}")]);
        }
        for device in [
            "pxb-pcie,id=far,bus_nr=128,numa_node=1,bus=pcie.0",
            "pcie-root-port,id=farport,bus=far,chassis=9",
            "virtio-net-pci,netdev=farnet,bus=farport",
        ] {
            options.extend(["-device".into(), device.into()]);
        }
        options.extend(["-netdev".into(), "user,id=farnet,restrict=on".into()]);
        options
    }

    /// Sets the accelerator.
    pub(super) fn with(mut self, accelerator: Accelerator) -> Self {
        self.accelerator = accelerator;
        self
    }

    /// Adds an environment variable of the command, `NAME=VALUE`.
    pub(super) fn with_variable(mut self, variable: String) -> Self {
        self.variables.push(variable);
        self
    }

    /// Runs a command until it ends or `limit` has passed, boot included. Passes its output on immediately. If the emulator's own fault
    /// ends the kernel, the command runs again in another machine.
    ///
    /// # Errors
    /// QEMU does not start.
    pub(super) fn run(&self, words: &[String], limit: Duration) -> Result<Ending> {
        for _ in 1..ATTEMPTS {
            match self.run_once(words, limit)? {
                Ending::Failed(Failure::Kernel(why)) if why.contains(EMULATORS_FAULT) => {
                    eprintln!(
                        "lab: {why}: a fault of the emulator; the command runs again in another machine"
                    );
                }
                ending => return Ok(ending),
            }
        }
        self.run_once(words, limit)
    }

    fn run_once(&self, words: &[String], limit: Duration) -> Result<Ending> {
        let variables = std::env::vars()
            .filter(|(name, _)| PASSED_ON.iter().any(|start| name.starts_with(start)))
            .map(|(name, value)| format!("{name}={value}"))
            .chain([self.named()])
            .chain(self.variables.iter().cloned())
            .collect();
        self.start(Talk::Output, variables, words.to_vec(), limit)
    }

    /// Runs a shell at this terminal.
    ///
    /// # Errors
    /// There is no terminal, or QEMU does not start.
    pub(super) fn shell(&self) -> Result<Ending> {
        if !std::io::stdin().is_terminal() {
            bail!("`lab shell` needs a terminal; `lab run` does not");
        }
        let size = Command::new("stty").arg("size").stdin(Stdio::inherit()).output();
        let size =
            size.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
        let (rows, columns) = size.split_once(' ').unwrap_or(("24", "80"));
        let terminal = std::env::var("TERM").unwrap_or_else(|_| "linux".to_owned());
        let variables = vec![
            format!("LAB_TERMINAL=rows {rows} cols {columns}"),
            format!("TERM={terminal}"),
            self.named(),
        ];
        let settings = progress::output(Command::new("stty").arg("-g").stdin(Stdio::inherit())).ok();
        let ending =
            self.start(Talk::Terminal, variables, vec!["bash".to_owned(), "-i".to_owned()], NO_LIMIT);
        if let Some(settings) = settings {
            // QEMU restores the terminal itself, unless it was killed.
            let _ = Command::new("stty").arg(settings.trim()).stdin(Stdio::inherit()).status();
        }
        ending
    }

    fn start(
        &self,
        talk: Talk,
        variables: Vec<String>,
        words: Vec<String>,
        limit: Duration,
    ) -> Result<Ending> {
        let mut command = self.command(talk)?;
        let mut ours = Vec::new();
        let mut mappings = Vec::new();
        for (_, number) in PORTS {
            let (our, their) = UnixStream::pair().context("cannot make a socket")?;
            ours.push(our);
            mappings.push(FdMapping { parent_fd: OwnedFd::from(their), child_fd: number });
        }
        command.fd_mappings(mappings).context("cannot give QEMU its sockets")?;
        let child = command.spawn().context("cannot start QEMU")?;
        // The command holds QEMU's ends of the sockets. Dropping it makes our ends close when QEMU ends.
        drop(command);

        let [console, mut control, out, err] = <[_; 4]>::try_from(ours).expect("one socket for each port");
        let request = Request { shares: self.shares.clone(), folder: self.folder.clone(), variables, words };
        let (sender, receiver) = channel();
        let reader = control.try_clone().context("cannot read from the machine")?;
        let threads = [
            std::thread::spawn({
                let sender = sender.clone();
                move || lines(console, &sender, Event::Console)
            }),
            std::thread::spawn(move || lines(reader, &sender, Event::Control)),
            std::thread::spawn(move || pass_on(out, std::io::stdout())),
            std::thread::spawn(move || pass_on(err, std::io::stderr())),
        ];
        // The request fits into the socket's buffer. If QEMU has ended already, `watch` reports that.
        let _ = control.write_all(&request.encode());
        let ask_for_trace = || {
            let _ = control.write_all(TRACE);
        };
        let ending = watch(child, &receiver, Limits { limit, grace: GRACE }, ask_for_trace)?;
        for thread in threads {
            let _ = thread.join();
        }
        Ok(ending)
    }

    /// Returns the variable that marks results.
    fn named(&self) -> String {
        format!("{VARIABLE}={}", self.accelerator.name(host::version().as_deref()))
    }

    fn command(&self, talk: Talk) -> Result<Command> {
        let qemu = find(host::QEMU).context("QEMU is not installed; `cargo xtask lab build` installs it")?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(qemu);
        command.args(self.accelerator.options()).args(["-M", "q35", "-nodefaults", "-no-user-config"]);
        command.args(["-display", "none", "-no-reboot"]);
        // Each of two nodes needs a CPU.
        let cpus = if self.memory == Memory::TwoNodes { self.cpus.max(2) } else { self.cpus };
        command.args(["-smp", &cpus.to_string(), "-m", &MEMORY.to_string()]);
        command.arg("-kernel").arg(&self.image.kernel).arg("-initrd").arg(&self.image.initramfs);
        let parameters = format!("{PARAMETERS} {}", self.image.parameters.join(" "));
        command.args(["-append", &parameters, "-device", "virtio-rng-pci", "-device", "virtio-serial-pci"]);
        for (name, number) in PORTS {
            command.args(["-chardev", &format!("socket,id={name},fd={number}")]);
            if name == "console" {
                command.args(["-serial", "chardev:console"]);
            } else {
                command.args(["-device", &format!("virtserialport,chardev={name},name={name}")]);
            }
        }
        for (number, share) in self.shares.iter().enumerate() {
            let path = share.folder.to_str().context("the path of a shared folder is not valid UTF-8")?;
            // A comma ends an option of QEMU; two commas stand for one.
            let path = path.replace(',', ",,");
            let access = if share.access == Access::Read { ",readonly=on" } else { "" };
            let id = format!("share{number}");
            command.args([
                "-fsdev",
                &format!("local,id={id},path={path},security_model=none,multidevs=remap{access}"),
                "-device",
                &format!("virtio-9p-pci,fsdev={id},mount_tag={id}"),
            ]);
        }
        if talk == Talk::Terminal {
            command.args([
                "-chardev",
                "stdio,id=terminal,signal=off",
                "-device",
                "virtconsole,chardev=terminal",
            ]);
        } else {
            command.stdin(Stdio::null()).stdout(Stdio::null());
        }
        if self.memory == Memory::TwoNodes {
            command.args(self.two_nodes());
        }
        Ok(command)
    }
}

/// Returns the folders of the guest: the tree, the build results if they are elsewhere, and a writable one.
fn shares(
    root: std::path::PathBuf,
    target: Option<std::path::PathBuf>,
    share: Option<std::path::PathBuf>,
) -> Vec<Share> {
    let target = target.filter(|target| !target.starts_with(&root));
    let read = [Some(root), target].into_iter().flatten();
    let mut shares: Vec<_> = read
        .filter(|folder| Some(folder) != share.as_ref())
        .map(|folder| Share { folder, access: Access::Read })
        .collect();
    shares.extend(share.map(|folder| Share { folder, access: Access::Write }));
    // An outer folder must be mounted before an inner one, or it would hide it.
    shares.sort_by_key(|share| share.folder.components().count());
    shares
}

/// Follows a machine until it ends. After the time limit the guest may write a trace before the machine is killed.
fn watch(
    mut child: Child,
    events: &Receiver<Event>,
    limits: Limits,
    ask_for_trace: impl FnOnce(),
) -> Result<Ending> {
    let start = now();
    let Limits { limit, grace } = limits;
    let mut deadline = limit;
    let mut console = Console::default();
    let mut exited = None;
    let mut failure = None;
    let mut ask_for_trace = Some(ask_for_trace);
    loop {
        match events.recv_timeout(deadline.saturating_sub(start.elapsed())) {
            Ok(Event::Console(line)) => {
                if console.take(&line) {
                    deadline = deadline.min(start.elapsed() + grace);
                }
            }
            Ok(Event::Control(line)) => match Report::read(&line) {
                Some(Report::Exited(code)) => {
                    exited = Some(code);
                    deadline = deadline.min(start.elapsed() + grace);
                }
                Some(Report::Failed(why)) => failure = Some(Failure::Guest(why)),
                Some(Report::Started(_)) | None => {}
            },
            // All sockets are closed: QEMU has ended.
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let is_ending = exited.is_some() || console.verdict().is_some();
                if let Some(ask) = ask_for_trace.take().filter(|_| !is_ending) {
                    failure = Some(Failure::TimedOut(limit));
                    ask();
                    deadline = start.elapsed() + grace;
                } else {
                    child.kill().context("cannot kill QEMU")?;
                    break;
                }
            }
        }
    }
    let status = child.wait().context("cannot wait for QEMU")?;
    let failure = match (console.verdict(), failure, exited) {
        (Some(verdict), _, _) => Failure::Kernel(verdict),
        (None, Some(failure), _) => failure,
        (None, None, Some(code)) => return Ok(Ending::Exited(code)),
        (None, None, None) => Failure::Vanished(status.to_string()),
    };
    eprintln!("lab: the machine's console:");
    console.trace().for_each(|line| eprintln!("  {line}"));
    Ok(Ending::Failed(failure))
}

/// Sends the lines from a socket until it closes.
fn lines(from: UnixStream, to: &Sender<Event>, event: fn(String) -> Event) {
    let mut reader = BufReader::new(from);
    let mut line = Vec::new();
    while matches!(reader.read_until(b'\n', &mut line), Ok(length) if length > 0) {
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        if to.send(event(text)).is_err() {
            break;
        }
        line.clear();
    }
}

/// Copies data from a socket immediately. If the output is closed, the socket is still read, so that the guest can continue.
fn pass_on(mut from: UnixStream, mut to: impl Write) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let _ = to.write_all(&buffer[..length]).and_then(|()| to.flush());
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(verdict) => f.write_str(verdict),
            Self::TimedOut(limit) => write!(f, "time-out: not done after {} s", limit.as_secs()),
            Self::Vanished(status) => write!(f, "QEMU ended before the command did ({status})"),
            Self::Guest(why) => write!(f, "the guest reports: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_LIMITS: Limits = Limits { limit: NO_LIMIT, grace: NO_LIMIT };

    #[test]
    fn outer_folders_are_mounted_first() {
        let shares = shares("/w/tree".into(), Some("/tmp/target".into()), Some("/w".into()));
        let folders: Vec<_> = shares.iter().map(|share| share.folder.to_str().unwrap()).collect();
        assert_eq!(folders, ["/w", "/w/tree", "/tmp/target"]);
    }

    #[test]
    fn a_folder_is_shared_once() {
        let shares = shares("/w".into(), Some("/w/target".into()), Some("/w".into()));
        assert_eq!(shares, [Share { folder: "/w".into(), access: Access::Write }]);
    }

    #[test]
    fn a_machine_without_an_exit_code_has_failed() {
        let child = Command::new("true").spawn().unwrap();
        let (sender, receiver) = channel();
        sender.send(Event::Control("started 1".to_owned())).unwrap();
        drop(sender);
        let ending = watch(child, &receiver, NO_LIMITS, || {}).unwrap();
        assert!(matches!(ending, Ending::Failed(Failure::Vanished(_))), "{ending:?}");
    }

    #[test]
    fn a_failed_kernel_takes_precedence_over_an_exit_code() {
        let child = Command::new("true").spawn().unwrap();
        let (sender, receiver) = channel();
        sender.send(Event::Control("exit 0".to_owned())).unwrap();
        sender.send(Event::Console("[ 1.0] Oops: 0002 [#1] SMP".to_owned())).unwrap();
        drop(sender);
        let ending = watch(child, &receiver, NO_LIMITS, || {}).unwrap();
        assert!(matches!(ending, Ending::Failed(Failure::Kernel(_))), "{ending:?}");
    }

    #[test]
    fn a_machine_that_does_not_end_is_killed() {
        let child = Command::new("tail").args(["-f", "/dev/null"]).spawn().unwrap();
        let (sender, receiver) = channel();
        let mut asked = false;
        let soon = Duration::from_millis(50);
        let limits = Limits { limit: soon, grace: soon };
        let ending = watch(child, &receiver, limits, || asked = true).unwrap();
        assert!(asked, "the machine was not asked for a trace");
        assert!(matches!(ending, Ending::Failed(Failure::TimedOut(_))), "{ending:?}");
        drop(sender);
    }
}
