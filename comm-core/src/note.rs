//! Entries of the flight recorder, which threads write through [`Executor::note`](crate::Executor::note): 80 bits each.

use core::fmt;

use pronto_wire::{CallId, NodeId};

use crate::session::DownCause;

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// The event.
    pub what: What,
    /// The peer of the event; 0 for an event without a peer.
    pub peer: NodeId,
    /// The call.
    pub call: CallId,
    /// A detail that depends on `what`: a type's number, an [`Ending`], or the number of a [`DownCause`].
    pub more: u8,
}

macro_rules! whats {
    ($($(#[$doc:meta])* $name:ident => $text:literal,)*) => {
        /// Events that can be noted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum What {
            $($(#[$doc])* $name,)*
        }

        impl What {
            const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the event in human-readable form.
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

whats! {
    /// A request of this node was posted.
    Called => "called",
    /// A call of this node ended without a reply; `more` is an [`Ending`].
    Ended => "ended",
    /// A handler starts on a request or notification of the peer; `more` has the low bits of the type's number.
    Handles => "handles",
    /// A handler on the pool has finished.
    Handled => "handled",
    /// A handler panicked.
    Panicked => "handler panicked",
    /// The thread is about to sleep. Its next note was written after it had woken.
    Sleeps => "sleeps",
    /// A message waits for room in the fabric.
    Stalls => "waits for room",
    /// A wake-up was lost: a safety-net timeout found the event.
    Rescued => "lost wake-up",
    /// The peer can be called.
    Up => "peer up",
    /// The peer is down; `more` is the number of a [`DownCause`].
    Down => "peer down",
    /// The link broke.
    LinkLost => "link lost",
    /// A new link has resumed the session.
    LinkResumed => "link resumed",
    /// The idle link has ended, in agreement with the peer.
    LinkPaused => "link paused",
    /// The paused session has a link again.
    PauseEnded => "pause ended",
}

/// The end of a call without a reply. Replies are not recorded, as they are the common case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Ending {
    /// The peer reported a failure.
    Failure,
    /// The peer went down.
    PeerDown,
    /// The deadline passed.
    Deadline,
    /// The call ended in another way.
    Other,
}

impl Note {
    /// Returns an entry about a peer and no call.
    pub const fn of_peer(what: What, peer: NodeId) -> Self {
        Self { what, peer, call: CallId { slot: 0, generation: 0 }, more: 0 }
    }

    /// Returns the entry as two numbers: event, detail, peer and the generation of the call's slot; and the slot.
    #[inline(always)]
    pub const fn words(self) -> (u64, u16) {
        let CallId { slot, generation } = self.call;
        let word = self.what as u64
            | (self.more as u64) << 8
            | (self.peer.0 as u64) << 16
            | (generation as u64) << 32;
        (word, slot)
    }

    /// Returns the entry with these numbers, or `None` if they are not those of an entry.
    pub fn from_words(word: u64, low: u16) -> Option<Self> {
        let [what, more, peer_low, peer_high, generation @ ..] = word.to_le_bytes();
        let what = *What::ALL.get(usize::from(what))?;
        let peer = NodeId(u16::from_le_bytes([peer_low, peer_high]));
        let call = CallId { slot: low, generation: u32::from_le_bytes(generation) };
        Some(Self { what, peer, call, more })
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what.text())?;
        if self.peer.0 != 0 {
            write!(f, ", peer {}", self.peer.0)?;
        }
        let CallId { slot, generation } = self.call;
        match self.what {
            What::Called | What::Handled | What::Panicked => write!(f, ", call {slot}.{generation}"),
            What::Handles => write!(f, ", call {slot}.{generation}, type {}", self.more),
            What::Down => match DownCause::name_of(self.more) {
                Some(cause) => write!(f, ": {cause}"),
                None => Ok(()),
            },
            What::Ended => write!(f, ", call {slot}.{generation}: {}", ending(self.more)),
            _ => Ok(()),
        }
    }
}

const fn ending(more: u8) -> &'static str {
    match more {
        0 => "failure",
        1 => "peer down",
        2 => "deadline",
        _ => "otherwise",
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use super::*;

    #[test]
    fn notes_round_trip() {
        for what in What::ALL {
            let call = CallId { slot: 1023, generation: 0xffff_fff0 };
            let note = Note { what: *what, peer: NodeId(65_535), call, more: 200 };
            let (word, low) = note.words();
            assert_eq!(Note::from_words(word, low), Some(note));
        }
        assert_eq!(Note::from_words(u64::MAX, 0), None);
        assert_eq!(Note::from_words(200, 0), None);
    }

    #[test]
    fn ending_names_match_their_numbers() {
        let call = CallId { slot: 3, generation: 7 };
        let says = |ending: Ending| {
            Note { what: What::Ended, peer: NodeId(2), call, more: ending as u8 }.to_string()
        };
        assert_eq!(says(Ending::Deadline), "ended, peer 2, call 3.7: deadline");
        assert!(says(Ending::PeerDown).ends_with("peer down"));
        let down = |more| Note { more, ..Note::of_peer(What::Down, NodeId(2)) }.to_string();
        assert_eq!(down(DownCause::Silent.number()), "peer down, peer 2: Silent");
        assert_eq!(down(DownCause::Goodbye.number()), "peer down, peer 2: Goodbye");
        assert_eq!(down(200), "peer down, peer 2");
        assert!(says(Ending::Failure).ends_with("failure") && says(Ending::Other).ends_with("otherwise"));
    }
}
