//! The descriptors on which the engine thread sleeps: one epoll with its own wake-up, the channels of direct sources, and the group.
//!
//! A thread of the program may sleep on the channels of one source ahead of the engine, on a [`CallerEpoll`] of those channels only.
//! Both epolls watch the channels exclusively, the caller epoll first. The kernel therefore wakes only the thread that sleeps in the
//! caller epoll, and the engine if no thread sleeps there. No descriptor is handed over, and a sleep is one system call.
//!
//! # Invariants
//! 1. The engine's epoll watches a channel after the channel's caller epoll: when the channel is added to the latter, it is removed from
//!    the former and added again. The kernel asks exclusive waiters in this order (`__wake_up_common`), and an epoll in which no
//!    thread waits passes the event on (`ep_poll_callback`).
//! 2. A thread that was woken in a caller epoll processes the event, because the engine may never learn of it.

use core::time::Duration;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::sync::{Arc, Mutex};

use nix::errno::Errno;
use nix::poll::{PollFd, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use pronto_core::Nanos;
use pronto_core::executor::{Channel, Channels};
use pronto_core::fabric::Interest;

use crate::descriptor::{borrow, epoll_flags, poll_flags};
use crate::spurious_events::SpuriousEvents;

/// Token of the manager's own wake-up. Tokens other than this, [`GROUP`] and [`RESTING`] are descriptors.
const SELF: u64 = u64::MAX;
/// Token of the group of sources that cost a system call.
const GROUP: u64 = u64::MAX - 1;
/// Token of the epoll of resting sources.
const RESTING: u64 = u64::MAX - 2;
/// Token of a caller epoll for a channel of both classes; 0 and 1 are the classes.
const BOTH: u64 = 2;
/// Maximum number of events taken from the epoll at a time.
const BATCH: usize = 16;
/// Callback that gets every descriptor on which threads sleep from now on.
pub type Watch = Box<dyn Fn(i32) + Send + Sync>;

/// The engine's epoll and the caller epolls.
pub(crate) struct SleepSet {
    epoll: Epoll,
    wake: EventFd,
    registered: Mutex<Registered>,
    watch: Watch,
}

/// Descriptors in the engine's epoll, with their interests.
#[derive(Debug, Default)]
struct Registered {
    now: HashMap<i32, Interest>,
    /// The previous content of `now`, kept so that going to sleep allocates nothing.
    before: HashMap<i32, Interest>,
    /// Caller epolls, by owner of their channels.
    caller_epolls: HashMap<u64, CallerEpoll>,
    /// Descriptors that caller epolls watch as well.
    shared: HashSet<i32>,
    /// Version of the channels at the last full update of the epoll.
    version: u64,
    stuck: SpuriousEvents,
    /// Descriptors that ended the last sleep.
    fired: Vec<u64>,
}

/// An epoll of the channels of one link, on which a thread of the program sleeps in place of the engine.
#[derive(Debug)]
struct CallerEpoll {
    channels: Channels,
    epoll: Arc<Epoll>,
}

impl CallerEpoll {
    /// Creates the epoll of these channels. Returns `None` if no descriptor can be created.
    fn new(channels: &Channels) -> Option<Self> {
        if let Some(near) = channels.near {
            let epoll = Arc::new(Epoll(borrow(near).try_clone_to_owned().ok()?));
            return Some(Self { channels: *channels, epoll });
        }
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).ok()?;
        let [control, bulk] = channels.each;
        let own = if control == bulk { [(control, BOTH), (None, 1)] } else { [(control, 0), (bulk, 1)] };
        for (channel, class) in own {
            let Some(Channel { fd, interest }) = channel else { continue };
            epoll.add(borrow(fd), EpollEvent::new(exclusive(interest), class)).ok()?;
        }
        Some(Self { channels: *channels, epoll: Arc::new(epoll) })
    }

    /// Returns whether all its channels belong to present links.
    fn is_of(&self, wanted: &HashMap<i32, Interest>) -> bool {
        self.channels.each.iter().flatten().all(|channel| wanted.contains_key(&channel.fd))
    }

    /// Returns the channels that it watches exclusively, ahead of the engine's epoll.
    fn shared(&self) -> impl Iterator<Item = i32> + use<> {
        // If the provider offers its own near epoll, it already orders the two.
        let own = self.channels.near.is_none().then_some(self.channels.each);
        own.into_iter().flatten().flatten().map(|channel| channel.fd)
    }
}

/// End of a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// The time limit, or a signal.
    Limit,
    /// One or more events.
    Event {
        /// A source of the group is ready.
        group: bool,
        /// A resting source has an event.
        resting: bool,
        /// A channel is ready: the caller must report the result of the next poll to [`SleepSet::found`].
        channel: bool,
    },
}

