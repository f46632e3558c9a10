//! Messages of generic netlink (linux/netlink.h, linux/genetlink.h, linux/netdev.h): requests and replies.

use nix::errno::Errno;
use thiserror::Error;

/// GENL_ID_CTRL, and its command CTRL_CMD_GETFAMILY with its reply CTRL_CMD_NEWFAMILY.
pub(super) const CONTROL_FAMILY: u16 = 0x10;
const ASK_FAMILY: u8 = 3;
pub(super) const GET_FAMILY: u8 = 1;
/// CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME.
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// NETDEV_CMD_NAPI_GET.
pub(super) const GET_NAPI: u8 = 11;
/// NETDEV_A_NAPI_IFINDEX, _ID, _IRQ_SUSPEND_TIMEOUT.
const NAPI_INTERFACE: u16 = 1;
const NAPI_ID: u16 = 2;
const NAPI_SUSPEND: u16 = 7;

/// NLMSG_ERROR, NLMSG_DONE.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// NLM_F_REQUEST | NLM_F_ACK, and NLM_F_ROOT | NLM_F_MATCH for lists.
const REQUEST: u16 = 1 | 4;
const LIST: u16 = 0x300;
/// Lengths of the headers, bytes. Attributes and messages begin at multiples of 4.
const HEADER: usize = 16;
const GENERIC: usize = 4;
const ATTRIBUTE: usize = 4;
/// Flags in the type of an attribute (NLA_TYPE_MASK).
const TYPE: u16 = 0x3fff;

/// A queue of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Napi {
    /// The device's index.
    pub(super) interface: u32,
    /// The kernel's number of the queue, as in SO_INCOMING_NAPI_ID.
    pub(super) id: u32,
    /// Time limit of interrupt suspension while the queue is polled, nanoseconds. `None` if the kernel cannot suspend interrupts.
    pub(super) suspend_ns: Option<u64>,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum NetlinkError {
    #[error("{0}")]
    System(#[from] Errno),
    #[error("malformed netlink reply")]
    Garbled,
}

/// One message of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part<'a> {
    /// The family that sent it.
    pub(super) kind: u16,
    /// The sequence number of the request.
    pub(super) sequence: u32,
    pub(super) content: Content<'a>,
}

/// The content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content<'a> {
    /// The end of the reply.
    End,
    Refused(Errno),
    Body {
        command: u8,
        attributes: &'a [u8],
    },
}

fn request(family: u16, command: u8, flags: u16, sequence: u32, attributes: &[u8]) -> Vec<u8> {
    let len = u32::try_from(HEADER + GENERIC + attributes.len()).unwrap_or(u32::MAX);
    let mut bytes = len.to_ne_bytes().to_vec();
    bytes.extend(family.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    // The kernel fills in the port of the socket.
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend([command, 1, 0, 0]);
    bytes.extend(attributes);
    bytes
}

/// Returns a request for the number of the family called `name`.
pub(super) fn family_request(name: &str, sequence: u32) -> Vec<u8> {
    let len = ATTRIBUTE + name.len() + 1;
    let mut attribute = u16::try_from(len).unwrap_or(u16::MAX).to_ne_bytes().to_vec();
    attribute.extend(FAMILY_NAME.to_ne_bytes());
    attribute.extend(name.as_bytes());
    attribute.resize(len.next_multiple_of(4), 0);
    request(CONTROL_FAMILY, ASK_FAMILY, REQUEST, sequence, &attribute)
}

/// Returns a request for all queues.
pub(super) fn napis_request(family: u16, sequence: u32) -> Vec<u8> {
    request(family, GET_NAPI, REQUEST | LIST, sequence, &[])
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Returns the messages of a piece of a reply.
pub(super) fn parts(mut bytes: &[u8]) -> impl Iterator<Item = Result<Part<'_>, NetlinkError>> {
    core::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let Some((part, len)) = part(bytes) else {
            bytes = &[];
            return Some(Err(NetlinkError::Garbled));
        };
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some(Ok(part))
    })
}

fn part(bytes: &[u8]) -> Option<(Part<'_>, usize)> {
    let len = usize::try_from(u32_at(bytes, 0)?).ok()?;
    let (kind, sequence) = (u16_at(bytes, 4)?, u32_at(bytes, 8)?);
    let body = bytes.get(HEADER..len)?;
    let content = match kind {
        DONE => Content::End,
        ERROR => match i32::from_ne_bytes(body.get(..4)?.try_into().ok()?) {
            0 => Content::End,
            errno => Content::Refused(Errno::from_raw(errno.checked_neg()?)),
        },
        _ => Content::Body { command: *body.first()?, attributes: body.get(GENERIC..)? },
    };
    Some((Part { kind, sequence, content }, len))
}

