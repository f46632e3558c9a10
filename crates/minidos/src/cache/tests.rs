//! One test per transition of the page cache.

use super::*;

const PAGE: PageNumber = PageNumber(4);
const OTHER: PageNumber = PageNumber(5);

fn page(mark: u8) -> Box<Page> {
    let mut page = Page::zeroed();
    page.0[0] = mark;
    page
}

/// Returns a cache of one frame that has `PAGE` by grant 1.
fn with_copy(access: Access) -> Cache<&'static str> {
    let mut cache = Cache::new(1);
    assert_eq!(cache.touch(PAGE, access), Touch::Fault { held: Version::NONE });
    cache.install(PAGE, Version(1), Some(page(1))).unwrap();
    assert_eq!(cache.settle(PAGE), None);
    cache
}

#[test]
fn a_fault_is_requested_once() {
    let mut cache: Cache<()> = Cache::new(1);
    assert_eq!(cache.touch(PAGE, Access::Read), Touch::Fault { held: Version::NONE });
    assert_eq!(cache.touch(PAGE, Access::Read), Touch::Wait);
    cache.install(PAGE, Version(1), Some(page(1))).unwrap();
    assert_eq!(cache.touch(PAGE, Access::Read), Touch::Hit);
    assert_eq!(cache.touch(PAGE, Access::Write), Touch::Fault { held: Version(1) });
    assert_eq!(
        cache.touch(PAGE, Access::Read),
        Touch::Hit,
        "the copy can be read while the right to write is requested"
    );
}

#[test]
fn only_a_writer_writes() {
    let mut cache = with_copy(Access::Read);
    assert!(cache.contents_mut(PAGE).is_none());
    cache.touch(PAGE, Access::Write);
    cache.install(PAGE, Version(2), None).unwrap();
    assert_eq!(cache.contents_mut(PAGE).unwrap().0[0], 1);
}

#[test]
fn a_copy_is_dropped_immediately() {
    let mut cache = with_copy(Access::Read);
    let dropped = Response { to: "home", page: PAGE, contents: None };
    assert_eq!(cache.handle_invalidate(PAGE, Version(1), "home"), Some(dropped));
    assert!(cache.contents(PAGE).is_none());
}

#[test]
fn a_copy_is_dropped_immediately_even_if_its_task_asks_to_write() {
    let mut cache = with_copy(Access::Read);
    cache.touch(PAGE, Access::Write);
    assert!(
        cache.handle_invalidate(PAGE, Version(1), "home").is_some(),
        "otherwise cache and home wait for each other"
    );
    cache.install(PAGE, Version(3), Some(page(3))).unwrap();
    assert_eq!(cache.contents(PAGE).unwrap().0[0], 3);
}

#[test]
fn a_demand_that_overtakes_its_grant_waits_until_the_page_was_used() {
    let mut cache = with_copy(Access::Read);
    cache.touch(PAGE, Access::Write);
    assert_eq!(cache.handle_recall(PAGE, Version(2), Access::Write, "home"), None);
    cache.install(PAGE, Version(2), None).unwrap();
    cache.contents_mut(PAGE).unwrap().0[0] = 2;
    let response = Response { to: "home", page: PAGE, contents: Some(page(2)) };
    assert_eq!(cache.settle(PAGE), Some(response));
    assert!(cache.contents(PAGE).is_none());
}

#[test]
fn a_demand_for_an_old_grant_does_not_wait_for_the_next() {
    let mut cache = with_copy(Access::Read);
    assert!(cache.handle_invalidate(PAGE, Version(1), "home").is_some());
    cache.touch(PAGE, Access::Read);
    assert!(
        cache.handle_invalidate(PAGE, Version(1), "home").is_some(),
        "the home waits for this response before it grants"
    );
}

#[test]
fn a_recalled_writer_keeps_reading_if_another_node_reads() {
    let mut cache = with_copy(Access::Write);
    let response = cache.handle_recall(PAGE, Version(1), Access::Read, "home").unwrap();
    assert_eq!(response.contents, Some(page(1)));
    assert_eq!(cache.touch(PAGE, Access::Read), Touch::Hit);
    assert_eq!(cache.touch(PAGE, Access::Write), Touch::Fault { held: Version(1) });
}

#[test]
fn the_least_recently_used_copy_is_evicted_first() {
    let mut cache = with_copy(Access::Write);
    assert!(cache.evict().is_none());
    cache.touch(OTHER, Access::Read);
    cache.install(OTHER, Version(1), Some(page(2))).unwrap();
    let eviction = cache.evict().unwrap();
    assert_eq!((eviction.page, eviction.version, eviction.contents), (PAGE, Version(1), Some(page(1))));
    assert_eq!(cache.touch(PAGE, Access::Read), Touch::Wait, "the home has not recorded the return yet");
    cache.evicted(PAGE);
    assert!(cache.evict().is_none());
    assert_eq!(cache.touch(PAGE, Access::Read), Touch::Fault { held: Version::NONE });
}

#[test]
fn a_page_that_is_being_evicted_can_be_recalled() {
    let mut cache = with_copy(Access::Write);
    assert_eq!(cache.evict_written().unwrap().page, PAGE);
    let response = cache.handle_recall(PAGE, Version(1), Access::Write, "home").unwrap();
    assert_eq!(response.contents, Some(page(1)));
    cache.evicted(PAGE);
    let response = cache.handle_recall(PAGE, Version(1), Access::Write, "home").unwrap();
    assert_eq!(response.contents, None, "the home already has the contents");
}

#[test]
fn a_grant_without_a_fault_is_refused() {
    let mut cache = with_copy(Access::Read);
    let refused = cache.install(PAGE, Version(2), Some(page(2)));
    assert_eq!(refused, Err(Unexpected::Grant { page: PAGE }));
    cache.touch(OTHER, Access::Write);
    let refused = cache.install(OTHER, Version(1), None);
    assert_eq!(refused, Err(Unexpected::Contents { page: OTHER }));
}
