//! Runs the machine: QEMU without a disk, four ports to it, and an end in every case.
//!
//! # Invariants
//! 1. QEMU dies with this process, however that ends: the kernel kills it (`setpriv --pdeathsig`), and all it has of
//!    ours are sockets without a name. Nothing is left behind: no file, no mount, no process.
//! 2. Two machines share nothing but files that nobody writes.

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

/// How long a machine may take to end itself, after its command ended, its kernel gave up, or its time was up.
const GRACE: Duration = Duration::from_secs(5);

/// A shell ends when its user says so.
const NO_LIMIT: Duration = Duration::from_secs(30 * 24 * 3_600);

/// How long a machine is waited for.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// Until its command has ended.
    limit: Duration,
    /// From there on, until it has ended itself.
    grace: Duration,
}

/// What this file relies on: the console's port and how much is said there, and that a trace ends the machine (`panic=-1`
/// restarts it, which QEMU takes for an end). The rest stands in lab/lab.toml.
const PARAMETERS: &str = "console=ttyS0 quiet loglevel=5 panic=-1 oops=panic sysctl.kernel.hung_task_panic=1";

/// Software emulation sometimes executes a breakpoint that the kernel has already patched out again, which no CPU does.
const EMULATORS_FAULT: &str = "Oops: int3";
/// Machines that a command gets at most, if that fault ends them.
const ATTEMPTS: u32 = 3;

/// Variables of this process that the command gets too: all that begin so.
const PASSED_ON: &[&str] = &["PRONTO_", "RUST_BACKTRACE", "RUST_LOG"];

/// The sockets between QEMU and this process: name, and number in QEMU's process.
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

/// How the machine's memory is laid out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Memory {
    /// All in one place.
    #[default]
    Whole,
    /// On two NUMA nodes, with the first processor and all others; a network card, `eth0`, is on the second.
    TwoNodes,
}

impl Memory {
    /// As it is asked for.
    pub(super) const fn of(numa: bool) -> Self {
        if numa { Self::TwoNodes } else { Self::Whole }
    }
}

/// How a run ended.
#[derive(Debug)]
pub(super) enum Ending {
    /// The command ended with this code.
    Exited(u8),
    Failed(Failure),
}

/// Why there is no exit code that counts.
#[derive(Debug)]
pub(super) enum Failure {
    /// The kernel gave up: in one line.
    Kernel(String),
    TimedOut(Duration),
    /// The machine ended before its command did.
    Vanished(String),
    Guest(String),
}

/// What the threads that read from the machine tell.
#[derive(Debug)]
enum Event {
    Console(String),
    Control(String),
}

/// Who the command of a machine talks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Talk {
    Output,
    Terminal,
}

