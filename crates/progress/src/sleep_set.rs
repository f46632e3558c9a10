//! What the engine's thread sleeps on: one epoll, of its own wake-up, the channels of direct sources, and the group.
//!
//! A channel may be lent to a thread that waits for one source's event itself; the engine is then not woken by it. It is lent from
//! when that thread begins to sleep on it until that thread gives it back, and at no other time: whoever names it meanwhile,
//! and whatever else takes its place.

use core::time::Duration;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::sync::Mutex;

use nix::errno::Errno;
use nix::poll::{PollFd, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use pronto_core::Nanos;
use pronto_core::executor::Channel;
use pronto_core::fabric::Interest;

use crate::descriptor::{borrow, epoll_flags, poll_flags};
use crate::stuck::Stuck;

/// Who woke the epoll: the manager itself, or the group of sources that cost a system call. Others are descriptors.
const SELF: u64 = u64::MAX;
const GROUP: u64 = u64::MAX - 1;
/// Events taken from the epoll at a time.
const BATCH: usize = 16;
/// Nobody is woken.
const NOTHING: Interest = Interest { readable: false, writable: false };

/// Told of each descriptor that threads sleep on from now on.
pub type Watch = Box<dyn Fn(i32) + Send + Sync>;

/// See the module.
pub(crate) struct SleepSet {
    epoll: Epoll,
    wake: EventFd,
    registered: Mutex<Registered>,
    watch: Watch,
}

/// Descriptors that the epoll knows, and what it waits for on each.
#[derive(Debug, Default)]
struct Registered {
    now: HashMap<i32, Interest>,
    /// What they were before, kept so that going to sleep allocates nothing.
    before: HashMap<i32, Interest>,
    /// Those that are lent, known to the epoll or not.
    lent: HashSet<i32>,
    /// Of whatever channels belong to, when the epoll was last told of all of them.
    version: u64,
    stuck: Stuck,
    /// Those that ended the last sleep.
    fired: Vec<u64>,
}

/// How a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// By its time limit, or a signal.
    Limit,
    /// By an event; whether one of the group's was among them.
    Event {
        /// The group has a source that is ready.
        group: bool,
        /// So has a channel: [`SleepSet::found`] is to be told what came of it.
        channel: bool,
    },
}

impl SleepSet {
    pub(crate) fn new(watch: Watch, group: BorrowedFd<'_>) -> Result<Self, Errno> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let wake = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        epoll.add(&wake, EpollEvent::new(EpollFlags::EPOLLIN, SELF))?;
        epoll.add(group, EpollEvent::new(EpollFlags::EPOLLIN, GROUP))?;
        watch(wake.as_fd().as_raw_fd());
        Ok(Self { epoll, wake, registered: Mutex::default(), watch })
    }

    /// What the engine sleeps on.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    /// Ends the present sleep, or the next.
    pub(crate) fn ring(&self) {
        // A full counter is as good as a write: the descriptor is readable.
        let _full = self.wake.write(1);
    }

    /// Sleeps on a source's channels in place of the engine, which is not woken by them until they are given back. May return
    /// early. Returns whether one of them has an event.
    pub(crate) fn sleep_instead(&self, channels: [Option<Channel>; 2], limit: Duration) -> bool {
        let mut registered = self.registered.lock().expect("no holder panics");
        for channel in channels.iter().flatten() {
            registered.lent.insert(channel.fd);
            self.change(&mut registered, channel.fd, NOTHING);
        }
        drop(registered);
        let watched = |channel: Channel| PollFd::new(borrow(channel.fd), poll_flags(channel.interest));
        let limit = Some(TimeSpec::from_duration(limit));
        // Woken early, by a signal or not at all: the caller looks again in any case.
        let [control, bulk] = channels;
        // A link may have one for both.
        let distinct = [control, bulk.filter(|_| control != bulk)];
        let ready = match distinct.map(|channel| channel.map(watched)) {
            [Some(control), Some(bulk)] => ppoll(&mut [control, bulk], limit, None),
            [Some(only), None] | [None, Some(only)] => ppoll(&mut [only], limit, None),
            [None, None] => ppoll(&mut [], limit, None),
        };
        ready.is_ok_and(|ready| ready > 0)
    }

