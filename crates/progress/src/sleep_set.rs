//! What the engine's thread sleeps on: one epoll, of its own wake-up, the channels of direct sources, and the group.
//!
//! A thread of the program may sleep on the channels of one source itself, beside the engine: on a [`Bedside`] epoll of those
//! channels alone. Both epolls watch them exclusively, the bedside one first, so the kernel wakes whoever sleeps there and nobody
//! else, and the engine if nobody does. Nothing changes hands, and a sleep is one system call.
//!
//! # Invariants
//! 1. A channel that a bedside epoll watches stands in the engine's after it: whenever it enters the former, it leaves the
//!    latter and comes back. The kernel asks exclusive waiters in this order (`__wake_up_common`), and an epoll that nobody
//!    waits in passes the event on (`ep_poll_callback`).
//! 2. Whoever was woken at the bedside looks after the event: the engine may never hear of it.

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
use crate::stuck::Stuck;

/// Who woke the epoll: the manager itself, or the group of sources that cost a system call. Others are descriptors.
const SELF: u64 = u64::MAX;
const GROUP: u64 = u64::MAX - 1;
/// What a bedside's event says besides 0 and 1: the channel is that of both classes.
const BOTH: u64 = 2;
/// Events taken from the epoll at a time.
const BATCH: usize = 16;
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
    /// Who else sleeps on them.
    bedsides: HashMap<u64, Bedside>,
    /// Those that bedsides watch as well.
    shared: HashSet<i32>,
    /// Of whatever channels belong to, when the epoll was last told of all of them.
    version: u64,
    stuck: Stuck,
    /// Those that ended the last sleep.
    fired: Vec<u64>,
}

/// What a thread of the program sleeps on in place of the engine: the channels of one link.
#[derive(Debug)]
struct Bedside {
    channels: Channels,
    epoll: Arc<Epoll>,
}

impl Bedside {
    /// None if there can be no more descriptors.
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

    /// Whether all of them belong to links that there are.
    fn is_of(&self, wanted: &HashMap<i32, Interest>) -> bool {
        self.channels.each.iter().flatten().all(|channel| wanted.contains_key(&channel.fd))
    }

    /// Those that it watches exclusively, and the engine's epoll behind it.
    fn shared(&self) -> impl Iterator<Item = i32> + use<> {
        // Behind a channel that is a set, the provider has seen to that.
        let own = self.channels.near.is_none().then_some(self.channels.each);
        own.into_iter().flatten().flatten().map(|channel| channel.fd)
    }
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

    /// Sleeps on a source's channels in place of the engine. May return early. Returns which have an event, by class.
    pub(crate) fn sleep_instead(&self, channels: &Channels, limit: Duration) -> [bool; 2] {
        let Some(epoll) = self.bedside(channels) else { return sleep_beside(channels, limit) };
        let millis = u16::try_from(limit.as_millis()).unwrap_or(u16::MAX);
        if millis == 0 {
            // An epoll counts in milliseconds, and a limit is a limit.
            return sleep_beside(channels, limit);
        }
        let mut events = [EpollEvent::empty(); 2];
        // Woken early, by a signal or not at all: the caller looks again in any case.
        let ready = epoll.wait(&mut events, millis).unwrap_or(0);
        let told = |class| events[..ready].iter().any(|event| event.data() == class || event.data() == BOTH);
        [told(0), told(1)]
    }

    /// What a thread sleeps on for these, made at the first time.
    fn bedside(&self, channels: &Channels) -> Option<Arc<Epoll>> {
        let mut registered = self.registered.lock().expect("no holder panics");
        let Registered { now, bedsides, shared, .. } = &mut *registered;
        if let Some(known) = bedsides.get(&channels.owner)
            && known.channels == *channels
        {
            return Some(Arc::clone(&known.epoll));
        }
        let made = Bedside::new(channels)?;
        for fd in made.shared() {
            shared.insert(fd);
            if let Some(interest) = now.get(&fd) {
                self.watch_anew(fd, *interest, true);
            }
        }
        let epoll = Arc::clone(&made.epoll);
        bedsides.insert(channels.owner, made);
        drop(registered);
        Some(epoll)
    }

    /// Puts a descriptor behind everybody else who watches it.
    fn watch_anew(&self, fd: i32, interest: Interest, shared: bool) {
        let token = u64::from(fd.unsigned_abs());
        let flags = if shared { exclusive(interest) } else { epoll_flags(interest) };
        // It may be new to the epoll, or closed.
        let newly = self.epoll.delete(borrow(fd)).is_err();
        if newly {
            (self.watch)(fd);
        }
        if let Err(errno) = self.epoll.add(borrow(fd), EpollEvent::new(flags, token)) {
            tracing::warn!(fd, %errno, "a channel cannot be watched; it is polled at every tick");
        }
    }

