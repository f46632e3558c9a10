//! Setting up a link: each side makes two queue pairs, sends the other side the data to reach them, and tests the
//! connection.
//!
//! ```text
//! dialler                                 acceptor
//!   Offer::new, bytes  ─────────────────►  Offer::new, connect to theirs
//!   connect to theirs  ◄─────────────────  bytes
//!   Link::reaches      ─────────────────►  (verdict)
//!                      ◄─────────────────  Link::reaches, verdict
//!   Link::attach                           Link::attach
//! ```
//!
//! The bytes and the verdicts are sent over the connection that the two nodes already have. The link is used only if
//! both sides reach each other. Each queue pair keeps one socket to the peer, which carries no data and reports the end
//! of the other side.

use core::time::Duration;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use nix::errno::Errno;
use pronto_core::fabric::ConnectionLimits;

use crate::alive::{Alive, Lifeline};
use crate::connecting::Half;
use crate::device::Device;
use crate::error::VerbsError;
use crate::offer::{self, End, Reached};
use crate::queue_pair::VerbsQueuePair;
use crate::receives::BUFFER;
use crate::sleep::Waits;
use crate::sys::{Connect, Gid};

/// One side's queue pairs, before they are connected.
#[derive(Debug)]
pub struct Offer {
    device: Device,
    halves: [Half; 2],
    sequences: [u32; 2],
}

/// Two queue pairs to one peer.
#[derive(Debug)]
pub struct Link {
    /// Connection for small, urgent messages.
    pub control: VerbsQueuePair,
    /// Connection for large messages.
    pub bulk: VerbsQueuePair,
    /// Reports the end of the peer to threads that only poll.
    pub lifeline: Lifeline,
}

impl Offer {
    /// Makes queue pairs with these limits, by class, and promises their receives.
    ///
    /// # Errors
    /// The device has too few resources, or memory cannot be pinned.
    pub fn new(device: &Device, limits: [ConnectionLimits; 2]) -> Result<Self, VerbsError> {
        let [control, bulk] = limits;
        let halves = [Half::new(&device.shared, control)?, Half::new(&device.shared, bulk)?];
        // Random 24 bits each, so that packets of an earlier connection with the same number are not accepted for this
        // one.
        let mut bytes = [0; 8];
        File::open("/dev/urandom")
            .and_then(|mut file| file.read_exact(&mut bytes))
            .map_err(|_| VerbsError::System { what: "/dev/urandom", errno: Errno::EIO })?;
        let [a, b, c, _, d, e, f, _] = bytes;
        let sequences = [u32::from_le_bytes([a, b, c, 0]), u32::from_le_bytes([d, e, f, 0])];
        Ok(Self { device: device.clone(), halves, sequences })
    }

    /// Returns the bytes that the other side needs.
    pub fn bytes(&self) -> Vec<u8> {
        let port = &self.device.shared.port;
        let ends = [0, 1].map(|class: usize| End {
            number: self.halves[class].number(),
            first_sequence: self.sequences[class],
        });
        let [as_target, as_initiator] = self.device.shared.domain.context().limits().max_reads;
        offer::encode(&Reached {
            lid: port.lid,
            gid: port.gid.0,
            mtu: port.mtu,
            buffer: BUFFER,
            reads_as_target: as_target,
            reads_as_initiator: as_initiator,
            longest: port.max_message,
            ends,
        })
    }

    /// Connects to the other side's offer.
    ///
    /// # Errors
    /// The bytes are not a valid offer, or the device refuses the connection.
    pub fn connect(self, theirs: &[u8]) -> Result<Link, VerbsError> {
        let theirs = offer::decode(theirs).ok_or(VerbsError::Malformed)?;
        let ours = &self.device.shared;
        let [as_target, as_initiator] = ours.domain.context().limits().max_reads;
        if as_target == 0 || as_initiator == 0 {
            return Err(VerbsError::Malformed);
        }
        let mut ends = Vec::new();
        let mut pairs = Vec::new();
        for ((class, half), waits) in self.halves.into_iter().enumerate().zip(Waits::pair()?) {
            let End { number, first_sequence } = theirs.ends[class];
            let connect = Connect {
                number,
                first_sequence,
                gid: Gid(theirs.gid),
                lid: theirs.lid,
                mtu: theirs.mtu.min(ours.port.mtu),
                their_reads: as_target.min(theirs.reads_as_initiator),
                our_reads: as_initiator.min(theirs.reads_as_target),
            };
            let alive = Arc::<Alive>::default();
            let far = (theirs.buffer, theirs.longest.min(ours.port.max_message));
            pairs.push(half.connect(self.sequences[class], &connect, far, waits, &alive)?);
            ends.push(alive);
        }
        let (Some(bulk), Some(control)) = (pairs.pop(), pairs.pop()) else { unreachable!("two classes") };
        Ok(Link { control, bulk, lifeline: Lifeline { ends } })
    }
}

impl Link {
    /// Attaches sockets to the peer, by class, which must carry no data from now on: they report the end of the peer.
    ///
    /// # Errors
    /// The system cannot wait for them.
    pub fn attach(&mut self, sockets: [OwnedFd; 2]) -> Result<(), VerbsError> {
        let pairs = [&mut self.control, &mut self.bulk];
        pairs.into_iter().zip(sockets).try_for_each(|(pair, socket)| pair.attach(socket))
    }

    /// Tests whether this side's messages reach the other side, which must have connected. Both queue pairs are tested.
    ///
    /// # Errors
    /// The peer cannot be reached, or not in time.
    pub fn reaches(&mut self, within: Duration) -> Result<(), VerbsError> {
        let deadline = now() + within;
        for pair in [&mut self.control, &mut self.bulk] {
            pair.begin_probe()?;
        }
        for pair in [&mut self.control, &mut self.bulk] {
            while !pair.probe_has_ended()? {
                if now() > deadline {
                    return Err(VerbsError::Unreachable { status: 0 });
                }
                std::thread::yield_now();
            }
        }
        Ok(())
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "set-up is outside the engine, and the deadline bounds a device"
)]
fn now() -> Instant {
    Instant::now()
}
