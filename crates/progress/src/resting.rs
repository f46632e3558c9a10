//! Resting sources: the engine leaves them armed when it wakes up for others, and an epoll of their own reports their events.
//!
//! Arming, polling and disarming all sources around each sleep takes time in proportion to their number. Where most of a thousand sources are
//! idle, that is all that the engine does. A source that had no event for several polls may therefore *rest*: its channels move to this
//! epoll, and neither polls nor sleeps touch it until it has an event or another thread rouses it.
//!
//! # No event is lost
//! A source rests only if its channels report an event until it is consumed, and it announces that it rests before its last poll, which
//! follows the arming. An event that this poll does not find is reported by the epoll. A thread that leaves work for the source looks at the
//! announcement afterwards ([`Rouse`]): either it sees that the source rests, or the last poll finds its work.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Arc, Weak};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollTimeout};
use pronto_core::executor::Channel;
use pronto_core::fabric::Interest;
use pronto_sync::atomic::{AtomicBool, Ordering, fence};

use crate::descriptor::{borrow, epoll_flags};
use crate::manager::Shared;
use crate::poller::{Change, Slot};
use crate::sleep_set::exclusive;

/// Consecutive polls without an event after which a source may rest: one that has found the last event's end. Another one follows the arming.
pub(crate) const REST_AFTER: u32 = 1;
/// Number of sources up to which none rests: polling them is cheaper than moving them.
pub(crate) const FEW: usize = 16;
/// Maximum number of ready channels that one look finds, the longest waiting ones first. Sources with events that arrive together, such as
/// heartbeats, are taken out together: the engine polls all that are awake in each round, so that several looks would each cause polls of
/// those that the earlier ones have found.
const MAX_READY: usize = 4_096;

/// The announcement that a source rests. The source, its registration and its handles share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Announcement(Arc<AtomicBool>);

impl Announcement {
    /// Announces that the source rests, before its last poll.
    pub(crate) fn make(&self) {
        self.0.store(true, Ordering::Relaxed);
        // SYNC: either the last poll finds the work of another thread, or that thread sees the announcement; pairs with the fence in
        // `Rouse::rouse`.
        fence(Ordering::SeqCst);
    }

    pub(crate) fn withdraw(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    pub(crate) fn is_made(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Handle by which any thread ends the rest of a source.
#[derive(Clone)]
pub struct Rouse {
    pub(crate) manager: Weak<Shared>,
    pub(crate) id: u64,
    pub(crate) announcement: Announcement,
}

impl Rouse {
    /// Ends the rest of the source, for work that its channels do not report. Costs a fence and a load if the source does not rest; the
    /// caller must then wake the engine, as for any source.
    pub fn rouse(&self) {
        // SYNC: the work of the caller is visible before this look at the announcement.
        fence(Ordering::SeqCst);
        if self.announcement.is_made()
            && let Some(manager) = self.manager.upgrade()
        {
            manager.leave(Change::Rouse(self.id));
        }
    }

    /// Returns whether the source rests.
    #[must_use]
    pub fn rests(&self) -> bool {
        self.announcement.is_made()
    }
}

impl fmt::Debug for Rouse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rouse").field("id", &self.id).field("rests", &self.rests()).finish_non_exhaustive()
    }
}

/// The sources that rest.
pub(crate) struct Resting {
    epoll: Epoll,
    /// By id, which is the token of their channels.
    slots: HashMap<u64, Slot>,
    /// The channels that the epoll watches, by source. They stay there when a source is roused, as most rest again before the next sleep.
    watched: HashMap<u64, Watched>,
    /// The source of each watched descriptor. The number of a closed descriptor may be that of another source's by the time its former source
    /// is removed.
    owners: HashMap<i32, u64>,
    /// Room for the events of a look, kept so that looks allocate nothing.
    events: Vec<EpollEvent>,
}

/// Channels of a source in the epoll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Watched {
    channels: [Option<Channel>; 2],
    /// Whether a thread of the program may sleep on each of them in a caller epoll, which the kernel asks first.
    shared: [bool; 2],
    /// While the version of all channels is the same, a descriptor number refers to the same file.
    version: u64,
}

