//! Reading memory of the peer that is not shared, by its address in the peer: process_vm_readv(2).
//!
//! Whether that works depends on the kernel, on its rules for ptrace(2) and on the limits of containers. A side that grants such memory for the
//! first time asks its peer to try it once. The result stands in the peer's segment; until then the peer gets copies. Where no program sends from
//! such memory the call is never made: a filter of system calls (seccomp) may kill a process that makes it.
//!
//! A process id may name another process by now. The segment therefore contains a random *witness* and its address. Each read also reads the
//! witness, by the same system call and so in the same address space: if it does not match, the bytes are not the peer's. The expected value
//! is that of the time when the link was made. This recognises another process that has the id by chance. A hostile peer chooses its witness, but
//! has the same user as this process, else it is not read by address, and could trace this process itself.
//!
//! # Invariants
//! 1. The kernel writes only to bytes of a region or of a live array of this process, whose lengths are passed. It writes as the copies of
//!    `pronto_core::fabric::SharedBytes` do: to a concurrent reader, each byte is old or new.
#![expect(unsafe_code, reason = "the system call takes addresses of memory to which other processes write")]

use core::ptr::NonNull;

use nix::errno::Errno;
use pronto_core::fabric::{FabricError, PostError, Region};
use pronto_sync::atomic::{AtomicU64, Ordering};

use crate::map::{OwnArray, PeerArray};

/// Number of words: the address of the witness, its two words, and the ability of this side to read the peer's memory.
pub(crate) const WORDS: usize = 4;
const ADDRESS: usize = 0;
const WITNESS: usize = 1;
const ABILITY: usize = 3;

/// Ability of a side that has not tried to read the other's memory.
const UNTRIED: u64 = 0;
/// Ability of a side that can.
const CAN: u64 = 1;
/// Ability of a side that cannot.
const CANNOT: u64 = 2;

/// This side's words.
#[derive(Debug)]
pub(crate) struct OwnWords(OwnArray<AtomicU64>);

impl OwnWords {
    /// Fills the words in, before the peer gets the segment. Without random bytes there is no witness, and the peer cannot read by address.
    pub(crate) fn new(words: OwnArray<AtomicU64>) -> Self {
        let mut random = [0; 16];
        if getrandom::fill(&mut random).is_ok() {
            let [first, second] = witness_words(&random);
            words[WITNESS].store(first, Ordering::Relaxed);
            words[WITNESS + 1].store(second, Ordering::Relaxed);
            let address = core::ptr::from_ref(&words[WITNESS]).addr() as u64;
            words[ADDRESS].store(address, Ordering::Relaxed);
        }
        Self(words)
    }
}

/// The peer's memory.
#[derive(Debug)]
pub(crate) struct PeerMemory {
    /// Process id of the peer, as this process sees it.
    pid: libc::pid_t,
    words: PeerArray<AtomicU64>,
    own: OwnWords,
    /// Whether this side has asked the peer to try.
    has_asked: bool,
    /// Address of the witness in the peer, and its value.
    address: u64,
    witness: [u64; 2],
    /// Result of the attempt to read the witness; `None` before it.
    tried: Option<Result<(), Errno>>,
}

impl PeerMemory {
    /// Reads the peer's words once.
    pub(crate) fn new(pid: libc::pid_t, words: PeerArray<AtomicU64>, own: OwnWords) -> Self {
        let word = |at| words.load(at, Ordering::Relaxed);
        let (address, witness) = (word(ADDRESS), [word(WITNESS), word(WITNESS + 1)]);
        Self { pid, words, own, has_asked: false, address, witness, tried: None }
    }

    /// Tries to read the peer's witness, and shows the result to the peer. A later call does nothing.
    pub(crate) fn try_once(&mut self) {
        if self.tried.is_some() {
            return;
        }
        let result = self.read_with_witness(NonNull::dangling(), 0, 0);
        let ability = if result.is_ok() { CAN } else { CANNOT };
        self.own.0[ABILITY].store(ability, Ordering::Release);
        self.tried = Some(result);
    }

    /// Returns the result of [`Self::try_once`].
    pub(crate) fn tried(&self) -> Option<Result<(), Errno>> {
        self.tried
    }

    /// Returns whether the peer can read this side's memory.
    pub(crate) fn can_read(&self) -> bool {
        self.words.load(ABILITY, Ordering::Acquire) == CAN
    }

    /// Returns whether this side must ask the peer to try, which it does once. An older peer has no witness, and does not know the question.
    pub(crate) fn must_ask(&self) -> bool {
        !self.has_asked && self.address != 0 && self.words.load(ABILITY, Ordering::Acquire) == UNTRIED
    }

    /// Notes that the peer was asked.
    pub(crate) fn asked(&mut self) {
        self.has_asked = true;
    }

    /// Copies `len` bytes at `from`, an address in the peer, to `at` in a region.
    pub(crate) fn read_into(
        &self,
        local: &Region,
        at: usize,
        (from, len): (u64, usize),
    ) -> Result<(), PostError> {
        let to = local.writable_address(at, len)?;
        self.read_with_witness(to, from, len).map_err(|errno| match errno {
            // The bytes are gone, unless the whole address space is: the peer has ended, or runs another program.
            Errno::EFAULT if self.read_with_witness(NonNull::dangling(), 0, 0).is_ok() => {
                PostError::Unreadable
            }
            // Or the kernel does not permit it any more. The next link begins with copies.
            _ => PostError::Failed(FabricError::Lost),
        })
    }

    fn read_with_witness(&self, to: NonNull<u8>, from: u64, len: usize) -> Result<(), Errno> {
        if self.pid <= 0 || self.address == 0 {
            return Err(Errno::ENOENT);
        }
        let mut witness = [0_u64; 2];
        let local = [part(to.as_ptr().cast(), len), part(witness.as_mut_ptr().cast(), size_of_val(&witness))];
        let remote = [part_at(from, len), part_at(self.address, size_of_val(&witness))];
        // SAFETY: invariant 1 for the local parts; the remote ones are addresses in another address space, which the kernel checks.
        let done = unsafe { libc::process_vm_readv(self.pid, local.as_ptr(), 2, remote.as_ptr(), 2, 0) };
        let done = Errno::result(done)?;
        if done.cast_unsigned() != len + size_of_val(&witness) {
            return Err(Errno::EFAULT);
        }
        if witness == self.witness { Ok(()) } else { Err(Errno::ESTALE) }
    }
}

fn witness_words(random: &[u8; 16]) -> [u64; 2] {
    let (first, second) = random.split_at(8);
    [first, second].map(|half| u64::from_ne_bytes(half.try_into().expect("half of sixteen bytes")))
}

fn part(base: *mut libc::c_void, len: usize) -> libc::iovec {
    libc::iovec { iov_base: base, iov_len: len }
}

/// Returns a part of another address space.
fn part_at(address: u64, len: usize) -> libc::iovec {
    part(core::ptr::without_provenance_mut(usize::try_from(address).unwrap_or(usize::MAX)), len)
}
