//! Setting up a link: each side makes two queue pairs, tells the other how to reach them, and tries whether that works.
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
//! The bytes travel over whatever the two nodes have already, and so do the verdicts: only if both sides reach each other is
//! the link used. Each queue pair keeps one socket to the peer, which carries nothing and tells when the other end is gone.

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
    /// For small messages that wait for nothing.
    pub control: VerbsQueuePair,
    /// For large ones.
    pub bulk: VerbsQueuePair,
    /// Tells whoever only polls that the peer is gone.
    pub lifeline: Lifeline,
}

impl Offer {
    /// Makes queue pairs of these limits, by class, and promises their receives.
    ///
    /// # Errors
    /// The device has too little, or memory cannot be pinned.
    pub fn new(device: &Device, limits: [ConnectionLimits; 2]) -> Result<Self, VerbsError> {
        let [control, bulk] = limits;
        let halves = [Half::new(&device.shared, control)?, Half::new(&device.shared, bulk)?];
        // 24 bits each, so that packets of a former connection under the same number are not taken for this one's.
        let mut bytes = [0; 8];
        File::open("/dev/urandom")
            .and_then(|mut file| file.read_exact(&mut bytes))
            .map_err(|_| VerbsError::System { what: "/dev/urandom", errno: Errno::EIO })?;
        let [a, b, c, _, d, e, f, _] = bytes;
        let sequences = [u32::from_le_bytes([a, b, c, 0]), u32::from_le_bytes([d, e, f, 0])];
        Ok(Self { device: device.clone(), halves, sequences })
    }

    /// What the other side needs to know.
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
    /// Bytes that are no offer, or a device that refuses the connection.
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
    /// Gives it connections to the peer, by class, which carry nothing from now on: they tell when the peer is gone.
    ///
    /// # Errors
    /// The system refuses to wait for them.
    pub fn attach(&mut self, sockets: [OwnedFd; 2]) -> Result<(), VerbsError> {
        let pairs = [&mut self.control, &mut self.bulk];
        pairs.into_iter().zip(sockets).try_for_each(|(pair, socket)| pair.attach(socket))
    }

    /// Whether what this side sends reaches the other, which has connected: both queue pairs are tried.
    ///
    /// # Errors
    /// Not in time, or not at all.
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

#[expect(clippy::disallowed_methods, reason = "set-up is an edge, and what it bounds is a device")]
fn now() -> Instant {
    Instant::now()
}
