//! The flight recorder of a node: its threads' notes of recent events, and alarms after which the notes are logged.

use std::sync::Mutex;

use pronto_core::note::{Ending, Note, What};
use pronto_core::session::{DownCause, Event};
use pronto_core::{Clock as _, Nanos};
use pronto_sync::atomic::{AtomicU8, Ordering};
use pronto_wire::{CallId, NodeId, TypeId};

use crate::host::NodeHost;
use crate::recorder::{self, Entry, Thread};
use crate::status::admin;

/// Number of notes that are logged after an alarm, of all threads together.
const LOGGED: usize = 64;
/// Minimum interval between two logs, because alarms come in large numbers.
const LOG_INTERVAL: Nanos = Nanos::from_secs(10);

/// Records a note of the calling thread.
#[inline(always)]
pub(crate) fn note(note: Note) {
    let (word, low) = note.words();
    recorder::note(word, low);
}

/// Records that the calling thread is about to sleep.
pub(crate) fn note_sleep() {
    note(Note::of_peer(What::Sleeps, NodeId(0)));
}

/// Reads the clock after a sleep, so that the next notes of the calling thread do not carry the time before the sleep.
pub(crate) fn awake(host: &NodeHost) {
    let _noted = host.now();
}

/// Returns the note for an event of a peer.
pub(crate) const fn of_event(event: &Event) -> Note {
    match event {
        Event::PeerUp(info) => Note::of_peer(What::Up, info.peer),
        Event::PeerDown { peer, cause, .. } => {
            Note { more: cause.number(), ..Note::of_peer(What::Down, *peer) }
        }
        Event::LinkLost { peer, .. } => Note::of_peer(What::LinkLost, *peer),
        Event::LinkResumed { peer, .. } => Note::of_peer(What::LinkResumed, *peer),
        Event::LinkPaused { peer } => Note::of_peer(What::LinkPaused, *peer),
        Event::PauseEnded { peer } => Note::of_peer(What::PauseEnded, *peer),
    }
}

/// Returns the note for a message of a peer.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "a note distinguishes only the lower bits of a type id")]
pub(crate) fn of_message(what: What, peer: NodeId, call: Option<CallId>, type_id: TypeId) -> Note {
    let call = call.unwrap_or(CallId { slot: 0, generation: 0 });
    Note { what, peer, call, more: type_id.0 as u8 }
}

/// Reason for logging the recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Alarm {
    /// A peer went down without a goodbye.
    PeerDown = 1,
    /// A call has reached its deadline.
    Deadline,
    /// A wake-up was lost.
    Rescued,
    /// A handler panicked.
    Panicked,
}

/// Causes that need no attention.
const GOODBYE: u8 = DownCause::Goodbye.number();
const LOCAL: u8 = DownCause::Local.number();
const UNTRUSTED: u8 = DownCause::Untrusted.number();

impl Alarm {
    const ALL: [Self; 4] = [Self::PeerDown, Self::Deadline, Self::Rescued, Self::Panicked];

    /// Returns the alarm for a note, if it is one. For a constant note the compiler evaluates this.
    #[inline(always)]
    pub(crate) const fn of(note: &Note) -> Option<Self> {
        match note.what {
            What::Down if !matches!(note.more, GOODBYE | LOCAL | UNTRUSTED) => Some(Self::PeerDown),
            What::Ended if note.more == Ending::Deadline as u8 => Some(Self::Deadline),
            What::Rescued => Some(Self::Rescued),
            What::Panicked => Some(Self::Panicked),
            _ => None,
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::PeerDown => "a peer went away",
            Self::Deadline => "a call reached its deadline",
            Self::Rescued => "a wake-up was lost",
            Self::Panicked => "a handler panicked",
        }
    }
}

/// The pending alarm and the time of the last log.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    pending: AtomicU8,
    last: Mutex<Option<Nanos>>,
}

impl Flight {
    /// Requests a log of the recorder.
    pub(crate) fn raise(&self, alarm: Alarm) {
        // SYNC: relaxed, because the rings synchronize the notes; this only requests that a thread reads them.
        self.pending.fetch_max(alarm as u8, Ordering::Relaxed);
    }

    /// Takes the pending alarm. Returns it if it may be logged now: of several alarms the most important one, at most once per
    /// [`LOG_INTERVAL`].
    fn take_due(&self, now: impl FnOnce() -> Nanos) -> Option<Alarm> {
        let pending = self.pending.load(Ordering::Relaxed);
        let alarm = Alarm::ALL.into_iter().find(|alarm| *alarm as u8 == pending)?;
        self.pending.store(0, Ordering::Relaxed);
        let now = now();
        let mut last = self.last.lock().expect("no holder panics");
        if last.is_some_and(|last| now.since(last) < LOG_INTERVAL) {
            return None;
        }
        *last = Some(now);
        Some(alarm)
    }

    /// Logs the last notes if an alarm is pending and may be logged.
    pub(crate) fn log_if_pending(&self, host: &NodeHost) {
        let Some(alarm) = self.take_due(|| host.now()) else { return };
        // Not as a field, because fields are printed last, on the line of the last note.
        let node = host.identity.node;
        let notes: String = admin::recent(LOGGED).iter().map(|note| format!("\n  {note}")).collect();
        match alarm {
            Alarm::Rescued | Alarm::Panicked => {
                tracing::warn!("node {node}: {}; recent events of all threads:{notes}", alarm.text());
            }
            Alarm::PeerDown | Alarm::Deadline => {
                tracing::info!("node {node}: {}; recent events of all threads:{notes}", alarm.text());
            }
        }
    }
}

