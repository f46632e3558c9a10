//! The Unix socket that a link begins with: listening, dialling, and messages before there is a queue pair.
//!
//! The socket carries packets instead of a stream. A packet arrives whole or not at all, so that a peer cannot delay
//! this side byte by byte. One timer bounds the whole handshake, however many packets it takes.

use core::time::Duration;
use std::fs::File;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, open};
use nix::fcntl::{Flock, FlockArg};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::{PeerCredentials as PeerCred, PeerPidfd, SendTimeout};
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, MsgFlags, Shutdown, SockFlag, SockType, UnixAddr, bind, connect,
    getsockopt, listen, sendmsg, setsockopt, shutdown, socket, socketpair,
};
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, fchmod, fchmodat, fstat};
use nix::sys::time::{TimeSpec, TimeVal, TimeValLike};
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::unistd::geteuid;

use crate::error::{SetupError, SetupFault};
use crate::fds::{self, Packet};
use crate::map::forked;
use crate::passed::{Passed, PeerSocket};

/// Time limit of an accepted handshake, unless [`Handshake::within`] sets another.
pub const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);
/// Time within which an accepted connection sends its first bytes. The dialler does so as soon as it is connected. The limit is that of
/// connections over TCP.
const FIRST_BYTES: Duration = Duration::from_millis(500);
/// Maximum number of connections waiting to be accepted.
const BACKLOG: i32 = 64;
/// Maximum wait for the lock of a directory. Its other holders keep it for some system calls.
const LOCK_LIMIT: Duration = Duration::from_secs(2);
/// Pause between two attempts to lock.
const LOCK_PAUSE: Duration = Duration::from_millis(5);
/// Maximum length of one piece of a message, bytes.
const PIECE: usize = 16 << 10;

/// Listens for links at a path, or at an abstract name if the path begins with `@`.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    file: Option<SocketFile>,
}

#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Listener {
    /// Listens at `path`. Removes the socket file of a dead process first. Returns [`SetupError::InUse`] if another
    /// process listens there, and [`SetupError::Locked`] if one keeps the directory locked. The file's mode is 0600. It should lie in a directory that only its user can write to.
    pub fn bind(path: &Path) -> Result<Self, SetupError> {
        Self::bind_for(path, Visitors::OfThisUser)
    }

    /// Listens like [`Self::bind`], for processes of this user or of all users.
    pub fn bind_for(path: &Path, visitors: Visitors) -> Result<Self, SetupError> {
        let address = address(path)?;
        let socket = new_socket()?;
        if address.path().is_none() {
            bind(socket.as_raw_fd(), &address).map_err(in_use)?;
            return Self::start(socket, None);
        }
        let _directory = lock_directory(path)?;
        fchmod(&socket, Mode::S_IRUSR | Mode::S_IWUSR).map_err(SetupError::system("fchmod"))?;
        match bind(socket.as_raw_fd(), &address) {
            Err(Errno::EADDRINUSE) => {
                remove_if_stale(path, &address)?;
                bind(socket.as_raw_fd(), &address).map_err(in_use)?;
            }
            bound => bound.map_err(SetupError::system("bind"))?,
        }
        if visitors == Visitors::OfAllUsers {
            open_to_all(path)?;
        }
        let made = std::fs::symlink_metadata(path).map_err(io("stat"))?;
        let file = SocketFile { path: path.to_owned(), device: made.dev(), inode: made.ino() };
        Self::start(socket, Some(file))
    }

    fn start(socket: OwnedFd, file: Option<SocketFile>) -> Result<Self, SetupError> {
        let listener = Self { socket, file };
        let backlog = Backlog::new(BACKLOG).map_err(SetupError::system("listen"))?;
        listen(&listener.socket, backlog).map_err(SetupError::system("listen"))?;
        Ok(listener)
    }

    /// Waits for the next connection; does not block if the listener's descriptor is readable. The handshake must
    /// finish within [`HANDSHAKE_LIMIT`].
    pub fn accept(&self) -> Result<Handshake, SetupError> {
        let accepted = loop {
            match fds::accept(self.socket.as_fd()) {
                Err(Errno::EINTR | Errno::ECONNABORTED) => {}
                accepted => break accepted.map_err(SetupError::system("accept"))?,
            }
        };
        Handshake::new(accepted, Side::Acceptor, HANDSHAKE_LIMIT)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if forked() {
            return;
        }
        // Waiting connections may hold descriptors, which must not be closed together with this socket.
        let _ = shutdown(self.socket.as_raw_fd(), Shutdown::Both);
        while let Ok(waiting) = fds::accept(self.socket.as_fd()) {
            drop(PeerSocket::new(waiting));
        }
        if let Some(file) = self.file.take() {
            let ours = |found: &std::fs::Metadata| (found.dev(), found.ino()) == (file.device, file.inode);
            if std::fs::symlink_metadata(&file.path).is_ok_and(|found| ours(&found)) {
                // If this fails, the next listener finds the file stale and removes it.
                let _ = std::fs::remove_file(&file.path);
            }
        }
    }
}