/// Returns the value of the attribute with type `wanted`.
fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let len = usize::from(u16_at(bytes, 0)?);
        let value = bytes.get(ATTRIBUTE..len)?;
        if u16_at(bytes, 2)? & TYPE == wanted {
            return Some(value);
        }
        bytes = bytes.get(len.next_multiple_of(4)..)?;
    }
}

/// Returns the number of a family from the attributes of a reply.
pub(super) fn family_of(attributes: &[u8]) -> Option<u16> {
    u16_at(attribute(attributes, FAMILY_ID)?, 0)
}

/// Returns the queue that a reply describes.
pub(super) fn napi_of(attributes: &[u8]) -> Option<Napi> {
    let interface = u32_at(attribute(attributes, NAPI_INTERFACE)?, 0)?;
    let id = u32_at(attribute(attributes, NAPI_ID)?, 0)?;
    let suspend_ns = attribute(attributes, NAPI_SUSPEND).and_then(|value| match value.len() {
        // An integer of the smallest sufficient size (NLA_UINT).
        4 => Some(u32_at(value, 0)?.into()),
        _ => Some(u64::from_ne_bytes(value.try_into().ok()?)),
    });
    Some(Napi { interface, id, suspend_ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(kind: u16, value: &[u8]) -> Vec<u8> {
        let len = u16::try_from(ATTRIBUTE + value.len()).expect("short");
        let mut bytes = [len.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn reply(attributes: &[Vec<u8>]) -> Vec<u8> {
        request(30, GET_NAPI, 0, 7, &attributes.concat())
    }

    #[test]
    fn queues_are_read() {
        let napi =
            [with(1, &2_u32.to_ne_bytes()), with(2, &8193_u32.to_ne_bytes()), with(7, &0_u32.to_ne_bytes())];
        let older = [with(1, &3_u32.to_ne_bytes()), with(2, &8194_u32.to_ne_bytes()), with(3, &[9, 0, 0, 0])];
        let longer =
            [with(2, &1_u32.to_ne_bytes()), with(1, &4_u32.to_ne_bytes()), with(7, &20_u64.to_ne_bytes())];
        let mut bytes = [reply(&napi), reply(&older), reply(&longer)].concat();
        bytes.extend(
            [20_u32.to_ne_bytes().as_slice(), &DONE.to_ne_bytes(), &[0; 2], &7_u32.to_ne_bytes(), &[0; 8]]
                .concat(),
        );
        let found: Vec<_> = parts(&bytes).map(|part| part.expect("it is complete").content).collect();
        let read: Vec<_> = found
            .iter()
            .filter_map(|content| match content {
                Content::Body { command: GET_NAPI, attributes } => napi_of(attributes),
                _ => None,
            })
            .map(|napi| (napi.interface, napi.id, napi.suspend_ns))
            .collect();
        assert_eq!(read, [(2, 8193, Some(0)), (3, 8194, None), (4, 1, Some(20))]);
        assert_eq!(found.last(), Some(&Content::End));
    }

    #[test]
    fn refusals_are_read() {
        let mut bytes =
            [36_u32.to_ne_bytes().as_slice(), &ERROR.to_ne_bytes(), &[0; 2], &1_u32.to_ne_bytes(), &[0; 4]]
                .concat();
        bytes.extend((-(Errno::ENOENT as i32)).to_ne_bytes());
        bytes.extend([0; 16]);
        let content = parts(&bytes).next().expect("one").expect("it is complete");
        assert_eq!((content.sequence, content.content), (1, Content::Refused(Errno::ENOENT)));
    }

    /// A reply that is cut off or changed is an error or ignored; it causes no panic.
    #[test]
    fn malformed_replies_are_errors() {
        let whole = reply(&[with(1, &2_u32.to_ne_bytes()), with(2, &1_u32.to_ne_bytes())]);
        for end in 1..whole.len() {
            assert!(parts(&whole[..end]).all(|part| part == Err(NetlinkError::Garbled)), "{end}");
        }
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = whole.clone();
                changed[at] = value;
                for part in parts(&changed).take(64).flatten() {
                    if let Content::Body { attributes, .. } = part.content {
                        let _napi = napi_of(attributes);
                        let _family = family_of(attributes);
                    }
                }
            }
        }
        assert_eq!(
            attribute(&[0, 0, 1, 0, 0, 0, 1, 0], 2),
            None,
            "an attribute with length 0 ends the search"
        );
    }

    #[test]
    fn requests_contain_their_length() {
        for bytes in [family_request("netdev", 1), napis_request(30, 2)] {
            assert_eq!(u32_at(&bytes, 0), u32::try_from(bytes.len()).ok());
            assert_eq!(bytes.len() % 4, 0);
        }
    }
}
