//! The implementation for builds with RDMA.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::HashMap;
use std::net::TcpStream;
use std::os::fd::BorrowedFd;
use std::sync::Mutex;

use pronto_core::fabric::ConnectionLimits;
use pronto_fabric_tcp as tcp;
use pronto_fabric_verbs as verbs;

use super::{Rdma, Tried};
use crate::queue_pair::AnyQueuePair;
use crate::threads::placement::Placement;

/// Time limit for a reply of the peer's port. A device needs half a second to give up by itself.
const REPLY_LIMIT: Duration = Duration::from_secs(1);

/// An open device.
#[derive(Clone, Debug)]
pub(crate) struct Device(verbs::Device);

/// A working link, without the TCP connections that detect the end of the peer.
#[derive(Debug)]
pub(crate) struct Link(verbs::Link);

/// Detects the end of a link's peer.
#[derive(Debug)]
pub(crate) struct Lifeline(verbs::Lifeline);

/// The devices of this node, each opened at its first use.
#[derive(Debug)]
pub(crate) struct Devices {
    mode: Rdma,
    /// Permission to use soft-RoCE.
    soft: bool,
    by_address: Mutex<HashMap<IpAddr, verbs::Device>>,
}

impl Devices {
    pub(crate) fn new(mode: Rdma, soft: bool) -> Self {
        Self { mode, soft, by_address: Mutex::default() }
    }

    /// Returns the device whose port has this local address, or the reason why there is none.
    pub(crate) fn reaching(&self, local: IpAddr, placement: Option<&Placement>) -> Result<Device, String> {
        if self.mode == Rdma::Off {
            return Err("RDMA is off in the configuration".into());
        }
        let mut known = self.by_address.lock().expect("no holder panics");
        if let Some(device) = known.get(&local.to_canonical()).filter(|device| device.is_present()) {
            return Ok(Device(device.clone()));
        }
        // A failed search is not cached, because devices and port addresses may be added later.
        let mut decided = None;
        let place = |name: &str, vectors| {
            decided = placement.and_then(|placement| placement.of_device(name, vectors));
            decided.map_or_else(verbs::Place::default, |place| verbs::Place {
                completion_vector: place.vector.number,
                memory_node: place.memory.node().map(|node| node.0),
            })
        };
        let found = verbs::Device::for_address_at(local, place).map_err(|error| error.to_string())?;
        if found.is_soft_roce() && !self.soft {
            let name = found.name();
            return Err(format!(
                "{name} is soft-RoCE, which lets a peer read more memory than it may: permit it with `rdma_soft_roce = true` in [trust], or \
                 with `Builder::rdma_soft_roce`"
            ));
        }
        if let (Some(placement), Some(place)) = (placement, decided) {
            placement.note_device(found.name(), place, found.memory_refused());
        }
        known.insert(local.to_canonical(), found.clone());
        Ok(Device(found))
    }

    /// Passes the descriptors of device events to `use_them`.
    pub(crate) fn with_events<R>(&self, use_them: impl FnOnce(&[BorrowedFd<'_>]) -> R) -> R {
        let known = self.by_address.lock().expect("no holder panics");
        let events: Vec<_> = known.values().map(verbs::Device::events).collect();
        use_them(&events)
    }

    /// Processes the events of the devices. A removed device is forgotten, and searched again at its next use.
    pub(crate) fn take_events(&self) {
        let mut known = self.by_address.lock().expect("no holder panics");
        known.retain(|address, device| {
            let (_, gone) = device.take_events();
            Self::keep(address, device, !gone)
        });
    }

    /// Forgets devices that were removed. The kernel completes the removal of a device only after all users have closed it.
    pub(crate) fn forget_absent(&self) {
        let mut known = self.by_address.lock().expect("no holder panics");
        known.retain(|address, device| Self::keep(address, device, device.is_present()));
    }

    fn keep(address: &IpAddr, device: &verbs::Device, is_there: bool) -> bool {
        if !is_there {
            tracing::warn!(device = device.name(), %address, "the RDMA device was removed");
        }
        is_there
    }
}

impl Device {
    pub(crate) fn name(&self) -> &str {
        self.0.name()
    }

    /// Tries to establish an RDMA link on the dialling side.
    pub(crate) fn dial(
        &self,
        handshake: &mut tcp::Handshake,
        limits: [ConnectionLimits; 2],
    ) -> Result<Tried, tcp::SetupError> {
        let ours = verbs::Offer::new(&self.0, limits);
        handshake.send(&ours.as_ref().map_or(Vec::new(), verbs::Offer::bytes))?;
        let theirs = handshake.receive(verbs::OFFER_LEN)?;
        let ours = match ours {
            Ok(ours) => ours,
            Err(error) => return Ok(Err(error.to_string())),
        };
        if theirs.is_empty() {
            return Ok(Err("the peer could not set up its RDMA device".into()));
        }
        let tried = ours.connect(&theirs).and_then(reached);
        handshake.send(&[u8::from(tried.is_ok())])?;
        let verdict = handshake.receive(1)?;
        Ok(both(tried, &verdict))
    }

    /// Tries to establish an RDMA link on the accepting side.
    pub(crate) fn accept(
        &self,
        handshake: &mut tcp::Handshake,
        limits: [ConnectionLimits; 2],
    ) -> Result<Tried, tcp::SetupError> {
        let theirs = handshake.receive(verbs::OFFER_LEN)?;
        if theirs.is_empty() {
            handshake.send(&[])?;
            return Ok(Err("the peer could not set up its RDMA device".into()));
        }
        let ours = verbs::Offer::new(&self.0, limits).and_then(|offer| {
            let bytes = offer.bytes();
            Ok((offer.connect(&theirs)?, bytes))
        });
        let (link, bytes) = match ours {
            Ok(ours) => ours,
            Err(error) => {
                handshake.send(&[])?;
                return Ok(Err(error.to_string()));
            }
        };
        handshake.send(&bytes)?;
        let verdict = handshake.receive(1)?;
        // Only now, because the dialler's verdict shows that its queue pair is connected.
        let tried = if verdict == [1] { reached(link) } else { Ok(link) };
        handshake.send(&[u8::from(tried.is_ok())])?;
        Ok(both(tried, &verdict))
    }
}

fn reached(mut link: verbs::Link) -> Result<verbs::Link, verbs::VerbsError> {
    link.reaches(REPLY_LIMIT)?;
    Ok(link)
}

fn both(tried: Result<verbs::Link, verbs::VerbsError>, verdict: &[u8]) -> Tried {
    match tried {
        Ok(link) if verdict == [1] => Ok(Link(link)),
        Ok(_) => Err("the peer's RDMA port cannot reach the port of this node".into()),
        Err(error) => Err(error.to_string()),
    }
}

impl Link {
    /// Completes the link. `streams` are the TCP connections to the peer, by class; from now on they carry no messages.
    pub(crate) fn finish(self, streams: [TcpStream; 2]) -> Result<([AnyQueuePair; 2], Lifeline), String> {
        let Self(mut link) = self;
        link.attach(streams.map(Into::into)).map_err(|error| error.to_string())?;
        let pairs = [AnyQueuePair::Verbs(Box::new(link.control)), AnyQueuePair::Verbs(Box::new(link.bulk))];
        Ok((pairs, Lifeline(link.lifeline)))
    }
}

impl Lifeline {
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.descriptors()
    }

    /// Returns whether the peer is gone. The queue pairs then report it as well.
    pub(crate) fn is_cut(&self) -> bool {
        self.0.check()
    }
}
