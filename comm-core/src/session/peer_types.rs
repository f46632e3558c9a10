//! The type lookup: the peer's numbers of the message types that it handles.
//!
//! The engine writes the numbers when a link is installed; every sender reads them without the engine. A version counter, which
//! is odd during a write, tells a reader that it must try again. A reader tries a bounded number of times, as it may itself keep
//! the writer from the CPU.
//!
//! There is a first table for few types, and further ones with twice, four times, ... as many places. The peer's types are in
//! the smallest table that can hold them. The further tables are allocated when they are needed, and stay: a reader may use one
//! while another is written.

use alloc::boxed::Box;

use pronto_sync::OnceBox;
use pronto_sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use pronto_sync::hint::spin_loop;
use pronto_wire::{LayoutHash, NameHash, ServiceId, TypeEntry, TypeId};

/// The key of a message type, by which a sender looks up the peer's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TypeKey {
    /// Addressed service.
    pub service: ServiceId,
    /// The type's name, hashed.
    pub name: NameHash,
    /// The type's layout, hashed.
    pub layout: LayoutHash,
}

/// The result of a type lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeLookup {
    /// The peer handles the type, under this number.
    As(TypeId),
    /// The peer handles a type of this name with another layout.
    OtherLayout,
    /// The peer does not handle the type.
    No,
    /// The result is not available: the holder of the engine writes the peer's numbers, before the session is up or after it has ended.
    BeingWritten,
}

/// The peer's numbers, as open-addressed tables of atomics.
#[derive(Debug)]
pub struct PeerTypes {
    version: AtomicU32,
    /// Index of the table in use. 0 is the first table, `n` the `n`th further one.
    used: AtomicU32,
    first: Table,
    larger: [OnceBox<Table>; LARGER],
}

/// An array of places for types, whose number is a power of two.
type Table = Box<[Entry]>;

#[derive(Debug, Default)]
struct Entry {
    /// Combined hash of name and service; 0 for a free place.
    key: AtomicU64,
    layout: AtomicU64,
    type_id: AtomicU32,
}

/// Number of attempts of a reader. During these, a running writer finishes a short table.
const ATTEMPTS: u32 = 64;
/// Maximum number of types of a peer.
const MOST: usize = 1024;
/// Number of places per type, which keeps the probes short.
const SPARSE: usize = 2;
/// Number of places of the first table. Loom's models have the fewest that work.
const FIRST: usize = if cfg!(loom) { SPARSE } else { 16 };
/// Number of further tables.
const LARGER: usize = (SPARSE * MOST / FIRST).trailing_zeros() as usize;

impl PeerTypes {
    /// Returns an empty table.
    pub fn new() -> Self {
        Self {
            version: AtomicU32::new(0),
            used: AtomicU32::new(0),
            first: table(FIRST),
            larger: core::array::from_fn(|_| OnceBox::new()),
        }
    }

    /// Replaces all types by those of a greeting. Only one thread at a time may call this: the holder of the engine. Ignores entries beyond
    /// [`MOST`] and returns their number.
    pub(super) fn replace(&self, types: &[TypeEntry]) -> usize {
        // The version is odd already if the last writer panicked.
        let writing = self.version.load(Ordering::Relaxed) | 1;
        self.version.store(writing, Ordering::Relaxed);
        // SYNC: readers that see any store below see the odd version; pairs with the fence in `find`.
        fence(Ordering::Release);
        let ignored = self.fill(types);
        // SYNC: publishes the table; pairs with the acquire load in `find`.
        self.version.store(writing.wrapping_add(1), Ordering::Release);
        ignored
    }

    /// Stores the types in the smallest table that can hold them, while the version is odd. Returns the number of ignored entries.
    fn fill(&self, types: &[TypeEntry]) -> usize {
        let fitting = types.len().min(MOST);
        let entries = self.table_for(fitting);
        for entry in entries {
            entry.key.store(0, Ordering::Relaxed);
        }
        for kind in &types[..fitting] {
            let key = key_of(kind.service, kind.name);
            let mut at = place(key, entries.len());
            while entries[at].key.load(Ordering::Relaxed) != 0 {
                at = place_after(at, entries.len());
            }
            entries[at].layout.store(kind.layout.0, Ordering::Relaxed);
            entries[at].type_id.store(kind.type_id.0.into(), Ordering::Relaxed);
            entries[at].key.store(key, Ordering::Relaxed);
        }
        types.len() - fitting
    }

    /// Selects and returns the smallest table for this number of types.
    fn table_for(&self, types: usize) -> &[Entry] {
        let places = (types * SPARSE).next_power_of_two().max(FIRST);
        let further = (places / FIRST).trailing_zeros();
        self.used.store(further, Ordering::Relaxed);
        match further {
            0 => &self.first,
            _ => self.larger[further as usize - 1].get_or_make(|| table(places)),
        }
    }

    /// Returns the table in use, or `None` if a writer has just selected one that is not allocated yet.
    #[inline]
    fn table(&self) -> Option<&[Entry]> {
        match self.used.load(Ordering::Relaxed) {
            0 => Some(&self.first),
            further => self.larger[further as usize - 1].get().map(|table| &**table),
        }
    }

    /// Looks a type up. Returns [`TypeLookup::BeingWritten`] if a write was in progress during each of [`ATTEMPTS`] attempts.
    #[inline]
    pub fn find(&self, wanted: &TypeKey) -> TypeLookup {
        match self.try_find(wanted) {
            Some(known) => known,
            None => self.find_again(wanted),
        }
    }

