//! The rings of this process: one for each thread that has written a note. When a thread ends, the next new thread takes over its
//! ring and gradually replaces its notes. So there are never more rings than there were threads at the same time.

use core::cell::{Cell, RefCell};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pronto_ring::NoteRing;
use pronto_ring::notes::Entry;

/// Notes kept per ring: 64 KiB, less than a second-level cache.
pub const KEPT: usize = 4096;

thread_local! {
    /// Has no destructor, so access is a single load.
    static MINE: Cell<Option<&'static NoteRing<KEPT>>> = const { Cell::new(None) };
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
    /// The last clock reading before the thread has a ring.
    static EARLY: Cell<u64> = const { Cell::new(0) };
}

static RINGS: Mutex<Vec<Registered>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct Registered {
    ring: &'static NoteRing<KEPT>,
    /// The threads whose notes are in the ring, each with the number of its first note; never more than there are notes.
    owners: Vec<(u64, String)>,
    taken: bool,
}

/// A thread and its notes.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Name of the thread, or `-` if it has none.
    pub name: String,
    /// Whether the thread is still running.
    pub runs: bool,
    /// Last notes of the thread, oldest first.
    pub entries: Vec<Entry>,
}

/// Writes a note for the calling thread. A thread's first note allocates its ring, or takes over the ring of an ended thread.
#[inline]
pub fn note(word: u64, low: u16) {
    match MINE.get() {
        Some(ring) => ring.note(word, low),
        None => first(|ring| ring.note(word, low)),
    }
}

/// Records a clock reading of the calling thread, in nanoseconds: the time of its notes from now on.
#[inline]
pub fn time(nanos: u64) {
    match MINE.get() {
        Some(ring) => ring.time(nanos),
        None => EARLY.set(nanos),
    }
}

/// Returns the last notes of every thread, at most `most` of each ring.
#[must_use]
pub fn threads(most: usize) -> Vec<Thread> {
    rings().iter().flat_map(|known| known.threads(most)).collect()
}

impl Registered {
    fn threads(&self, most: usize) -> Vec<Thread> {
        let mut entries = self.ring.last(most);
        let mut threads = Vec::new();
        for (index, (from, name)) in self.owners.iter().enumerate().rev() {
            let first = entries.partition_point(|entry| entry.number < *from);
            let runs = self.taken && index + 1 == self.owners.len();
            threads.push(Thread { name: name.clone(), runs, entries: entries.split_off(first) });
        }
        threads
    }
}

/// Takes a ring for the calling thread and passes it to `note`. A thread whose thread-locals are being destroyed has no ring any
/// more: its notes are dropped.
#[cold]
fn first(note: impl FnOnce(&NoteRing<KEPT>)) {
    let given = HELD.try_with(|held| {
        let mut held = held.try_borrow_mut().ok()?;
        let ring = take();
        *held = Some(Held(ring));
        Some(ring)
    });
    if let Ok(Some(ring)) = given {
        MINE.set(Some(ring));
        // The thread's own time, not that of the ring's previous owner.
        ring.time(EARLY.get());
        note(ring);
    }
}

fn take() -> &'static NoteRing<KEPT> {
    let name = std::thread::current().name().unwrap_or("-").to_owned();
    let mut rings = rings();
    if let Some(free) = rings.iter_mut().find(|known| !known.taken) {
        let written = free.ring.written();
        let oldest = written.saturating_sub(KEPT as u64);
        // If the first note of an owner's successor has been replaced, the owner has no notes left.
        let gone = free.owners.iter().skip(1).take_while(|(from, _)| *from <= oldest).count();
        free.owners.drain(..gone);
        free.owners.push((written, name));
        free.taken = true;
        return free.ring;
    }
    let ring: &'static NoteRing<KEPT> = Box::leak(Box::default());
    rings.push(Registered { ring, owners: vec![(0, name)], taken: true });
    ring
}

/// Locks the list of rings, which is consistent after any panic.
fn rings() -> MutexGuard<'static, Vec<Registered>> {
    RINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ring of a running thread; frees the ring for another thread when its thread ends.
#[derive(Debug)]
struct Held(&'static NoteRing<KEPT>);

impl Drop for Held {
    fn drop(&mut self) {
        MINE.set(None);
        if let Some(known) = rings().iter_mut().find(|known| core::ptr::eq(known.ring, self.0)) {
            known.taken = false;
        }
    }
}