impl SleepSet {
    pub(crate) fn new(watch: Watch, group: BorrowedFd<'_>, resting: BorrowedFd<'_>) -> Result<Self, Errno> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let wake = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        epoll.add(&wake, EpollEvent::new(EpollFlags::EPOLLIN, SELF))?;
        epoll.add(group, EpollEvent::new(EpollFlags::EPOLLIN, GROUP))?;
        epoll.add(resting, EpollEvent::new(EpollFlags::EPOLLIN, RESTING))?;
        watch(wake.as_fd().as_raw_fd());
        Ok(Self { epoll, wake, registered: Mutex::default(), watch })
    }

    /// Returns the descriptor of the engine's epoll.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    /// Ends the present sleep, or the next.
    pub(crate) fn ring(&self) {
        // If the counter is full, the write fails and the descriptor is readable anyway.
        let _full = self.wake.write(1);
    }

    /// Returns whether a caller epoll watches this channel as well.
    pub(crate) fn is_shared(&self, fd: i32) -> bool {
        self.registered.lock().expect("no holder panics").shared.contains(&fd)
    }

    /// Sleeps on a source's channels in place of the engine. Calls `first` if no thread has slept on them before. May return early. Returns
    /// which have an event, by class.
    pub(crate) fn sleep_instead(
        &self,
        channels: &Channels,
        limit: Duration,
        first: impl FnOnce(),
    ) -> [bool; 2] {
        let Some((epoll, is_new)) = self.caller_epoll(channels) else {
            return sleep_in_poll(channels, limit);
        };
        if is_new {
            first();
        }
        let millis = u16::try_from(limit.as_millis()).unwrap_or(u16::MAX);
        if millis == 0 {
            // An epoll counts in milliseconds, which is too coarse for this limit.
            return sleep_in_poll(channels, limit);
        }
        let mut events = [EpollEvent::empty(); 2];
        // After a signal or the limit there are no events; the caller polls again in any case.
        let ready = epoll.wait(&mut events, millis).unwrap_or(0);
        let has_event =
            |class| events[..ready].iter().any(|event| event.data() == class || event.data() == BOTH);
        [has_event(0), has_event(1)]
    }

    /// Returns the caller epoll of these channels, and whether this call has created it.
    fn caller_epoll(&self, channels: &Channels) -> Option<(Arc<Epoll>, bool)> {
        let mut registered = self.registered.lock().expect("no holder panics");
        let Registered { now, caller_epolls, shared, .. } = &mut *registered;
        if let Some(known) = caller_epolls.get(&channels.owner)
            && known.channels == *channels
        {
            return Some((Arc::clone(&known.epoll), false));
        }
        let made = CallerEpoll::new(channels)?;
        for fd in made.shared() {
            shared.insert(fd);
            if let Some(interest) = now.get(&fd) {
                self.watch_anew(fd, *interest, true);
            }
        }
        let epoll = Arc::clone(&made.epoll);
        caller_epolls.insert(channels.owner, made);
        drop(registered);
        Some((epoll, true))
    }

    /// Adds a descriptor to the engine's epoll behind all its other watchers.
    fn watch_anew(&self, fd: i32, interest: Interest, shared: bool) {
        let token = u64::from(fd.unsigned_abs());
        let flags = if shared { exclusive(interest) } else { epoll_flags(interest) };
        // The deletion fails if the descriptor is new to the epoll, or closed.
        let newly = self.epoll.delete(borrow(fd)).is_err();
        if newly {
            (self.watch)(fd);
        }
        if let Err(errno) = self.epoll.add(borrow(fd), EpollEvent::new(flags, token)) {
            tracing::warn!(fd, %errno, "cannot watch a channel; it is polled at every tick");
        }
    }

    /// Updates the epoll to the present channels. While `version` is unchanged, a descriptor number refers to the same file as before.
    pub(crate) fn register(
        &self,
        version: u64,
        now: Nanos,
        collect: impl FnOnce(&mut HashMap<i32, Interest>),
    ) {
        let mut registered = self.registered.lock().expect("no holder panics");
        let Registered { now: wanted, before, caller_epolls, shared, version: known, stuck, .. } =
            &mut *registered;
        let same = core::mem::replace(known, version) == version;
        core::mem::swap(wanted, before);
        wanted.clear();
        collect(wanted);
        if !same && !caller_epolls.is_empty() {
            caller_epolls.retain(|_, epoll| epoll.is_of(wanted));
            shared.clear();
            shared.extend(caller_epolls.values().flat_map(CallerEpoll::shared));
        }
        let next = stuck.next();
        if next != Nanos::NEVER {
            if now >= next {
                stuck.due(now, |_| ());
            }
            // Removed, because an epoll reports a hang-up even for an empty set of events.
            wanted.retain(|fd, _| !stuck.is_muted(u64::from(fd.unsigned_abs())));
        }
        for fd in before.keys().filter(|fd| !wanted.contains_key(*fd)) {
            // The kernel has already removed a closed descriptor, so this may fail.
            let _gone = self.epoll.delete(borrow(*fd));
        }
        for (fd, interest) in wanted.iter().filter(|(fd, interest)| !same || before.get(fd) != Some(interest))
        {
            if shared.contains(fd) {
                self.watch_anew(*fd, *interest, true);
                continue;
            }
            let mut event = EpollEvent::new(epoll_flags(*interest), u64::from(fd.unsigned_abs()));
            // The modification fails if the descriptor is newly open, even if another one had this number, or is no longer shared.
            if self.epoll.modify(borrow(*fd), &mut event).is_err() {
                self.watch_anew(*fd, *interest, false);
            }
        }
    }

    /// Sleeps for `limit` at most.
    pub(crate) fn sleep(&self, limit: Nanos) -> Woken {
        let mut events = [EpollEvent::empty(); BATCH];
        // After a signal there are no events; the engine polls again in any case.
        let ready = self.epoll.wait(&mut events, timeout(limit)).unwrap_or(0);
        if ready == 0 {
            return Woken::Limit;
        }
        let (mut group, mut resting) = (false, false);
        let mut registered = None;
        for event in &events[..ready] {
            match event.data() {
                // A wake-up that is not read now ends the next sleep.
                SELF => drop(self.wake.read()),
                GROUP => group = true,
                RESTING => resting = true,
                fd => registered
                    .get_or_insert_with(|| self.registered.lock().expect("no holder panics"))
                    .fired
                    .push(fd),
            }
        }
        Woken::Event { group, resting, channel: registered.is_some() }
    }

    /// Sleeps until the manager rings, for `limit` at most. Events of sources do not end the sleep. Returns `false` if the limit ended it.
    pub(crate) fn sleep_until_rung(&self, limit: Nanos) -> bool {
        let limit = Some(TimeSpec::from_duration(Duration::from_nanos(limit.0)));
        let wake = PollFd::new(self.wake.as_fd(), poll_flags(Interest::READABLE));
        let polled = ppoll(&mut [wake], limit, None);
        if polled == Ok(1) {
            let _count = self.wake.read();
        }
        polled != Ok(0)
    }

    /// Returns whether an event comes within `limit`. Does not consume it.
    pub(crate) fn has_event(&self, limit: Nanos) -> bool {
        self.epoll.wait(&mut [EpollEvent::empty()], timeout(limit)) != Ok(0)
    }

    /// Returns whether this channel was among those that ended the last sleep.
    pub(crate) fn has_fired(&self, fd: i32) -> bool {
        let registered = self.registered.lock().expect("no holder panics");
        registered.fired.contains(&u64::from(fd.unsigned_abs()))
    }

    /// Records that `taken` events were found after channels had ended a sleep. If another thread has taken the events of a channel, or
    /// will, sleeps leave the channel out for [`FIRST`](crate::spurious_events::FIRST). Returns how many channels are muted for longer, because
    /// they have ended too many sleeps without an event.
    pub(crate) fn found(&self, taken: usize, now: Nanos, mut is_attended: impl FnMut(i32) -> bool) -> u64 {
        let mut registered = self.registered.lock().expect("no holder panics");
        let Registered { stuck, fired, .. } = &mut *registered;
        let mut muted = 0;
        for token in fired.drain(..) {
            let fd = i32::try_from(token).expect("a descriptor");
            if taken == 0 && (is_attended(fd) || !is_ready(fd)) {
                stuck.taken_by_other(token, now);
            } else {
                muted += u64::from(stuck.was_ready(token, taken, now));
            }
        }
        muted
    }

    /// Returns whether the last sleep left this channel out.
    pub(crate) fn leaves_out(&self, fd: i32) -> bool {
        self.registered.lock().expect("no holder panics").stuck.is_muted(u64::from(fd.unsigned_abs()))
    }

    /// Returns the time at which the next muted channel is watched again.
    pub(crate) fn next_trial(&self) -> Nanos {
        self.registered.lock().expect("no holder panics").stuck.next()
    }
}

