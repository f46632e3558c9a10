//! The server's process, which the caller's process starts and ends.

use std::env;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::Context as _;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// Set when the caller has ended.
pub static ENDS: AtomicBool = AtomicBool::new(false);

/// A server. It ends when this is dropped, because its standard input is closed.
pub struct Server {
    process: Child,
    /// Address of the server.
    pub address: String,
}

impl Server {
    /// Starts a server, and waits until it listens.
    ///
    /// # Errors
    /// If it does not start.
    pub fn spawn<'a>(arguments: impl IntoIterator<Item = &'a str>) -> anyhow::Result<Self> {
        let mut process = Command::new(env::current_exe().context("asking for this program's path")?)
            .arg("serve")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the server")?;
        let mut address = String::new();
        let stdout = process.stdout.take().context("its output was asked for")?;
        BufReader::new(stdout).read_line(&mut address).context("reading from the server")?;
        anyhow::ensure!(address.ends_with('\n'), "the server ended too early");
        Ok(Self { process, address: address.trim_end().to_owned() })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        // The server has no more work, so its exit status does not matter.
        let _ = self.process.wait();
    }
}

/// Reports the address of the server.
///
/// # Errors
/// If the caller has ended.
pub fn say(address: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{address}").and_then(|()| stdout.flush()).context("writing to the caller")
}

/// Sets [`ENDS`] when the caller has ended; a sleeping server ends a moment later.
pub fn end_with_parent() {
    thread::spawn(|| {
        let mut rest = Vec::new();
        // End of input or an error: in both cases the caller has ended.
        let _ = io::stdin().read_to_end(&mut rest);
        ENDS.store(true, Ordering::Relaxed);
        thread::sleep(core::time::Duration::from_millis(50));
        std::process::exit(0);
    });
}

/// Pins the calling thread, and the threads that it starts later, to one CPU.
///
/// # Errors
/// If the kernel refuses.
pub fn pin(cpu: usize) -> anyhow::Result<()> {
    let mut only = CpuSet::new();
    only.set(cpu).context("a CPU's number")?;
    sched_setaffinity(Pid::from_raw(0), &only).with_context(|| format!("pinning to CPU {cpu}"))
}