/// Lets processes of all users connect to the socket with this file. The umask limits the mode that bind(2) gives the file. A user that may write
/// to the folder could have put another file in its place, whose mode is not changed.
fn open_to_all(path: &Path) -> Result<(), SetupError> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file = open(path, flags, Mode::empty()).map_err(SetupError::system("open"))?;
    let found = fstat(&file).map_err(SetupError::system("fstat"))?;
    if SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT != SFlag::S_IFSOCK {
        return Err(SetupError::system("bind")(Errno::EADDRINUSE));
    }
    let opened = format!("/proc/self/fd/{}", file.as_raw_fd());
    let all = Mode::from_bits_truncate(0o666);
    fchmodat(AT_FDCWD, opened.as_str(), all, FchmodatFlags::FollowSymlink)
        .map_err(SetupError::system("fchmodat"))
}

/// The users whose processes may connect to the file of a socket. A process of any user may connect to an abstract name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visitors {
    /// Processes of this user.
    OfThisUser,
    /// Processes of all users that may reach the folder; the node that accepts them decides by [`Handshake::peer`].
    OfAllUsers,
}

/// Identity of the other end of a connection, as reported by the kernel.
#[derive(Debug)]
pub struct PeerCredentials {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Process id. The kernel may have reassigned it to another process since.
    pub pid: i32,
    /// Descriptor of the process, which never refers to another one; `None` on kernels older than Linux 6.5.
    pub pidfd: Option<OwnedFd>,
}

impl PeerCredentials {
    /// Returns whether the peer runs as the same user as this process.
    pub fn same_user(&self) -> bool {
        self.uid == geteuid().as_raw()
    }
}

/// Ends a handshake from another thread, whatever the handshake waits for. Drop it once the handshake has become a
/// link; otherwise a cancellation breaks the link.
#[derive(Debug)]
pub struct Canceller(Arc<PeerSocket>);

impl Canceller {
    /// Breaks the connection. Both sides then find it closed.
    pub fn cancel(&self) {
        // Fails only if the connection is broken already.
        let _ = shutdown(self.0.as_fd().as_raw_fd(), Shutdown::Both);
    }
}

/// End of the socket. The dialler creates the sockets of the queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Dialler,
    Acceptor,
}

/// A connection that is not a link yet. The two sides exchange greetings on it, and then [`establish`](Self::establish)
/// makes the link.
#[derive(Debug)]
pub struct Handshake {
    pub(crate) socket: Arc<PeerSocket>,
    pub(crate) side: Side,
    pub(crate) peer: PeerCredentials,
    limit: TimerFd,
}

impl Handshake {
    /// Connects to the listener at `path` (see [`Listener::bind`]) and limits the whole handshake to `limit`. If the
    /// listener runs as another user, returns [`SetupError::OtherUser`] before anything is sent: any user may take an
    /// abstract name, or a path in a world-writable directory.
    pub fn dial(path: &Path, limit: Duration) -> Result<Self, SetupError> {
        Self::dial_user(path, limit, geteuid().as_raw())
    }