/// Sleeps on channels with poll(2), if an epoll cannot be created or the limit is below 1 ms. The engine may be woken as well.
fn sleep_in_poll(channels: &Channels, limit: Duration) -> [bool; 2] {
    let watched = |channel: Channel| PollFd::new(borrow(channel.fd), poll_flags(channel.interest));
    let limit = Some(TimeSpec::from_duration(limit));
    let [control, bulk] = channels.each;
    let Some(one) = control.or(bulk) else {
        let _limit = ppoll(&mut [], limit, None);
        return [false; 2];
    };
    let mut both = [control, bulk].map(|channel| watched(channel.unwrap_or(one)));
    match ppoll(&mut both, limit, None) {
        Ok(1..) => both.map(|polled| polled.any().unwrap_or(true)),
        Ok(_) | Err(_) => [false; 2],
    }
}

/// Returns whether a descriptor would end a sleep immediately, or is closed.
fn is_ready(fd: i32) -> bool {
    let polled = ppoll(
        &mut [PollFd::new(borrow(fd), poll_flags(Interest::READABLE))],
        Some(TimeSpec::new(0, 0)),
        None,
    );
    polled != Ok(0)
}

/// Returns the epoll flags for an interest in a descriptor that other epolls watch as well.
pub(crate) fn exclusive(interest: Interest) -> EpollFlags {
    epoll_flags(interest) | EpollFlags::EPOLLEXCLUSIVE
}

