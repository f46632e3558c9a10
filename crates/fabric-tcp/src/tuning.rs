//! Kernel settings of a connection: socket options, and whether waiting threads can busy-poll the device.

use core::fmt;
use core::time::Duration;
use std::net::TcpStream;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, getsockopt, setsockopt, socket, sockopt};
use pronto_core::Class;

use crate::setup::Options;

/// Maximum number of unsent bytes that the kernel accepts on the bulk connection. Pronto can no longer reorder bytes
/// that wait in the kernel.
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

    /// SO_BUSY_POLL_BUDGET (Documentation/networking/napi.rst): packets. The kernel offers no way to read it.
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

/// State of busy polling for a connection: whether the kernel polls its device while a thread waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusyPolling {
    /// Not requested.
    Off,
    /// On, with the polling time in microseconds.
    On(u32),
    /// On, with the polling time in microseconds, but without the other requested options: precedence over interrupts
    /// and a larger packet budget take CAP_NET_ADMIN.
    Partly(u32),
    /// The packets come from no device with NAPI, as with the loopback interface or a bridge of namespaces.
    NoDevice,
    /// The kernel refused: it does not support busy polling, or requires CAP_NET_ADMIN for it.
    Refused,
}

impl fmt::Display for BusyPolling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => write!(f, "no busy polling"),
            Self::On(micros) => write!(f, "its device is polled for {micros} us"),
            Self::Partly(micros) => {
                write!(
                    f,
                    "its device is polled for {micros} us, without precedence over interrupts or a packet budget (needs CAP_NET_ADMIN)"
                )
            }
            Self::NoDevice => write!(f, "no busy polling, as the packets come from no device with NAPI"),
            Self::Refused => write!(f, "no busy polling, as the kernel refused it (needs CAP_NET_ADMIN)"),
        }
    }
}

/// Socket options that the kernel permits to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketOffers {
    /// Polling the device for waiting threads (SO_BUSY_POLL).
    pub busy_poll: Result<(), Errno>,
    /// Giving that precedence over interrupts (SO_PREFER_BUSY_POLL).
    pub prefer: Result<(), Errno>,
    /// Reading the device queue that a packet came from (SO_INCOMING_NAPI_ID).
    pub incoming_napi: Result<(), Errno>,
}

/// Tries these options on an unconnected socket, and closes it.
pub fn socket_offers() -> SocketOffers {
    let kind = (AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC);
    let asked = socket(kind.0, kind.1, kind.2, None).map(|socket| SocketOffers {
        busy_poll: setsockopt(&socket, kernel::BusyPoll, &1),
        prefer: setsockopt(&socket, kernel::PreferBusyPoll, &1),
        incoming_napi: getsockopt(&socket, kernel::IncomingNapi).map(drop),
    });
    asked.unwrap_or_else(|errno| SocketOffers {
        busy_poll: Err(errno),
        prefer: Err(errno),
        incoming_napi: Err(errno),
    })
}

/// Busy-polling options that the kernel refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Nothing,
    /// The options other than SO_BUSY_POLL.
    Extras,
    All,
}

/// Sets all socket options. Returns the busy-polling options that the kernel refused.
pub(crate) fn apply(stream: &TcpStream, class: Class, options: &Options) -> Result<Refused, Errno> {
    let io = |error: std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(0));
    stream.set_nonblocking(true).map_err(io)?;
    stream.set_nodelay(true).map_err(io)?;
    if class == Class::Bulk {
        setsockopt(stream, kernel::NotSentLowAt, &BULK_UNSENT)?;
    }
    if let Some(bytes) = options.socket_buffer {
        // The kernel doubles the value for its own use.
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        setsockopt(stream, sockopt::SndBuf, &bytes)?;
        setsockopt(stream, sockopt::RcvBuf, &bytes)?;
    }
    // A refusal is not an error: the connection works without busy polling.
    Ok(poll_devices(stream, options))
}

