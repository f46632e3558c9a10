//! A node that was built with RDMA.

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
use crate::placement::Placement;
use crate::queue_pair::AnyQueuePair;

/// What a peer's port is given to answer: a device needs half a second to give it up by itself.
const PATIENCE: Duration = Duration::from_secs(1);

/// A device that is open.
#[derive(Clone, Debug)]
pub(crate) struct Device(verbs::Device);

/// A link that works, without the connections that tell when the peer is gone.
#[derive(Debug)]
pub(crate) struct Link(verbs::Link);

/// Tells when the peer of a link is gone.
#[derive(Debug)]
pub(crate) struct Lifeline(verbs::Lifeline);

/// The devices of this node, opened when they are first asked for.
#[derive(Debug)]
pub(crate) struct Devices {
    mode: Rdma,
    by_address: Mutex<HashMap<IpAddr, verbs::Device>>,
}

impl Devices {
    pub(crate) fn new(mode: Rdma) -> Self {
        Self { mode, by_address: Mutex::default() }
    }

    /// The device whose port has this address of ours, or why there is none.
    pub(crate) fn reaching(&self, local: IpAddr, placement: Option<&Placement>) -> Result<Device, String> {
        if self.mode == Rdma::Off {
            return Err("RDMA is off in the configuration".into());
        }
        let mut known = self.by_address.lock().expect("no holder panics");
        if let Some(device) = known.get(&local.to_canonical()).filter(|device| device.is_present()) {
            return Ok(Device(device.clone()));
        }
        // Not what was found once: devices come, and ports get addresses.
        let mut decided = None;
        let place = |name: &str, vectors| {
            decided = placement.and_then(|placement| placement.of_device(name, vectors));
            decided.map_or_else(verbs::Place::default, |place| verbs::Place {
                completion_vector: place.vector.number,
                memory_node: place.memory.node().map(|node| node.0),
            })
        };
        let found = verbs::Device::for_address_at(local, place).map_err(|error| error.to_string())?;
        if let (Some(placement), Some(place)) = (placement, decided) {
            placement.note_device(found.name(), place, found.memory_refused());
        }
        known.insert(local.to_canonical(), found.clone());
        Ok(Device(found))
    }

    /// The descriptors that become readable when a device has something to say.
    pub(crate) fn with_events<R>(&self, use_them: impl FnOnce(&[BorrowedFd<'_>]) -> R) -> R {
        let known = self.by_address.lock().expect("no holder panics");
        let events: Vec<_> = known.values().map(verbs::Device::events).collect();
        use_them(&events)
    }

    /// Hears the devices out. One that is gone is forgotten, and looked for again when it is next asked for.
    pub(crate) fn take_events(&self) {
        let mut known = self.by_address.lock().expect("no holder panics");
        known.retain(|address, device| {
            let (_, gone) = device.take_events();
            Self::keep(address, device, !gone)
        });
    }

    /// Forgets devices that the system has no more: it waits with their removal until nobody has them open.
    pub(crate) fn forget_absent(&self) {
        let mut known = self.by_address.lock().expect("no holder panics");
        known.retain(|address, device| Self::keep(address, device, device.is_present()));
    }

    fn keep(address: &IpAddr, device: &verbs::Device, is_there: bool) -> bool {
        if !is_there {
            tracing::warn!(device = device.name(), %address, "the RDMA device is gone");
        }
        is_there
    }
}

impl Device {
    pub(crate) fn name(&self) -> &str {
        self.0.name()
    }

    /// The dialling side.
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

    /// The accepting side.
    pub(crate) fn answer(
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
        // Only now: the dialler is connected.
        let tried = if verdict == [1] { reached(link) } else { Ok(link) };
        handshake.send(&[u8::from(tried.is_ok())])?;
        Ok(both(tried, &verdict))
    }
}

fn reached(mut link: verbs::Link) -> Result<verbs::Link, verbs::VerbsError> {
    link.reaches(PATIENCE)?;
    Ok(link)
}

fn both(tried: Result<verbs::Link, verbs::VerbsError>, verdict: &[u8]) -> Tried {
    match tried {
        Ok(link) if verdict == [1] => Ok(Link(link)),
        Ok(_) => Err("the peer's RDMA port does not reach ours".into()),
        Err(error) => Err(error.to_string()),
    }
}

impl Link {
    /// Puts it to use; `streams` to the peer, by class, carry nothing from now on.
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

    /// Whether the peer is gone; the queue pairs know it then.
    pub(crate) fn look(&self) -> bool {
        self.0.look()
    }
}
