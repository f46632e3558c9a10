//! Bytes of generic netlink (linux/netlink.h, linux/genetlink.h, linux/netdev.h): questions and answers.

use nix::errno::Errno;
use thiserror::Error;

/// GENL_ID_CTRL, and its command CTRL_CMD_GETFAMILY with its answer CTRL_CMD_NEWFAMILY.
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
/// NLM_F_REQUEST | NLM_F_ACK; and for lists NLM_F_ROOT | NLM_F_MATCH.
const REQUEST: u16 = 1 | 4;
const LIST: u16 = 0x300;
/// Lengths of the headers, bytes; attributes and messages begin at multiples of 4.
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
    /// The kernel's number for the queue, which SO_INCOMING_NAPI_ID tells, too.
    pub(super) id: u32,
    /// How long its interrupts are suspended while it is polled, nanoseconds; None if the kernel knows no such thing.
    pub(super) suspend_ns: Option<u64>,
}

/// Why the kernel was not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum NotAsked {
    #[error("{0}")]
    System(#[from] Errno),
    #[error("its answer is no answer")]
    Garbled,
}

/// One message of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part<'a> {
    /// The family that speaks.
    pub(super) kind: u16,
    /// The question that it answers.
    pub(super) sequence: u32,
    pub(super) got: Got<'a>,
}

/// What it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Got<'a> {
    /// This was all.
    End,
    Refused(Errno),
    Body {
        command: u8,
        attributes: &'a [u8],
    },
}

fn question(family: u16, command: u8, flags: u16, sequence: u32, attributes: &[u8]) -> Vec<u8> {
    let len = u32::try_from(HEADER + GENERIC + attributes.len()).unwrap_or(u32::MAX);
    let mut bytes = len.to_ne_bytes().to_vec();
    bytes.extend(family.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    // The port is the socket's own.
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend([command, 1, 0, 0]);
    bytes.extend(attributes);
    bytes
}

/// Asks for a family's number. Names are short.
pub(super) fn ask_family(name: &str, sequence: u32) -> Vec<u8> {
    let len = ATTRIBUTE + name.len() + 1;
    let mut attribute = u16::try_from(len).unwrap_or(u16::MAX).to_ne_bytes().to_vec();
    attribute.extend(FAMILY_NAME.to_ne_bytes());
    attribute.extend(name.as_bytes());
    attribute.resize(len.next_multiple_of(4), 0);
    question(CONTROL_FAMILY, ASK_FAMILY, REQUEST, sequence, &attribute)
}

/// Asks for all queues.
pub(super) fn ask_napis(family: u16, sequence: u32) -> Vec<u8> {
    question(family, GET_NAPI, REQUEST | LIST, sequence, &[])
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The messages of a piece of an answer.
pub(super) fn parts(mut bytes: &[u8]) -> impl Iterator<Item = Result<Part<'_>, NotAsked>> {
    core::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let Some((part, len)) = part(bytes) else {
            bytes = &[];
            return Some(Err(NotAsked::Garbled));
        };
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some(Ok(part))
    })
}

fn part(bytes: &[u8]) -> Option<(Part<'_>, usize)> {
    let len = usize::try_from(u32_at(bytes, 0)?).ok()?;
    let (kind, sequence) = (u16_at(bytes, 4)?, u32_at(bytes, 8)?);
    let body = bytes.get(HEADER..len)?;
    let got = match kind {
        DONE => Got::End,
        ERROR => match i32::from_ne_bytes(body.get(..4)?.try_into().ok()?) {
            0 => Got::End,
            errno => Got::Refused(Errno::from_raw(errno.checked_neg()?)),
        },
        _ => Got::Body { command: *body.first()?, attributes: body.get(GENERIC..)? },
    };
    Some((Part { kind, sequence, got }, len))
}

/// The value of the attribute of that type.
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

