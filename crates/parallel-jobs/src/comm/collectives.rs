//! Collectives on top of messages between two ranks.
//!
//! A reduction uses recursive doubling: in round `i`, ranks whose numbers differ in bit `i` exchange their values. If the number of ranks is
//! not a power of two, some ranks give their values to a neighbour before, and get the result from it afterwards. All-to-all uses pairwise
//! exchange: in round `i`, each rank sends to the one `i` above it and receives from the one `i` below. (Thakur, Rabenseifner and Gropp,
//! "Optimization of Collective Communication Operations in MPICH", 2005, sections 4.1, 4.3 and 4.4.)

use zerocopy::{FromBytes, IntoBytes};

use super::{Comm, CommError, Incoming, Outgoing, Rank, Reduction, Tag};

/// Tags of the collectives. Those of the jobs are smaller.
const REDUCE: Tag = Tag(u16::MAX);
const ALL_TO_ALL: Tag = Tag(u16::MAX - 1);

/// Combines values of all ranks.
pub(super) fn allreduce(comm: &mut impl Comm, values: Reduction<'_>) -> Result<(), CommError> {
    match values {
        Reduction::SumU32(own) => reduce(comm, own, |a, b| a + b),
        Reduction::SumF64(own) => reduce(comm, own, |a, b| a + b),
        Reduction::MaxF64(own) => reduce(comm, own, f64::max),
    }
}

fn reduce<T>(comm: &mut impl Comm, own: &mut [T], combine: impl Fn(T, T) -> T) -> Result<(), CommError>
where
    T: Copy + Default + FromBytes + IntoBytes + zerocopy::Immutable,
{
    let Doubling { position, count, surplus } = Doubling::of(comm.rank(), comm.size());
    let neighbour = |rank: Rank| Rank(rank.0 ^ 1);
    let Some(position) = position else {
        let above = neighbour(comm.rank());
        comm.send(above, REDUCE, own.as_bytes())?;
        return comm.receive(above, REDUCE, own.as_mut_bytes());
    };
    let mut theirs = vec![T::default(); own.len()];
    let combined = |own: &mut [T], theirs: &[T]| {
        own.iter_mut().zip(theirs).for_each(|(own, other)| *own = combine(*own, *other));
    };
    let below = (position < surplus).then(|| neighbour(comm.rank()));
    if let Some(below) = below {
        comm.receive(below, REDUCE, theirs.as_mut_bytes())?;
        combined(own, &theirs);
    }
    let mut distance = 1;
    while distance < count {
        let peer = Doubling::rank(position ^ distance, surplus);
        let send = [Outgoing { to: peer, tag: REDUCE, bytes: own.as_bytes() }];
        comm.exchange(&send, &mut [Incoming { from: peer, tag: REDUCE, bytes: theirs.as_mut_bytes() }])?;
        combined(own, &theirs);
        distance *= 2;
    }
    below.map_or(Ok(()), |below| comm.send(below, REDUCE, own.as_bytes()))
}

/// The ranks that take part in recursive doubling: the largest power of two. Of the first `2 * surplus` ranks, only those with odd numbers do.
#[derive(Debug, PartialEq, Eq)]
struct Doubling {
    /// Position of this rank among them, if it takes part.
    position: Option<usize>,
    /// Their number.
    count: usize,
    /// Number of ranks that do not take part.
    surplus: usize,
}

impl Doubling {
    fn of(rank: Rank, size: usize) -> Self {
        let count = 1 << size.ilog2();
        let surplus = size - count;
        let position = match rank.0 {
            rank if rank >= 2 * surplus => Some(rank - surplus),
            rank if rank % 2 == 1 => Some(rank / 2),
            _ => None,
        };
        Self { position, count, surplus }
    }

    /// Returns the rank at a position.
    const fn rank(position: usize, surplus: usize) -> Rank {
        Rank(if position < surplus { 2 * position + 1 } else { position + surplus })
    }
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

#[cfg(test)]
mod tests {
    use super::{Doubling, Rank};

    #[test]
    fn a_power_of_two_of_the_ranks_has_positions() {
        for size in 1..=9 {
            let ranks: Vec<_> = (0..size).map(|rank| Doubling::of(Rank(rank), size)).collect();
            let Doubling { count, surplus, .. } = ranks[0];
            assert!(count.is_power_of_two() && count <= size && 2 * count > size, "{size}: {count}");
            let taking_part: Vec<_> = (0..size).filter(|rank| ranks[*rank].position.is_some()).collect();
            let by_position: Vec<_> =
                (0..count).map(|position| Doubling::rank(position, surplus).0).collect();
            assert_eq!(taking_part, by_position, "{size}");
            assert!(taking_part.iter().enumerate().all(|(at, rank)| ranks[*rank].position == Some(at)));
        }
    }
}
