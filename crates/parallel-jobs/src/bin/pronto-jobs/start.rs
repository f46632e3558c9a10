//! The start of all ranks as child processes on this host.

use core::net::Ipv4Addr;
use core::time::Duration;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, bail, ensure};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, getpid, getppid};

use crate::cli::Transport;

/// Time for the other ranks to notice that one has failed. Then they are killed.
const GRACE: Duration = Duration::from_secs(20);

/// Exit code of a rank whose result was not verified, or that had an error.
const FAILED: i32 = 1;

/// Starts all ranks with the arguments of this process, and waits for them. Returns whether all have succeeded.
///
/// # Errors
/// A rank cannot be started, or was killed.
pub(crate) fn all(count: usize, transport: Transport) -> anyhow::Result<bool> {
    ensure!(count > 0, "a job has at least one rank");
    let program = std::env::current_exe().context("cannot find this program")?;
    let addresses = addresses(count, transport)?.join(",");
    let children = Arc::new(Mutex::new(BTreeMap::new()));
    for rank in 0..count {
        let child = Command::new(&program)
            .args(without_transport(std::env::args().skip(1)))
            .args(["--rank", &rank.to_string(), "--at", &addresses])
            .args(["--started-by", &getpid().to_string()])
            .spawn()
            .with_context(|| format!("cannot start rank {rank}"));
        match child {
            Ok(child) => _ = lock(&children).insert(pid(&child), (rank, child)),
            Err(error) => {
                kill_all(&children);
                return Err(error);
            }
        }
    }
    await_all(&children)
}

/// The ranks that have not ended.
type Children = Mutex<BTreeMap<Pid, (usize, Child)>>;

/// Waits for all ranks. After the first failure, kills those that have not ended within [`GRACE`].
fn await_all(children: &Arc<Children>) -> anyhow::Result<bool> {
    let (mut succeeded, mut killed) = (true, None);
    // Dropped at the end, which stops the thread that waits for the grace to be over.
    let mut alarm = None;
    while !lock(children).is_empty() {
        // The child stays a zombie until it is removed under the lock, so no other process has its pid then.
        let (WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..)) =
            waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT)
                .context("cannot wait for the ranks")?
        else {
            continue;
        };
        let mut running = lock(children);
        let Some((rank, mut child)) = running.remove(&pid) else { bail!("an unknown child {pid} has ended") };
        let status = child.wait().context("cannot read the status of a rank")?;
        drop(running);
        if !status.success() {
            succeeded = false;
            alarm = alarm.or_else(|| Some(kill_after_grace(Arc::clone(children))));
            killed = killed.or_else(|| unusual(rank, status));
        }
    }
    match killed {
        Some(message) => bail!(message),
        None => Ok(succeeded),
    }
}

/// Returns a message about a rank that did not report its failure itself.
fn unusual(rank: usize, status: ExitStatus) -> Option<String> {
    match (status.code(), status.signal()) {
        (Some(FAILED), _) => None,
        (_, Some(signal)) => {
            let name =
                Signal::try_from(signal).map_or_else(|_| signal.to_string(), |signal| signal.to_string());
            Some(format!("rank {rank} was killed by {name}"))
        }
        _ => Some(format!("rank {rank} has ended: {status}")),
    }
}

/// Kills the ranks after [`GRACE`], unless the returned value is dropped before.
fn kill_after_grace(children: Arc<Children>) -> std::sync::mpsc::Sender<()> {
    let (sender, dropped) = channel();
    std::thread::spawn(move || {
        if dropped.recv_timeout(GRACE) == Err(RecvTimeoutError::Timeout) {
            kill_all(&children);
        }
    });
    sender
}

fn kill_all(children: &Children) {
    for pid in lock(children).keys() {
        // One that has ended is a zombie until it is removed.
        let _ended = kill(*pid, Signal::SIGKILL);
    }
}

fn lock(children: &Children) -> std::sync::MutexGuard<'_, BTreeMap<Pid, (usize, Child)>> {
    children.lock().expect("no holder panics")
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

/// Returns the arguments without `--over`, which the addresses replace.
fn without_transport(arguments: impl Iterator<Item = String>) -> Vec<String> {
    let mut arguments: Vec<String> = arguments.filter(|argument| !argument.starts_with("--over=")).collect();
    while let Some(at) = arguments.iter().position(|argument| argument == "--over") {
        arguments.drain(at..at + 2);
    }
    arguments
}

/// Returns an address for each rank that no other process uses.
fn addresses(count: usize, transport: Transport) -> anyhow::Result<Vec<String>> {
    let own = getpid().as_raw().cast_unsigned();
    match transport {
        Transport::Shm => Ok((0..count).map(|rank| format!("shm:@pronto-jobs-{own}-{rank}")).collect()),
        Transport::Tcp => {
            // All of 127.0.0.0/8 is this host. Another process is unlikely to use this address, so the ports stay free until the ranks
            // have bound them.
            let [_, high, middle, low] = own.to_be_bytes();
            let host = Ipv4Addr::new(127, 64 | high, middle, low);
            let bind = |_| TcpListener::bind((host, 0)).context("cannot find a free port");
            let listeners = (0..count).map(bind).collect::<anyhow::Result<Vec<_>>>()?;
            listeners.iter().map(|listener| Ok(format!("tcp:{}", listener.local_addr()?))).collect()
        }
    }
}

/// Makes the kernel end this process when its starter ends.
///
/// # Errors
/// The kernel refuses, or the starter has ended already.
pub(crate) fn end_with(starter: i32) -> anyhow::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL).context("cannot end with the starter")?;
    ensure!(getppid() == Pid::from_raw(starter), "the starter of this rank has ended");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_have_addresses_of_their_own() {
        for transport in [Transport::Shm, Transport::Tcp] {
            let mut addresses = addresses(4, transport).unwrap();
            addresses.sort();
            addresses.dedup();
            assert_eq!(addresses.len(), 4, "{addresses:?}");
        }
    }

    #[test]
    fn the_transport_is_removed_from_the_arguments() {
        let given = ["is", "--over", "tcp", "--class", "S", "--over=shm"].map(str::to_owned);
        assert_eq!(without_transport(given.into_iter()), ["is", "--class", "S"]);
    }
}