/// The number of a family, in what tells of it.
pub(super) fn family_of(attributes: &[u8]) -> Option<u16> {
    u16_at(attribute(attributes, FAMILY_ID)?, 0)
}

/// A queue, in what tells of it.
pub(super) fn napi_of(attributes: &[u8]) -> Option<Napi> {
    let interface = u32_at(attribute(attributes, NAPI_INTERFACE)?, 0)?;
    let id = u32_at(attribute(attributes, NAPI_ID)?, 0)?;
    let suspend_ns = attribute(attributes, NAPI_SUSPEND).and_then(|value| match value.len() {
        // As short as it fits (NLA_UINT).
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

    fn told(attributes: &[Vec<u8>]) -> Vec<u8> {
        question(30, GET_NAPI, 0, 7, &attributes.concat())
    }

    #[test]
    fn queues_are_read() {
        let napi =
            [with(1, &2_u32.to_ne_bytes()), with(2, &8193_u32.to_ne_bytes()), with(7, &0_u32.to_ne_bytes())];
        let older = [with(1, &3_u32.to_ne_bytes()), with(2, &8194_u32.to_ne_bytes()), with(3, &[9, 0, 0, 0])];
        let longer =
            [with(2, &1_u32.to_ne_bytes()), with(1, &4_u32.to_ne_bytes()), with(7, &20_u64.to_ne_bytes())];
        let mut bytes = [told(&napi), told(&older), told(&longer)].concat();
        bytes.extend(
            [20_u32.to_ne_bytes().as_slice(), &DONE.to_ne_bytes(), &[0; 2], &7_u32.to_ne_bytes(), &[0; 8]]
                .concat(),
        );
        let found: Vec<_> = parts(&bytes).map(|part| part.expect("it is whole").got).collect();
        let read: Vec<_> = found
            .iter()
            .filter_map(|got| match got {
                Got::Body { command: GET_NAPI, attributes } => napi_of(attributes),
                _ => None,
            })
            .map(|napi| (napi.interface, napi.id, napi.suspend_ns))
            .collect();
        assert_eq!(read, [(2, 8193, Some(0)), (3, 8194, None), (4, 1, Some(20))]);
        assert_eq!(found.last(), Some(&Got::End));
    }

    #[test]
    fn refusals_are_read() {
        let mut bytes =
            [36_u32.to_ne_bytes().as_slice(), &ERROR.to_ne_bytes(), &[0; 2], &1_u32.to_ne_bytes(), &[0; 4]]
                .concat();
        bytes.extend((-(Errno::ENOENT as i32)).to_ne_bytes());
        bytes.extend([0; 16]);
        let got = parts(&bytes).next().expect("one").expect("it is whole");
        assert_eq!((got.sequence, got.got), (1, Got::Refused(Errno::ENOENT)));
    }

    /// Whatever is cut off or changed is an error or nothing, and no panic.
    #[test]
    fn what_is_no_answer_is_refused() {
        let whole = told(&[with(1, &2_u32.to_ne_bytes()), with(2, &1_u32.to_ne_bytes())]);
        for end in 1..whole.len() {
            assert!(parts(&whole[..end]).all(|part| part == Err(NotAsked::Garbled)), "{end}");
        }
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = whole.clone();
                changed[at] = value;
                for part in parts(&changed).take(64).flatten() {
                    if let Got::Body { attributes, .. } = part.got {
                        let _napi = napi_of(attributes);
                        let _family = family_of(attributes);
                    }
                }
            }
        }
        assert_eq!(
            attribute(&[0, 0, 1, 0, 0, 0, 1, 0], 2),
            None,
            "an attribute of no length ends the search"
        );
    }

    #[test]
    fn a_question_is_as_long_as_it_says() {
        for bytes in [ask_family("netdev", 1), ask_napis(30, 2)] {
            assert_eq!(u32_at(&bytes, 0), u32::try_from(bytes.len()).ok());
            assert_eq!(bytes.len() % 4, 0);
        }
    }
}