    /// The engine is woken by these channels again.
    pub(crate) fn give_back(&self, channels: [Option<Channel>; 2]) {
        let mut registered = self.registered.lock().expect("no holder panics");
        for channel in channels.iter().flatten() {
            registered.lent.remove(&channel.fd);
            self.change(&mut registered, channel.fd, channel.interest);
        }
    }

    /// Changes what the epoll waits for on a descriptor that it knows.
    fn change(&self, registered: &mut Registered, fd: i32, interest: Interest) {
        let Some(now) = registered.now.get_mut(&fd).filter(|now| **now != interest) else { return };
        let mut event = EpollEvent::new(epoll_flags(interest), u64::from(fd.unsigned_abs()));
        // Refused if the descriptor was closed: then nobody is woken by it.
        if self.epoll.modify(borrow(fd), &mut event).is_ok() {
            *now = interest;
        }
    }

    /// Brings the epoll up to what the channels are now. As long as `version` stays, a descriptor is the one that it was.
    /// Those that are lent stay lent.
    pub(crate) fn register(
        &self,
        version: u64,
        now: Nanos,
        collect: impl FnOnce(&mut HashMap<i32, Interest>),
    ) {
        let mut registered = self.registered.lock().expect("no holder panics");
        let Registered { now: wanted, before, lent, version: known, stuck, .. } = &mut *registered;
        let same = core::mem::replace(known, version) == version;
        core::mem::swap(wanted, before);
        wanted.clear();
        collect(wanted);
        // Were they not, the engine would be woken by what only the sleeper takes, again and again, on the processor that the
        // sleeper needs.
        for fd in &*lent {
            if let Some(interest) = wanted.get_mut(fd) {
                *interest = NOTHING;
            }
        }
        if stuck.next() != Nanos::NEVER {
            stuck.due(now);
            // Left out altogether: an epoll tells of a hang-up whether it is asked to or not.
            wanted.retain(|fd, _| !stuck.is_muted(u64::from(fd.unsigned_abs())));
        }
        for fd in before.keys().filter(|fd| !wanted.contains_key(*fd)) {
            // A closed descriptor has left the epoll by itself.
            let _gone = self.epoll.delete(borrow(*fd));
        }
        for (fd, interest) in wanted.iter().filter(|(fd, interest)| !same || before.get(fd) != Some(interest))
        {
            let mut event = EpollEvent::new(epoll_flags(*interest), u64::from(fd.unsigned_abs()));
            if self.epoll.modify(borrow(*fd), &mut event) == Err(Errno::ENOENT) {
                // Newly open, also if another one had this number before.
                (self.watch)(*fd);
                if let Err(errno) = self.epoll.add(borrow(*fd), event) {
                    tracing::warn!(fd, %errno, "a channel cannot be watched; it is polled at every tick");
                }
            }
        }
    }

    /// Sleeps for `limit` at most.
    pub(crate) fn sleep(&self, limit: Nanos) -> Woken {
        let mut events = [EpollEvent::empty(); BATCH];
        // Woken early or interrupted: the engine looks again in any case.
        let ready = self.epoll.wait(&mut events, timeout(limit)).unwrap_or(0);
        if ready == 0 {
            return Woken::Limit;
        }
        let mut group = false;
        let mut registered = None;
        for event in &events[..ready] {
            match event.data() {
                // What is not heard now ends the next sleep.
                SELF => drop(self.wake.read()),
                GROUP => group = true,
                fd => registered
                    .get_or_insert_with(|| self.registered.lock().expect("no holder panics"))
                    .fired
                    .push(fd),
            }
        }
        Woken::Event { group, channel: registered.is_some() }
    }

    /// Sleeps until the manager rings, for `limit` at most, whatever the sources do.
    pub(crate) fn sleep_deaf(&self, limit: Nanos) {
        let limit = Some(TimeSpec::from_duration(Duration::from_nanos(limit.0)));
        let wake = PollFd::new(self.wake.as_fd(), poll_flags(Interest::READABLE));
        if ppoll(&mut [wake], limit, None) == Ok(1) {
            let _count = self.wake.read();
        }
    }

