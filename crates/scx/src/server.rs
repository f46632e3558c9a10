//! The server: flags threads and gives processes weights for other processes, each for as long as its connection is open.
//!
//! # Invariants
//! 1. A thread has a flag, and a process a weight or a prediction, only while the connection that asked for it is open, or until the thread or
//!    process ends.
//! 2. A thread is flagged for its own user, or for root. A process gets a weight or a prediction from root, through one connection at a time.

use core::time::Duration;
use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, accept4, bind, getsockopt, listen, send,
    socket, sockopt,
};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, chown, getpid};
use pronto_expedite::scx::{Counters, Prediction, PredictionTerms, Refused, Reply, Request, Scheduler};
use pronto_sched_policy::policy::weight::Weight;

use crate::packet;

/// Maximum number of connections. Each process needs one.
const CLIENTS: usize = 1_024;

/// Maximum number of flagged threads of a connection, as of a device of the kernel module, and of all connections. Each takes a
/// descriptor.
const THREADS_OF_CLIENT: usize = 1_024;
const THREADS: usize = 8_192;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 64;

/// Number of free places below which those of ended threads are looked for.
const FEW: usize = 64;

/// Maximum number of requests of one connection that are served before those of others.
const REQUESTS: usize = 16;

/// Where flags and weights are stored, and the counters of their effects.
pub trait Flags {
    /// Flags a thread, whose boosts the user `payer` pays for.
    ///
    /// # Errors
    /// `ESRCH` or `ENOENT` if the thread has ended, `ENOMEM` if memory is short.
    fn flag(&self, thread: BorrowedFd<'_>, payer: u32) -> Result<(), Errno>;

    /// Removes the flag of a thread.
    ///
    /// # Errors
    /// The thread has no flag, or has ended.
    fn unflag(&self, thread: BorrowedFd<'_>) -> Result<(), Errno>;

    /// Gives the process of a main thread a weight, relative to that of its nice value. The ordinary one removes it.
    ///
    /// # Errors
    /// `ESRCH` or `ENOENT` if the thread has ended, or has no weight that could be removed; `ENOMEM` if memory is short.
    fn weigh(&self, main_thread: BorrowedFd<'_>, weight: Weight) -> Result<(), Errno>;

    /// Lets the weight of a process follow its queues. `pid` is its number in the first namespace.
    ///
    /// # Errors
    /// `ESRCH` if it has ended, `EINVAL` if the number is not that of a main thread, `E2BIG` if there are too many predictions.
    fn predict(&self, pid: u32, terms: &PredictionTerms) -> Result<(), Errno>;

    /// Removes the prediction of a process. Its weight stays.
    ///
    /// # Errors
    /// There is no prediction for this process.
    fn forget(&self, pid: u32) -> Result<(), Errno>;

    /// Returns the prediction for a process.
    ///
    /// # Errors
    /// There is none.
    fn prediction(&self, pid: u32) -> Result<Prediction, Errno>;

    /// Returns the counters.
    fn counters(&self) -> Counters;
}

/// The socket cannot be created.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Another loader listens there.
    #[error("another loader listens on {}: end it first", .0.display())]
    Occupied(PathBuf),
    /// This user may not make a file there.
    #[error("no permission to listen on {}: run this as root; a scheduler needs root anyway", .0.display())]
    NotPermitted(PathBuf),
    /// Anything else.
    #[error("cannot listen on {}: {errno}", path.display())]
    System {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the system.
        errno: Errno,
    },
}

/// The socket, and the connections.
#[derive(Debug)]
pub struct Server {
    listener: OwnedFd,
    path: PathBuf,
    clients: Vec<Client>,
    processes: Processes,
    /// Number of the next connection.
    next: u64,
    /// The last connection could not be accepted, so the next turn does not wait for one.
    is_blocked: bool,
}

/// A connection, and the threads that it has flagged.
#[derive(Debug)]
struct Client {
    number: u64,
    socket: OwnedFd,
    user: u32,
    threads: Vec<Flagged>,
}

/// The processes with a weight.
#[derive(Debug, Default)]
struct Processes(Vec<Weighed>);

/// A process with a weight.
#[derive(Debug)]
struct Weighed {
    /// Number of the connection that asked for it.
    client: u64,
    pid: i32,
    source: Source,
    main_thread: OwnedFd,
}

/// The source of its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The client.
    Client(Weight),
    /// The queues of the process.
    Queues(PredictionTerms),
}

/// The first namespace of processes, whose numbers the BPF program uses (`PROC_PID_INIT_INO` in include/linux/proc_ns.h).
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

#[derive(Debug)]
struct Flagged {
    tid: i32,
    payer: u32,
    thread: OwnedFd,
}

/// A thread, as this process sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    tid: i32,
    user: u32,
}

