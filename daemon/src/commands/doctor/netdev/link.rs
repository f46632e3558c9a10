//! A generic netlink socket that lists the queues of all network devices.

use std::os::fd::{AsRawFd as _, OwnedFd};

use anyhow::{Context as _, Result, bail};
use netlink_bindings::{builtin::Nlmsghdr, netdev, nlctrl, traits::NetlinkRequest, utils};
use nix::errno::Errno;
use nix::sys::socket::{self, AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, sockopt};
use nix::sys::time::{TimeVal, TimeValLike as _};

/// Time limit for a reply, seconds. The kernel replies immediately.
const TIMEOUT_S: i64 = 1;
/// The kernel sends lists in pieces of at most 32 KiB (netlink(7)).
const PIECE: usize = 32 << 10;
/// The most pieces of one list: enough for several thousand queues.
const MAX_PIECES: usize = 256;

/// GENL_ID_CTRL, NLMSG_ERROR and NLMSG_DONE: types of messages.
const CONTROL_FAMILY: u16 = 0x10;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// NLM_F_REQUEST | NLM_F_ACK.
const REQUEST: u16 = 1 | 4;

pub(super) const MALFORMED: &str = "malformed netlink reply";

/// A queue of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Napi {
    /// The device's index.
    pub(super) interface: u32,
    /// The kernel's number of the queue, as in SO_INCOMING_NAPI_ID.
    pub(super) id: u32,
    /// Time limit of interrupt suspension while the queue is polled, nanoseconds (low 32 bits). `None` if the kernel cannot suspend them.
    pub(super) suspend_ns: Option<u32>,
}

pub(super) fn open() -> Result<OwnedFd> {
    let kind = (AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC);
    Ok(socket::socket(kind.0, kind.1, kind.2, SockProtocol::NetlinkGeneric)?)
}

/// Returns the queues of all devices.
pub(super) fn napis(socket: &OwnedFd) -> Result<Vec<Napi>> {
    socket::setsockopt(socket, sockopt::ReceiveTimeout, &TimeVal::seconds(TIMEOUT_S))?;
    let mut of_family = nlctrl::Request::new().op_getfamily_do();
    of_family.encode().push_family_name(c"netdev");
    let families = request(socket, 1, CONTROL_FAMILY, &of_family, |reply| Ok(reply.get_family_id()?))?;
    let family = *families.first().context(MALFORMED)?;
    request(socket, 2, family, &netdev::Request::new().op_napi_get_dump(), |reply| {
        let suspend_ns = reply.get_irq_suspend_timeout().ok();
        Ok(Napi { interface: reply.get_ifindex()?, id: reply.get_id()?, suspend_ns })
    })
}

fn message(kind: u16, flags: u16, seq: u32, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(Nlmsghdr::len() + body.len()).unwrap_or(u32::MAX);
    [Nlmsghdr { len, r#type: kind, flags, seq, pid: 0 }.as_slice(), body].concat()
}

/// Sends a request and returns what `read` finds in each reply.
fn request<R: NetlinkRequest, T>(
    socket: &OwnedFd,
    sequence: u32,
    family: u16,
    request: &R,
    read: impl Fn(R::ReplyType<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let request = message(family, request.flags() | REQUEST, sequence, request.payload());
    socket::send(socket.as_raw_fd(), &request, MsgFlags::empty())?;
    let mut found = Vec::new();
    let mut piece = vec![0; PIECE];
    for _ in 0..MAX_PIECES {
        let len = match socket::recv(socket.as_raw_fd(), &mut piece, MsgFlags::empty()) {
            Err(Errno::EINTR) => continue,
            received => received?,
        };
        let mut bytes = &piece[..len];
        while !bytes.is_empty() {
            let header = Nlmsghdr::new_from_zeroed(bytes);
            let len = usize::try_from(header.len)?;
            let body = bytes.get(Nlmsghdr::len()..len).context(MALFORMED)?;
            bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
            match header.r#type {
                _ if header.seq != sequence => {}
                DONE | ERROR => match utils::parse_i32(body).context(MALFORMED)? {
                    0 => return Ok(found),
                    code => bail!(Errno::from_raw(code.saturating_neg())),
                },
                kind if kind == family => found.push(read(R::decode_reply(body)).context(MALFORMED)?),
                _ => {}
            }
        }
    }
    bail!(MALFORMED)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    const FAMILY: u16 = 30;

    /// Returns the queues in `replies` to the second request. Checks that the first one contains its length.
    fn read(replies: &[Vec<u8>]) -> Result<Vec<Napi>> {
        let (kernel, socket) = UnixDatagram::pair()?;
        let mut family = Vec::new();
        nlctrl::OpGetfamilyDo::encode_request(&mut family).push_family_id(FAMILY);
        let first = [message(CONTROL_FAMILY, 0, 1, &family), message(ERROR, 0, 1, &[0; 20])];
        for reply in first.iter().chain(replies).chain([&message(DONE, 0, 2, &[0; 4])]) {
            kernel.send(reply)?;
        }
        let found = napis(&socket.into());
        let mut request = [0; 64];
        let len = kernel.recv(&mut request)?;
        assert_eq!(request[..4], u32::try_from(len)?.to_ne_bytes());
        found
    }

    /// Returns a reply about the queue 1, with further attributes.
    fn queue(interface: u32, further: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        netdev::OpNapiGetDump::encode_request(&mut body).push_ifindex(interface).push_id(1);
        message(FAMILY, 0, 2, &[&body, further].concat())
    }

    #[test]
    fn queues_are_read() {
        let offers = queue(2, &[8, 0, 7, 0, 0, 0, 0, 0]);
        let stale = message(FAMILY, 0, 1, &[]);
        let older = queue(3, &[8, 0, 3, 0, 9, 0, 0, 0]);
        let suspends = queue(4, &[12, 0, 7, 0, 20, 0, 0, 0, 0, 0, 0, 0]);
        let found = read(&[[offers, stale, older].concat(), suspends]).expect("whole");
        let found: Vec<_> = found.iter().map(|napi| (napi.interface, napi.id, napi.suspend_ns)).collect();
        assert_eq!(found, [(2, 1, Some(0)), (3, 1, None), (4, 1, Some(20))]);
    }

    #[test]
    fn refusals_and_silence_are_errors() {
        let refusal = message(ERROR, 0, 2, &(-(Errno::EOPNOTSUPP as i32)).to_ne_bytes());
        assert_eq!(read(&[refusal]).expect_err("refused").downcast_ref(), Some(&Errno::EOPNOTSUPP));
        let (_kernel, socket) = UnixDatagram::pair().expect("sockets");
        assert_eq!(napis(&socket.into()).expect_err("silence").downcast_ref(), Some(&Errno::EAGAIN));
    }

    /// A reply that is cut off or changed is an error or ignored; it causes no panic.
    #[test]
    fn malformed_replies_are_errors() {
        let whole = queue(2, &[]);
        for end in 1..whole.len() {
            let why = read(&[whole[..end].to_vec()]).expect_err("it is cut off");
            assert_eq!(why.to_string(), MALFORMED, "{end}");
        }
        for (at, value) in (0..whole.len()).flat_map(|at| [0, 1, 0x7f, 0xff].map(|value| (at, value))) {
            let mut changed = whole.clone();
            changed[at] = value;
            let _queues = read(&[changed]);
        }
    }
}
