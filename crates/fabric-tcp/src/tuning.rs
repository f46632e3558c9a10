//! What a connection asks of the kernel: socket options, and whether the device can be polled by who waits.

use core::fmt;
use core::time::Duration;
use std::net::TcpStream;

use nix::errno::Errno;
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use pronto_core::Class;

use crate::setup::Options;

/// Bytes not yet sent that the kernel takes on the bulk connection before it says full. What waits here is behind the
/// point where control of order is ours.
const BULK_UNSENT: u32 = 256 << 10;

mod kernel {
    //! Options that nix has no name for.
    use nix::sys::socket::sockopt::{GetStruct, SetStruct};

    /// TCP_NOTSENT_LOWAT of tcp(7).
    #[derive(Clone, Copy, Debug)]
    pub(super) struct NotSentLowAt;
    nix::setsockopt_impl!(NotSentLowAt, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, u32, SetStruct<'_, u32>);

    /// SO_BUSY_POLL of socket(7): microseconds.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct BusyPoll;
    nix::setsockopt_impl!(BusyPoll, libc::SOL_SOCKET, libc::SO_BUSY_POLL, u32, SetStruct<'_, u32>);
    nix::getsockopt_impl!(BusyPoll, libc::SOL_SOCKET, libc::SO_BUSY_POLL, u32, GetStruct<u32>);

    /// SO_PREFER_BUSY_POLL (Documentation/networking/napi.rst): 0 or 1.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct PreferBusyPoll;
    nix::setsockopt_impl!(
        PreferBusyPoll,
        libc::SOL_SOCKET,
        libc::SO_PREFER_BUSY_POLL,
        u32,
        SetStruct<'_, u32>
    );
    nix::getsockopt_impl!(PreferBusyPoll, libc::SOL_SOCKET, libc::SO_PREFER_BUSY_POLL, u32, GetStruct<u32>);

    /// SO_BUSY_POLL_BUDGET (Documentation/networking/napi.rst): packets. The kernel does not tell it.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct BusyPollBudget;
    nix::setsockopt_impl!(
        BusyPollBudget,
        libc::SOL_SOCKET,
        libc::SO_BUSY_POLL_BUDGET,
        u32,
        SetStruct<'_, u32>
    );

    /// SO_INCOMING_NAPI_ID of socket(7): the device's queue of the last packet; 0 if it came from none.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct IncomingNapi;
    nix::getsockopt_impl!(IncomingNapi, libc::SOL_SOCKET, libc::SO_INCOMING_NAPI_ID, u32, GetStruct<u32>);
}

/// Whether the kernel polls a connection's device while somebody waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusyPolling {
    /// Nobody asked for it.
    Off,
    /// For so many microseconds.
    On(u32),
    /// What arrives comes from no device with NAPI: the loopback interface, a bridge of namespaces.
    NoDevice,
    /// The kernel refused: raising it takes CAP_NET_ADMIN, and a kernel that has it built in.
    Refused,
}

impl fmt::Display for BusyPolling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => write!(f, "no busy polling"),
            Self::On(micros) => write!(f, "its device is polled for {micros} us"),
            Self::NoDevice => write!(f, "no busy polling, as what arrives comes from no device with NAPI"),
            Self::Refused => write!(f, "no busy polling, as the kernel refused it (it takes CAP_NET_ADMIN)"),
        }
    }
}

/// Sets everything. Whether busy polling was refused.
pub(crate) fn apply(stream: &TcpStream, class: Class, options: &Options) -> Result<bool, Errno> {
    let io = |error: std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(0));
    stream.set_nonblocking(true).map_err(io)?;
    stream.set_nodelay(true).map_err(io)?;
    let millis = u32::try_from(options.user_timeout.as_millis()).unwrap_or(u32::MAX);
    setsockopt(stream, sockopt::TcpUserTimeout, &millis)?;
    if class == Class::Bulk {
        setsockopt(stream, kernel::NotSentLowAt, &BULK_UNSENT)?;
    }
    if let Some(bytes) = options.socket_buffer {
        // The kernel doubles them, for its own use.
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        setsockopt(stream, sockopt::SndBuf, &bytes)?;
        setsockopt(stream, sockopt::RcvBuf, &bytes)?;
    }
    // Who may not is served all the same, as any other connection.
    Ok(options.busy_poll != Duration::ZERO && poll_devices(stream, options).is_err())
}

/// All of busy polling that was asked for, or why not all of it.
fn poll_devices(stream: &TcpStream, options: &Options) -> Result<(), Errno> {
    setsockopt(stream, kernel::BusyPoll, &micros(options.busy_poll))?;
    if let Some(packets) = options.busy_poll_packets {
        setsockopt(stream, kernel::BusyPollBudget, &packets.into())?;
    }
    if options.prefer_busy_poll {
        setsockopt(stream, kernel::PreferBusyPoll, &1)?;
    }
    Ok(())
}

/// What became of it. Before anything has arrived no device is known.
pub(crate) fn busy_polling(stream: &TcpStream, was_refused: bool) -> BusyPolling {
    let read = |value: Result<u32, Errno>| value.unwrap_or(0);
    match read(getsockopt(stream, kernel::BusyPoll)) {
        _ if was_refused => BusyPolling::Refused,
        0 => BusyPolling::Off,
        _ if read(getsockopt(stream, kernel::IncomingNapi)) == 0 => BusyPolling::NoDevice,
        micros => BusyPolling::On(micros),
    }
}

fn micros(span: Duration) -> u32 {
    u32::try_from(span.as_micros()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let near = TcpStream::connect(listener.local_addr().expect("it listens")).expect("it is there");
        (near, listener.accept().expect("it was dialled").0)
    }

    #[test]
    fn what_was_asked_for_is_set_and_nothing_else() {
        let (plain, tuned) = connected();
        assert_eq!(apply(&plain, Class::Control, &Options::default()), Ok(false));
        assert_eq!(busy_polling(&plain, false), BusyPolling::Off);
        let options = Options {
            busy_poll: Duration::from_micros(50),
            busy_poll_packets: Some(16),
            prefer_busy_poll: true,
            socket_buffer: Some(64 << 10),
            ..Options::default()
        };
        let refused = apply(&tuned, Class::Bulk, &options).expect("a socket");
        let set = getsockopt(&tuned, kernel::BusyPoll);
        let more = [getsockopt(&tuned, kernel::PreferBusyPoll), getsockopt(&plain, kernel::PreferBusyPoll)];
        if refused {
            assert!(!more.contains(&Ok(1)), "{more:?}");
            assert_eq!((set, busy_polling(&tuned, true)), (Ok(0), BusyPolling::Refused));
        } else {
            assert_eq!(more, [Ok(1), Ok(0)]);
            // Loopback has no device that could be polled.
            assert_eq!((set, busy_polling(&tuned, false)), (Ok(50), BusyPolling::NoDevice));
        }
        // Doubled by the kernel.
        assert_eq!(getsockopt(&tuned, sockopt::SndBuf), Ok(128 << 10));
        assert_eq!(getsockopt(&tuned, sockopt::RcvBuf), Ok(128 << 10));
        assert!(getsockopt(&plain, sockopt::SndBuf).expect("it has one") != 128 << 10);
    }
}
