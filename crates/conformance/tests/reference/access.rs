//! One-sided operations of the reference: permission and execution.

use pronto_core::fabric::{Operation, PostError, Region, RemoteRange, Status, WrId};
use pronto_sync::atomic::Ordering;

use super::{Flaw, GrantEntry, NodeState, Wire};

/// A one-sided request that owns its data.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(super) wr: WrId,
    pub(super) remote: RemoteRange,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Read(Region, usize),
    Write(Region, usize),
    CompareSwap(u64, u64),
    FetchAdd(u64),
}

impl Request {
    /// Returns a request, or `None` if `operation` is not one-sided.
    pub(crate) fn new(wr: WrId, operation: Operation<'_>) -> Result<Option<Self>, PostError> {
        let (remote, kind) = match operation {
            Operation::Send { .. } => return Ok(None),
            Operation::Read { local, local_offset, remote } => {
                (remote, Kind::Read(local.clone(), checked(local, local_offset, remote.len)?))
            }
            Operation::Write { local, local_offset, remote } => {
                (remote, Kind::Write(local.clone(), checked(local, local_offset, remote.len)?))
            }
            Operation::CompareSwap { remote, expected, desired } => {
                (remote, Kind::CompareSwap(expected, desired))
            }
            Operation::FetchAdd { remote, add } => (remote, Kind::FetchAdd(add)),
        };
        Ok(Some(Self { wr, remote, kind }))
    }
}

fn checked(local: &Region, offset: u64, len: u64) -> Result<usize, PostError> {
    let [offset, wanted] = [offset, len].map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    match offset.checked_add(wanted) {
        Some(end) if end <= local.len() => Ok(offset),
        _ => Err(pronto_core::fabric::OutOfBounds { offset, wanted, len: local.len() }.into()),
    }
}

impl Wire {
    /// Carries out a request of `end` on the memory of the other end.
    pub(super) fn serve(&mut self, end: usize, request: &Request, node: &NodeState, flaw: Option<Flaw>) {
        let key = request.remote.key;
        let grants = match flaw {
            Some(Flaw::KeysForEveryone) => &node.grants,
            _ => &self.ends[1 - end].grants,
        };
        let mut grant = grants.get(&key);
        if flaw == Some(Flaw::GrantsBothWays) {
            grant = grant.or_else(|| self.ends[end].grants.get(&key));
        }
        let place = grant.and_then(|grant| place(grant, request, flaw));
        let status = match place {
            Some((region, at)) => Status::Done(carry_out(region, at, request, flaw)),
            None => Status::AccessRefused,
        };
        self.complete(end, request.wr, status, flaw);
    }
}

/// Returns the place of the request in the granted region, if the grant covers it.
fn place<'a>(grant: &'a GrantEntry, request: &Request, flaw: Option<Flaw>) -> Option<(&'a Region, usize)> {
    let allowed = match request.kind {
        Kind::Read(..) => grant.rights.read,
        Kind::Write(..) => grant.rights.write,
        Kind::CompareSwap(..) | Kind::FetchAdd(_) => grant.rights.atomic,
    };
    let RemoteRange { offset, len, .. } = request.remote;
    let within = offset.checked_add(len).is_some_and(|end| end <= grant.len);
    let atomic = matches!(request.kind, Kind::CompareSwap(..) | Kind::FetchAdd(_));
    let aligned = !atomic || (len == 8 && offset.is_multiple_of(8));
    let covers = (allowed || flaw == Some(Flaw::IgnoresRights))
        && (within || flaw == Some(Flaw::IgnoresBounds))
        && (aligned || flaw == Some(Flaw::TakesUnaligned))
        && (!grant.revoked || flaw == Some(Flaw::IgnoresRevocation));
    let start = if flaw == Some(Flaw::OffsetsFromTheRegion) { 0 } else { grant.start };
    let at = usize::try_from(start.checked_add(offset)?).ok()?;
    covers.then_some((&grant.region, at))
}

fn carry_out(region: &Region, at: usize, request: &Request, flaw: Option<Flaw>) -> u64 {
    let mut bytes = vec![0; usize::try_from(request.remote.len).expect("covered by a grant")];
    match &request.kind {
        Kind::Read(..) | Kind::Write(..) if at > 1 << 19 && flaw == Some(Flaw::FarChunksGoMissing) => 0,
        Kind::Read(local, offset) => {
            let _ = region.read(at, &mut bytes);
            let _ = local.write(*offset, &bytes);
            0
        }
        Kind::Write(local, offset) => {
            let _ = local.read(*offset, &mut bytes);
            if flaw == Some(Flaw::WritesOneByteMore) {
                bytes.push(0);
            }
            let _ = region.write(at, &bytes);
            0
        }
        Kind::CompareSwap(expected, desired) => match region.word(at / 8 * 8) {
            Ok(word) => word
                .compare_exchange(*expected, *desired, Ordering::AcqRel, Ordering::Acquire)
                .unwrap_or_else(|was| was),
            Err(_) => 0,
        },
        Kind::FetchAdd(add) => match region.word(at / 8 * 8) {
            Ok(word) if flaw == Some(Flaw::TornAtomics) => {
                let was = word.load(Ordering::Relaxed);
                // On a busy machine the owner may not run for a while: some accesses wait for it to write in between.
                let yields = if request.wr.generation.is_multiple_of(64) { 1_000 } else { 1 };
                (0..yields)
                    .take_while(|_| word.load(Ordering::Relaxed) == was)
                    .for_each(|_| std::thread::yield_now());
                word.store(was.wrapping_add(*add), Ordering::Relaxed);
                was
            }
            Ok(word) if flaw == Some(Flaw::AdditionsGoMissing) && request.wr.generation.is_multiple_of(7) => {
                word.load(Ordering::Relaxed)
            }
            Ok(word) => word.fetch_add(*add, Ordering::AcqRel),
            Err(_) => 0,
        },
    }
}