impl<'a> Machine<'a> {
    /// A machine that sees this tree and what cargo built from it, read only, and `share`, all at the host's paths.
    ///
    /// # Errors
    /// `share` is no folder, or is the root of the file system.
    pub(super) fn new(
        image: &'a Image,
        workspace: &Workspace,
        cpus: u32,
        share: Option<&Path>,
    ) -> Result<Self> {
        let real = |path: &Path| path.canonicalize().with_context(|| format!("no folder {}", path.display()));
        let share = share.map(real).transpose()?;
        if share.as_deref().is_some_and(|folder| folder.parent().is_none() || !folder.is_dir()) {
            bail!("--share takes a folder, and not the root");
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

    /// The same machine with its memory laid out so.
    pub(super) fn with_memory(mut self, memory: Memory) -> Self {
        self.memory = memory;
        self
    }

    /// QEMU's options for two nodes, of which the second has processors from the second on, and a bus of its own. They stand behind
    /// all other devices, which would land on that bus.
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

    /// The same machine with another accelerator.
    pub(super) fn with(mut self, accelerator: Accelerator) -> Self {
        self.accelerator = accelerator;
        self
    }

    /// The same machine, whose command gets one more variable, `NAME=VALUE`.
    pub(super) fn knowing(mut self, variable: String) -> Self {
        self.variables.push(variable);
        self
    }

    /// Runs a command to its end or to `limit`, boot included; passes its output on as it comes. Another machine runs it again if
    /// the emulator's own fault ends the kernel.
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
            .chain([format!("{VARIABLE}={}", self.accelerator.name())])
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
            format!("{VARIABLE}={}", self.accelerator.name()),
        ];
        let settings = progress::output(Command::new("stty").arg("-g").stdin(Stdio::inherit())).ok();
        let ending =
            self.start(Talk::Terminal, variables, vec!["bash".to_owned(), "-i".to_owned()], NO_LIMIT);
        if let Some(settings) = settings {
            // QEMU puts the terminal back itself, unless it was killed.
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
        // The command holds QEMU's ends of the sockets; without them, ours end with QEMU.
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
        // It fits into the socket's buffer; if QEMU is gone already, the end of its output tells.
        let _ = control.write_all(&request.encode());
        let ask_for_trace = || {
            let _ = control.write_all(TRACE);
        };
        let ending = watch(child, &receiver, Patience { limit, grace: GRACE }, ask_for_trace)?;
        for thread in threads {
            let _ = thread.join();
        }
        Ok(ending)
    }

    fn command(&self, talk: Talk) -> Result<Command> {
        let qemu = find(host::QEMU).context("QEMU is not installed; `cargo xtask lab build` installs it")?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(qemu);
        command.args(self.accelerator.options()).args(["-M", "q35", "-nodefaults", "-no-user-config"]);
        command.args(["-display", "none", "-no-reboot"]);
        // Two nodes have a processor each.
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
            let path = share.folder.to_str().context("a shared folder's name is no text")?;
            // QEMU's options end at a comma; two stand for one.
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

/// The folders that the guest sees: the tree, what was built if that lies elsewhere, and one to write to.
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
    // What contains another is mounted first, or it would hide it.
    shares.sort_by_key(|share| share.folder.components().count());
    shares
}

/// Follows a machine to its end. When its time is up it gets a moment to say what it does.
fn watch(
    mut child: Child,
    events: &Receiver<Event>,
    patience: Patience,
    ask_for_trace: impl FnOnce(),
) -> Result<Ending> {
    let start = now();
    let Patience { limit, grace } = patience;
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
            // Every socket is closed: QEMU has ended.
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let is_ending = exited.is_some() || console.verdict().is_some();
                if let Some(ask) = ask_for_trace.take().filter(|_| !is_ending) {
                    failure = Some(Failure::TimedOut(limit));
                    ask();
                    deadline = start.elapsed() + grace;
                } else {
                    child.kill().context("cannot end QEMU")?;
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

/// Sends the lines that come from a socket until it ends.
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

/// Writes what comes from a socket, as it comes. If nobody wants it any more, it is still read: the guest must go on.
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
            Self::Guest(why) => write!(f, "the guest says: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENT: Patience = Patience { limit: NO_LIMIT, grace: NO_LIMIT };

    #[test]
    fn what_contains_another_is_mounted_first() {
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
    fn a_machine_without_a_code_has_failed() {
        let child = Command::new("true").spawn().unwrap();
        let (sender, receiver) = channel();
        sender.send(Event::Control("started 1".to_owned())).unwrap();
        drop(sender);
        let ending = watch(child, &receiver, PATIENT, || {}).unwrap();
        assert!(matches!(ending, Ending::Failed(Failure::Vanished(_))), "{ending:?}");
    }

    #[test]
    fn a_broken_kernel_counts_more_than_an_exit_code() {
        let child = Command::new("true").spawn().unwrap();
        let (sender, receiver) = channel();
        sender.send(Event::Control("exit 0".to_owned())).unwrap();
        sender.send(Event::Console("[ 1.0] Oops: 0002 [#1] SMP".to_owned())).unwrap();
        drop(sender);
        let ending = watch(child, &receiver, PATIENT, || {}).unwrap();
        assert!(matches!(ending, Ending::Failed(Failure::Kernel(_))), "{ending:?}");
    }

    #[test]
    fn a_machine_that_does_not_end_is_ended() {
        let child = Command::new("tail").args(["-f", "/dev/null"]).spawn().unwrap();
        let (sender, receiver) = channel();
        let mut asked = false;
        let soon = Duration::from_millis(50);
        let patience = Patience { limit: soon, grace: soon };
        let ending = watch(child, &receiver, patience, || asked = true).unwrap();
        assert!(asked, "the machine was not asked what it does");
        assert!(matches!(ending, Ending::Failed(Failure::TimedOut(_))), "{ending:?}");
        drop(sender);
    }
}
