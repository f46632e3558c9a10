//! The codec: encodes values as packed little-endian bytes, and decodes them with all checks.
//!
//! A value is encoded directly into the buffer that is sent, and decoded directly from the buffer that was received.
//! Fixed-size structs become plain stores and loads after one check of the length; slices of numbers are copied as a
//! whole. `docs/messages.md` gives the layout of each type.
//!
//! # Invariants
//! 1. `encode` writes exactly `encoded_len` bytes, between `MIN_LEN` and `MAX_LEN`.
//! 2. `decode` is total: for any bytes, it returns a value or a [`Malformed`], and never panics.
//! 3. Each byte string decodes to at most one value, and encoding that value gives the same bytes again.
//! 4. A sequence reserves at most [`ALLOCATION_FACTOR`] times the bytes that are left, regardless of its announced count.

mod compound;
pub mod layout;
mod numbers;
mod reader;
mod sequences;
mod source;
mod writer;

use alloc::vec::Vec;

use pronto_wire::LayoutHash;

pub use reader::{Fault, Malformed, Reader};
pub(crate) use source::Owner;
pub use source::{SharedSource, Source};
pub use writer::{Full, Writer};

/// Bytes of memory that a sequence may reserve per byte of input left, before it decodes its items.
///
/// The factor eight covers padding, and the handles of strings and vectors (24 bytes of memory for at least 4 encoded
/// bytes). A sequence of larger items grows as they are decoded.
pub const ALLOCATION_FACTOR: usize = 8;

/// A value that can travel in a message.
///
/// Derive it for structs and enums of payloads. Recursive types are not payloads: their layout hash would be infinite, and a
/// peer could choose the depth of the decoder's stack.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot travel in a message",
    label = "not a payload",
    note = "payloads: numbers of fixed size (not usize), bool, char, String, Vec, Box<[T]>, arrays, Option, tuples up to six, Duration, ids",
    note = "for a type of your own, write `#[derive(Payload)]` above it"
)]
pub trait Payload: Sized {
    /// Whether a decoded value may own the memory in which its message arrived: it contains [`Bytes`](crate::Bytes).
    const KEEPS_MEMORY: bool = false;

    /// Hash of the layout: field names, their order and their types, recursively.
    const LAYOUT: LayoutHash;

    /// Length of the shortest encoding, bytes.
    const MIN_LEN: usize;

    /// Length of the longest encoding, bytes; `None` if there is no bound.
    const MAX_LEN: Option<usize>;

    /// Returns the length of this value's encoding, bytes.
    fn encoded_len(&self) -> usize;

    /// Writes the value.
    ///
    /// # Errors
    /// [`Full`] if the buffer is too short; the bytes written until then remain.
    fn encode(&self, out: &mut Writer<'_>) -> Result<(), Full>;

    /// Reads a value.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are not a value of this type.
    fn decode<S: Source>(input: &mut Reader<S>) -> Result<Self, Malformed>;

    /// Reads a value into this one. Vectors, boxed slices and strings keep their memory if it is long enough.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are not a value of this type; this value is then partly overwritten.
    #[inline]
    fn decode_into<S: Source>(&mut self, input: &mut Reader<S>) -> Result<(), Malformed> {
        *self = Self::decode(input)?;
        Ok(())
    }

    /// Writes the items in order. Implementations for numbers copy the whole slice.
    ///
    /// # Errors
    /// [`Full`] if the buffer is too short.
    #[inline]
    fn encode_slice(items: &[Self], out: &mut Writer<'_>) -> Result<(), Full> {
        items.iter().try_for_each(|item| item.encode(out))
    }

    /// Reads `count` items, and appends them to `items`, which is empty. The caller has checked that the input can contain `count` items
    /// ([`Reader::count`]).
    ///
    /// # Errors
    /// [`Malformed`] if an item is malformed.
    #[inline]
    fn decode_items<S: Source>(
        count: usize,
        items: &mut Vec<Self>,
        input: &mut Reader<S>,
    ) -> Result<(), Malformed> {
        let justified = input.left().saturating_mul(ALLOCATION_FACTOR) / size_of::<Self>().max(1);
        items.reserve_exact(count.min(justified));
        for _ in 0..count {
            items.push(Self::decode(input)?);
        }
        Ok(())
    }

    /// Reads as many items as `items` has, into these.
    ///
    /// # Errors
    /// [`Malformed`] if an item is malformed; the items are then partly overwritten.
    #[inline]
    fn decode_slice<S: Source>(items: &mut [Self], input: &mut Reader<S>) -> Result<(), Malformed> {
        items.iter_mut().try_for_each(|item| item.decode_into(input))
    }

    /// Reads `N` items, without allocating.
    ///
    /// # Errors
    /// [`Malformed`] if an item is malformed.
    #[inline]
    fn decode_array<const N: usize, S: Source>(input: &mut Reader<S>) -> Result<[Self; N], Malformed> {
        let mut items = [const { None }; N];
        for item in &mut items {
            *item = Some(Self::decode(input)?);
        }
        Ok(items.map(|item| item.expect("the loop above filled every slot or returned")))
    }
}

/// Writes a whole message to the beginning of `out`; returns its length in bytes.
///
/// # Errors
/// [`Full`] if it does not fit.
#[inline]
pub fn encode_message<P: Payload>(message: &P, out: &mut [u8]) -> Result<usize, Full> {
    let mut writer = Writer::new(out);
    message.encode(&mut writer)?;
    Ok(writer.written())
}

/// Reads a whole message, which must be exactly `bytes`.
///
/// # Errors
/// [`Malformed`] with the fault and its offset.
#[inline]
pub fn decode_message<P: Payload>(bytes: &[u8]) -> Result<P, Malformed> {
    decode_whole(Reader::new(bytes))
}

/// Reads a whole message, which must be all that is left.
#[inline]
pub(crate) fn decode_whole<P: Payload, S: Source>(mut reader: Reader<S>) -> Result<P, Malformed> {
    let message = P::decode(&mut reader)?;
    reader.finish()?;
    Ok(message)
}

/// Reads a whole message, which must be exactly `bytes`, into `message`. Its vectors, boxed slices and strings keep their memory if it is
/// long enough.
///
/// # Errors
/// [`Malformed`] with the fault and its offset; the message is then partly overwritten.
#[inline]
pub fn decode_message_into<P: Payload>(message: &mut P, bytes: &[u8]) -> Result<(), Malformed> {
    let mut reader = Reader::new(bytes);
    message.decode_into(&mut reader)?;
    reader.finish()
}
