//! The engine half of a manager: the sources themselves, behind a try-lock that the polling thread holds.
//!
//! # Invariants
//! 1. A source is in the direct lists, in the group or resting; `grouped` and `resting` say where.
//! 2. While the engine sleeps, or is about to, no source is cold.
//! 3. A source that panicked is not called again, unless it has recovered ([`Source::panicked`]).

use core::any::Any;
use core::panic::AssertUnwindSafe;
use std::collections::HashMap;
use std::fmt;
use std::os::fd::AsRawFd as _;
use std::panic::catch_unwind;
use std::sync::Arc;

use pronto_core::Nanos;
use pronto_core::executor::Channel;
use pronto_core::fabric::Interest;

use crate::direct::Direct;
use crate::group::Group;
use crate::reports::Reports;
use crate::resting::{Announcement, FEW, REST_AFTER, Resting};
use crate::source::{AfterPanic, Cost, Priority, Sleep, Source, Spec, TimeoutFinding, Trigger};

/// A registered source.
pub(crate) struct Slot {
    pub(crate) id: u64,
    pub(crate) spec: Spec,
    pub(crate) source: Box<dyn Source>,
    /// Consecutive polls without an event.
    pub(crate) empty_polls: u32,
    pub(crate) announcement: Announcement,
}

impl Slot {
    /// Counts a poll that found this number of events.
    #[inline]
    pub(crate) fn count_poll(&mut self, found: usize) {
        self.empty_polls = if found == 0 { self.empty_polls + 1 } else { 0 };
    }
}

/// Change that a registration requests.
pub(crate) enum Change {
    Add(Box<Slot>),
    Remove(u64),
    Rouse(u64),
}

/// All sources of a manager.
pub(crate) struct Poller {
    direct: Direct,
    pub(crate) group: Group,
    resting: Resting,
    /// The sources that rest from the next sleep on, and those that do not: kept so that going to sleep allocates nothing.
    rest: Vec<(u64, [Option<Channel>; 2])>,
    awake: Vec<u64>,
    /// Those that have begun to rest before the last sleep.
    rested: Vec<u64>,
    /// Whether there were many sources at the last recheck, which then left out those whose last poll follows.
    many: bool,
    /// Tokens of the group's sources, by id.
    grouped: HashMap<u64, u64>,
    reports: Arc<Reports>,
}

impl Poller {
    pub(crate) fn new(group: Group, resting: Resting, reports: Arc<Reports>) -> Self {
        Self {
            direct: Direct::default(),
            group,
            resting,
            rest: Vec::new(),
            awake: Vec::new(),
            rested: Vec::new(),
            many: false,
            grouped: HashMap::new(),
            reports,
        }
    }

    /// Adds and removes sources.
    pub(crate) fn apply(&mut self, changes: impl Iterator<Item = Change>) {
        for change in changes {
            match change {
                Change::Add(slot) => self.add(*slot),
                Change::Remove(id) => self.remove(id),
                Change::Rouse(id) => {
                    if let Some(slot) = self.resting.take(id) {
                        self.rouse(slot);
                    }
                }
            }
        }
    }

    fn add(&mut self, slot: Slot) {
        let behind_epoll = slot.spec.cost == Cost::SystemCall && slot.spec.priority == Priority::Normal;
        if behind_epoll && matches!(slot.spec.sleep, Sleep::Descriptor(..)) {
            let (id, name) = (slot.id, slot.spec.name);
            match self.group.add(slot) {
                Ok(token) => drop(self.grouped.insert(id, token)),
                Err(errno) => self.reports.fail(name, format!("cannot watch its descriptor: {errno}")),
            }
        } else {
            self.direct.add(slot);
        }
    }

    fn remove(&mut self, id: u64) {
        if let Some(token) = self.grouped.remove(&id) {
            if let Some(slot) = self.group.take(token) {
                discard(slot, &self.reports);
            }
        } else if let Some(slot) = self.direct.remove(id).or_else(|| self.resting.take(id)) {
            self.resting.unwatch(id);
            discard(slot, &self.reports);
        }
    }