    /// Connects like [`Self::dial`], to a listener that runs as the user `expected`.
    pub fn dial_user(path: &Path, limit: Duration, expected: u32) -> Result<Self, SetupError> {
        let address = address(path)?;
        let socket = new_socket()?;
        // While the listener's backlog is full, connect blocks for at most the send timeout.
        let micros = i64::try_from(limit.as_micros()).unwrap_or(i64::MAX).max(1);
        setsockopt(&socket, SendTimeout, &TimeVal::microseconds(micros))
            .map_err(SetupError::system("setsockopt"))?;
        connect(socket.as_raw_fd(), &address).map_err(|errno| match errno {
            Errno::ECONNREFUSED | Errno::ENOENT => SetupError::NotListening,
            Errno::EAGAIN | Errno::EINTR => SetupError::TimedOut,
            errno => SetupError::system("connect")(errno),
        })?;
        let handshake = Self::new(socket, Side::Dialler, limit)?;
        let PeerCredentials { uid: found, .. } = handshake.peer;
        if found == expected { Ok(handshake) } else { Err(SetupError::OtherUser { found, expected }) }
    }

    /// Returns both ends of a handshake within this process.
    pub fn pair(limit: Duration) -> Result<(Self, Self), SetupError> {
        let (one, other) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
            .map_err(SetupError::system("socketpair"))?;
        Ok((Self::new(one, Side::Dialler, limit)?, Self::new(other, Side::Acceptor, limit)?))
    }

    fn new(socket: OwnedFd, side: Side, limit: Duration) -> Result<Self, SetupError> {
        let socket = Arc::new(PeerSocket::new(socket));
        let credentials = getsockopt(&*socket, PeerCred).map_err(SetupError::system("getsockopt"))?;
        let peer = PeerCredentials {
            uid: credentials.uid(),
            gid: credentials.gid(),
            pid: credentials.pid(),
            pidfd: getsockopt(&*socket, PeerPidfd).ok(),
        };
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(SetupError::system("timerfd"))?;
        Self { socket, side, peer, limit: timer }.within(limit)
    }

    /// Limits the rest of the handshake to `limit`.
    pub fn within(self, limit: Duration) -> Result<Self, SetupError> {
        // Zero would disarm the timer.
        let limit = TimeSpec::from_duration(limit.max(Duration::from_nanos(1)));
        self.limit
            .set(Expiration::OneShot(limit), TimerSetTimeFlags::empty())
            .map_err(SetupError::system("timerfd_settime"))?;
        Ok(self)
    }

    /// Waits for the first bytes of the peer, which must arrive within half a second. Then limits the rest of the handshake to `limit`.
    pub fn begin(self, limit: Duration) -> Result<Self, SetupError> {
        let handshake = self.within(FIRST_BYTES)?;
        handshake.wait(PollFlags::POLLIN)?;
        handshake.within(limit)
    }

    /// Returns a handle that can end this handshake from another thread.
    pub fn canceller(&self) -> Canceller {
        Canceller(Arc::clone(&self.socket))
    }

    /// Returns the identity of the other end.
    pub fn peer(&self) -> &PeerCredentials {
        &self.peer
    }

    /// Sends a message.
    pub fn send(&mut self, message: &[u8]) -> Result<(), SetupError> {
        let max = u64::from(u32::MAX);
        let len = u32::try_from(message.len())
            .map_err(|_| SetupFault::Oversized { len: message.len() as u64, max })?;
        self.send_packet(&len.to_le_bytes(), &[])?;
        message.chunks(PIECE).try_for_each(|piece| self.send_packet(piece, &[]))
    }

    /// Receives a message of at most `max` bytes. Rejects a longer one before reading it.
    pub fn receive(&mut self, max: usize) -> Result<Vec<u8>, SetupError> {
        let mut announced = [0; 4];
        self.receive_exactly(&mut announced, 0)?;
        let len = u32::from_le_bytes(announced) as usize;
        if len > max {
            return Err(SetupFault::Oversized { len: len as u64, max: max as u64 }.into());
        }
        let mut message = vec![0; len];
        for piece in message.chunks_mut(PIECE) {
            self.receive_exactly(piece, 0)?;
        }
        Ok(message)
    }

    /// Receives one packet of exactly `out.len()` bytes with exactly `expected` descriptors.
    pub(crate) fn receive_exactly(
        &mut self,
        out: &mut [u8],
        expected: usize,
    ) -> Result<Vec<Passed>, SetupError> {
        let Packet { len, truncated, fds, .. } = loop {
            match fds::receive(self.socket.as_fd(), out) {
                Err(Errno::EAGAIN) => self.wait(PollFlags::POLLIN)?,
                Err(Errno::EINTR) => {}
                Err(Errno::ECONNRESET) => return Err(SetupError::Closed),
                packet => break packet.map_err(SetupError::system("recvmsg"))?,
            }
        };
        match () {
            () if len == 0 => Err(SetupError::Closed),
            () if truncated || len != out.len() => Err(SetupFault::Malformed.into()),
            () if fds.len() != expected => Err(SetupFault::Descriptors { found: fds.len(), expected }.into()),
            () => Ok(fds),
        }
    }

