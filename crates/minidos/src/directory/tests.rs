//! One test per transition of the directory.

use super::*;

const PAGE: PageNumber = PageNumber(9);
const ONE: NodeId = NodeId(1);
const TWO: NodeId = NodeId(2);
const THREE: NodeId = NodeId(3);

fn directory() -> Directory<&'static str> {
    let mut directory = Directory::default();
    directory.insert(PAGE, page(0));
    directory
}

fn page(mark: u8) -> Box<Page> {
    let mut page = Page::zeroed();
    page.0[0] = mark;
    page
}

/// Returns all actions after checking the entry.
fn actions(directory: &mut Directory<&'static str>) -> Vec<Action<&'static str>> {
    assert!(directory.entries[&PAGE].is_consistent());
    core::iter::from_fn(|| directory.poll_action()).collect()
}

fn ask(directory: &mut Directory<&'static str>, from: NodeId, access: Access, held: u64, to: &'static str) {
    directory.handle_request(PAGE, from, access, Version(held), to).unwrap();
}

fn grant(to: &'static str, version: u64, contents: Option<u8>) -> Action<&'static str> {
    Action::Grant { to, page: PAGE, version: Version(version), contents: contents.map(page) }
}

fn invalidate(to: NodeId, version: u64) -> Action<&'static str> {
    Action::Invalidate { to, page: PAGE, version: Version(version) }
}

fn recall(to: NodeId, version: u64, access: Access) -> Action<&'static str> {
    Action::Recall { to, page: PAGE, version: Version(version), access }
}

#[test]
fn readers_share() {
    let mut directory = directory();
    ask(&mut directory, ONE, Access::Read, 0, "a");
    ask(&mut directory, TWO, Access::Read, 0, "b");
    assert_eq!(actions(&mut directory), [grant("a", 1, Some(0)), grant("b", 2, Some(0))]);
    assert_eq!(directory.entries[&PAGE].readers(), [ONE, TWO]);
}

#[test]
fn a_writer_waits_for_all_readers_and_only_those() {
    let mut directory = directory();
    ask(&mut directory, ONE, Access::Read, 0, "a");
    ask(&mut directory, TWO, Access::Read, 0, "b");
    actions(&mut directory);
    ask(&mut directory, THREE, Access::Write, 0, "c");
    assert_eq!(actions(&mut directory), [invalidate(ONE, 1), invalidate(TWO, 2)]);
    directory.handle_invalidated(PAGE, TWO).unwrap();
    assert_eq!(actions(&mut directory), []);
    directory.handle_invalidated(PAGE, ONE).unwrap();
    assert_eq!(actions(&mut directory), [grant("c", 3, Some(0))]);
    assert_eq!(directory.entries[&PAGE].writer(), Some(THREE));
}

#[test]
fn a_reader_that_writes_gets_the_right_without_the_contents() {
    let mut directory = directory();
    ask(&mut directory, ONE, Access::Read, 0, "a");
    ask(&mut directory, ONE, Access::Write, 1, "b");
    assert_eq!(actions(&mut directory), [grant("a", 1, Some(0)), grant("b", 2, None)]);
}

#[test]
fn a_reader_that_lost_its_copy_while_it_asked_to_write_gets_the_contents() {
    let mut directory = directory();
    ask(&mut directory, ONE, Access::Read, 0, "a");
    ask(&mut directory, TWO, Access::Write, 0, "b");
    ask(&mut directory, ONE, Access::Write, 1, "c");
    assert_eq!(actions(&mut directory), [grant("a", 1, Some(0)), invalidate(ONE, 1)]);
    directory.handle_invalidated(PAGE, ONE).unwrap();
    assert_eq!(actions(&mut directory), [grant("b", 2, Some(0)), recall(TWO, 2, Access::Write)]);
    directory.handle_recalled(PAGE, TWO, Returned::Contents(page(5))).unwrap();
    assert_eq!(actions(&mut directory), [grant("c", 3, Some(5))]);
}

#[test]
fn a_recalled_writer_keeps_reading_if_another_node_reads() {
    let mut directory = directory();
    ask(&mut directory, ONE, Access::Write, 0, "a");
    ask(&mut directory, TWO, Access::Read, 0, "b");
    assert_eq!(actions(&mut directory), [grant("a", 1, Some(0)), recall(ONE, 1, Access::Read)]);
    directory.handle_recalled(PAGE, ONE, Returned::Contents(page(7))).unwrap();
    assert_eq!(actions(&mut directory), [grant("b", 2, Some(7))]);
    assert_eq!(directory.entries[&PAGE].readers(), [ONE, TWO]);
}

