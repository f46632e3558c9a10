//! Loom models in which a sender looks a type up while the engine replaces the types; and mutants that loom must refute.
//!
//! The threads share the table through the plain `Arc`: dropping loom's while a refuted model unwinds would abort the test.

use alloc::sync::Arc;

use loom::thread;

use super::*;

type Find = fn(&PeerTypes, &TypeKey) -> Option<TypeLookup>;
type Replace = fn(&PeerTypes, &[TypeEntry]);

/// The entry before the replacement and the one after it: the same name, with another layout and another number.
const OLD: TypeEntry = entry(1, 5, 7);
const NEW: TypeEntry = entry(1, 6, 8);
/// A type that only the replacement by two types has.
const ANOTHER: TypeEntry = entry(2, 9, 4);

const fn entry(name: u64, layout: u64, number: u16) -> TypeEntry {
    TypeEntry {
        service: ServiceId(0),
        name: NameHash(name << 32),
        layout: LayoutHash(layout),
        type_id: TypeId(number),
    }
}

const fn key(entry: &TypeEntry) -> TypeKey {
    TypeKey { service: entry.service, name: entry.name, layout: entry.layout }
}

/// Looks the new type up while `replace` replaces the old type by `types`. The result must be that of one of the two tables.
fn reader_against_writer(find: Find, replace: Replace, types: &'static [TypeEntry]) {
    loom::model(move || {
        let table = Arc::new(PeerTypes::new());
        table.replace(&[OLD]);
        let shared = Arc::clone(&table);
        let reader = thread::spawn(move || match find(&shared, &key(&NEW)) {
            None | Some(TypeLookup::OtherLayout) => {}
            found => assert_eq!(found, Some(TypeLookup::As(NEW.type_id)), "a mixture of two tables"),
        });
        // The model's first thread writes: of what comes after a complete write, loom explores only that order.
        replace(&table, types);
        reader.join().expect("the reader ends");
        for kind in types {
            assert_eq!(table.find(&key(kind)), TypeLookup::As(kind.type_id));
        }
    });
}

fn find(table: &PeerTypes, wanted: &TypeKey) -> Option<TypeLookup> {
    table.try_find(wanted)
}

fn replace(table: &PeerTypes, types: &[TypeEntry]) {
    assert_eq!(table.replace(types), 0, "all types fit");
}

/// Finds as [`PeerTypes::try_find`] does, with another ordering of the first load, and `fenced` or not.
fn find_by(table: &PeerTypes, wanted: &TypeKey, first: Ordering, fenced: bool) -> Option<TypeLookup> {
    let before = table.version.load(first);
    if !before.is_multiple_of(2) {
        return None;
    }
    let known = table.probe(wanted);
    if fenced {
        fence(Ordering::Acquire);
    }
    (table.version.load(Ordering::Relaxed) == before).then_some(known)
}

/// Replaces as [`PeerTypes::replace`] does, with another ordering of the last store, and `fenced` or not.
fn replace_by(table: &PeerTypes, types: &[TypeEntry], fenced: bool, last: Ordering) {
    let writing = table.version.load(Ordering::Relaxed) | 1;
    table.version.store(writing, Ordering::Relaxed);
    if fenced {
        fence(Ordering::Release);
    }
    table.fill(types);
    table.version.store(writing.wrapping_add(1), last);
}

#[test]
fn loom_a_lookup_never_mixes_two_tables() {
    reader_against_writer(find, replace, &[NEW]);
}

#[test]
fn loom_a_lookup_never_mixes_two_tables_of_different_sizes() {
    reader_against_writer(find, replace, &[ANOTHER, NEW]);
}

#[test]
#[should_panic(expected = "a mixture of two tables")]
fn loom_refutes_a_reader_that_does_not_acquire_the_version() {
    let find = |table: &PeerTypes, wanted: &TypeKey| find_by(table, wanted, Ordering::Relaxed, true);
    reader_against_writer(find, replace, &[NEW]);
}

#[test]
#[should_panic(expected = "a mixture of two tables")]
fn loom_refutes_a_reader_without_a_fence() {
    let find = |table: &PeerTypes, wanted: &TypeKey| find_by(table, wanted, Ordering::Acquire, false);
    reader_against_writer(find, replace, &[NEW]);
}

#[test]
#[should_panic(expected = "a mixture of two tables")]
fn loom_refutes_a_writer_without_a_fence() {
    let replace = |table: &PeerTypes, types: &[TypeEntry]| replace_by(table, types, false, Ordering::Release);
    reader_against_writer(find, replace, &[NEW]);
}

#[test]
#[should_panic(expected = "a mixture of two tables")]
fn loom_refutes_a_writer_that_does_not_release_the_version() {
    let replace = |table: &PeerTypes, types: &[TypeEntry]| replace_by(table, types, true, Ordering::Relaxed);
    reader_against_writer(find, replace, &[NEW]);
}
