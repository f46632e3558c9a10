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
mod writer;

use alloc::vec::Vec;

use pronto_wire::LayoutHash;

pub use reader::{Fault, Malformed, Reader};
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
    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed>;

    /// Writes the items in order. Implementations for numbers copy the whole slice.
    ///
    /// # Errors
    /// [`Full`] if the buffer is too short.
    #[inline]
    fn encode_slice(items: &[Self], out: &mut Writer<'_>) -> Result<(), Full> {
        items.iter().try_for_each(|item| item.encode(out))
    }

    /// Reads `count` items. The caller has checked that the input can contain `count` items ([`Reader::count`]).
    ///
    /// # Errors
    /// [`Malformed`] if an item is malformed.
    #[inline]
    fn decode_vec(count: usize, input: &mut Reader<'_>) -> Result<Vec<Self>, Malformed> {
        let justified = input.left().saturating_mul(ALLOCATION_FACTOR) / size_of::<Self>().max(1);
        let mut items = Vec::with_capacity(count.min(justified));
        for _ in 0..count {
            items.push(Self::decode(input)?);
        }
        Ok(items)
    }

    /// Reads `N` items, without allocating.
    ///
    /// # Errors
    /// [`Malformed`] if an item is malformed.
    #[inline]
    fn decode_array<const N: usize>(input: &mut Reader<'_>) -> Result<[Self; N], Malformed> {
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
    let mut reader = Reader::new(bytes);
    let message = P::decode(&mut reader)?;
    reader.finish()?;
    Ok(message)
}