    /// Looks a type up. Returns `None` if a write is in progress.
    #[inline]
    fn try_find(&self, wanted: &TypeKey) -> Option<TypeLookup> {
        // SYNC: pairs with the release store at the end of `replace`.
        let before = self.version.load(Ordering::Acquire);
        if !before.is_multiple_of(2) {
            return None;
        }
        let known = self.probe(wanted);
        // SYNC: orders the probe's loads before the second load of the version; pairs with the fence in `replace`.
        fence(Ordering::Acquire);
        (self.version.load(Ordering::Relaxed) == before).then_some(known)
    }

    /// Makes the attempts after the first one. It is a separate function because a counter of attempts would slow down the first one.
    #[cold]
    #[inline(never)]
    fn find_again(&self, wanted: &TypeKey) -> TypeLookup {
        for _ in 1..ATTEMPTS {
            spin_loop();
            if let Some(known) = self.try_find(wanted) {
                return known;
            }
        }
        TypeLookup::BeingWritten
    }

    fn probe(&self, wanted: &TypeKey) -> TypeLookup {
        let Some(entries) = self.table() else { return TypeLookup::No };
        let key = key_of(wanted.service, wanted.name);
        let mut at = place(key, entries.len());
        for _ in 0..entries.len() {
            let entry = &entries[at];
            match entry.key.load(Ordering::Relaxed) {
                0 => return TypeLookup::No,
                found if found == key => {
                    if entry.layout.load(Ordering::Relaxed) != wanted.layout.0 {
                        return TypeLookup::OtherLayout;
                    }
                    let number = entry.type_id.load(Ordering::Relaxed);
                    return u16::try_from(number)
                        .map_or(TypeLookup::No, |number| TypeLookup::As(TypeId(number)));
                }
                _ => at = place_after(at, entries.len()),
            }
        }
        TypeLookup::No
    }
}

impl Default for PeerTypes {
    fn default() -> Self {
        Self::new()
    }
}

fn key_of(service: ServiceId, name: NameHash) -> u64 {
    (name.0 ^ u64::from(service.0).wrapping_mul(0x9e37_79b9_7f4a_7c15)).max(1)
}

fn table(places: usize) -> Table {
    (0..places).map(|_| Entry::default()).collect()
}

/// Returns the place where the search for a key begins in a table of `places` places.
#[inline]
fn place(key: u64, places: usize) -> usize {
    usize::try_from(key >> 32).expect("32 bits fit") & (places - 1)
}

/// Returns the place that a search tries after `at`.
#[inline]
const fn place_after(at: usize, places: usize) -> usize {
    (at + 1) & (places - 1)
}

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Shows: protocol.other-layout
    #[test]
    fn types_are_found_by_service_and_name() {
        let table = PeerTypes::new();
        let (service, name, layout) = (ServiceId(3), NameHash::of("demo.add"), LayoutHash(5));
        assert_eq!(table.find(&TypeKey { service, name, layout }), TypeLookup::No);
        table.replace(&[TypeEntry { service, name, layout, type_id: TypeId(7) }]);
        assert_eq!(table.find(&TypeKey { service, name, layout }), TypeLookup::As(TypeId(7)));
        assert_eq!(table.find(&TypeKey { service, name, layout: LayoutHash(6) }), TypeLookup::OtherLayout);
        assert_eq!(table.find(&TypeKey { service: ServiceId(4), name, layout }), TypeLookup::No);
        table.replace(&[]);
        assert_eq!(table.find(&TypeKey { service, name, layout }), TypeLookup::No);
    }

    #[test]
    fn a_reader_does_not_wait_for_a_writer_and_the_next_write_repairs_a_panicked_one() {
        let table = PeerTypes::new();
        let (service, name, layout) = (ServiceId(3), NameHash::of("demo.add"), LayoutHash(5));
        let (key, entry) =
            (TypeKey { service, name, layout }, TypeEntry { service, name, layout, type_id: TypeId(7) });
        table.replace(&[entry]);
        // As if a writer was preempted or panicked.
        table.version.fetch_add(1, Ordering::Relaxed);
        assert_eq!(table.find(&key), TypeLookup::BeingWritten);
        table.replace(&[]);
        assert_eq!(table.find(&key), TypeLookup::No);
        table.replace(&[entry]);
        assert_eq!(table.find(&key), TypeLookup::As(TypeId(7)));
    }

    #[test]
    fn too_many_types_are_counted_not_looped_over() {
        let table = PeerTypes::new();
        let entries: alloc::vec::Vec<_> = (0..1500_u16)
            .map(|i| TypeEntry {
                service: ServiceId(0),
                name: NameHash(u64::from(i) << 32 | 1),
                layout: LayoutHash(0),
                type_id: TypeId(i),
            })
            .collect();
        assert_eq!(table.replace(&entries), 1500 - MOST);
        let key =
            |i: u64| TypeKey { service: ServiceId(0), name: NameHash(i << 32 | 1), layout: LayoutHash(0) };
        assert_eq!(table.find(&key(1023)), TypeLookup::As(TypeId(1023)));
        assert_eq!(table.find(&key(1024)), TypeLookup::No);
        assert_eq!(table.replace(&entries[..30]), 0);
        assert_eq!(
            (table.find(&key(29)), table.find(&key(30))),
            (TypeLookup::As(TypeId(29)), TypeLookup::No)
        );
        assert_eq!(table.replace(&entries[..1]), 0);
        assert_eq!((table.find(&key(0)), table.find(&key(1))), (TypeLookup::As(TypeId(0)), TypeLookup::No));
    }
}
