//! Values into payloads: small ones into the message's own line, others straight into the send ring.

use pronto_core::buf::Loan;
use pronto_core::session::{OutgoingPayload, Refused};
use pronto_wire::{INLINE_PAYLOAD, InlinePayload};

use crate::codec::{Full, Payload, encode_message};
use crate::message::Message;

/// Why there is no payload.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NotEncoded {
    /// No room.
    Refused(Refused),
    /// The value is at odds with itself.
    Full(Full),
}

/// The tag by which a straggling buffer of this type is named: its name's hash, folded.
#[expect(clippy::cast_possible_truncation, reason = "both halves of the hash are in it")]
pub(crate) fn owner_of<M: Message>() -> u32 {
    let hash = M::type_key().0.0;
    (hash ^ hash >> 32) as u32
}

/// Whether a value fits a message's line.
#[inline(always)]
pub(crate) fn is_small<P: Payload>(value: &P) -> bool {
    value.encoded_len() <= INLINE_PAYLOAD
}

/// Encodes a value that fits a message's line. By value and alone: within an enumeration it would be moved in pieces.
#[inline(always)]
pub(crate) fn encode_small<P: Payload>(value: &P) -> Result<InlinePayload, Full> {
    let mut bytes = [0; INLINE_PAYLOAD];
    let len = encode_message(value, &mut bytes)?;
    Ok(InlinePayload::first(bytes, u8::try_from(len).expect("no more than the buffer")))
}

/// Encodes a value where it will be sent from: its line, or a buffer of the length that `loan` is asked for.
#[inline]
pub(crate) fn encode<P: Payload>(
    value: &P,
    loan: impl FnOnce(usize) -> Result<Loan, Refused>,
) -> Result<OutgoingPayload, NotEncoded> {
    if is_small(value) {
        return encode_small(value).map(OutgoingPayload::Inline).map_err(NotEncoded::Full);
    }
    let mut loan = loan(value.encoded_len()).map_err(NotEncoded::Refused)?;
    let written = encode_message(value, loan.as_mut_slice()).map_err(NotEncoded::Full)?;
    loan.shrink(written);
    Ok(OutgoingPayload::Frame(loan.finish()))
}
