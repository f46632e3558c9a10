//! What the peer calls the message types that it handles.
//!
//! Written when a link comes up, read by every sender without the engine. A version counter (odd while it is being
//! written) tells a reader that it must look again.

use alloc::boxed::Box;

use pronto_sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use pronto_sync::hint::spin_loop;
use pronto_wire::{LayoutHash, NameHash, ServiceId, TypeEntry, TypeId};

/// A message type as a sender knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TypeKey {
    /// Addressed service.
    pub service: ServiceId,
    /// The type's name, hashed.
    pub name: NameHash,
    /// The type's layout, hashed.
    pub layout: LayoutHash,
}

/// What the peer says to a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// It handles it, under this number.
    As(TypeId),
    /// It handles a type of this name with another layout.
    OtherLayout,
    /// It does not handle it.
    No,
}

/// The peer's numbers, as an open-addressed table of atomics.
#[derive(Debug)]
pub struct PeerTypes {
    version: AtomicU32,
    entries: Box<[Entry]>,
}

#[derive(Debug, Default)]
struct Entry {
    /// Name and service, mixed; 0 is free.
    key: AtomicU64,
    layout: AtomicU64,
    type_id: AtomicU32,
}

/// Types that a peer may handle here; twice as many places keep the probes short.
const PLACES: usize = 2 * 1024;

impl PeerTypes {
    /// Nothing is known yet.
    pub fn new() -> Self {
        Self { version: AtomicU32::new(0), entries: (0..PLACES).map(|_| Entry::default()).collect() }
    }

    /// Replaces all by what a greeting lists. One writer at a time: the engine. Entries beyond half the table are left
    /// out; returns how many.
    pub(super) fn replace(&self, types: &[TypeEntry]) -> usize {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        // SYNC: readers that see any store below see the odd version; pairs with the fence in `find`.
        fence(Ordering::Release);
        for entry in &self.entries {
            entry.key.store(0, Ordering::Relaxed);
        }
        let fitting = types.len().min(PLACES / 2);
        for kind in &types[..fitting] {
            let key = key_of(kind.service, kind.name);
            let mut at = place(key);
            while self.entries[at].key.load(Ordering::Relaxed) != 0 {
                at = (at + 1) % PLACES;
            }
            self.entries[at].layout.store(kind.layout.0, Ordering::Relaxed);
            self.entries[at].type_id.store(kind.type_id.0.into(), Ordering::Relaxed);
            self.entries[at].key.store(key, Ordering::Relaxed);
        }
        // SYNC: publishes the table; pairs with the acquire load in `find`.
        self.version.store(version.wrapping_add(2), Ordering::Release);
        types.len() - fitting
    }

    /// What the peer says to a type.
    pub fn find(&self, wanted: &TypeKey) -> Known {
        loop {
            // SYNC: pairs with the release store at the end of `replace`.
            let before = self.version.load(Ordering::Acquire);
            if before.is_multiple_of(2) {
                let known = self.probe(wanted);
                // SYNC: orders the probe's loads before the second look; pairs with the fence in `replace`.
                fence(Ordering::Acquire);
                if self.version.load(Ordering::Relaxed) == before {
                    return known;
                }
            }
            spin_loop();
        }
    }

    fn probe(&self, wanted: &TypeKey) -> Known {
        let key = key_of(wanted.service, wanted.name);
        let mut at = place(key);
        for _ in 0..PLACES {
            let entry = &self.entries[at];
            match entry.key.load(Ordering::Relaxed) {
                0 => return Known::No,
                found if found == key => {
                    if entry.layout.load(Ordering::Relaxed) != wanted.layout.0 {
                        return Known::OtherLayout;
                    }
                    let number = entry.type_id.load(Ordering::Relaxed);
                    return u16::try_from(number).map_or(Known::No, |number| Known::As(TypeId(number)));
                }
                _ => at = (at + 1) % PLACES,
            }
        }
        Known::No
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

fn place(key: u64) -> usize {
    usize::try_from(key >> 32).expect("32 bits fit") % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_found_by_service_and_name() {
        let table = PeerTypes::new();
        let (service, name, layout) = (ServiceId(3), NameHash::of("demo.add"), LayoutHash(5));
        assert_eq!(table.find(&TypeKey { service, name, layout }), Known::No);
        table.replace(&[TypeEntry { service, name, layout, type_id: TypeId(7) }]);
        assert_eq!(table.find(&TypeKey { service, name, layout }), Known::As(TypeId(7)));
        assert_eq!(table.find(&TypeKey { service, name, layout: LayoutHash(6) }), Known::OtherLayout);
        assert_eq!(table.find(&TypeKey { service: ServiceId(4), name, layout }), Known::No);
        table.replace(&[]);
        assert_eq!(table.find(&TypeKey { service, name, layout }), Known::No);
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
        assert_eq!(table.replace(&entries), 1500 - PLACES / 2);
    }
}
