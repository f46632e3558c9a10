//! Sequences: arrays without a count; vectors, boxed slices and strings after a count.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use pronto_wire::LayoutHash;

use super::{Fault, Full, Malformed, Payload, Reader, Writer, layout};

/// Length of the count in front of a sequence, bytes.
const COUNT_LEN: usize = size_of::<u32>();

impl<T: Payload, const N: usize> Payload for [T; N] {
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
    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        T::decode_array(input)
    }

    #[inline]
    fn encode_slice(items: &[Self], out: &mut Writer<'_>) -> Result<(), Full> {
        T::encode_slice(items.as_flattened(), out)
    }
}

impl<T: Payload> Payload for Vec<T> {
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
    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        // Evaluated here, too, so that no decoder of items without length compiles.
        let _ = const { sequence_layout::<T>() };
        let count = input.count(T::MIN_LEN)?;
        T::decode_vec(count, input)
    }
}

impl<T: Payload> Payload for Box<[T]> {
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
    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        Vec::decode(input).map(Vec::into_boxed_slice)
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
    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let count = input.count(1)?;
        let bytes = input.take_slice(count)?;
        match core::str::from_utf8(bytes) {
            Ok(text) => Ok(text.into()),
            Err(error) => Err(input.refuse(count - error.valid_up_to(), Fault::Utf8)),
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
