//! The implementation for builds without RDMA.

use core::convert::Infallible;
use core::net::IpAddr;
use std::net::TcpStream;
use std::os::fd::BorrowedFd;

use pronto_core::fabric::ConnectionLimits;
use pronto_fabric_tcp as tcp;

use super::{Rdma, Tried};
use crate::queue_pair::AnyQueuePair;
use crate::threads::placement::Placement;

/// A device, of which there is none.
#[derive(Clone, Debug)]
pub(crate) struct Device(Infallible);

/// A link, of which there is none.
#[derive(Debug)]
pub(crate) struct Link(Infallible);

/// A lifeline, of which there is none.
#[derive(Debug)]
pub(crate) struct Lifeline(Infallible);

/// An empty set of devices.
#[derive(Debug)]
pub(crate) struct Devices;

impl Devices {
    pub(crate) fn new(_: Rdma, _soft: bool) -> Self {
        Self
    }

    pub(crate) fn reaching(&self, _: IpAddr, _: Option<&Placement>) -> Result<Device, String> {
        Err("built without RDMA (cargo feature `verbs`)".into())
    }

    pub(crate) fn with_events<R>(&self, use_them: impl FnOnce(&[BorrowedFd<'_>]) -> R) -> R {
        use_them(&[])
    }

    pub(crate) fn take_events(&self) {}

    pub(crate) fn forget_absent(&self) {}
}

impl Device {
    pub(crate) fn dial(
        &self,
        _: &mut tcp::Handshake,
        _: [ConnectionLimits; 2],
    ) -> Result<Tried, tcp::SetupError> {
        match self.0 {}
    }

    pub(crate) fn accept(
        &self,
        _: &mut tcp::Handshake,
        _: [ConnectionLimits; 2],
    ) -> Result<Tried, tcp::SetupError> {
        match self.0 {}
    }

    pub(crate) fn name(&self) -> &str {
        match self.0 {}
    }
}

impl Link {
    pub(crate) fn finish(self, _: [TcpStream; 2]) -> Result<([AnyQueuePair; 2], Lifeline), String> {
        match self.0 {}
    }
}

impl Lifeline {
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        match self.0 {}
        #[expect(unreachable_code, reason = "names the type")]
        core::iter::empty()
    }

    pub(crate) fn is_cut(&self) -> bool {
        match self.0 {}
    }
}
