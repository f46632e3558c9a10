//! Numbers of fixed size, and types that are encoded as a number: bool, char, ids.

use alloc::vec::Vec;

use pronto_wire::{Epoch, LayoutHash, NodeId, ServiceId};

use super::{Fault, Full, Malformed, Payload, Reader, Writer};

/// Bytes of numbers that are copied at a time. Common C libraries do a longer copy with one string instruction. On some CPUs (seen on
/// AMD EPYC 9004: 3.5 GB/s instead of 50) it moves one byte per cycle if the offset of the destination within its page is less than
/// 16 bytes above that of the source. This is the case for numbers after a count of 4 bytes.
const PIECE: usize = 2048;

macro_rules! numbers {
    ($($number:ident)*) => {$(
        impl Payload for $number {
            const LAYOUT: LayoutHash = LayoutHash::of(stringify!($number));
            const MIN_LEN: usize = size_of::<Self>();
            const MAX_LEN: Option<usize> = Some(size_of::<Self>());

            #[inline]
            fn encoded_len(&self) -> usize {
                size_of::<Self>()
            }

            #[inline]
            fn encode(&self, out: &mut Writer<'_>) -> Result<(), Full> {
                out.put(self.to_le_bytes())
            }

            #[inline]
            fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
                Ok(Self::from_le_bytes(input.take()?))
            }

            #[inline]
            fn encode_slice(items: &[Self], out: &mut Writer<'_>) -> Result<(), Full> {
                let (slots, _) = out.claim(size_of_val(items))?.as_chunks_mut();
                let count = PIECE / size_of::<Self>();
                for (slots, items) in slots.chunks_mut(count).zip(items.chunks(count)) {
                    for (slot, item) in slots.iter_mut().zip(items) {
                        *slot = item.to_le_bytes();
                    }
                }
                Ok(())
            }

            #[inline]
            fn decode_vec(count: usize, input: &mut Reader<'_>) -> Result<Vec<Self>, Malformed> {
                let bytes = input.take_slice(count.saturating_mul(size_of::<Self>()))?;
                let mut items = Vec::with_capacity(count);
                for piece in bytes.as_chunks().0.chunks(PIECE / size_of::<Self>()) {
                    items.extend(piece.iter().map(|item| Self::from_le_bytes(*item)));
                }
                Ok(items)
            }

            #[inline]
            fn decode_array<const N: usize>(input: &mut Reader<'_>) -> Result<[Self; N], Malformed> {
                let bytes = input.take_slice(N.saturating_mul(size_of::<Self>()))?;
                let mut items = [Self::default(); N];
                for (item, bytes) in items.iter_mut().zip(bytes.as_chunks().0) {
                    *item = Self::from_le_bytes(*bytes);
                }
                Ok(items)
            }
        }
    )*};
}

numbers!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64);

/// Implements `Payload` for a type that is written as a number and checked when it is read.
macro_rules! as_number {
    ($name:ident: $number:ident, $write:expr, $read:expr) => {
        impl Payload for $name {
            const LAYOUT: LayoutHash = LayoutHash::of(stringify!($name));
            const MIN_LEN: usize = size_of::<$number>();
            const MAX_LEN: Option<usize> = Some(size_of::<$number>());

            #[inline]
            fn encoded_len(&self) -> usize {
                size_of::<$number>()
            }

            #[inline]
            fn encode(&self, out: &mut Writer<'_>) -> Result<(), Full> {
                let write: fn(Self) -> $number = $write;
                write(*self).encode(out)
            }

            #[inline]
            fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
                let read: fn($number) -> Result<Self, Fault> = $read;
                read($number::decode(input)?).map_err(|fault| input.refuse(size_of::<$number>(), fault))
            }
        }
    };
}

as_number!(bool: u8, u8::from, |byte| match byte {
    0 => Ok(false),
    1 => Ok(true),
    _ => Err(Fault::Bool(byte)),
});
as_number!(char: u32, u32::from, |scalar| char::from_u32(scalar).ok_or(Fault::Char(scalar)));
as_number!(NodeId: u16, |id| id.0, |id| Ok(NodeId(id)));
as_number!(ServiceId: u16, |id| id.0, |id| Ok(ServiceId(id)));
as_number!(Epoch: u64, |id| id.0, |id| Ok(Epoch(id)));
