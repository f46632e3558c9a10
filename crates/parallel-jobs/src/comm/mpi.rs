//! Ranks as processes of Open MPI, which `mpirun` starts. Collectives are those of the library.
//!
//! # Invariants
//! 1. MPI is initialised once, and used by the thread that did it: `Mpi` is not `Send`.
//! 2. It is not used after `close`, which `is_open` shows.
//! 3. Memory that is passed to a function stays borrowed until that function has returned, and none keeps it longer.

use core::ffi::{c_int, c_void};
use core::marker::PhantomData;
use std::sync::OnceLock;

use super::{Comm, CommError, Incoming, MOST_RANKS, Outgoing, Rank, Reduction, Tag, Traffic};

/// Maximum number of messages of an exchange in each direction, as in `c/mpi.c`.
const MOST: usize = 8;

/// A rank that is a process of MPI.
#[derive(Debug)]
pub struct Mpi {
    rank: Rank,
    size: usize,
    traffic: Traffic,
    is_open: bool,
    /// Makes the type not `Send` (1).
    _one_thread: PhantomData<*mut ()>,
}

/// A message, as in `c/mpi.c`.
#[repr(C)]
struct Message {
    bytes: *mut c_void,
    length: c_int,
    peer: c_int,
    tag: c_int,
}

impl Mpi {
    /// Initialises MPI.
    ///
    /// # Errors
    /// MPI was initialised before, cannot be initialised, or has an unsupported number of ranks.
    pub fn open() -> Result<Self, CommError> {
        static OPENED: OnceLock<()> = OnceLock::new();
        OPENED.set(()).map_err(|()| CommError::Mpi { function: "MPI_Init", code: -1 })?;
        let (mut rank, mut size) = (0, 0);
        // SAFETY: this is the first call in this process (1), and it writes both integers (3).
        let code = unsafe { jobs_mpi_open(&raw mut rank, &raw mut size) };
        check("MPI_Init", code)?;
        let (rank, size) = (usize::try_from(rank).expect("a rank"), usize::try_from(size).expect("a size"));
        let (is_open, traffic) = (true, Traffic::default());
        let mut mpi = Self { rank: Rank(rank), size, traffic, is_open, _one_thread: PhantomData };
        if !(1..=MOST_RANKS).contains(&size) {
            // Each rank finds this, so none has to be aborted.
            mpi.close()?;
            return Err(CommError::Size(size));
        }
        Ok(mpi)
    }
}

impl Comm for Mpi {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn exchange(&mut self, send: &[Outgoing<'_>], receive: &mut [Incoming<'_>]) -> Result<(), CommError> {
        assert!(self.is_open, "MPI is closed");
        assert!(send.len() <= MOST && receive.len() <= MOST, "at most {MOST} messages");
        let sends: Vec<_> = send
            .iter()
            .map(|m| Message::new(m.bytes.as_ptr().cast_mut().cast(), m.bytes.len(), m.to, m.tag))
            .collect();
        let receives: Vec<_> = receive
            .iter_mut()
            .map(|m| Message::new(m.bytes.as_mut_ptr().cast(), m.bytes.len(), m.from, m.tag))
            .collect();
        let mut lengths: [c_int; MOST] = [0; MOST];
        let (all, lens) = ((sends.as_ptr(), int(sends.len())), (receives.as_ptr(), int(receives.len())));
        // SAFETY: MPI is open (1, 2). The memory of all messages is borrowed by the arguments, and MPI has ended all of them when the call
        // returns (3). There is room for `MOST` lengths.
        let code = unsafe { jobs_mpi_exchange(all.0, all.1, lens.0, lens.1, lengths.as_mut_ptr()) };
        check("an exchange of messages", code)?;
        for (incoming, got) in receive.iter().zip(lengths) {
            if int(incoming.bytes.len()) != got {
                let (rank, got) = (incoming.from, u64::try_from(got).unwrap_or(0));
                return Err(CommError::Length { rank, got, expected: incoming.bytes.len() });
            }
        }
        self.traffic.messages += send.len() as u64;
        self.traffic.bytes += send.iter().map(|m| m.bytes.len() as u64).sum::<u64>();
        Ok(())
    }