    /// Polls the direct sources until there is an event; see [`Direct::poll`].
    pub(crate) fn poll(&mut self, trigger: Trigger, polls: u32) -> usize {
        self.burst(trigger, polls, 1, || false).taken
    }

    /// Polls the direct sources in up to `most` batches of `polls`, as long as each finds an event and `may_go_on` returns true. The
    /// caller's lock acquisition and the set-up to catch panics are paid once for all batches.
    #[inline]
    pub(crate) fn burst(
        &mut self,
        trigger: Trigger,
        polls: u32,
        most: u32,
        may_go_on: impl Fn() -> bool,
    ) -> Burst {
        let (mut taken, mut dry) = (0, true);
        let direct = &mut self.direct;
        let all = || {
            for _ in 0..most {
                let more = direct.poll(trigger, polls);
                taken += more;
                dry = more == 0;
                if dry || !may_go_on() {
                    break;
                }
            }
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(all)) {
            self.expel(&*panic);
        }
        Burst { taken, dry }
    }

    /// Arms every source that the engine arms before a sleep.
    pub(crate) fn arm(&mut self) {
        self.direct.warm();
        self.each_asked(|slot| slot.source.arm());
    }

    /// Disarms those sources.
    pub(crate) fn disarm(&mut self) {
        self.each_asked(|slot| slot.source.disarm());
    }

    /// Returns whether there are sources behind an epoll.
    pub(crate) fn has_epolls(&self) -> bool {
        !self.group.is_empty() || self.resting.len() != 0
    }

    /// Polls the armed sources once before a sleep, except those whose last poll [`Self::rest`] makes. Returns the number of events.
    pub(crate) fn recheck(&mut self) -> usize {
        self.many = self.direct.len() + self.resting.len() > FEW;
        let (many, mut taken) = (self.many, 0);
        self.each(Trigger::Idle, |slot| {
            if !(many && seems_idle(slot)) {
                let found = slot.source.poll();
                taken += found;
                slot.count_poll(found);
            }
        });
        taken
    }

    /// Lets the sources rest that may, before a sleep and after the recheck. `version` is that of the channels. Returns the number of events
    /// that their last polls found. `is_shared` tells whether a caller epoll watches a channel, too.
    pub(crate) fn rest(&mut self, version: u64, is_shared: impl Fn(i32) -> bool) -> usize {
        self.rested.clear();
        // As at the recheck, even if a source has panicked there and is gone: those that it left out are polled here.
        let many = self.many;
        if !many && self.resting.watches_none() {
            return 0;
        }
        let (mut rest, mut awake) = (core::mem::take(&mut self.rest), core::mem::take(&mut self.awake));
        let mut taken = 0;
        self.each_asked(|slot| match if many { begins_rest(slot) } else { Err(0) } {
            Ok(channels) => rest.push((slot.id, channels)),
            Err(found) => {
                taken += found;
                awake.push(slot.id);
            }
        });
        for id in awake.drain(..) {
            self.resting.unwatch(id);
        }
        // Both are in the order of the sources.
        let mut channels = rest.drain(..).peekable();
        for slot in self.direct.take_announced() {
            while channels.next_if(|(id, _)| *id != slot.id).is_some() {}
            let its = channels.next();
            if its.is_some_and(|(id, channels)| self.resting.watch(id, channels, version, &is_shared)) {
                self.reports.rests.add(1);
                self.rested.push(slot.id);
                self.resting.add(slot);
            } else {
                self.direct.add(slot);
            }
        }
        drop(channels);
        (self.rest, self.awake) = (rest, awake);
        taken
    }

    /// Ends the rest of the sources that have just begun it, because the engine does not sleep.
    pub(crate) fn end_last_rest(&mut self) {
        for id in core::mem::take(&mut self.rested) {
            self.resting.unwatch(id);
            if let Some(slot) = self.resting.take(id) {
                self.rouse(slot);
            }
        }
    }

