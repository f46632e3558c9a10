//! Epoll descriptors on which the sleepers of a link wait: two for the same descriptors, one for the serving thread of
//! the link and one for a caller that sleeps for its own reply. The completion channels are in both exclusively, first
//! in the caller's: the kernel wakes a caller that sleeps there, and no other thread.
//!
//! Each queue pair has three descriptors in them. It takes events only from its own, and removes them when it closes.
//! One query of the epoll serves both queue pairs: its result for the other one is kept for the other one's next query,
//! which then makes no system call. The result may be outdated by then. Later events are still pending at the next
//! sleep, end it immediately, and are found then.

use std::os::fd::{AsFd, AsRawFd as _};
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use pronto_sync::atomic::{AtomicU32, Ordering};

use crate::error::VerbsError;

/// Sources that have woken a sleeper, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WakeSources(u32);

impl WakeSources {
    /// The completion channel.
    pub(crate) const CHANNEL: Self = Self(1);
    /// The bell for returned buffers.
    pub(crate) const BELL: Self = Self(2);
    /// The socket to the peer.
    pub(crate) const SOCKET: Self = Self(4);
    /// Flag in a kept result: the epoll was queried since the last time.
    const CHECKED: u32 = 8;
    /// First bit of each class in the epoll's event data.
    const SHIFT: [u32; 2] = [0, 3];
    const ALL: u64 = 7;

    pub(crate) fn has(self, what: Self) -> bool {
        self.0 & what.0 != 0
    }
}

/// The epolls of both queue pairs.
#[derive(Debug)]
struct Shared {
    /// Epoll of a caller. Its event data is the class.
    near: Epoll,
    epoll: Epoll,
    /// Results of the other queue pair's query, by class.
    kept: [AtomicU32; 2],
}

/// One queue pair's part of the epolls.
#[derive(Debug)]
pub(crate) struct Waits {
    shared: Arc<Shared>,
    class: usize,
}

impl Waits {
    /// Creates the parts of a link, by class.
    pub(crate) fn pair() -> Result<[Self; 2], VerbsError> {
        let epoll = || {
            Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
                .map_err(|errno| VerbsError::System { what: "epoll_create1", errno })
        };
        let shared = Arc::new(Shared { near: epoll()?, epoll: epoll()?, kept: Default::default() });
        Ok([0, 1].map(|class| Self { shared: Arc::clone(&shared), class }))
    }

    /// Returns the descriptor to sleep on.
    pub(crate) fn descriptor(&self) -> i32 {
        self.shared.epoll.0.as_raw_fd()
    }

    /// Returns the epoll descriptor for callers.
    pub(crate) fn near(&self) -> i32 {
        self.shared.near.0.as_raw_fd()
    }

    /// Adds a descriptor that wakes sleepers.
    pub(crate) fn add(&self, what: WakeSources, descriptor: impl AsFd) -> Result<(), VerbsError> {
        let mut flags = EpollFlags::EPOLLIN;
        flags.set(EpollFlags::EPOLLRDHUP, what == WakeSources::SOCKET);
        flags.set(EpollFlags::EPOLLEXCLUSIVE, what == WakeSources::CHANNEL);
        let system = |errno| VerbsError::System { what: "epoll_ctl", errno };
        // In this order: the epoll that is added first is woken first.
        self.shared.near.add(&descriptor, EpollEvent::new(flags, self.class as u64)).map_err(system)?;
        let event = EpollEvent::new(flags, u64::from(what.0) << WakeSources::SHIFT[self.class]);
        self.shared.epoll.add(descriptor, event).map_err(system)
    }

    /// Removes a descriptor, which then no longer wakes sleepers.
    pub(crate) fn remove(&self, descriptor: impl AsFd) {
        for epoll in [&self.shared.near, &self.shared.epoll] {
            match epoll.delete(&descriptor) {
                Ok(()) | Err(Errno::ENOENT) => {}
                Err(errno) => debug_assert!(false, "epoll_ctl: {errno}"),
            }
        }
    }