    /// Brings the epoll up to what the channels are now. As long as `version` stays, a descriptor is the one that it was.
    pub(crate) fn register(
        &self,
        version: u64,
        now: Nanos,
        collect: impl FnOnce(&mut HashMap<i32, Interest>),
    ) {
        let mut registered = self.registered.lock().expect("no holder panics");
        let Registered { now: wanted, before, bedsides, shared, version: known, stuck, .. } =
            &mut *registered;
        let same = core::mem::replace(known, version) == version;
        core::mem::swap(wanted, before);
        wanted.clear();
        collect(wanted);
        if !same && !bedsides.is_empty() {
            bedsides.retain(|_, bedside| bedside.is_of(wanted));
            shared.clear();
            shared.extend(bedsides.values().flat_map(Bedside::shared));
        }
        let next = stuck.next();
        if next != Nanos::NEVER {
            if now >= next {
                stuck.due(now, |_| ());
            }
            // Left out altogether: an epoll tells of a hang-up whether it is asked to or not.
            wanted.retain(|fd, _| !stuck.is_muted(u64::from(fd.unsigned_abs())));
        }
        for fd in before.keys().filter(|fd| !wanted.contains_key(*fd)) {
            // A closed descriptor has left the epoll by itself.
            let _gone = self.epoll.delete(borrow(*fd));
        }
        for (fd, interest) in wanted.iter().filter(|(fd, interest)| !same || before.get(fd) != Some(interest))
        {
            if shared.contains(fd) {
                self.watch_anew(*fd, *interest, true);
                continue;
            }
            let mut event = EpollEvent::new(epoll_flags(*interest), u64::from(fd.unsigned_abs()));
            // Newly open, also if another one had this number before; or no longer shared.
            if self.epoll.modify(borrow(*fd), &mut event).is_err() {
                self.watch_anew(*fd, *interest, false);
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

    /// After an event has ended a sleep, so much was found. What others look after, taken already or not, ends no more sleeps for a
    /// moment. Returns how many channels are left out for longer, as they have ended too many sleeps for nothing.
    pub(crate) fn found(&self, taken: usize, now: Nanos, mut is_attended: impl FnMut(i32) -> bool) -> u64 {
        let mut registered = self.registered.lock().expect("no holder panics");
        let Registered { stuck, fired, .. } = &mut *registered;
        let mut muted = 0;
        for token in fired.drain(..) {
            let fd = i32::try_from(token).expect("a descriptor");
            if taken == 0 && (is_attended(fd) || !is_ready(fd)) {
                stuck.is_taken_from(token, now);
            } else {
                muted += u64::from(stuck.was_ready(token, taken, now));
            }
        }
        muted
    }

    /// Whether the last sleep was without this channel.
    pub(crate) fn leaves_out(&self, fd: i32) -> bool {
        self.registered.lock().expect("no holder panics").stuck.is_muted(u64::from(fd.unsigned_abs()))
    }

    /// When a channel that was left out is tried again.
    pub(crate) fn next_trial(&self) -> Nanos {
        self.registered.lock().expect("no holder panics").stuck.next()
    }
}

/// The same for who cannot have an epoll, or has no millisecond: the engine may be woken as well.
fn sleep_beside(channels: &Channels, limit: Duration) -> [bool; 2] {
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

/// Whether it would end a sleep at once, or is closed.
fn is_ready(fd: i32) -> bool {
    let polled = ppoll(
        &mut [PollFd::new(borrow(fd), poll_flags(Interest::READABLE))],
        Some(TimeSpec::new(0, 0)),
        None,
    );
    polled != Ok(0)
}

/// What an epoll waits for, among other epolls that do.
fn exclusive(interest: Interest) -> EpollFlags {
    epoll_flags(interest) | EpollFlags::EPOLLEXCLUSIVE
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
    use crate::stuck::FIRST;

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
        set.found(1, Nanos::ZERO, |_| false);
        fired
    }

    const LIMIT: Duration = Duration::from_millis(5);

    fn link(number: u16, each: [Option<Channel>; 2]) -> Channels {
        Channels { owner: 7, link: number, each, near: None }
    }

    /// Signals the event while a thread sleeps on the channels; what that thread was told, and nobody else. The thread may
    /// come late to its sleep, and then the engine hears of the event as well: once in some attempts it is there in time.
    fn told_alone(set: &SleepSet, channels: &Channels, of: &EventFd) -> Option<[bool; 2]> {
        let (_open, never) = std::sync::mpsc::channel::<()>();
        (1..=20).find_map(|attempt| {
            let told = std::thread::scope(|scope| {
                let sleeper = scope.spawn(|| set.sleep_instead(channels, Duration::from_secs(20)));
                let _timed_out = never.recv_timeout(attempt * Duration::from_millis(5));
                of.write(1).expect("its count is small");
                sleeper.join().expect("it does not panic")
            });
            let alone = !wakes(set, of);
            of.read().expect("it has an event");
            // An epoll that has told of it tells once more if it is ready again before the next look.
            assert_eq!(set.sleep(Nanos::ZERO), Woken::Limit);
            alone.then_some(told)
        })
    }

    #[test]
    fn who_sleeps_on_a_channel_is_woken_alone() {
        let (set, one, two) = (set(), event(), event());
        register(&set, 1, &[&one, &two]);
        let both = link(1, [Some(channel(&one)), Some(channel(&two))]);
        assert_eq!(set.sleep_instead(&both, LIMIT), [false; 2]);
        for version in 1..4 {
            assert_eq!(told_alone(&set, &both, &one), Some([true, false]), "version {version}");
            assert_eq!(told_alone(&set, &both, &two), Some([false, true]));
            register(&set, version + 1, &[&one, &two]);
        }
    }

    #[test]
    fn an_event_that_nobody_sleeps_for_wakes_the_engine() {
        let (set, one) = (set(), event());
        register(&set, 1, &[&one]);
        let only = link(1, [Some(channel(&one)), None]);
        assert_eq!(set.sleep_instead(&only, LIMIT), [false; 2]);
        one.write(1).expect("its count is small");
        assert!(wakes(&set, &one));
        assert_eq!(set.sleep_instead(&only, LIMIT), [true, false], "it is still there");
    }

    /// A link was replaced while a caller slept on the old one's channel, and the caller will not sleep on the new one's.
    #[test]
    fn a_channel_in_the_place_of_a_shared_one_wakes_the_engine() {
        let (set, old, new) = (set(), event(), event());
        register(&set, 1, &[&old]);
        assert_eq!(set.sleep_instead(&link(1, [Some(channel(&old)), None]), LIMIT), [false; 2]);
        register(&set, 2, &[&new]);
        new.write(1).expect("its count is small");
        assert!(wakes(&set, &new));
    }

    #[test]
    fn a_channel_that_is_slept_on_before_the_engine_knows_it_is_shared() {
        let (set, new) = (set(), event());
        let only = link(1, [None, Some(channel(&new))]);
        assert_eq!(set.sleep_instead(&only, LIMIT), [false; 2]);
        register(&set, 0, &[&new]);
        assert_eq!(told_alone(&set, &only, &new), Some([false, true]));
    }

    #[test]
    fn one_channel_for_both_tells_of_both() {
        let (set, one) = (set(), event());
        let both = link(1, [Some(channel(&one)); 2]);
        one.write(1).expect("its count is small");
        assert_eq!(set.sleep_instead(&both, LIMIT), [true; 2]);
        assert_eq!(set.sleep_instead(&both, Duration::from_micros(50)), [true; 2]);
    }

    #[test]
    fn a_new_link_has_a_bedside_of_its_own() {
        let (set, one, two) = (set(), event(), event());
        register(&set, 1, &[&one, &two]);
        assert_eq!(set.sleep_instead(&link(1, [Some(channel(&one)), None]), LIMIT), [false; 2]);
        let second = link(2, [Some(channel(&two)), None]);
        assert_eq!(set.sleep_instead(&second, LIMIT), [false; 2]);
        assert_eq!(told_alone(&set, &second, &two), Some([true, false]));
    }

    /// What others take without sleeping for it is left out for a moment each time, and never for long.
    #[test]
    fn a_channel_that_others_poll_rests_for_a_moment() {
        let (set, one) = (set(), event());
        for round in 0..2 * u64::from(crate::stuck::IN_VAIN) {
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
        for round in 1..=crate::stuck::IN_VAIN {
            register(&set, 1, &[&one]);
            assert_ne!(set.sleep(Nanos::ZERO), Woken::Limit, "round {round}");
            assert_eq!(set.found(0, Nanos::ZERO, |_| false), u64::from(round == crate::stuck::IN_VAIN));
        }
        register(&set, 1, &[&one]);
        assert_eq!(set.sleep(Nanos::ZERO), Woken::Limit);
    }

    /// They have not taken it yet.
    #[test]
    fn a_channel_that_others_look_after_rests_for_a_moment() {
        let (set, one) = (set(), event());
        one.write(1).expect("its count is small");
        for round in 0..2 * u64::from(crate::stuck::IN_VAIN) {
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