    /// Ends the rest of the sources that have an event, which the next poll finds. Returns their number.
    pub(crate) fn rouse_ready(&mut self) -> usize {
        self.rouse_ready_with(|_| {})
    }

    /// Ends the rest of the sources that have an event, and polls those of this trigger once. Returns the number of events. If there is none, the
    /// engine may sleep again without another poll of each.
    pub(crate) fn poll_ready(&mut self, trigger: Trigger) -> usize {
        let mut taken = 0;
        self.rouse_ready_with(|slot| {
            if slot.spec.triggers.contains(trigger) {
                let found = slot.source.poll();
                taken += found;
                slot.count_poll(found);
            }
        });
        taken
    }

    fn rouse_ready_with(&mut self, mut then: impl FnMut(&mut Slot)) -> usize {
        if self.resting.len() == 0 {
            return 0;
        }
        let mut ready = self.resting.take_ready();
        let roused = ready.len();
        for at in (0..roused).rev() {
            if !self.disarmed(&mut ready[at], &mut then) {
                discard(ready.swap_remove(at), &self.reports);
            }
        }
        self.direct.add_all(&mut ready);
        roused
    }

    /// Disarms a source that has rested, and adds it to those that are polled.
    fn rouse(&mut self, mut slot: Slot) {
        if self.disarmed(&mut slot, |_| {}) {
            self.direct.add(slot);
        } else {
            discard(slot, &self.reports);
        }
    }

    /// Disarms a source that has rested, and calls `then`. Returns false if it has panicked and must be removed.
    fn disarmed(&self, slot: &mut Slot, then: impl FnOnce(&mut Slot)) -> bool {
        let both = || {
            slot.empty_polls = 0;
            slot.source.disarm();
            then(slot);
        };
        let Err(panic) = catch_unwind(AssertUnwindSafe(both)) else { return true };
        let stays = after_panic(slot, &*panic, &self.reports) != AfterPanic::Remove;
        if !stays {
            self.reports.panicked(slot.spec.name, &*panic);
        }
        stays
    }

    /// Collects the channels of the direct sources.
    pub(crate) fn collect(&mut self, wanted: &mut HashMap<i32, Interest>) {
        self.each(Trigger::Idle, |slot| match &slot.spec.sleep {
            Sleep::Asked => {
                wanted.extend(slot.source.channels().into_iter().flatten().map(|c| (c.fd, c.interest)));
            }
            Sleep::Descriptor(descriptor, interest) => {
                wanted.insert(descriptor.as_raw_fd(), *interest);
            }
            Sleep::Notified => {}
        });
    }

    /// Returns whether another thread processes the events of this channel.
    pub(crate) fn is_attended(&mut self, fd: i32) -> bool {
        let mut attended = false;
        self.each_asked(|slot| {
            let is_its = slot.source.channels().iter().flatten().any(|channel| channel.fd == fd);
            attended |= is_its && slot.source.is_attended();
        });
        attended
    }

    /// Checks the sources after a sleep that ended by its limit. Returns how many had an event with a late wake-up, and how many had one
    /// without a wake-up. `woken` waits for a late wake-up. Sources whose channels the sleep left out are skipped: the next poll
    /// finds their events.
    pub(crate) fn after_timeout(
        &mut self,
        mut woken: impl FnMut() -> bool,
        is_left_out: impl Fn(i32) -> bool,
    ) -> (u64, u64) {
        let (mut late, mut lost) = (0, 0);
        self.each(Trigger::Idle, |slot| {
            let no_events = match &slot.spec.sleep {
                Sleep::Asked => {
                    slot.source.channels().iter().flatten().any(|channel| is_left_out(channel.fd))
                }
                Sleep::Notified | Sleep::Descriptor(..) => false,
            };
            if no_events {
                return;
            }
            match slot.source.after_timeout(&mut woken) {
                TimeoutFinding::Nothing => {}
                TimeoutFinding::Late => late += 1,
                TimeoutFinding::Lost => lost += 1,
            }
        });
        (late, lost)
    }