impl Server {
    /// Listens at a path. Root may connect, and the members of `group`.
    ///
    /// # Errors
    /// Another loader listens there, or the socket cannot be created.
    pub fn listen(path: &Path, group: Option<Gid>) -> Result<Self, ListenError> {
        match Scheduler::connect_to(path) {
            Ok(_) | Err(Refused::Silent) => return Err(ListenError::Occupied(path.into())),
            // The socket of another program is not replaced.
            Err(Refused::System(errno)) => return Err(ListenError::System { path: path.into(), errno }),
            Err(_) => {}
        }
        let listener = Self::try_to_listen(path, group);
        let listener = listener.map_err(|errno| match errno {
            Errno::EACCES | Errno::EPERM => ListenError::NotPermitted(path.into()),
            errno => ListenError::System { path: path.into(), errno },
        })?;
        Ok(Self {
            listener,
            path: path.into(),
            clients: Vec::new(),
            processes: Processes::default(),
            next: 0,
            is_blocked: false,
        })
    }

    fn try_to_listen(path: &Path, group: Option<Gid>) -> Result<OwnedFd, Errno> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let listener = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
        // The socket of a loader that was killed.
        if fs::symlink_metadata(path).is_ok_and(|found| {
            use std::os::unix::fs::FileTypeExt as _;
            found.file_type().is_socket()
        }) {
            nix::unistd::unlink(path)?;
        }
        let old = nix::sys::stat::umask(Mode::from_bits_truncate(0o177));
        let bound = bind(listener.as_raw_fd(), &UnixAddr::new(path)?);
        nix::sys::stat::umask(old);
        bound?;
        if let Some(group) = group {
            chown(path, None, Some(group))?;
            let mode = Mode::from_bits_truncate(0o660);
            nix::sys::stat::fchmodat(
                nix::fcntl::AT_FDCWD,
                path,
                mode,
                nix::sys::stat::FchmodatFlags::FollowSymlink,
            )?;
        }
        listen(&listener, Backlog::new(BACKLOG)?)?;
        Ok(listener)
    }

    /// Serves the requests that arrive within `limit`, or those that are there.
    ///
    /// # Errors
    /// The kernel cannot wait for the sockets.
    pub fn turn(&mut self, limit: Duration, flags: &impl Flags) -> Result<(), Errno> {
        let interest = |fd| PollFd::new(fd, PollFlags::POLLIN);
        // A connection that waits and cannot be accepted would end each wait immediately.
        let accepts = self.clients.len() < CLIENTS && !core::mem::take(&mut self.is_blocked);
        let of_listener = if accepts { PollFlags::POLLIN } else { PollFlags::empty() };
        let mut fds: Vec<_> = core::iter::once(PollFd::new(self.listener.as_fd(), of_listener))
            .chain(self.clients.iter().map(|client| interest(client.socket.as_fd())))
            .collect();
        match poll(&mut fds, PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        let ready: Vec<_> = fds.iter().map(|fd| fd.any().unwrap_or(false)).collect();
        let (accepts, ready) = ready.split_first().map_or((false, &[][..]), |(first, rest)| (*first, rest));
        let mut left = self.left();
        if left < FEW {
            self.clients.iter_mut().for_each(|client| client.forget_ended(&mut self.processes));
            left = self.left();
        }
        let processes = &mut self.processes;
        let mut ready = ready.iter();
        self.clients.retain_mut(|client| {
            let is_ready = ready.next().copied().unwrap_or(false);
            let before = client.held(processes);
            let stays = !is_ready || client.serve(left, processes, flags);
            left = (left + before).saturating_sub(client.held(processes));
            stays
        });
        if accepts {
            self.accept();
        }
        Ok(())
    }

    /// Accepts the connections that wait, up to the maximum. Others wait, or end if they are too many.
    fn accept(&mut self) {
        while self.clients.len() < CLIENTS {
            let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            let number = match accept4(self.listener.as_raw_fd(), flags) {
                Ok(number) => number,
                Err(errno) => {
                    self.is_blocked = errno != Errno::EAGAIN;
                    return;
                }
            };
            let socket = packet::owned(number);
            if let Ok(peer) = getsockopt(&socket, sockopt::PeerCredentials) {
                let (number, user) = (self.next, peer.uid());
                self.next += 1;
                self.clients.push(Client { number, socket, user, threads: Vec::new() });
            }
        }
    }

    /// Sets all flags and weights again, in a scheduler that was just loaded. Ends the connection of a client if one fails: the client asks
    /// for all of them again.
    pub fn flag_again(&mut self, flags: &impl Flags) {
        let mut failed = BTreeSet::new();
        for weighed in &self.processes.0 {
            if weighed.begin(flags).is_err() && weighed.exists() {
                failed.insert(weighed.client);
            }
        }
        for client in &self.clients {
            let fails = |flagged: &Flagged| {
                let result = flags.flag(flagged.thread.as_fd(), flagged.payer);
                result.is_err() && !has_ended(flagged.thread.as_fd())
            };
            // All of them, also after one that fails.
            if client.threads.iter().filter(|flagged| fails(flagged)).count() > 0 {
                failed.insert(client.number);
            }
        }
        let processes = &mut self.processes;
        self.clients.retain_mut(|client| {
            let stays = !failed.contains(&client.number);
            if !stays {
                client.end(processes, flags);
            }
            stays
        });
    }

    /// Returns the number of threads and processes for which there is room.
    fn left(&self) -> usize {
        let threads: usize = self.clients.iter().map(|client| client.threads.len()).sum();
        THREADS.saturating_sub(threads + self.processes.0.len())
    }

    /// Returns the number of flagged threads, including those that have ended since.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.clients.iter().map(|client| client.threads.len()).sum()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = nix::unistd::unlink(&self.path);
    }
}