/// Returns the last notes of all threads together, oldest first, each with the name of its thread and the last time that the thread
/// read before it. Notes of one thread keep their order.
pub(crate) fn latest(threads: &[Thread], most: usize) -> Vec<(String, u64, Note)> {
    let notes = |thread: &Thread| {
        let known = |entry: &Entry| Some((entry.time_ns, Note::from_words(entry.word, entry.low)?));
        // Of consecutive sleeps only the last one is kept.
        let is_sleep = |entry: &Entry| known(entry).is_some_and(|(_, note)| note.what == What::Sleeps);
        let is_kept = |pair: &[Entry]| !pair.iter().all(is_sleep) || pair.len() == 1;
        let name = if thread.runs { thread.name.clone() } else { format!("{} (ended)", thread.name) };
        thread
            .entries
            .iter()
            .enumerate()
            .filter(|(at, _)| is_kept(&thread.entries[*at..thread.entries.len().min(at + 2)]))
            .filter_map(|(_, entry)| known(entry))
            .map(move |(time, note)| (name.clone(), time, note))
            .collect::<Vec<_>>()
    };
    let mut all: Vec<_> = threads.iter().flat_map(notes).collect();
    // The sort is stable, and the times of one thread never decrease, so its notes keep their order.
    all.sort_by_key(|(_, time, _)| *time);
    all.split_off(all.len().saturating_sub(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows: operations.recent, operations.entry-order
    #[test]
    fn notes_of_several_threads_are_in_the_order_of_their_times() {
        let entry = |number, time_ns, slot| {
            let call = CallId { slot, generation: 1 };
            let (word, low) = Note { what: What::Called, peer: NodeId(2), call, more: 0 }.words();
            Entry { number, time_ns, word, low }
        };
        let of = |name: &str, runs, entries| Thread { name: name.into(), runs, entries };
        let (word, low) = Note::of_peer(What::Sleeps, NodeId(0)).words();
        let sleep = |number, time_ns| Entry { number, time_ns, word, low };
        let sleepy =
            of("c", true, vec![sleep(0, 10), sleep(1, 20), entry(2, 25, 9), sleep(3, 30), sleep(4, 40)]);
        let times: Vec<_> = latest(&[sleepy], 9).iter().map(|(_, time, _)| *time).collect();
        assert_eq!(times, [20, 25, 40]);
        let threads = [
            of("a", true, vec![entry(0, 100, 1), entry(1, 300, 2), entry(2, 300, 3)]),
            of("b", false, vec![entry(7, 200, 4)]),
        ];
        let found = latest(&threads, 3);
        let seen: Vec<_> =
            found.iter().map(|(name, time, note)| (name.as_str(), *time, note.call.slot)).collect();
        assert_eq!(seen, [("b (ended)", 200, 4), ("a", 300, 2), ("a", 300, 3)]);
    }

    /// Shows: operations.alarms
    #[test]
    fn alarms_are_logged_at_most_once_in_ten_seconds() {
        let flight = Flight::default();
        let logged_at = |alarm, seconds: u64, nanos: u64| {
            flight.raise(alarm);
            flight.take_due(|| Nanos(Nanos::from_secs(seconds).0 + nanos))
        };
        assert_eq!(logged_at(Alarm::PeerDown, 100, 0), Some(Alarm::PeerDown));
        assert_eq!(flight.take_due(|| Nanos::from_secs(200)), None, "an alarm is logged once");
        for (second, nanos) in [(100, 1), (105, 0), (109, 999_999_999)] {
            assert_eq!(logged_at(Alarm::Panicked, second, nanos), None, "{second} s and {nanos} ns");
        }
        flight.raise(Alarm::Rescued);
        assert_eq!(logged_at(Alarm::Deadline, 110, 0), Some(Alarm::Rescued), "ten seconds later, one of two");
        assert_eq!(logged_at(Alarm::Panicked, 119, 0), None, "ten seconds after the last log");
        assert_eq!(logged_at(Alarm::Panicked, 120, 0), Some(Alarm::Panicked));
    }

    /// Shows: operations.alarms, operations.recent-cause
    #[test]
    fn expected_events_raise_no_alarm() {
        let down = |cause| {
            let (peer, epoch) = (NodeId(2), pronto_wire::Epoch(1));
            Alarm::of(&of_event(&Event::PeerDown { peer, epoch, cause }))
        };
        assert_eq!((down(DownCause::Goodbye), down(DownCause::Local)), (None, None));
        assert_eq!(down(DownCause::Untrusted), None, "the operator has asked for it");
        for unexpected in [DownCause::Died, DownCause::Silent, DownCause::Replaced, DownCause::Panicked] {
            assert_eq!(down(unexpected), Some(Alarm::PeerDown), "{unexpected}");
            let (peer, epoch) = (NodeId(2), pronto_wire::Epoch(1));
            let note = of_event(&Event::PeerDown { peer, epoch, cause: unexpected });
            assert_eq!(note.to_string(), format!("peer down, peer 2: {}", unexpected.name()));
        }
        let ended = |how| Alarm::of(&Note { more: how, ..Note::of_peer(What::Ended, NodeId(2)) });
        assert_eq!(ended(Ending::Failure as u8), None);
        assert_eq!(ended(Ending::Deadline as u8), Some(Alarm::Deadline));
    }
}
