//! Encoding of offers and messages, as described in docs/protocol.md.

use core::net::Ipv4Addr;

use anyhow::{Context as _, Result, bail, ensure};
use ibverbs::Gid;

/// Length of an offer, bytes.
const OFFER: usize = 56;
/// Offsets in an offer.
const MTU: usize = 24;
const BUFFER: usize = 28;
const READS: usize = 32;
const LONGEST: usize = 36;
const ENDS: usize = 40;

/// Length of a header, bytes, including the fabric word.
pub(crate) const HEADER: usize = 24;

/// Data to reach a side's two queue pairs.
pub(crate) struct Offer {
    pub(crate) address: Ipv4Addr,
    /// Path MTU: 1 for 256 bytes, to 5 for 4,096.
    pub(crate) mtu: u32,
    pub(crate) longest: u32,
    /// Number and first sequence number, by class.
    pub(crate) ends: Vec<(u32, u32)>,
}

fn number(bytes: &[u8], at: usize) -> Result<u32> {
    let four = bytes.get(at..at + 4).context("too short")?;
    Ok(u32::from_le_bytes(four.try_into()?))
}

impl Offer {
    pub(crate) fn read(bytes: &[u8]) -> Result<Self> {
        ensure!(bytes.len() == OFFER && bytes.starts_with(b"prdm\x02\0"), "not an offer");
        // After magic, version and LID: ::ffff:a.b.c.d.
        ensure!(bytes[8..18] == [0; 10] && bytes[18..20] == [0xff; 2], "not an IPv4 address");
        let address = Ipv4Addr::new(bytes[20], bytes[21], bytes[22], bytes[23]);
        ensure!(
            number(bytes, BUFFER)? >= 128 && bytes[READS] > 0 && bytes[READS + 1] > 0,
            "the offer's limits are too small"
        );
        let end = |class: usize| Ok((number(bytes, ENDS + 8 * class)?, number(bytes, ENDS + 8 * class + 4)?));
        Ok(Self {
            address,
            mtu: number(bytes, MTU)?,
            longest: number(bytes, LONGEST)?,
            ends: (0..2).map(end).collect::<Result<_>>()?,
        })
    }

    /// Returns the address as the crate needs it, which accepts only an array of bytes.
    pub(crate) fn gid(&self) -> Result<Gid> {
        let raw = self.address.to_ipv6_mapped().octets();
        Ok(serde_json::from_value(serde_json::json!({ "raw": raw }))?)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = b"prdm\x02\0\0\0".to_vec();
        bytes.extend([0; 10]);
        bytes.extend([0xff; 2]);
        bytes.extend(self.address.octets());
        bytes.extend(self.mtu.to_le_bytes());
        bytes.extend(2048_u32.to_le_bytes());
        // One read or atomic at a time in each direction; two bytes of zero.
        bytes.extend([1, 1, 0, 0]);
        bytes.extend(self.longest.to_le_bytes());
        for (queue_pair, sequence) in &self.ends {
            bytes.extend(queue_pair.to_le_bytes());
            bytes.extend(sequence.to_le_bytes());
        }
        bytes
    }
}

/// A parsed message.
pub(crate) enum Message<'a> {
    /// A message with its payload.
    Here(&'a [u8]),
    /// A payload of `len` bytes waits behind window `number`.
    Waits { len: u32, number: u16 },
    /// A payload of this side was read.
    Taken,
}

impl<'a> Message<'a> {
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self> {
        match number(bytes, 0)? >> 28 {
            1 => Ok(Self::Here(bytes.get(HEADER..).context("missing header")?)),
            2 => {
                ensure!(bytes.len() == HEADER + 12, "rendezvous of {} bytes", bytes.len());
                let number_of_window = u16::try_from(number(bytes, HEADER + 8)?)?;
                Ok(Self::Waits { len: number(bytes, HEADER)?, number: number_of_window })
            }
            3 if bytes.len() == 4 => Ok(Self::Taken),
            other => bail!("unknown message kind {other} of {} bytes", bytes.len()),
        }
    }
}

/// Returns the fabric word of a kind.
pub(crate) fn word(kind: u32, number: u16) -> [u8; 4] {
    (kind << 28 | u32::from(number)).to_le_bytes()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex(text: &str) -> Result<Vec<u8>> {
    ensure!(text.is_ascii() && text.len().is_multiple_of(2), "not hexadecimal");
    (0..text.len()).step_by(2).map(|at| Ok(u8::from_str_radix(&text[at..at + 2], 16)?)).collect()
}