impl Client {
    /// Returns the number of descriptors of threads that it holds.
    fn held(&self, processes: &Processes) -> usize {
        self.threads.len() + processes.0.iter().filter(|weighed| weighed.client == self.number).count()
    }

    /// Serves its requests. Returns false at the end of the connection, after all its flags and weights were removed.
    fn serve(&mut self, left: usize, processes: &mut Processes, flags: &impl Flags) -> bool {
        let stays = self.answer(left, processes, flags);
        if !stays {
            self.end(processes, flags);
        }
        stays
    }

    /// Removes all its flags and weights.
    fn end(&mut self, processes: &mut Processes, flags: &impl Flags) {
        for flagged in self.threads.drain(..) {
            let _ended = flags.unflag(flagged.thread.as_fd());
        }
        for weighed in processes.0.extract_if(.., |weighed| weighed.client == self.number) {
            let _ended = weighed.end(flags);
        }
    }

    /// Answers the requests that have arrived, up to a maximum. Returns false at the end of the connection.
    fn answer(&mut self, left: usize, processes: &mut Processes, flags: &impl Flags) -> bool {
        let room = left + self.held(processes);
        for _ in 0..REQUESTS {
            let packet = match packet::receive(self.socket.as_fd()) {
                Ok(packet) => packet,
                Err(Errno::EAGAIN | Errno::EINTR) => return true,
                Err(_) => return false,
            };
            if packet.bytes().is_empty() {
                return false;
            }
            let result = match Request::from_bytes(packet.bytes()) {
                Some(_) if packet.is_cut => Err(Errno::EMFILE),
                Some(request) => self.handle(request, packet.descriptor, room, processes, flags),
                None => Err(Errno::EINVAL),
            };
            let reply = match result {
                Ok(Some(prediction)) => Reply::Prediction(prediction),
                Ok(None) => Reply::Done(Ok(()), flags.counters()),
                Err(errno) => Reply::Done(Err(errno), flags.counters()),
            };
            let reply = reply.to_bytes();
            // A client that does not read its replies is not worth waiting for.
            let sent = send(self.socket.as_raw_fd(), &reply, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL);
            if sent.is_err() {
                return false;
            }
        }
        true
    }