/// Limits the time in which the kernel tries to send remaining data after the socket is closed to `limit`, instead of
/// about a quarter of an hour.
pub(crate) fn end_after(stream: &TcpStream, limit: Duration) {
    let millis = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
    // Fails only if the socket is closed already.
    let _ = setsockopt(stream, sockopt::TcpUserTimeout, &millis);
}

/// Enables busy polling, as far as the kernel permits.
fn poll_devices(stream: &TcpStream, options: &Options) -> Refused {
    let wanted = micros(options.busy_poll);
    if wanted == 0 {
        return Refused::Nothing;
    }
    if setsockopt(stream, kernel::BusyPoll, &wanted).is_err() {
        return Refused::All;
    }
    let packets = options.busy_poll_packets.map(u32::from);
    let packets = packets.map_or(Ok(()), |packets| setsockopt(stream, kernel::BusyPollBudget, &packets));
    let prefer =
        if options.prefer_busy_poll { setsockopt(stream, kernel::PreferBusyPoll, &1) } else { Ok(()) };
    if packets.and(prefer).is_err() { Refused::Extras } else { Refused::Nothing }
}

/// Returns the state of busy polling. The device is unknown until a packet has arrived.
pub(crate) fn busy_polling(stream: &TcpStream, refused: Refused) -> BusyPolling {
    let read = |value: Result<u32, Errno>| value.unwrap_or(0);
    match read(getsockopt(stream, kernel::BusyPoll)) {
        _ if refused == Refused::All => BusyPolling::Refused,
        0 => BusyPolling::Off,
        _ if read(getsockopt(stream, kernel::IncomingNapi)) == 0 => BusyPolling::NoDevice,
        micros if refused == Refused::Extras => BusyPolling::Partly(micros),
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

    /// Shows: operations.socket-options
    #[test]
    fn offers_match_the_options_of_a_connection() {
        let (stream, _other) = connected();
        let options =
            Options { busy_poll: Duration::from_micros(1), prefer_busy_poll: true, ..Options::default() };
        let refused = apply(&stream, Class::Control, &options).expect("a socket");
        let offers = socket_offers();
        let expected = match (offers.busy_poll, offers.prefer) {
            (Err(_), _) => Refused::All,
            (Ok(()), Err(_)) => Refused::Extras,
            (Ok(()), Ok(())) => Refused::Nothing,
        };
        assert_eq!(refused, expected);
    }

    /// Shows: operations.socket-options, operations.napi
    #[test]
    fn only_requested_options_are_set() {
        let (plain, tuned) = connected();
        assert_eq!(apply(&plain, Class::Control, &Options::default()), Ok(Refused::Nothing));
        assert_eq!(busy_polling(&plain, Refused::Nothing), BusyPolling::Off);
        let options = Options {
            busy_poll: Duration::from_micros(50),
            busy_poll_packets: Some(16),
            prefer_busy_poll: true,
            socket_buffer: Some(64 << 10),
            ..Options::default()
        };
        let refused = apply(&tuned, Class::Bulk, &options).expect("a socket");
        let set = getsockopt(&tuned, kernel::BusyPoll);
        let prefers = [&tuned, &plain].map(|stream| getsockopt(stream, kernel::PreferBusyPoll));
        // Loopback has no device that could be polled, whatever is permitted.
        let (polls, prefers_one, told) = match refused {
            Refused::Nothing => (50, Ok(1), BusyPolling::NoDevice),
            Refused::Extras => (50, Ok(0), BusyPolling::NoDevice),
            Refused::All => (0, Ok(0), BusyPolling::Refused),
        };
        assert_eq!((set, busy_polling(&tuned, refused)), (Ok(polls), told));
        assert_eq!(prefers, [prefers_one, Ok(0)]);
        // The kernel doubles the values.
        assert_eq!(getsockopt(&tuned, sockopt::SndBuf), Ok(128 << 10));
        assert_eq!(getsockopt(&tuned, sockopt::RcvBuf), Ok(128 << 10));
        assert!(getsockopt(&plain, sockopt::SndBuf).expect("it has one") != 128 << 10);
    }
}
