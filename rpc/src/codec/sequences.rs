//! Sequences: arrays without a count; vectors, boxed slices and strings after a count.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use pronto_wire::LayoutHash;

use super::{Fault, Full, Malformed, Payload, Reader, Source, Writer, layout};

/// Length of the count in front of a sequence, bytes.
const COUNT_LEN: usize = size_of::<u32>();

impl<T: Payload, const N: usize> Payload for [T; N] {
    const KEEPS_MEMORY: bool = T::KEEPS_MEMORY;
    const LAYOUT: LayoutHash = LayoutHash::of("array").then(T::LAYOUT).then(LayoutHash(N as u64));
    const MIN_LEN: usize = N * T::MIN_LEN;
    const MAX_LEN: Option<usize> = layout::times(T::MAX_LEN, N);

    #[inline]
    fn encoded_len(&self) -> usize {
        items_len(self)
    }

    #[inline]
    fn encode(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        T::encode_slice(self, out)
    }

    #[inline]
    fn decode<S: Source>(input: &mut Reader<S>) -> Result<Self, Malformed> {
        T::decode_array(input)
    }

    #[inline]
    fn decode_into<S: Source>(&mut self, input: &mut Reader<S>) -> Result<(), Malformed> {
        T::decode_slice(self, input)
    }

    #[inline]
    fn encode_slice(items: &[Self], out: &mut Writer<'_>) -> Result<(), Full> {
        T::encode_slice(items.as_flattened(), out)
    }
}

impl<T: Payload> Payload for Vec<T> {
    const KEEPS_MEMORY: bool = T::KEEPS_MEMORY;
    const LAYOUT: LayoutHash = sequence_layout::<T>();
    const MIN_LEN: usize = COUNT_LEN;
    const MAX_LEN: Option<usize> = None;

    #[inline]
    fn encoded_len(&self) -> usize {
        COUNT_LEN + items_len(self)
    }

    #[inline]
    fn encode(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        out.put_count(self.len())?;
        T::encode_slice(self, out)
    }

    #[inline]
    fn decode<S: Source>(input: &mut Reader<S>) -> Result<Self, Malformed> {
        let mut items = Self::new();
        items.decode_into(input)?;
        Ok(items)
    }

    #[inline]
    fn decode_into<S: Source>(&mut self, input: &mut Reader<S>) -> Result<(), Malformed> {
        // Evaluated here, too, so that no decoder of items without length compiles.
        let _ = const { sequence_layout::<T>() };
        let count = input.count(T::MIN_LEN)?;
        if count == self.len() {
            // Items of the same number are overwritten where they are, and keep their own memory.
            return T::decode_slice(self, input);
        }
        self.clear();
        T::decode_items(count, self, input)
    }
}

impl<T: Payload> Payload for Box<[T]> {
    const KEEPS_MEMORY: bool = T::KEEPS_MEMORY;
    const LAYOUT: LayoutHash = sequence_layout::<T>();
    const MIN_LEN: usize = COUNT_LEN;
    const MAX_LEN: Option<usize> = None;

    #[inline]
    fn encoded_len(&self) -> usize {
        COUNT_LEN + items_len(self)
    }

    #[inline]
    fn encode(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        out.put_count(self.len())?;
        T::encode_slice(self, out)
    }

    #[inline]
    fn decode<S: Source>(input: &mut Reader<S>) -> Result<Self, Malformed> {
        Vec::decode(input).map(Vec::into_boxed_slice)
    }

    #[inline]
    fn decode_into<S: Source>(&mut self, input: &mut Reader<S>) -> Result<(), Malformed> {
        let mut items = core::mem::take(self).into_vec();
        let decoded = items.decode_into(input);
        *self = items.into_boxed_slice();
        decoded
    }
}

impl Payload for String {
    const LAYOUT: LayoutHash = LayoutHash::of("string");
    const MIN_LEN: usize = COUNT_LEN;
    const MAX_LEN: Option<usize> = None;

    #[inline]
    fn encoded_len(&self) -> usize {
        COUNT_LEN + self.len()
    }

    #[inline]
    fn encode(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        out.put_count(self.len())?;
        out.put_slice(self.as_bytes())
    }

    #[inline]
    fn decode<S: Source>(input: &mut Reader<S>) -> Result<Self, Malformed> {
        let mut text = Self::new();
        text.decode_into(input)?;
        Ok(text)
    }

    #[inline]
    fn decode_into<S: Source>(&mut self, input: &mut Reader<S>) -> Result<(), Malformed> {
        let mut bytes = core::mem::take(self).into_bytes();
        bytes.decode_into(input)?;
        match Self::from_utf8(bytes) {
            Ok(text) => {
                *self = text;
                Ok(())
            }
            Err(error) => {
                let faulty = error.as_bytes().len() - error.utf8_error().valid_up_to();
                Err(input.refuse(faulty, Fault::Utf8))
            }
        }
    }
}

/// Returns the layout of a vector or a boxed slice. They have the same layout, so that each end can use either.
const fn sequence_layout<T: Payload>() -> LayoutHash {
    // Otherwise the length of the input would not bound the number of items. The compile error shows the name of this variable.
    let items_take_at_least_one_byte = T::MIN_LEN > 0;
    assert!(items_take_at_least_one_byte);
    LayoutHash::of("sequence").then(T::LAYOUT)
}

#[inline]
fn items_len<T: Payload>(items: &[T]) -> usize {
    match T::MAX_LEN {
        Some(len) if len == T::MIN_LEN => items.len() * len,
        _ => items.iter().map(T::encoded_len).sum(),
    }
}
