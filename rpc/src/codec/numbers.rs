//! Numbers of fixed size, and types that are encoded as a number: bool, char, ids.

use alloc::vec::Vec;

use pronto_wire::{Epoch, LayoutHash, NodeId, ServiceId};

use super::source::PIECE;
use super::{Fault, Full, Malformed, Payload, Reader, Source, Writer};

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
            fn decode<S: Source>(input: &mut Reader<S>) -> Result<Self, Malformed> {
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
            fn decode_items<S: Source>(count: usize, items: &mut Vec<Self>, input: &mut Reader<S>) -> Result<(), Malformed> {
                let len = count.saturating_mul(size_of::<Self>());
                input.require(len)?;
                items.reserve_exact(count);
                if input.append(count, items) {
                    return Ok(());
                }
                input.take_pieces(len, |piece| {
                    items.extend(piece.as_chunks().0.iter().map(|item| Self::from_le_bytes(*item)));
                })
            }

            #[inline]
            fn decode_slice<S: Source>(items: &mut [Self], input: &mut Reader<S>) -> Result<(), Malformed> {
                if input.fill(items) {
                    return Ok(());
                }
                let len = size_of_val(items);
                let mut rest = items;
                input.take_pieces(len, |piece| {
                    let piece = piece.as_chunks().0;
                    let (items, after) = core::mem::take(&mut rest).split_at_mut(piece.len());
                    for (item, bytes) in items.iter_mut().zip(piece) {
                        *item = Self::from_le_bytes(*bytes);
                    }
                    rest = after;
                })
            }

            #[inline]
            fn decode_array<const N: usize, S: Source>(input: &mut Reader<S>) -> Result<[Self; N], Malformed> {
                let mut items = [Self::default(); N];
                Self::decode_slice(&mut items, input)?;
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
            fn decode<S: Source>(input: &mut Reader<S>) -> Result<Self, Malformed> {
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
