//! The group of sources whose poll is a system call, behind one epoll.
//!
//! # Invariants
//! 1. A token is an index in `slots`. The epoll watches the descriptor of every source in `slots` that is not muted.

use core::any::Any;
use core::panic::AssertUnwindSafe;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::panic::catch_unwind;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollTimeout};
use pronto_core::Nanos;
use pronto_core::fabric::Interest;

use crate::descriptor::epoll_flags;
use crate::poller::Slot;
use crate::source::{AfterPanic, Sleep, Trigger};
use crate::spurious_events::SpuriousEvents;

/// Maximum number of ready sources that one call polls. The kernel returns the longest waiting ones first.
const BATCH: usize = 64;

/// The sources behind the epoll.
pub(crate) struct Group {
    epoll: Epoll,
    slots: Vec<Option<Slot>>,
    free: Vec<u64>,
    stuck: SpuriousEvents,
    muted: u64,
}

impl Group {
    pub(crate) fn new() -> Result<Self, Errno> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        Ok(Self { epoll, slots: Vec::new(), free: Vec::new(), stuck: SpuriousEvents::default(), muted: 0 })
    }

    /// Returns the descriptor of the epoll, which is readable while a source is ready.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.len() == self.free.len()
    }

    /// Returns the time at which a muted source is watched again.
    pub(crate) fn next_trial(&self) -> Nanos {
        self.stuck.next()
    }

    /// Returns how often a source was muted.
    pub(crate) const fn muted(&self) -> u64 {
        self.muted
    }

    pub(crate) fn add(&mut self, slot: Slot) -> Result<u64, Errno> {
        let token = self.free.last().copied().unwrap_or(self.slots.len() as u64);
        let Sleep::Descriptor(descriptor, interest) = &slot.spec.sleep else { return Err(Errno::EBADF) };
        self.epoll.add(descriptor, EpollEvent::new(epoll_flags(*interest), token))?;
        if self.free.pop().is_some() {
            self.slots[place(token)] = Some(slot);
        } else {
            self.slots.push(Some(slot));
        }
        Ok(token)
    }

    /// Removes a source.
    pub(crate) fn take(&mut self, token: u64) -> Option<Slot> {
        let slot = self.slots.get_mut(place(token))?.take()?;
        if let Some((descriptor, _)) = watched(&slot) {
            // The epoll does not have a muted source, so this may fail.
            let _gone = self.epoll.delete(descriptor);
        }
        self.stuck.forget(token);
        self.free.push(token);
        Some(slot)
    }

    /// Polls the sources that are ready, once each. A source that panics is removed and passed to `expelled`, unless `after_panic`
    /// keeps it.
    pub(crate) fn poll(
        &mut self,
        trigger: Trigger,
        now: Nanos,
        after_panic: impl Fn(&mut Slot, &(dyn Any + Send)) -> AfterPanic,
        mut expelled: impl FnMut(Slot, Box<dyn Any + Send>),
    ) -> usize {
        self.try_again(now);
        let mut events = [EpollEvent::empty(); BATCH];
        let ready = self.epoll.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        let mut taken = 0;
        for token in events[..ready].iter().map(EpollEvent::data) {
            let Some(slot) = self.slots.get_mut(place(token)).and_then(Option::as_mut) else { continue };
            if !slot.spec.triggers.contains(trigger) {
                continue;
            }
            match catch_unwind(AssertUnwindSafe(|| slot.source.poll())) {
                Ok(more) => {
                    taken += more;
                    if self.stuck.was_ready(token, more, now) {
                        self.mute(token);
                    }
                }
                Err(panic) => {
                    if after_panic(slot, &*panic) == AfterPanic::Keep {
                        continue;
                    }
                    if let Some(slot) = self.take(token) {
                        expelled(slot, panic);
                    }
                }
            }
        }
        taken
    }

    fn mute(&mut self, token: u64) {
        self.muted += 1;
        let slot = self.slots.get(place(token)).and_then(Option::as_ref);
        if let Some((descriptor, _)) = slot.and_then(watched) {
            // Removed, because an epoll reports a hang-up even for an empty set of events.
            let _gone = self.epoll.delete(descriptor);
        }
    }

    fn try_again(&mut self, now: Nanos) {
        if self.stuck.next() > now {
            return;
        }
        let Self { stuck, slots, epoll, .. } = self;
        stuck.due(now, |token| {
            let slot = slots.get(place(token)).and_then(Option::as_ref);
            if let Some((descriptor, interest)) = slot.and_then(watched) {
                let _added = epoll.add(descriptor, EpollEvent::new(epoll_flags(interest), token));
            }
        });
    }
}

fn watched(slot: &Slot) -> Option<(&OwnedFd, Interest)> {
    match &slot.spec.sleep {
        Sleep::Descriptor(descriptor, interest) => Some((descriptor, *interest)),
        _ => None,
    }
}

fn place(token: u64) -> usize {
    usize::try_from(token).expect("there are fewer sources")
}