    /// Whether there is an event within `limit`, which is left there.
    pub(crate) fn has_event(&self, limit: Nanos) -> bool {
        self.epoll.wait(&mut [EpollEvent::empty()], timeout(limit)) != Ok(0)
    }

    /// Whether this channel was among those that ended the last sleep.
    pub(crate) fn has_fired(&self, fd: i32) -> bool {
        let registered = self.registered.lock().expect("no holder panics");
        registered.fired.contains(&u64::from(fd.unsigned_abs()))
    }

    /// After an event has ended a sleep, so much was found. Returns how many channels are left out for a while, as they have
    /// ended too many sleeps for nothing.
    pub(crate) fn found(&self, taken: usize, now: Nanos) -> u64 {
        let mut registered = self.registered.lock().expect("no holder panics");
        let Registered { stuck, fired, .. } = &mut *registered;
        fired.drain(..).map(|fd| u64::from(stuck.was_ready(fd, taken, now))).sum()
    }

    /// When a channel that was left out is tried again.
    pub(crate) fn next_trial(&self) -> Nanos {
        self.registered.lock().expect("no holder panics").stuck.next()
    }
}

/// For the kernel, rounded up to milliseconds.
fn timeout(span: Nanos) -> EpollTimeout {
    EpollTimeout::try_from(span.0.div_ceil(1_000_000)).unwrap_or(EpollTimeout::MAX)
}

impl fmt::Debug for SleepSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SleepSet").field("registered", &self.registered).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn event() -> EventFd {
        EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .expect("an event descriptor")
    }

    fn channel(of: &EventFd) -> Channel {
        Channel { fd: of.as_fd().as_raw_fd(), interest: Interest::READABLE }
    }

    fn set() -> SleepSet {
        SleepSet::new(Box::new(|_| ()), event().as_fd()).expect("an epoll")
    }

    fn register(set: &SleepSet, version: u64, channels: &[&EventFd]) {
        set.register(version, Nanos::ZERO, |wanted| {
            wanted.extend(channels.iter().map(|of| (channel(of).fd, Interest::READABLE)));
        });
    }

    /// Whether this one, which is readable, ends the engine's sleep.
    fn wakes(set: &SleepSet, of: &EventFd) -> bool {
        let _ended = set.sleep(Nanos::ZERO);
        let fired = set.has_fired(channel(of).fd);
        set.found(1, Nanos::ZERO);
        fired
    }

    #[test]
    fn a_channel_wakes_its_sleeper_alone_until_it_is_given_back() {
        let (set, one, two) = (set(), event(), event());
        register(&set, 1, &[&one, &two]);
        for event in [&one, &two] {
            event.write(1).expect("its count is small");
            assert!(wakes(&set, event));
        }
        let lent = [Some(channel(&one)), None];
        assert!(set.sleep_instead(lent, Duration::ZERO), "it has an event");
        assert!(!wakes(&set, &one) && wakes(&set, &two));
        register(&set, 2, &[&one, &two]);
        assert!(!wakes(&set, &one) && wakes(&set, &two), "named anew, it stays lent");
        set.give_back(lent);
        assert!(wakes(&set, &one));
    }

    /// A link was replaced while a caller slept on the old one's channel, and the caller will not sleep on the new one's.
    #[test]
    fn a_channel_in_the_place_of_one_that_is_lent_wakes_the_engine() {
        let (set, old, new) = (set(), event(), event());
        register(&set, 1, &[&old]);
        let lent = [Some(channel(&old)), None];
        assert!(!set.sleep_instead(lent, Duration::ZERO), "it has none");
        register(&set, 2, &[&new]);
        new.write(1).expect("its count is small");
        assert!(wakes(&set, &new));
        set.give_back(lent);
        assert!(wakes(&set, &new));
    }

    #[test]
    fn a_channel_that_is_lent_before_it_is_known_is_lent() {
        let (set, new) = (set(), event());
        let lent = [None, Some(channel(&new))];
        assert!(!set.sleep_instead(lent, Duration::ZERO), "it has none");
        register(&set, 1, &[&new]);
        new.write(1).expect("its count is small");
        assert!(!wakes(&set, &new));
        set.give_back(lent);
        assert!(wakes(&set, &new));
    }
}