    fn allreduce(&mut self, values: Reduction<'_>) -> Result<(), CommError> {
        assert!(self.is_open, "MPI is closed");
        let (memory, count, bytes, kind): (*mut c_void, _, _, _) = match values {
            Reduction::SumU32(own) => (own.as_mut_ptr().cast(), own.len(), size_of_val(own), 0),
            Reduction::SumF64(own) => (own.as_mut_ptr().cast(), own.len(), size_of_val(own), 1),
            Reduction::MaxF64(own) => (own.as_mut_ptr().cast(), own.len(), size_of_val(own), 2),
        };
        self.traffic.collectives += 1;
        self.traffic.bytes += if self.size > 1 { bytes as u64 } else { 0 };
        // SAFETY: MPI is open (1, 2), and the memory has `count` values of this kind (3).
        check("MPI_Allreduce", unsafe { jobs_mpi_allreduce(memory, int(count), kind) })
    }

    fn all_to_all(
        &mut self,
        send: &[u8],
        receive: &mut [u8],
        parts: (&[usize], &[usize]),
    ) -> Result<(), CommError> {
        assert!(self.is_open, "MPI is closed");
        let total = |lengths: &[usize]| lengths.iter().sum::<usize>();
        assert!(parts.0.len() == self.size && parts.1.len() == self.size, "a part for each rank");
        assert!(total(parts.0) <= send.len() && total(parts.1) <= receive.len(), "the parts are within");
        let ((counts, offsets), (expected, places)) = (layout(parts.0), layout(parts.1));
        self.traffic.collectives += 1;
        self.traffic.bytes += (total(parts.0) - parts.0[self.rank.0]) as u64;
        let (from, into) = (send.as_ptr().cast(), receive.as_mut_ptr().cast());
        // SAFETY: MPI is open (1, 2). Each list has `size` entries, and the parts are within the memory (3).
        let code = unsafe {
            jobs_mpi_all_to_all(
                from,
                counts.as_ptr(),
                offsets.as_ptr(),
                into,
                expected.as_ptr(),
                places.as_ptr(),
            )
        };
        check("MPI_Alltoallv", code)
    }

    fn barrier(&mut self) -> Result<(), CommError> {
        assert!(self.is_open, "MPI is closed");
        self.traffic.collectives += 1;
        // SAFETY: MPI is open (1, 2).
        check("MPI_Barrier", unsafe { jobs_mpi_barrier() })
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn close(&mut self) -> Result<(), CommError> {
        self.barrier()?;
        self.is_open = false;
        // SAFETY: MPI was open until now (1, 2), and has no open request (3).
        check("MPI_Finalize", unsafe { jobs_mpi_close() })
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        if self.is_open {
            // The others would wait for this rank.
            // SAFETY: MPI is open (1, 2).
            unsafe { jobs_mpi_abort() }
        }
    }
}

impl Message {
    fn new(bytes: *mut c_void, length: usize, peer: Rank, tag: Tag) -> Self {
        Self { bytes, length: int(length), peer: int(peer.0), tag: tag.0.into() }
    }
}

/// Returns the lengths and the offsets of parts.
fn layout(parts: &[usize]) -> (Vec<c_int>, Vec<c_int>) {
    let offsets = parts.iter().scan(0, |end, part| {
        *end += part;
        Some(int(*end - part))
    });
    (parts.iter().map(|part| int(*part)).collect(), offsets.collect())
}

fn int(value: usize) -> c_int {
    c_int::try_from(value).expect("messages of the jobs are shorter than 2 GiB")
}

fn check(function: &'static str, code: c_int) -> Result<(), CommError> {
    if code == 0 { Ok(()) } else { Err(CommError::Mpi { function, code }) }
}

unsafe extern "C" {
    fn jobs_mpi_open(rank: *mut c_int, size: *mut c_int) -> c_int;
    fn jobs_mpi_close() -> c_int;
    fn jobs_mpi_abort();
    fn jobs_mpi_exchange(
        sends: *const Message,
        send_count: c_int,
        receives: *const Message,
        receive_count: c_int,
        lengths: *mut c_int,
    ) -> c_int;
    fn jobs_mpi_allreduce(values: *mut c_void, count: c_int, kind: c_int) -> c_int;
    fn jobs_mpi_all_to_all(
        send: *const c_void,
        send_counts: *const c_int,
        send_offsets: *const c_int,
        receive: *mut c_void,
        receive_counts: *const c_int,
        receive_offsets: *const c_int,
    ) -> c_int;
    fn jobs_mpi_barrier() -> c_int;
}
