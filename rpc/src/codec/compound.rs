//! Compound values: the unit type, options, tuples, durations.

use core::time::Duration;

use pronto_wire::LayoutHash;

use super::{Fault, Full, Malformed, Payload, Reader, Source, Writer, layout};

impl Payload for () {
    const LAYOUT: LayoutHash = LayoutHash::of("tuple(").text(")");
    const MIN_LEN: usize = 0;
    const MAX_LEN: Option<usize> = Some(0);

    #[inline]
    fn encoded_len(&self) -> usize {
        0
    }

    #[inline]
    fn encode(&self, _: &mut Writer<'_>) -> Result<(), Full> {
        Ok(())
    }

    #[inline]
    fn decode<S: Source>(_: &mut Reader<S>) -> Result<Self, Malformed> {
        Ok(())
    }
}

impl<T: Payload> Payload for Option<T> {
    const KEEPS_MEMORY: bool = T::KEEPS_MEMORY;
    const LAYOUT: LayoutHash = LayoutHash::of("option").then(T::LAYOUT);
    const MIN_LEN: usize = 1;
    const MAX_LEN: Option<usize> = layout::sum(&[Some(1), T::MAX_LEN]);

    #[inline]
    fn encoded_len(&self) -> usize {
        1 + self.as_ref().map_or(0, T::encoded_len)
    }

    #[inline]
    fn encode(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        match self {
            None => out.put([0]),
            Some(value) => {
                out.put([1])?;
                value.encode(out)
            }
        }
    }

    #[inline]
    fn decode<S: Source>(input: &mut Reader<S>) -> Result<Self, Malformed> {
        match u8::decode(input)? {
            0 => Ok(None),
            1 => T::decode(input).map(Some),
            byte => Err(input.refuse(1, Fault::Option(byte))),
        }
    }
}

impl Payload for Duration {
    const LAYOUT: LayoutHash = LayoutHash::of("duration");
    const MIN_LEN: usize = 12;
    const MAX_LEN: Option<usize> = Some(12);

    #[inline]
    fn encoded_len(&self) -> usize {
        Self::MIN_LEN
    }

    #[inline]
    fn encode(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        out.require(Self::MIN_LEN)?;
        self.as_secs().encode(out)?;
        self.subsec_nanos().encode(out)
    }

    #[inline]
    fn decode<S: Source>(input: &mut Reader<S>) -> Result<Self, Malformed> {
        input.require(Self::MIN_LEN)?;
        let (seconds, nanoseconds) = (u64::decode(input)?, u32::decode(input)?);
        if nanoseconds >= 1_000_000_000 {
            return Err(input.refuse(4, Fault::Nanoseconds(nanoseconds)));
        }
        Ok(Self::new(seconds, nanoseconds))
    }
}

macro_rules! tuples {
    ($(($($part:ident $index:tt),+))*) => {$(
        impl<$($part: Payload),+> Payload for ($($part,)+) {
            const KEEPS_MEMORY: bool = false $(|| $part::KEEPS_MEMORY)+;
            const LAYOUT: LayoutHash = LayoutHash::of("tuple(")$(.then($part::LAYOUT))+.text(")");
            const MIN_LEN: usize = 0 $(+ $part::MIN_LEN)+;
            const MAX_LEN: Option<usize> = layout::sum(&[$($part::MAX_LEN),+]);

            #[inline]
            fn encoded_len(&self) -> usize {
                0 $(+ self.$index.encoded_len())+
            }

            #[inline]
            fn encode(&self, out: &mut Writer<'_>) -> Result<(), Full> {
                out.require(Self::MIN_LEN)?;
                $(self.$index.encode(out)?;)+
                Ok(())
            }

            #[inline]
            fn decode<S: Source>(input: &mut Reader<S>) -> Result<Self, Malformed> {
                input.require(Self::MIN_LEN)?;
                Ok(($($part::decode(input)?,)+))
            }

            #[inline]
            fn decode_into<S: Source>(&mut self, input: &mut Reader<S>) -> Result<(), Malformed> {
                $(self.$index.decode_into(input)?;)+
                Ok(())
            }
        }
    )*};
}

tuples! {
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
}
