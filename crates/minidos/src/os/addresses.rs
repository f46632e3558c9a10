//! The mapped ranges of a process: the origin's table, and what other nodes learn from it when a task touches a range.

use std::sync::Arc;

use pronto::NodeId;

use super::{Os, OsError, lock};
use crate::account::Cause;
use crate::messages::{
    Path, ProcessId, Stamp, TaskId, VmaInfoRequest, VmaInfoResponse, VmaOp, VmaOpRequest, VmaOpResponse,
};
use crate::page::{Access, Address};
use crate::ranges::Range;

/// The node where the process began, which has the table of ranges.
pub(crate) const ORIGIN: NodeId = NodeId(1);

/// The demo's only process.
pub(crate) const PROCESS: ProcessId = ProcessId(1);

impl Os {
    /// Maps `length` bytes for a task, wherever it runs.
    pub(crate) fn map(&self, task: TaskId, length: u64, path: &str) -> Result<Address, OsError> {
        if self.network.me() == ORIGIN {
            return self.map_here(length, Access::Write, path).map(|range| range.start);
        }
        self.causes.count(Cause::MappedRemotely);
        let request = VmaOpRequest {
            stamp: Stamp::default(),
            process: PROCESS,
            task,
            operation: VmaOp::Map,
            address: Address(0),
            length,
            offset: 0,
            path: Path::new(path),
        };
        let response = self.network.call(ORIGIN, request)?;
        if !response.done {
            return Err(OsError::NoRoom { length });
        }
        let (start, length) = (response.start, response.length);
        lock(&self.ranges).learn(Range { start, length, writable: true, path: path.to_owned() });
        Ok(start)
    }

    /// Maps `length` bytes, at the origin.
    pub(crate) fn map_here(&self, length: u64, access: Access, path: &str) -> Result<Range, OsError> {
        let writable = access == Access::Write;
        let mut ranges = lock(&self.ranges);
        ranges.map(length, writable, path.to_owned()).cloned().ok_or(OsError::NoRoom { length })
    }

    /// Checks that a task may use `length` bytes from `address`. Asks the origin if this node does not know the range.
    pub(super) fn check_mapped(
        self: &Arc<Self>,
        task: TaskId,
        address: Address,
        length: usize,
        access: Access,
    ) -> Result<(), OsError> {
        let known = lock(&self.ranges).find(address).cloned();
        let range = match known {
            Some(range) => range,
            None => self.learn(task, address)?,
        };
        let allowed = access == Access::Read || range.writable;
        if allowed && range.holds(address, length as u64) { Ok(()) } else { Err(OsError::Fault { address }) }
    }

    fn learn(&self, task: TaskId, address: Address) -> Result<Range, OsError> {
        if self.network.me() == ORIGIN {
            return Err(OsError::Fault { address });
        }
        self.causes.count(Cause::RangeMissed);
        let request = VmaInfoRequest { stamp: Stamp::default(), process: PROCESS, task, address };
        let response = self.network.call(ORIGIN, request)?;
        if !response.mapped {
            return Err(OsError::Fault { address });
        }
        let VmaInfoResponse { start, length, writable, path, .. } = response;
        let range = Range { start, length, writable, path: path.to_string() };
        lock(&self.ranges).learn(range.clone());
        Ok(range)
    }

    /// Responds to another node that asks what is mapped at an address.
    pub(super) fn look_up_for(&self, address: Address) -> VmaInfoResponse {
        self.causes.count(Cause::RangeLookedUp);
        let range = lock(&self.ranges).find(address).cloned();
        let mapped = range.is_some();
        let nothing = || Range { start: Address(0), length: 0, writable: false, path: String::new() };
        let Range { start, length, writable, path } = range.unwrap_or_else(nothing);
        let path = Path::new(&path);
        VmaInfoResponse { stamp: Stamp::default(), mapped, start, length, writable, offset: 0, path }
    }

    /// Maps a range for a task on another node.
    pub(super) fn map_for(&self, request: &VmaOpRequest) -> VmaOpResponse {
        self.causes.count(Cause::MappedFor);
        let range = self.map_here(request.length, Access::Write, &request.path.to_string());
        VmaOpResponse {
            stamp: Stamp::default(),
            process: request.process,
            task: request.task,
            operation: request.operation,
            done: range.is_ok(),
            start: range.as_ref().map_or(Address(0), |range| range.start),
            length: range.map_or(0, |range| range.length),
        }
    }
}