    /// Sends one packet with descriptors.
    pub(crate) fn send_packet(&mut self, bytes: &[u8], fds: &[RawFd]) -> Result<(), SetupError> {
        let rights = [ControlMessage::ScmRights(fds)];
        let rights = if fds.is_empty() { &[][..] } else { &rights[..] };
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        loop {
            match sendmsg::<()>(self.socket.as_fd().as_raw_fd(), &[IoSlice::new(bytes)], rights, flags, None)
            {
                Err(Errno::EAGAIN) => self.wait(PollFlags::POLLOUT)?,
                Err(Errno::EINTR) => {}
                Err(Errno::EPIPE | Errno::ECONNRESET) => return Err(SetupError::Closed),
                sent => return sent.map(drop).map_err(SetupError::system("sendmsg")),
            }
        }
    }

    fn wait(&self, event: PollFlags) -> Result<(), SetupError> {
        let timer = PollFd::new(self.limit.as_fd(), PollFlags::POLLIN);
        let mut fds = [PollFd::new(self.socket.as_fd(), event), timer];
        while let Err(errno) = poll(&mut fds, PollTimeout::NONE) {
            if errno != Errno::EINTR {
                return Err(SetupError::system("poll")(errno));
            }
        }
        if fds[1].any() == Some(true) { Err(SetupError::TimedOut) } else { Ok(()) }
    }
}

fn new_socket() -> Result<OwnedFd, SetupError> {
    socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)
        .map_err(SetupError::system("socket"))
}

fn address(path: &Path) -> Result<UnixAddr, SetupError> {
    match path.as_os_str().as_bytes() {
        [] | [b'@'] => Err(SetupError::Address),
        [b'@', name @ ..] => UnixAddr::new_abstract(name).map_err(|_| SetupError::Address),
        _ => UnixAddr::new(path).map_err(|_| SetupError::Address),
    }
}

/// Locks the directory of a socket file, so that only one of several processes replaces a stale file. Every process that may open the directory may lock
/// it, so that the wait has a limit.
fn lock_directory(path: &Path) -> Result<Flock<File>, SetupError> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = File::open(parent.unwrap_or_else(|| Path::new("."))).map_err(io("open"))?;
    let mut waited = Duration::ZERO;
    let mut directory = directory;
    loop {
        match Flock::lock(directory, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((back, Errno::EAGAIN | Errno::EINTR)) if waited < LOCK_LIMIT => directory = back,
            Err((_, Errno::EAGAIN)) => return Err(SetupError::Locked),
            Err((_, errno)) => return Err(SetupError::system("flock")(errno)),
        }
        pause(LOCK_PAUSE);
        waited += LOCK_PAUSE;
    }
}

fn pause(span: Duration) {
    #[expect(
        clippy::disallowed_methods,
        reason = "a blocking lock has no time limit, and its holder may keep it forever"
    )]
    std::thread::sleep(span);
}

/// Removes a socket file at which no process listens.
fn remove_if_stale(path: &Path, address: &UnixAddr) -> Result<(), SetupError> {
    use std::os::unix::fs::FileTypeExt;
    let found = std::fs::symlink_metadata(path).map_err(io("stat"))?;
    if !found.file_type().is_socket() {
        return Err(SetupError::InUse);
    }
    match connect(new_socket()?.as_raw_fd(), address) {
        Err(Errno::ECONNREFUSED) => std::fs::remove_file(path).map_err(io("unlink")),
        _ => Err(SetupError::InUse),
    }
}

fn in_use(errno: Errno) -> SetupError {
    match errno {
        Errno::EADDRINUSE => SetupError::InUse,
        errno => SetupError::system("bind")(errno),
    }
}

fn io(call: &'static str) -> impl FnOnce(std::io::Error) -> SetupError {
    move |error| SetupError::System { call, errno: error.raw_os_error().unwrap_or_default() }
}
