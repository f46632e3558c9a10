//! Decoding of received payloads: from private memory, or directly from memory to which the peer can write.

use alloc::sync::Arc;
use core::marker::PhantomData;
use core::ops::Range;

use pronto_core::fabric::{self, Arrived, Withdrawn};

use crate::codec::{Malformed, Owner, Payload, Reader, SharedSource, Source, decode_whole};

/// The destination of a decoded value.
pub(crate) trait Target {
    /// The type of the value in memory.
    type Value: Payload;
    /// The result of the decoder.
    type Output;

    /// Reads the value, which must be all that is left.
    fn read<S: Source>(&mut self, reader: Reader<S>) -> Result<Self::Output, Malformed>;
}

/// A new value.
pub(crate) struct Fresh<P>(PhantomData<fn() -> P>);

impl<P> Default for Fresh<P> {
    #[inline(always)]
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<P: Payload> Target for Fresh<P> {
    type Value = P;
    type Output = P;

    #[inline(always)]
    fn read<S: Source>(&mut self, reader: Reader<S>) -> Result<P, Malformed> {
        decode_whole(reader)
    }
}

/// A value of the caller, whose vectors, boxed slices and strings keep their memory.
pub(crate) struct Existing<'a, P>(pub(crate) &'a mut P);

impl<P: Payload> Target for Existing<'_, P> {
    type Value = P;
    type Output = ();

    #[inline(always)]
    fn read<S: Source>(&mut self, mut reader: Reader<S>) -> Result<(), Malformed> {
        self.0.decode_into(&mut reader)?;
        reader.finish()
    }
}

/// Decodes a received payload. Each byte that the peer can write to is read once.
///
/// # Errors
/// If the payload was withdrawn before it was decoded.
#[inline]
pub(crate) fn read_arrived<L: fabric::Payload, T: Target>(
    payload: Arrived<L>,
    target: &mut T,
) -> Result<Result<T::Output, Malformed>, Withdrawn> {
    if let Some(bytes) = payload.as_private() {
        return Ok(target.read(Reader::new(bytes)));
    }
    // A short payload is copied before it is decoded: that is faster, and short messages need no decoder for shared memory.
    if is_short::<T::Value>() || payload.len() <= SHORT {
        let mut copy = [0; SHORT];
        let Some(bytes) = copy.get_mut(..payload.len()) else { return Ok(too_long(&payload)) };
        payload.copy_to(0, bytes).map_err(|_| Withdrawn)?;
        payload.validate()?;
        return Ok(target.read(Reader::new(&*bytes)));
    }
    read_long(payload, target)
}

#[inline(never)]
fn read_long<L: fabric::Payload, T: Target>(
    payload: Arrived<L>,
    target: &mut T,
) -> Result<Result<T::Output, Malformed>, Withdrawn> {
    let Arrived::Buffer(lease) = payload else { return Err(Withdrawn) };
    let all = 0..lease.len();
    if T::Value::KEEPS_MEMORY && lease.as_shared().is_some() {
        let lease: Arc<dyn fabric::Payload> = Arc::new(lease);
        return read_lease(&*lease, all, Some(Owner(&lease)), target);
    }
    read_lease(&lease, all, None, target)
}

/// Decodes a part of a payload. Fields of [`Bytes`](crate::Bytes) share the owner's lease, if there is one.
///
/// # Errors
/// If the payload was withdrawn before it was decoded.
pub(crate) fn read_lease<T: Target>(
    lease: &dyn fabric::Payload,
    part: Range<usize>,
    owner: Option<Owner<'_>>,
    target: &mut T,
) -> Result<Result<T::Output, Malformed>, Withdrawn> {
    let decoded = if let Some(bytes) = lease.as_private() {
        Some(target.read(Reader::new(bytes.get(part).unwrap_or_default())))
    } else if let Some(shared) = lease.as_shared() {
        let shared = shared.skip(part.start).first(part.len());
        Some(target.read(Reader::new(SharedSource::new(shared, owner))))
    } else {
        let mut decoded = None;
        lease.read_copy(&mut |bytes| {
            decoded = Some(target.read(Reader::new(bytes.get(part.clone()).unwrap_or_default())));
        });
        decoded
    };
    lease.validate()?;
    decoded.ok_or(Withdrawn)
}

/// Returns whether every value of this type is short.
const fn is_short<P: Payload>() -> bool {
    matches!(P::MAX_LEN, Some(len) if len <= SHORT)
}

/// Returns the error of a payload that is longer than every value of its type.
#[cold]
fn too_long<L: fabric::Payload, R>(payload: &Arrived<L>) -> Result<R, Malformed> {
    use crate::codec::Fault;

    Err(Malformed { offset: SHORT, fault: Fault::Trailing(payload.len().saturating_sub(SHORT)) })
}

/// Longest payload that is copied before it is decoded, bytes. It covers usual control messages.
const SHORT: usize = 256;
