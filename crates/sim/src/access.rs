//! One-sided operations: the request, the check against a grant, and the execution.

use pronto_core::fabric::{AtomicScope, Operation, PostError, Region, RemoteRange, Status, WrId};
use pronto_sync::atomic::Ordering;

use crate::link::{Body, End, GrantEntry};

/// A one-sided request that owns its data.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) wr: WrId,
    remote: RemoteRange,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Read { into: Region, offset: usize },
    Write(Body),
    CompareSwap { expected: u64, desired: u64 },
    FetchAdd(u64),
}

/// Result of a request at the target.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) wr: WrId,
    pub(crate) status: Status,
    /// Region, offset and bytes of a read.
    read: Option<(Region, usize, Vec<u8>)>,
}

impl Outcome {
    /// Writes the bytes of a read into the requester's region.
    pub(crate) fn land(&self) {
        if let Some((region, offset, bytes)) = &self.read {
            region.write(*offset, bytes).expect("checked when the request was posted");
        }
    }
}

impl Request {
    /// Returns a request, or `None` if the operation is two-sided.
    pub(crate) fn new(wr: WrId, operation: Operation<'_>) -> Result<Option<Self>, PostError> {
        let (remote, kind) = match operation {
            Operation::Send { .. } => return Ok(None),
            Operation::Read { local, local_offset, remote } => {
                let into = local.clone();
                Body::place(into.clone(), local_offset, remote.len)?;
                let offset = usize::try_from(local_offset).expect("just found within a region");
                (remote, Kind::Read { into, offset })
            }
            Operation::Write { local, local_offset, remote } => {
                (remote, Kind::Write(Body::place(local.clone(), local_offset, remote.len)?))
            }
            Operation::CompareSwap { remote, expected, desired } => {
                (remote, Kind::CompareSwap { expected, desired })
            }
            Operation::FetchAdd { remote, add } => (remote, Kind::FetchAdd(add)),
        };
        Ok(Some(Self { wr, remote, kind }))
    }

    pub(crate) fn own(&mut self) {
        if let Kind::Write(body) = &mut self.kind {
            body.own();
        }
    }

    fn is_atomic(&self) -> bool {
        matches!(self.kind, Kind::CompareSwap { .. } | Kind::FetchAdd(_))
    }

    /// Carries out the request on the target's memory, if a grant of the target covers it.
    pub(crate) fn serve(self, target: &End, atomics: AtomicScope) -> Outcome {
        let place = target.grants.get(&self.remote.key).and_then(|grant| self.place(grant));
        let Some((region, at)) = place else {
            return Outcome { wr: self.wr, status: Status::AccessRefused, read: None };
        };
        let mut read = None;
        let value = match self.kind {
            Kind::Read { into, offset } => {
                let mut bytes = vec![0; usize::try_from(self.remote.len).expect("within a region")];
                region.read(at, &mut bytes).expect("a grant lies within its region");
                read = Some((into, offset, bytes));
                0
            }
            Kind::Write(body) => {
                region.write(at, &body.to_vec()).expect("a grant lies within its region");
                0
            }
            Kind::CompareSwap { expected, desired } => {
                update(region, at, atomics, |was| if was == expected { desired } else { was })
            }
            Kind::FetchAdd(add) => update(region, at, atomics, |was| was.wrapping_add(add)),
        };
        Outcome { wr: self.wr, status: Status::Done(value), read }
    }

    /// Returns the place in the granted region, if the grant allows the request.
    fn place<'g>(&self, grant: &'g GrantEntry) -> Option<(&'g Region, usize)> {
        let allowed = match self.kind {
            Kind::Read { .. } => grant.rights.read,
            Kind::Write(..) => grant.rights.write,
            Kind::CompareSwap { .. } | Kind::FetchAdd(_) => grant.rights.atomic,
        };
        let RemoteRange { offset, len, .. } = self.remote;
        let within = offset.checked_add(len).is_some_and(|end| end <= grant.len);
        let at = usize::try_from(grant.start.checked_add(offset)?).ok()?;
        let aligned = !self.is_atomic() || (len == 8 && at.is_multiple_of(8));
        (allowed && within && aligned).then_some((&grant.region, at))
    }
}

/// Replaces eight bytes and returns the previous value. Atomic with other operations of the fabric, because the world
/// is locked. As on real devices, atomic with the owner's own operations only if this is promised.
fn update(region: &Region, at: usize, atomics: AtomicScope, next: impl Fn(u64) -> u64) -> u64 {
    let word = region.word(at).expect("a grant lies within its region, and the place is aligned");
    match atomics {
        AtomicScope::Global => word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |was| Some(next(was)))
            .unwrap_or_else(|was| was),
        AtomicScope::Fabric => {
            let was = word.load(Ordering::Acquire);
            word.store(next(was), Ordering::Release);
            was
        }
    }
}
