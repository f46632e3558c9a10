//! The flight recorder of a node: what its threads note, and who reads it when something has gone wrong.

use std::sync::Mutex;

use pronto_core::note::{Ending, Note, What};
use pronto_core::session::{DownCause, Event};
use pronto_core::{Clock as _, Nanos};
use pronto_recorder::{Entry, Thread};
use pronto_sync::atomic::{AtomicU8, Ordering};
use pronto_wire::{CallId, NodeId, TypeId};

use crate::admin;
use crate::host::NodeHost;

/// Notes that go to the log, of all threads together.
const TOLD: usize = 64;
/// The log gets no more than this: what goes wrong does so often.
const APART: Nanos = Nanos::from_secs(10);

/// Notes something for the calling thread.
#[inline(always)]
pub(crate) fn note(note: Note) {
    let (word, low) = note.words();
    pronto_recorder::note(word, low);
}

/// The calling thread is about to sleep.
pub(crate) fn sleeps() {
    note(Note::of_peer(What::Sleeps, NodeId(0)));
}

/// The calling thread has slept: what it notes from now on has this time, and not the one before it slept.
pub(crate) fn awake(host: &NodeHost) {
    let _noted = host.now();
}

/// Something that happened to a peer.
pub(crate) const fn of_event(event: &Event) -> Note {
    match event {
        Event::PeerUp(info) => Note::of_peer(What::Up, info.peer),
        Event::PeerDown { peer, cause, .. } => {
            let expected = matches!(cause, DownCause::Goodbye | DownCause::Local);
            Note { more: expected as u8, ..Note::of_peer(What::Down, *peer) }
        }
        Event::LinkLost { peer, .. } => Note::of_peer(What::LinkLost, *peer),
        Event::LinkResumed { peer, .. } => Note::of_peer(What::LinkResumed, *peer),
    }
}

/// Something that happens to a message of the peer's.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "as many types as fit are told apart")]
pub(crate) fn of_message(what: What, peer: NodeId, call: Option<CallId>, type_id: TypeId) -> Note {
    let call = call.unwrap_or(CallId { slot: 0, generation: 0 });
    Note { what, peer, call, more: type_id.0 as u8 }
}

/// Why the recorder is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Alarm {
    /// A peer has gone, and did not say so.
    PeerDown = 1,
    /// A call has met its deadline.
    Deadline,
    /// A wake-up was lost.
    Rescued,
    /// A handler panicked.
    Panicked,
}

impl Alarm {
    const ALL: [Self; 4] = [Self::PeerDown, Self::Deadline, Self::Rescued, Self::Panicked];

    /// Whether a note is an alarm. Of a note that is known where it is made nothing is left of this.
    #[inline(always)]
    pub(crate) const fn of(note: &Note) -> Option<Self> {
        match note.what {
            What::Down if note.more == 0 => Some(Self::PeerDown),
            What::Ended if note.more == Ending::Deadline as u8 => Some(Self::Deadline),
            What::Rescued => Some(Self::Rescued),
            What::Panicked => Some(Self::Panicked),
            _ => None,
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::PeerDown => "a peer went away",
            Self::Deadline => "a call met its deadline",
            Self::Rescued => "a wake-up was lost",
            Self::Panicked => "a handler panicked",
        }
    }
}

/// Whether the recorder is to be read, and when it was.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    rung: AtomicU8,
    last: Mutex<Option<Nanos>>,
}

impl Flight {
    /// It is to be read.
    pub(crate) fn ring(&self, alarm: Alarm) {
        // SYNC: what was noted is read by the rules of the rings; this only says that somebody should.
        self.rung.fetch_max(alarm as u8, Ordering::Relaxed);
    }

    /// If it is to be read, the log gets the last notes; one alarm of several, and one in [`APART`].
    pub(crate) fn tell(&self, host: &NodeHost) {
        let rung = self.rung.load(Ordering::Relaxed);
        let Some(alarm) = Alarm::ALL.into_iter().find(|alarm| *alarm as u8 == rung) else { return };
        self.rung.store(0, Ordering::Relaxed);
        let now = host.now();
        let mut last = self.last.lock().expect("no holder panics");
        if last.is_some_and(|last| now.since(last) < APART) {
            return;
        }
        *last = Some(now);
        drop(last);
        // Not as a field: those come last, and would end the last note's line.
        let node = host.identity.node;
        let notes: String = admin::recent(TOLD).iter().map(|note| format!("\n  {note}")).collect();
        match alarm {
            Alarm::Rescued | Alarm::Panicked => {
                tracing::warn!("node {node}: {}; what threads did last:{notes}", alarm.text());
            }
            Alarm::PeerDown | Alarm::Deadline => {
                tracing::info!("node {node}: {}; what threads did last:{notes}", alarm.text());
            }
        }
    }
}

/// The last notes of all threads together, oldest first: with the thread's name, and the time before them. Of one thread they keep
/// their order.
pub(crate) fn latest(threads: &[Thread], most: usize) -> Vec<(String, u64, Note)> {
    let notes = |thread: &Thread| {
        let known = |entry: &Entry| Some((entry.time_ns, Note::from_words(entry.word, entry.low)?));
        // Of sleeps with nothing between them the last one is told.
        let is_sleep = |entry: &Entry| known(entry).is_some_and(|(_, note)| note.what == What::Sleeps);
        let told = |pair: &[Entry]| !pair.iter().all(is_sleep) || pair.len() == 1;
        let name = if thread.runs { thread.name.clone() } else { format!("{} (ended)", thread.name) };
        thread
            .entries
            .iter()
            .enumerate()
            .filter(|(at, _)| told(&thread.entries[*at..thread.entries.len().min(at + 2)]))
            .filter_map(|(_, entry)| known(entry))
            .map(move |(time, note)| (name.clone(), time, note))
            .collect::<Vec<_>>()
    };
    let mut all: Vec<_> = threads.iter().flat_map(notes).collect();
    // Stable: of one thread the order of its notes, whose times do not go back.
    all.sort_by_key(|(_, time, _)| *time);
    all.split_off(all.len().saturating_sub(most))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let told: Vec<_> = latest(&[sleepy], 9).iter().map(|(_, time, _)| *time).collect();
        assert_eq!(told, [20, 25, 40]);
        let threads = [
            of("a", true, vec![entry(0, 100, 1), entry(1, 300, 2), entry(2, 300, 3)]),
            of("b", false, vec![entry(7, 200, 4)]),
        ];
        let found = latest(&threads, 3);
        let seen: Vec<_> =
            found.iter().map(|(name, time, note)| (name.as_str(), *time, note.call.slot)).collect();
        assert_eq!(seen, [("b (ended)", 200, 4), ("a", 300, 2), ("a", 300, 3)]);
    }

    #[test]
    fn what_was_to_be_expected_is_no_alarm() {
        let down = |cause| {
            let (peer, epoch) = (NodeId(2), pronto_wire::Epoch(1));
            Alarm::of(&of_event(&Event::PeerDown { peer, epoch, cause }))
        };
        assert_eq!((down(DownCause::Goodbye), down(DownCause::Silent)), (None, Some(Alarm::PeerDown)));
        let ended = |how| Alarm::of(&Note { more: how, ..Note::of_peer(What::Ended, NodeId(2)) });
        assert_eq!(ended(Ending::Failure as u8), None);
        assert_eq!(ended(Ending::Deadline as u8), Some(Alarm::Deadline));
    }
}
