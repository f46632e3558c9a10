//! A send in progress: its offer, its grant, and a new grant after a change of link.

use alloc::sync::Arc;
use core::fmt;
use core::ops::Range;

use pronto_core::fabric::{Grant, GrantError, Region, RemoteRange, Rights};
use pronto_core::session::{CallSpec, Lent, OutgoingPayload, SendError, Session, WaitOutcome};
use pronto_core::{Nanos, WaitPolicy};
use pronto_wire::{CallId, Class};

use super::error::{TransferError, sent};
use super::messages::{ByReference, EAGER_HEADER, Eager, Regrant, key_of};
use super::{poll_once, wait_as};
use crate::codec::encode_message;
use crate::error::CallRejection;
use crate::host::Host;
use crate::one_sided::RemoteMemory;

/// Interval at which a thread that waits for a send checks whether the link has changed.
const LINK_CHECK_INTERVAL: Nanos = Nanos::from_millis(20);
/// Owner number of the ring space of an eager message.
const OWNER: u32 = u32::MAX - 1;

/// A send in progress. Dropping it cancels the send.
///
/// The send continues if no thread waits for it. After a loss of the link it continues only once a thread waits for it or polls it: a
/// grant ends with its link, and only the wait or poll makes a new one.
#[must_use = "dropping it cancels the send"]
pub struct Sending<H: Host> {
    pub(super) session: Arc<Session<H::Qp>>,
    pub(super) host: Arc<H>,
    /// `None` before the offer was sent, and after the end was taken.
    pub(super) call: Option<CallId>,
    /// The call of the offer, after it was sent.
    pub(super) sent: Option<CallId>,
    pub(super) region: Region,
    pub(super) range: Range<u64>,
    pub(super) by_reference: bool,
    /// The grant of the bytes to the peer. `None` for an eager message, and if there is no grant on the current link yet.
    pub(super) grant: Option<Grant>,
    /// The link of the grant.
    pub(super) link: u16,
    pub(super) deadline: Nanos,
    pub(super) policy: WaitPolicy,
}

impl<H: Host> Sending<H> {
    /// Waits until the bytes are in the receiver's buffer, or until the peer has stored an eager message for a later receive.
    ///
    /// # Errors
    /// See [`TransferError`].
    pub fn wait(mut self) -> Result<(), TransferError> {
        let Some(call) = self.call else { return Err(TransferError::Cancelled) };
        loop {
            let left = self.deadline.since(self.host.now());
            let slice = if self.by_reference { left.min(LINK_CHECK_INTERVAL) } else { left };
            match wait_as(&self.host, &self.session, call, slice, self.policy)? {
                WaitOutcome::Ended(end) => {
                    self.call = None;
                    return sent::<H>(end);
                }
                WaitOutcome::TimedOut if slice == left => return Err(TransferError::Deadline),
                WaitOutcome::TimedOut => self.grant_again(call),
            }
        }
    }

    /// Polls once, without waiting. Returns `None` while there is no end, and also after the end was returned.
    pub fn poll(&mut self) -> Option<Result<(), TransferError>> {
        let call = self.call?;
        poll_once(&self.host, &self.session, call);
        if self.session.has_ended(call) {
            self.call = None;
            return Some(sent::<H>(self.session.take(call)));
        }
        self.grant_again(call);
        None
    }

    /// Cancels the send.
    pub fn cancel(self) -> TransferError {
        TransferError::Cancelled
    }

    pub(super) fn carry(&self, tag: u64, timeout: Nanos) -> Result<CallId, TransferError> {
        let here = |refused| CallRejection::Here(refused);
        let len = usize::try_from(self.range.end - self.range.start).unwrap_or(usize::MAX);
        let loan = self.session.loan_after_reaping(Class::Bulk, EAGER_HEADER + len, OWNER, &*self.host);
        let mut loan = loan.map_err(here)?;
        let (header, bytes) = loan.as_mut_slice().split_at_mut(EAGER_HEADER);
        header.copy_from_slice(&tag.to_le_bytes());
        let start = usize::try_from(self.range.start).unwrap_or(usize::MAX);
        self.region.read(start, bytes).map_err(|_| here(SendError::OutOfRegion))?;
        let spec = CallSpec { key: key_of::<Eager>(), class: Class::Bulk, timeout };
        let payload = OutgoingPayload::Frame(loan.finish());
        Ok(self.session.call(&spec, payload, &*self.host).map_err(here)?)
    }

    pub(super) fn offer(&mut self, tag: u64, timeout: Nanos) -> Result<CallId, TransferError> {
        self.by_reference = true;
        let memory = self.grant_now()?;
        let mut bytes = [0; 40];
        let len =
            encode_message(&ByReference { tag, memory }, &mut bytes).map_err(CallRejection::Encoding)?;
        let spec = CallSpec { key: key_of::<ByReference>(), class: Class::Bulk, timeout };
        let payload = OutgoingPayload::inline(&bytes[..len]).expect("an offer fits an inline message");
        Ok(self
            .session
            .call_with_grant(&spec, payload, self.link, &*self.host)
            .map_err(CallRejection::Here)?)
    }

    fn grant_now(&mut self) -> Result<RemoteMemory, GrantError> {
        self.link = self.session.link_generation();
        let grant = self.session.grant(&self.region, self.range.clone(), Rights::READ, &*self.host)?;
        self.grant = Some(grant);
        Ok(RemoteRange::into(grant.remote))
    }

    /// If the link has changed since the grant, grants the bytes on the current link and notifies the peer. If this fails for lack of room
    /// or of a link, the next wait or poll tries again.
    fn grant_again(&mut self, call: CallId) {
        let link = self.session.link_generation();
        if !self.by_reference || link == self.link || !self.session.is_up() {
            return;
        }
        let before = self.link;
        let told = self.grant_now().is_ok_and(|memory| {
            let CallId { slot, generation } = call;
            let mut bytes = [0; 40];
            let regrant = Regrant { slot, generation, memory };
            let payload = encode_message(&regrant, &mut bytes).ok();
            let payload = payload.and_then(|len| OutgoingPayload::inline(&bytes[..len]));
            payload.is_some_and(|payload| {
                let key = key_of::<Regrant>();
                self.session.notify_with_grant(&key, Class::Bulk, payload, self.link, &*self.host).is_ok()
            })
        });
        if !told {
            self.take_grant_back();
            self.link = before;
        }
    }
}

impl<H: Host> Sending<H> {
    /// Ends a grant of which the peer was not notified.
    fn take_grant_back(&mut self) {
        if let Some(grant) = self.grant.take() {
            // Fails if the link, and with it the grant, has ended since.
            let _ended = self.session.revoke(grant.id, &*self.host);
        }
    }
}

impl<H: Host> Drop for Sending<H> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.session.abandon(call, Class::Bulk, &*self.host);
        }
        let (link, region, call) = (self.link, self.region.clone(), self.sent);
        let lent = self.grant.take().map(|grant| Lent { grant: grant.id, link, region, call });
        self.session.leave_send(lent, &*self.host);
    }
}

impl<H: Host> fmt::Debug for Sending<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sending")
            .field("call", &self.call)
            .field("range", &self.range)
            .finish_non_exhaustive()
    }
}
