//! Encoding of values as payloads: inline if they fit into the message slot, otherwise directly into the send ring.

use pronto_core::buf::Loan;
use pronto_core::session::{OutgoingPayload, SendError};
use pronto_wire::{INLINE_PAYLOAD, InlinePayload};

use crate::codec::{Full, Payload, encode_message};
use crate::message::Message;

/// The reason why there is no payload.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NotEncoded {
    /// The session lent no buffer.
    Send(SendError),
    /// The value encodes to more bytes than its announced length.
    Full(Full),
}

/// Returns the owner number under which a buffer of this type is reported if it is held for long: the folded hash of its name.
#[expect(clippy::cast_possible_truncation, reason = "both halves of the hash are in it")]
pub(crate) fn owner_of<M: Message>() -> u32 {
    let hash = M::type_key().0.0;
    (hash ^ hash >> 32) as u32
}

/// Returns whether a value fits an inline message.
#[inline(always)]
pub(crate) fn is_small<P: Payload>(value: &P) -> bool {
    value.encoded_len() <= INLINE_PAYLOAD
}

/// Encodes a value that fits an inline message. Returns the payload itself: wrapped in an enum it would be moved in pieces.
#[inline(always)]
pub(crate) fn encode_small<P: Payload>(value: &P) -> Result<InlinePayload, Full> {
    let mut bytes = [0; INLINE_PAYLOAD];
    let len = encode_message(value, &mut bytes)?;
    Ok(InlinePayload::first(bytes, u8::try_from(len).expect("the length is at most that of the buffer")))
}

/// Encodes a value into the memory that it is sent from: an inline payload, or a buffer that `loan` returns for the value's length.
#[inline]
pub(crate) fn encode<P: Payload>(
    value: &P,
    loan: impl FnOnce(usize) -> Result<Loan, SendError>,
) -> Result<OutgoingPayload, NotEncoded> {
    if is_small(value) {
        return encode_small(value).map(OutgoingPayload::Inline).map_err(NotEncoded::Full);
    }
    let mut loan = loan(value.encoded_len()).map_err(NotEncoded::Send)?;
    let written = encode_message(value, loan.as_mut_slice()).map_err(NotEncoded::Full)?;
    loan.shrink(written);
    Ok(OutgoingPayload::Frame(loan.finish()))
}