/// Returns a timeout for the kernel, rounded up to milliseconds.
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
    use crate::spurious_events::FIRST;

    fn event() -> EventFd {
        EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .expect("an event descriptor")
    }

    fn channel(of: &EventFd) -> Channel {
        Channel { fd: of.as_fd().as_raw_fd(), interest: Interest::READABLE }
    }

    fn set() -> SleepSet {
        SleepSet::new(Box::new(|_| ()), event().as_fd(), event().as_fd()).expect("an epoll")
    }

    fn register(set: &SleepSet, version: u64, channels: &[&EventFd]) {
        set.register(version, Nanos::ZERO, |wanted| {
            wanted.extend(channels.iter().map(|of| (channel(of).fd, Interest::READABLE)));
        });
    }

    /// Returns whether `of`, which is readable, ends the engine's sleep.
    fn wakes(set: &SleepSet, of: &EventFd) -> bool {
        let _ended = set.sleep(Nanos::ZERO);
        let fired = set.has_fired(channel(of).fd);
        set.found(1, Nanos::ZERO, |_| false);
        fired
    }

    const LIMIT: Duration = Duration::from_millis(5);

    fn link(number: u16, each: [Option<Channel>; 2]) -> Channels {
        Channels { owner: 7, link: number, each, near: None }
    }

    /// Signals the event while a thread sleeps on the channels. Returns the result of that sleep if only that thread was woken. The
    /// thread may be late for its sleep, and then the engine gets the event as well, so there are several attempts.
    fn woken_alone(set: &SleepSet, channels: &Channels, of: &EventFd) -> Option<[bool; 2]> {
        let (_open, never) = std::sync::mpsc::channel::<()>();
        (1..=20).find_map(|attempt| {
            let woken = std::thread::scope(|scope| {
                let sleeper = scope.spawn(|| set.sleep_instead(channels, Duration::from_secs(20), || ()));
                let _timed_out = never.recv_timeout(attempt * Duration::from_millis(5));
                of.write(1).expect("its count is small");
                sleeper.join().expect("it does not panic")
            });
            let alone = !wakes(set, of);
            of.read().expect("it has an event");
            // An epoll that has reported the event reports it again if the descriptor becomes ready before the next wait.
            assert_eq!(set.sleep(Nanos::ZERO), Woken::Limit);
            alone.then_some(woken)
        })
    }

    #[test]
    fn a_thread_that_sleeps_on_a_channel_is_woken_alone() {
        let (set, one, two) = (set(), event(), event());
        register(&set, 1, &[&one, &two]);
        let both = link(1, [Some(channel(&one)), Some(channel(&two))]);
        assert_eq!(set.sleep_instead(&both, LIMIT, || ()), [false; 2]);
        for version in 1..4 {
            assert_eq!(woken_alone(&set, &both, &one), Some([true, false]), "version {version}");
            assert_eq!(woken_alone(&set, &both, &two), Some([false, true]));
            register(&set, version + 1, &[&one, &two]);
        }
    }

    #[test]
    fn an_event_without_a_sleeping_caller_wakes_the_engine() {
        let (set, one) = (set(), event());
        register(&set, 1, &[&one]);
        let only = link(1, [Some(channel(&one)), None]);
        assert_eq!(set.sleep_instead(&only, LIMIT, || ()), [false; 2]);
        one.write(1).expect("its count is small");
        assert!(wakes(&set, &one));
        assert_eq!(set.sleep_instead(&only, LIMIT, || ()), [true, false], "it is still there");
    }

    /// A link was replaced while a caller slept on the old one's channel, and the caller will not sleep on the new one's.
    #[test]
    fn a_channel_that_replaces_a_shared_one_wakes_the_engine() {
        let (set, old, new) = (set(), event(), event());
        register(&set, 1, &[&old]);
        assert_eq!(set.sleep_instead(&link(1, [Some(channel(&old)), None]), LIMIT, || ()), [false; 2]);
        register(&set, 2, &[&new]);
        new.write(1).expect("its count is small");
        assert!(wakes(&set, &new));
    }

    #[test]
    fn a_channel_that_is_slept_on_before_the_engine_knows_it_is_shared() {
        let (set, new) = (set(), event());
        let only = link(1, [None, Some(channel(&new))]);
        assert_eq!(set.sleep_instead(&only, LIMIT, || ()), [false; 2]);
        register(&set, 0, &[&new]);
        assert_eq!(woken_alone(&set, &only, &new), Some([false, true]));
    }

    #[test]
    fn one_channel_for_both_classes_reports_both() {
        let (set, one) = (set(), event());
        let both = link(1, [Some(channel(&one)); 2]);
        one.write(1).expect("its count is small");
        assert_eq!(set.sleep_instead(&both, LIMIT, || ()), [true; 2]);
        assert_eq!(set.sleep_instead(&both, Duration::from_micros(50), || ()), [true; 2]);
    }

    #[test]
    fn a_new_link_has_its_own_caller_epoll() {
        let (set, one, two) = (set(), event(), event());
        register(&set, 1, &[&one, &two]);
        assert_eq!(set.sleep_instead(&link(1, [Some(channel(&one)), None]), LIMIT, || ()), [false; 2]);
        let second = link(2, [Some(channel(&two)), None]);
        assert_eq!(set.sleep_instead(&second, LIMIT, || ()), [false; 2]);
        assert_eq!(woken_alone(&set, &second, &two), Some([true, false]));
    }

    /// A channel whose events other threads take without sleeping is left out for 1 ms each time, and never for longer.
    #[test]
    fn a_channel_that_others_poll_is_left_out_for_a_moment() {
        let (set, one) = (set(), event());
        for round in 0..2 * u64::from(crate::spurious_events::SPURIOUS_LIMIT) {
            let now = Nanos(round * FIRST.0);
            set.register(1, now, |wanted| {
                wanted.insert(channel(&one).fd, Interest::READABLE);
            });
            one.write(1).expect("its count is small");
            assert_ne!(set.sleep(Nanos::ZERO), Woken::Limit, "round {round}");
            assert_eq!(one.read(), Ok(1));
            assert_eq!(set.found(0, now, |_| false), 0, "it is not counted");
            assert_eq!(set.next_trial(), now + FIRST);
            assert!(set.leaves_out(channel(&one).fd));
        }
    }

    #[test]
    fn a_channel_that_stays_ready_is_left_out_for_longer_each_time() {
        let (set, one) = (set(), event());
        one.write(1).expect("its count is small");
        for round in 1..=crate::spurious_events::SPURIOUS_LIMIT {
            register(&set, 1, &[&one]);
            assert_ne!(set.sleep(Nanos::ZERO), Woken::Limit, "round {round}");
            assert_eq!(
                set.found(0, Nanos::ZERO, |_| false),
                u64::from(round == crate::spurious_events::SPURIOUS_LIMIT)
            );
        }
        register(&set, 1, &[&one]);
        assert_eq!(set.sleep(Nanos::ZERO), Woken::Limit);
    }

    /// The other threads have not taken the event yet.
    ///
    /// Shows: sources.attended
    #[test]
    fn a_channel_that_others_attend_is_left_out_for_a_moment() {
        let (set, one) = (set(), event());
        one.write(1).expect("its count is small");
        for round in 0..2 * u64::from(crate::spurious_events::SPURIOUS_LIMIT) {
            let now = Nanos(round * FIRST.0);
            set.register(1, now, |wanted| {
                wanted.insert(channel(&one).fd, Interest::READABLE);
            });
            assert_ne!(set.sleep(Nanos::ZERO), Woken::Limit, "round {round}");
            assert_eq!(set.found(0, now, |fd| fd == channel(&one).fd), 0, "it is not counted");
            assert_eq!(set.next_trial(), now + FIRST);
        }
    }
}