    /// Handles a request. Returns the prediction if it asks for one.
    fn handle(
        &mut self,
        request: Request,
        thread: Option<OwnedFd>,
        room: usize,
        processes: &mut Processes,
        flags: &impl Flags,
    ) -> Result<Option<Prediction>, Errno> {
        match (request, thread) {
            (Request::Counters, _) => Ok(()),
            (_, None) => Err(Errno::EBADF),
            (Request::Prediction, Some(thread)) => {
                return processes.prediction(self.number, thread.as_fd(), flags).map(Some);
            }
            (Request::Predict(terms), Some(thread)) => {
                check(&terms)?;
                self.weigh(thread, Source::Queues(terms), room, processes, flags)
            }
            (Request::Weigh(hundredths), Some(thread)) => {
                let weight = Weight::hundredths(hundredths.into());
                if weight.as_hundredths() != u32::from(hundredths) {
                    return Err(Errno::ERANGE);
                }
                self.weigh(thread, Source::Client(weight), room, processes, flags)
            }
            (Request::Flag, Some(thread)) => self.flag(thread, room, processes, flags),
            (Request::Unflag, Some(thread)) => {
                let tid = number_of(thread.as_fd())?;
                let index = self.threads.iter().position(|flagged| flagged.tid == tid);
                self.threads.remove(index.ok_or(Errno::ENOENT)?);
                flags.unflag(thread.as_fd())
            }
        }?;
        Ok(None)
    }

    fn flag(
        &mut self,
        thread: OwnedFd,
        room: usize,
        processes: &mut Processes,
        flags: &impl Flags,
    ) -> Result<(), Errno> {
        let Identity { tid, user } = identify(thread.as_fd())?;
        if self.user != 0 && self.user != user {
            return Err(Errno::EPERM);
        }
        if self.held(processes) >= room.min(THREADS_OF_CLIENT) {
            self.forget_ended(processes);
        }
        // A thread that is flagged twice has one flag.
        self.threads.retain(|flagged| flagged.tid != tid);
        if self.held(processes) >= room.min(THREADS_OF_CLIENT) {
            return Err(Errno::ENOSPC);
        }
        flags.flag(thread.as_fd(), user)?;
        self.threads.push(Flagged { tid, payer: user, thread });
        Ok(())
    }

    /// Replaces the weight or prediction that this connection has set for a process.
    fn weigh(
        &mut self,
        main_thread: OwnedFd,
        source: Source,
        room: usize,
        processes: &mut Processes,
        flags: &impl Flags,
    ) -> Result<(), Errno> {
        if self.user != 0 {
            return Err(Errno::EPERM);
        }
        let pid = number_of(main_thread.as_fd())?;
        // Those of another process that had this number.
        processes.0.retain(|weighed| weighed.pid != pid || weighed.exists());
        let known = processes.0.iter().position(|weighed| weighed.pid == pid);
        let is_own = |index: usize| processes.0.get(index).is_some_and(|known| known.client == self.number);
        if known.is_some_and(|index| !is_own(index)) {
            // The ordinary weight removes that of this connection, which has none.
            let removes = source == Source::Client(Weight::ORDINARY);
            return if removes { Ok(()) } else { Err(Errno::EBUSY) };
        }
        if let Some(known) = known.map(|index| processes.0.swap_remove(index)) {
            let _ended = known.end(flags);
        }
        if source == Source::Client(Weight::ORDINARY) {
            return Ok(());
        }
        if self.held(processes) >= room.min(THREADS_OF_CLIENT) {
            self.forget_ended(processes);
        }
        if self.held(processes) >= room.min(THREADS_OF_CLIENT) {
            return Err(Errno::ENOSPC);
        }
        let weighed = Weighed { client: self.number, pid, source, main_thread };
        weighed.begin(flags)?;
        processes.0.push(weighed);
        Ok(())
    }

    /// Closes the descriptors of threads and processes that have ended.
    fn forget_ended(&mut self, processes: &mut Processes) {
        self.threads.retain(|flagged| !has_ended(flagged.thread.as_fd()));
        processes.0.retain(Weighed::exists);
    }
}