impl Resting {
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self {
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            slots: HashMap::new(),
            watched: HashMap::new(),
            owners: HashMap::new(),
            events: Vec::new(),
        })
    }

    /// Returns the descriptor of the epoll, which is readable while a source has an event.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether the epoll watches no channel.
    pub(crate) fn watches_none(&self) -> bool {
        self.watched.is_empty()
    }

    /// Returns whether sources with these channels may rest: the epoll watches for data to read, and nothing else. A source without a channel has
    /// no events.
    pub(crate) fn suits(channels: &[Option<Channel>; 2]) -> bool {
        channels.iter().flatten().all(|channel| channel.interest == Interest::READABLE)
    }

    /// Watches the channels of a source. Returns false if the kernel does not.
    ///
    /// A channel that a caller epoll watches is watched exclusively and after that, so that an event wakes the engine only if no thread sleeps
    /// there.
    pub(crate) fn watch(
        &mut self,
        id: u64,
        channels: [Option<Channel>; 2],
        version: u64,
        is_shared: impl Fn(i32) -> bool,
    ) -> bool {
        let shared = channels.map(|channel| channel.is_some_and(|channel| is_shared(channel.fd)));
        let wanted = Watched { channels, shared, version };
        if self.watched.get(&id) == Some(&wanted) {
            return true;
        }
        self.unwatch(id);
        self.watched.insert(id, wanted);
        for (channel, shared) in channels.into_iter().zip(shared) {
            let Some(Channel { fd, interest }) = channel else { continue };
            let flags = if shared { exclusive(interest) } else { epoll_flags(interest) };
            if self.epoll.add(borrow(fd), EpollEvent::new(flags, id)).is_err() {
                self.unwatch(id);
                return false;
            }
            self.owners.insert(fd, id);
        }
        true
    }

    /// Removes the channels of a source that does not rest during the next sleep.
    pub(crate) fn unwatch(&mut self, id: u64) {
        let Some(Watched { channels, .. }) = self.watched.remove(&id) else { return };
        for Channel { fd, .. } in channels.into_iter().flatten() {
            if self.owners.get(&fd) == Some(&id) {
                self.owners.remove(&fd);
                // The kernel has already removed a closed descriptor, so this may fail.
                let _gone = self.epoll.delete(borrow(fd));
            }
        }
    }

    /// Adds a source that has announced that it rests, and whose channels are watched.
    pub(crate) fn add(&mut self, slot: Slot) {
        debug_assert!(self.watched.contains_key(&slot.id), "a resting source is watched");
        self.slots.insert(slot.id, slot);
    }

    /// Takes a source out, whose rest ends.
    pub(crate) fn take(&mut self, id: u64) -> Option<Slot> {
        let slot = self.slots.remove(&id)?;
        slot.announcement.withdraw();
        Some(slot)
    }

    /// Takes the sources out that have an event: all of them, unless more than [`MAX_READY`] channels are ready.
    pub(crate) fn take_ready(&mut self) -> Vec<Slot> {
        let mut events = core::mem::take(&mut self.events);
        events.resize(self.owners.len().clamp(1, MAX_READY), EpollEvent::empty());
        let ready = self.epoll.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        let mut slots = Vec::with_capacity(ready);
        for id in events[..ready].iter().map(EpollEvent::data) {
            match self.take(id) {
                Some(slot) => slots.push(slot),
                // A source with two ready channels is found twice. Another one is awake, and the engine's own epoll watches its channels.
                None if slots.iter().all(|slot| slot.id != id) => self.unwatch(id),
                None => {}
            }
        }
        self.events = events;
        slots
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::os::fd::AsRawFd as _;

    use nix::sys::eventfd::{EfdFlags, EventFd};

    use super::*;
    use crate::source::{Sleep, Source, Spec};

    struct Nothing;

    impl Source for Nothing {
        fn poll(&mut self) -> usize {
            0
        }
    }

    fn slot(id: u64) -> Slot {
        let (spec, announcement) = (Spec::memory("nothing", Sleep::Asked), Announcement::default());
        Slot { id, spec, source: Box::new(Nothing), empty_polls: 0, announcement }
    }

    fn event() -> EventFd {
        EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .expect("an event descriptor")
    }

    fn channels(of: &EventFd) -> [Option<Channel>; 2] {
        [Some(Channel { fd: of.as_fd().as_raw_fd(), interest: Interest::READABLE }), None]
    }

    /// A session that is over may be roused after the number of its socket is that of another one.
    #[test]
    fn a_source_whose_descriptor_was_closed_takes_none_from_another_source() {
        let mut resting = Resting::new().expect("an epoll");
        // Descriptors of other tests, which may get the number first.
        let mut others = Vec::new();
        let second = loop {
            let first = event();
            let (number, its) = (first.as_fd().as_raw_fd(), channels(&first));
            assert!(resting.watch(1, its, 0, |_| false));
            resting.add(slot(1));
            drop(first);
            let second = event();
            if second.as_fd().as_raw_fd() == number {
                break second;
            }
            assert!(resting.take(1).is_some() && others.len() < 1_000);
            resting.unwatch(1);
            others.push(second);
        };
        assert!(resting.watch(2, channels(&second), 0, |_| false));
        resting.add(slot(2));
        assert_eq!(resting.take(1).map(|slot| slot.id), Some(1));
        resting.unwatch(1);
        second.write(1).expect("its count is small");
        let ready: Vec<_> = resting.take_ready().iter().map(|slot| slot.id).collect();
        assert_eq!(ready, [2], "the event of the second source was lost");
        assert_eq!(resting.len(), 0);
    }

    /// A new link may have a descriptor of the same number as the former one, which the kernel has forgotten.
    #[test]
    fn a_descriptor_of_another_version_is_watched_anew() {
        let mut resting = Resting::new().expect("an epoll");
        let event = event();
        let its = channels(&event);
        assert!(resting.watch(1, its, 7, |_| false) && resting.watch(1, its, 7, |_| false));
        resting.epoll.delete(&event).expect("it was watched");
        assert!(resting.watch(1, its, 8, |_| true));
        resting.add(slot(1));
        event.write(1).expect("its count is small");
        assert_eq!(resting.take_ready().len(), 1);
        assert!(resting.take_ready().is_empty(), "it is watched, and does not rest");
    }

    #[test]
    fn only_channels_to_read_from_are_watched() {
        let [read, none] = channels(&event());
        let write = read
            .map(|channel| Channel { interest: Interest { writable: true, ..channel.interest }, ..channel });
        for (channels, suits) in
            [([read, none], true), ([read, read], true), ([none, none], true), ([read, write], false)]
        {
            assert_eq!(Resting::suits(&channels), suits, "{channels:?}");
        }
    }
}

/// A thread leaves work and rouses the source, while the engine announces its rest and polls for the last time.
#[cfg(all(test, loom))]
mod loom_tests {
    use loom::thread;
    use pronto_sync::atomic::AtomicU32;

    use super::*;

    fn rests_and_works(announces: fn(&Announcement)) {
        loom::model(move || {
            let (announcement, work) = (Announcement::default(), Arc::new(AtomicU32::new(0)));
            let (seen, left) = (announcement.clone(), Arc::clone(&work));
            let other = thread::spawn(move || {
                left.store(1, Ordering::Release);
                fence(Ordering::SeqCst);
                seen.is_made()
            });
            announces(&announcement);
            let is_found = work.load(Ordering::Acquire) != 0;
            let is_roused = other.join().expect("the thread ends");
            assert!(is_found || is_roused, "the work is left to a source that rests");
        });
    }

    #[test]
    fn loom_work_is_found_or_the_rest_is_seen() {
        rests_and_works(Announcement::make);
    }

    #[test]
    #[should_panic(expected = "the work is left to a source that rests")]
    fn loom_refutes_an_announcement_without_a_fence() {
        rests_and_works(|announcement| announcement.0.store(true, Ordering::Relaxed));
    }
}
