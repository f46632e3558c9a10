//! Collectives on top of messages between two ranks.
//!
//! A reduction uses recursive doubling: in round `i`, ranks whose numbers differ in bit `i` exchange their values. All-to-all uses pairwise
//! exchange: in round `i`, each rank sends to the one `i` above it and receives from the one `i` below. (Thakur, Rabenseifner and Gropp,
//! "Optimization of Collective Communication Operations in MPICH", 2005, sections 4.1 and 4.3.)

use zerocopy::{FromBytes, IntoBytes};

use super::{Comm, CommError, Incoming, Outgoing, Rank, Reduction, Tag};

/// Tags of the collectives. Those of the jobs are smaller.
const REDUCE: Tag = Tag(u16::MAX);
const ALL_TO_ALL: Tag = Tag(u16::MAX - 1);

/// Combines values of all ranks, whose number is a power of two.
pub(super) fn allreduce(comm: &mut impl Comm, values: Reduction<'_>) -> Result<(), CommError> {
    match values {
        Reduction::SumU32(own) => double(comm, own, |a, b| a + b),
        Reduction::SumF64(own) => double(comm, own, |a, b| a + b),
        Reduction::MaxF64(own) => double(comm, own, f64::max),
    }
}

fn double<T>(comm: &mut impl Comm, own: &mut [T], combine: impl Fn(T, T) -> T) -> Result<(), CommError>
where
    T: Copy + Default + FromBytes + IntoBytes + zerocopy::Immutable,
{
    assert!(comm.size().is_power_of_two(), "recursive doubling needs a power of two");
    let mut theirs = vec![T::default(); own.len()];
    let mut distance = 1;
    while distance < comm.size() {
        let peer = Rank(comm.rank().0 ^ distance);
        let send = [Outgoing { to: peer, tag: REDUCE, bytes: own.as_bytes() }];
        comm.exchange(&send, &mut [Incoming { from: peer, tag: REDUCE, bytes: theirs.as_mut_bytes() }])?;
        for (own, other) in own.iter_mut().zip(&theirs) {
            *own = combine(*own, *other);
        }
        distance *= 2;
    }
    Ok(())
}

/// Sends a part to each rank and receives one from each.
pub(super) fn all_to_all(
    comm: &mut impl Comm,
    send: &[u8],
    receive: &mut [u8],
    parts: (&[usize], &[usize]),
) -> Result<(), CommError> {
    let (rank, size) = (comm.rank().0, comm.size());
    let range = |lengths: &[usize], rank: usize| {
        let start: usize = lengths[..rank].iter().sum();
        start..start + lengths[rank]
    };
    receive[range(parts.1, rank)].copy_from_slice(&send[range(parts.0, rank)]);
    for distance in 1..size {
        let (above, below) = ((rank + distance) % size, (rank + size - distance) % size);
        // Both sides know the length, so an empty part needs no message.
        let (to, from) = (range(parts.0, above), range(parts.1, below));
        let outgoing = Outgoing { to: Rank(above), tag: ALL_TO_ALL, bytes: &send[to.clone()] };
        let incoming = Incoming { from: Rank(below), tag: ALL_TO_ALL, bytes: &mut receive[from.clone()] };
        let send = if to.is_empty() { &[][..] } else { &[outgoing] };
        let receive = if from.is_empty() { &mut [][..] } else { &mut [incoming] };
        comm.exchange(send, receive)?;
    }
    Ok(())
}

/// Waits until all ranks have called this.
pub(super) fn barrier(comm: &mut impl Comm) -> Result<(), CommError> {
    allreduce(comm, Reduction::SumU32(&mut [0]))
}