#[test]
fn a_writer_waits_for_the_response_of_a_reader_that_evicts_its_copy_meanwhile() {
    let mut directory = directory();
    ask(&mut directory, ONE, Access::Read, 0, "a");
    ask(&mut directory, TWO, Access::Write, 0, "b");
    actions(&mut directory);
    directory.handle_released(PAGE, ONE, Version(1)).unwrap();
    assert_eq!(actions(&mut directory), []);
    directory.handle_invalidated(PAGE, ONE).unwrap();
    assert_eq!(actions(&mut directory), [grant("b", 2, Some(0))]);
}

#[test]
fn a_flush_brings_the_contents_home() {
    let mut directory = directory();
    ask(&mut directory, ONE, Access::Write, 0, "a");
    directory.handle_flushed(PAGE, ONE, Version(1), page(3)).unwrap();
    ask(&mut directory, TWO, Access::Write, 0, "b");
    assert_eq!(actions(&mut directory), [grant("a", 1, Some(0)), grant("b", 2, Some(3))]);
}

#[test]
fn a_flush_and_a_recall_may_cross() {
    for flush_first in [true, false] {
        let mut directory = directory();
        ask(&mut directory, ONE, Access::Write, 0, "a");
        ask(&mut directory, TWO, Access::Read, 0, "b");
        actions(&mut directory);
        if flush_first {
            directory.handle_flushed(PAGE, ONE, Version(1), page(3)).unwrap();
            directory.handle_recalled(PAGE, ONE, Returned::Gone).unwrap();
        } else {
            directory.handle_recalled(PAGE, ONE, Returned::Contents(page(3))).unwrap();
            directory.handle_flushed(PAGE, ONE, Version(1), page(3)).unwrap();
        }
        assert_eq!(actions(&mut directory), [grant("b", 2, Some(3))]);
        assert_eq!(directory.entries[&PAGE].readers(), [TWO]);
    }
}

#[test]
fn an_old_flush_does_not_overwrite_newer_contents() {
    let mut directory = directory();
    ask(&mut directory, ONE, Access::Write, 0, "a");
    ask(&mut directory, TWO, Access::Write, 0, "b");
    directory.handle_recalled(PAGE, ONE, Returned::Contents(page(3))).unwrap();
    directory.handle_flushed(PAGE, TWO, Version(2), page(4)).unwrap();
    directory.handle_flushed(PAGE, ONE, Version(1), page(3)).unwrap();
    actions(&mut directory);
    ask(&mut directory, THREE, Access::Read, 0, "c");
    assert_eq!(actions(&mut directory), [grant("c", 3, Some(4))]);
}

#[test]
fn a_word_has_the_value_of_the_last_write() {
    let mut directory = directory();
    ask(&mut directory, ONE, Access::Write, 0, "a");
    directory.handle_read_word(PAGE, 0, "first").unwrap();
    directory.handle_read_word(PAGE, 4095, "beyond").unwrap();
    assert_eq!(actions(&mut directory), [grant("a", 1, Some(0)), recall(ONE, 1, Access::Read)]);
    directory.handle_recalled(PAGE, ONE, Returned::Contents(page(6))).unwrap();
    let words = [Action::Word { to: "first", word: Some(6) }, Action::Word { to: "beyond", word: None }];
    assert_eq!(actions(&mut directory), words);
}

#[test]
fn unsolicited_messages_are_refused() {
    let mut directory = directory();
    let unsolicited = |from| Err(Violation::Unsolicited { from, page: PAGE });
    assert_eq!(directory.handle_invalidated(PAGE, ONE), unsolicited(ONE));
    assert_eq!(directory.handle_recalled(PAGE, ONE, Returned::Contents(page(1))), unsolicited(ONE));
    ask(&mut directory, ONE, Access::Write, 0, "a");
    ask(&mut directory, TWO, Access::Write, 0, "b");
    actions(&mut directory);
    assert_eq!(directory.handle_recalled(PAGE, TWO, Returned::Contents(page(1))), unsolicited(TWO));
    assert_eq!(directory.handle_recalled(PAGE, ONE, Returned::Gone), unsolicited(ONE));
    assert_eq!(directory.handle_invalidated(PAGE, ONE), unsolicited(ONE));
    let elsewhere = PageNumber(10);
    let refused = directory.handle_request(elsewhere, ONE, Access::Read, Version::NONE, "c");
    assert_eq!(refused, Err((Violation::NotHome { page: elsewhere }, "c")));
}