    /// Returns the sources that have woken this queue pair's sleeper, as far as known.
    pub(crate) fn wake_sources(&self) -> WakeSources {
        // SYNC: a thread that drives a link drives both of its queue pairs, or each alone; a hint in either case.
        let kept = self.shared.kept[self.class].swap(0, Ordering::Relaxed);
        if kept != 0 {
            return WakeSources(kept & !WakeSources::CHECKED);
        }
        let mut events = [EpollEvent::empty(); 6];
        // An error means an interruption: pending events end the next sleep, too.
        let ready = self.shared.epoll.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        let found = events[..ready].iter().fold(0, |found, event| found | event.data());
        let of =
            |class: usize| u32::try_from(found >> WakeSources::SHIFT[class] & WakeSources::ALL).unwrap_or(0);
        self.keep_for_other(of(1 - self.class));
        WakeSources(of(self.class))
    }

    /// Notes that this queue pair has found its source of the wake-up: most likely there is no other one.
    pub(crate) fn was_all(&self) {
        self.keep_for_other(0);
    }

    fn keep_for_other(&self, found: u32) {
        self.shared.kept[1 - self.class].store(found | WakeSources::CHECKED, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use nix::sys::eventfd::{EfdFlags, EventFd};

    use super::*;

    fn bell() -> EventFd {
        EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).unwrap()
    }

    #[test]
    fn one_query_serves_both() {
        let [one, two] = Waits::pair().unwrap();
        assert_eq!(one.descriptor(), two.descriptor());
        let bells = [bell(), bell(), bell()];
        one.add(WakeSources::BELL, &bells[0]).unwrap();
        two.add(WakeSources::BELL, &bells[1]).unwrap();
        two.add(WakeSources::CHANNEL, &bells[2]).unwrap();
        for bell in &bells {
            bell.write(1).unwrap();
        }
        assert!(one.wake_sources() == WakeSources::BELL);
        // Consumed, but the kept result still has it.
        bells[2].read().unwrap();
        let kept = two.wake_sources();
        assert!(
            kept.has(WakeSources::BELL) && kept.has(WakeSources::CHANNEL) && !kept.has(WakeSources::SOCKET)
        );
        assert_eq!(two.wake_sources(), WakeSources::BELL);
    }

    /// Returns the events of a sleeping caller, and the result of a query after them.
    fn woken_by([one, two]: [&Waits; 2], of: &EventFd, after: Duration) -> (Vec<u64>, WakeSources) {
        let (_open, never) = std::sync::mpsc::channel::<()>();
        let woken_by = std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                let mut events = [EpollEvent::empty(); 2];
                let ready = one.shared.near.wait(&mut events, 20_000_u16).unwrap();
                events[..ready].iter().map(EpollEvent::data).collect()
            });
            let _timed_out = never.recv_timeout(after);
            of.write(1).unwrap();
            sleeper.join().unwrap()
        });
        one.wake_sources();
        let heard = two.wake_sources();
        of.read().unwrap();
        // An epoll that has reported an event reports it once more if it is ready again before the next query.
        one.wake_sources();
        two.wake_sources();
        (woken_by, heard)
    }

    #[test]
    fn only_completions_are_exclusive_to_a_sleeping_caller() {
        let [one, two] = Waits::pair().unwrap();
        let (channel, bell) = (bell(), bell());
        two.add(WakeSources::CHANNEL, &channel).unwrap();
        two.add(WakeSources::BELL, &bell).unwrap();
        // The caller may fall asleep late; in one of several attempts it sleeps in time.
        let mut waits = (1..=20).map(|attempt| attempt * Duration::from_millis(5));
        assert!(waits.any(|after| woken_by([&one, &two], &channel, after) == (vec![1], WakeSources(0))));
        assert_eq!(woken_by([&one, &two], &bell, Duration::ZERO), (vec![1], WakeSources::BELL));
        channel.write(1).unwrap();
        one.wake_sources();
        assert_eq!(two.wake_sources(), WakeSources::CHANNEL, "no caller sleeps");
    }

    #[test]
    fn an_overlooked_event_is_found_by_the_next_query() {
        let [one, two] = Waits::pair().unwrap();
        let bell = bell();
        two.add(WakeSources::CHANNEL, &bell).unwrap();
        bell.write(1).unwrap();
        one.was_all();
        assert_eq!(two.wake_sources(), WakeSources(0));
        assert_eq!(two.wake_sources(), WakeSources::CHANNEL);
        two.remove(&bell);
        two.remove(&bell);
        one.wake_sources();
        assert_eq!((one.wake_sources(), two.wake_sources()), (WakeSources(0), WakeSources(0)));
    }
}