    fn each_asked(&mut self, mut with: impl FnMut(&mut Slot)) {
        self.each(Trigger::Idle, |slot| {
            if matches!(slot.spec.sleep, Sleep::Asked) {
                with(slot);
            }
        });
    }

    /// Calls `with` for every direct source of a trigger, before or after a sleep. A source that panics is removed, unless it recovers.
    #[inline]
    fn each(&mut self, trigger: Trigger, mut with: impl FnMut(&mut Slot)) {
        self.direct.warm();
        let mut begin = 0;
        loop {
            let direct = &mut self.direct;
            let all = || direct.each_hot(begin, trigger, &mut with);
            let Err(panic) = catch_unwind(AssertUnwindSafe(all)) else { return };
            begin = self.direct.called();
            // A source that stays is skipped; if it was removed, the next source now has its index.
            if self.expel(&*panic) == AfterPanic::Keep {
                begin += 1;
            }
        }
    }

    /// Removes the source that has panicked, unless it recovers.
    #[cold]
    fn expel(&mut self, panic: &(dyn Any + Send)) -> AfterPanic {
        let after = after_panic(self.direct.called_slot(), panic, &self.reports);
        if after == AfterPanic::Remove {
            let slot = self.direct.take_called();
            self.reports.panicked(slot.spec.name, panic);
            discard(slot, &self.reports);
        }
        after
    }

    /// Polls the ready sources of the group.
    pub(crate) fn poll_group(&mut self, trigger: Trigger, now: Nanos) -> usize {
        let Self { group, grouped, reports, .. } = self;
        let after = |slot: &mut Slot, panic: &(dyn Any + Send)| after_panic(slot, panic, reports);
        group.poll(trigger, now, after, |slot, panic| {
            grouped.remove(&slot.id);
            reports.panicked(slot.spec.name, &*panic);
            discard(slot, reports);
        })
    }
}

/// Returns whether a source may rest as far as its polls tell: it had no event for long enough.
fn seems_idle(slot: &Slot) -> bool {
    slot.empty_polls >= REST_AFTER
        && slot.spec.cost == Cost::MemoryOfMany
        && matches!(slot.spec.sleep, Sleep::Asked)
}

/// Returns the channels of an armed source if it rests from now on, and otherwise the number of events that were found. A source that seems idle is
/// polled in any case, because the recheck has left it out or has found nothing.
fn begins_rest(slot: &mut Slot) -> Result<[Option<Channel>; 2], usize> {
    if !seems_idle(slot) {
        return Err(0);
    }
    if !slot.source.may_rest() {
        return Err(slot.source.poll());
    }
    slot.announcement.make();
    let taken = slot.source.poll();
    let channels = slot.source.channels();
    if taken == 0 && Resting::suits(&channels) {
        return Ok(channels);
    }
    slot.announcement.withdraw();
    Err(taken)
}

/// Result of several poll batches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Burst {
    /// Events taken in total.
    pub(crate) taken: usize,
    /// The last batch found no event.
    pub(crate) dry: bool,
}

/// Asks a source that has panicked whether to keep it.
fn after_panic(slot: &mut Slot, panic: &(dyn Any + Send), reports: &Reports) -> AfterPanic {
    let why = panic_message(panic);
    slot.announcement.withdraw();
    let after = catch_unwind(AssertUnwindSafe(|| slot.source.panicked(&why))).unwrap_or(AfterPanic::Remove);
    if after == AfterPanic::Keep {
        reports.recovered(slot.spec.name, &why);
    }
    after
}

/// Drops a source and catches a panic of its drop.
pub(crate) fn discard(slot: Slot, reports: &Reports) {
    let name = slot.spec.name;
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(slot))) {
        reports.panicked(name, &*panic);
    }
}

/// Returns the message of a caught panic.
#[must_use]
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller")
            .field("direct", &self.direct.len())
            .field("grouped", &self.grouped.len())
            .field("resting", &self.resting.len())
            .finish_non_exhaustive()
    }
}