/// Checks terms that the kernel would accept.
fn check(terms: &PredictionTerms) -> Result<(), Errno> {
    if !PredictionTerms::PERIODS.contains(&terms.period) {
        return Err(Errno::ERANGE);
    }
    if fs::read_link("/proc/self/ns/pid").map_err(errno_of)? != Path::new(FIRST_NAMESPACE) {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(())
}

impl Processes {
    /// Returns the prediction for a process that a connection has asked for.
    fn prediction(
        &self,
        client: u64,
        main_thread: BorrowedFd<'_>,
        flags: &impl Flags,
    ) -> Result<Prediction, Errno> {
        let pid = number_of(main_thread)?;
        let is_it = |weighed: &&Weighed| {
            weighed.pid == pid && weighed.client == client && matches!(weighed.source, Source::Queues(_))
        };
        let weighed = self.0.iter().find(is_it).filter(|weighed| weighed.exists()).ok_or(Errno::ENOENT)?;
        flags.prediction(weighed.pid.cast_unsigned())
    }
}

impl Weighed {
    /// Returns whether the process exists, also if its main thread has ended before the others.
    fn exists(&self) -> bool {
        number_of(self.main_thread.as_fd()) == Ok(self.pid)
    }

    fn begin(&self, flags: &impl Flags) -> Result<(), Errno> {
        match self.source {
            Source::Client(weight) => flags.weigh(self.main_thread.as_fd(), weight),
            Source::Queues(_) if !self.exists() => Err(Errno::ESRCH),
            Source::Queues(terms) => {
                flags.predict(self.pid.cast_unsigned(), &terms)?;
                if self.exists() {
                    return Ok(());
                }
                // It may be another process that has the number now.
                let _gone = flags.forget(self.pid.cast_unsigned());
                Err(Errno::ESRCH)
            }
        }
    }

    /// Removes the prediction first, then the weight. A process that has ended has neither.
    fn end(&self, flags: &impl Flags) -> Result<(), Errno> {
        if matches!(self.source, Source::Queues(_)) && self.exists() {
            let _gone = flags.forget(self.pid.cast_unsigned());
        }
        flags.weigh(self.main_thread.as_fd(), Weight::ORDINARY)
    }
}

/// Returns whether the thread of a descriptor has ended.
fn has_ended(thread: BorrowedFd<'_>) -> bool {
    poll(&mut [PollFd::new(thread, PollFlags::POLLIN)], PollTimeout::ZERO) != Ok(0)
}

/// Returns the number of a thread, from the `fdinfo` of its descriptor (`man 2 pidfd_open`).
///
/// # Errors
/// `EINVAL` if this is no descriptor of a thread, `ESRCH` if it has ended or is not visible here.
fn number_of(thread: BorrowedFd<'_>) -> Result<i32, Errno> {
    let info = read(format!("/proc/self/fdinfo/{}", thread.as_raw_fd()))?;
    let number = info.lines().find_map(|line| line.strip_prefix("Pid:")).ok_or(Errno::EINVAL)?;
    number.trim().parse().ok().filter(|tid| *tid > 0).ok_or(Errno::ESRCH)
}

/// Finds out which thread a descriptor names, and whose it is.
///
/// # Errors
/// `EINVAL` if this is no descriptor of a thread, `ESRCH` if it has ended, `EPERM` if it is in another user namespace, where a user
/// may have many numbers.
fn identify(thread: BorrowedFd<'_>) -> Result<Identity, Errno> {
    let tid = number_of(thread)?;
    let namespace = |process: i32| fs::read_link(format!("/proc/{process}/ns/user")).map_err(errno_of);
    if namespace(tid)? != namespace(getpid().as_raw())? {
        return Err(Errno::EPERM);
    }
    let status = read(format!("/proc/{tid}/status"))?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:")).ok_or(Errno::ESRCH)?;
    let user = users.split_whitespace().next().and_then(|user| user.parse().ok()).ok_or(Errno::ESRCH)?;
    // If the thread still exists, no other one had its number.
    if number_of(thread)? == tid { Ok(Identity { tid, user }) } else { Err(Errno::ESRCH) }
}

fn read(file: String) -> Result<String, Errno> {
    fs::read_to_string(file).map_err(errno_of)
}

#[expect(clippy::needless_pass_by_value, reason = "it is the argument of map_err")]
fn errno_of(error: std::io::Error) -> Errno {
    match error.raw_os_error().map(Errno::from_raw) {
        None | Some(Errno::ENOENT) => Errno::ESRCH,
        Some(errno) => errno,
    }
}

#[cfg(test)]
mod tests;
