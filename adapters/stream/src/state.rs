//! The state of one stream that its tasks share with the handlers of its messages.
//!
//! # Invariants
//! 1. `received <= granted <= received - buffer.len() + window`: the buffer never holds more than the window.
//! 2. `broken` is set once, and never changed.
//! 3. No waker is cloned, woken or dropped under the lock, as it is code of the program.

use core::task::{Context, Poll, Waker};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use pronto::Bytes;

use crate::error::StreamError;

/// The half of a stream that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Half {
    Reader,
    Writer,
}

/// The shared state of a stream.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    buffer: VecDeque<u8>,
    window: u32,
    received: u64,
    granted: u64,
    /// The peer has sent all its bytes.
    finished: Finished,
    /// The offset that this side may send up to.
    edge: u64,
    broken: Option<StreamError>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// Whether the peer has sent its last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finished {
    No,
    Yes,
}

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    /// Number of bytes, 0 at the end.
    pub(crate) bytes: usize,
    /// The credit to send, if it is due.
    pub(crate) credit: Option<u64>,
}

impl Shared {
    pub(crate) fn new(window: u32, edge: u64) -> Self {
        let state = State {
            buffer: VecDeque::new(),
            window,
            received: 0,
            granted: window.into(),
            finished: Finished::No,
            edge,
            broken: None,
            reader: None,
            writer: None,
        };
        Self { state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    /// Adds a piece to the buffer. An error is one of the peer, and the stream is broken by it.
    pub(crate) fn handle_data(&self, offset: u64, bytes: &Bytes) -> Result<(), StreamError> {
        let mut state = self.lock();
        let outcome = state.append(offset, bytes);
        let woken = match &outcome {
            Ok(()) => [state.reader.take(), None],
            Err(error) => state.end(error.clone()),
        };
        drop(state);
        wake(woken);
        outcome
    }

    /// Notes that no bytes follow. An error is one of the peer, and the stream is broken by it.
    pub(crate) fn handle_finish(&self, offset: u64) -> Result<(), StreamError> {
        let mut state = self.lock();
        let outcome = state.expect_offset(offset);
        let woken = match &outcome {
            Ok(()) => {
                state.finished = Finished::Yes;
                [state.reader.take(), None]
            }
            Err(error) => state.end(error.clone()),
        };
        drop(state);
        wake(woken);
        outcome
    }

    /// Takes a credit. One that permits less than an earlier one changes nothing.
    pub(crate) fn handle_credit(&self, until: u64) {
        let mut state = self.lock();
        let more = until > state.edge;
        state.edge = state.edge.max(until);
        let writer = if more { state.writer.take() } else { None };
        drop(state);
        wake([writer, None]);
    }

    /// Ends both directions. Bytes that have arrived stay readable.
    pub(crate) fn handle_end(&self, error: StreamError) {
        let woken = self.lock().end(error);
        wake(woken);
    }

    /// Returns the reason why the stream ended.
    pub(crate) fn broken(&self) -> Option<StreamError> {
        self.lock().broken.clone()
    }

    /// Returns whether the peer has sent its last byte.
    pub(crate) fn is_finished(&self) -> bool {
        self.lock().finished == Finished::Yes
    }

    /// Moves bytes from the buffer to `out`, by pieces. Waits if there are none.
    pub(crate) fn poll_read(
        &self,
        context: &Context<'_>,
        wanted: usize,
        mut out: impl FnMut(&[u8]),
    ) -> Poll<Result<Read, StreamError>> {
        if wanted == 0 {
            return Poll::Ready(Ok(Read { bytes: 0, credit: None }));
        }
        self.poll_state(context, Half::Reader, |state| state.read(wanted, &mut out))
    }

    /// Returns how many bytes may be sent after the first `sent`. Waits while that is none.
    pub(crate) fn poll_room(&self, context: &Context<'_>, sent: u64) -> Poll<Result<u64, StreamError>> {
        self.poll_state(context, Half::Writer, |state| {
            match (&state.broken, state.edge.saturating_sub(sent)) {
                (Some(broken), _) => Some(Err(broken.clone())),
                (None, 0) => None,
                (None, room) => Some(Ok(room)),
            }
        })
    }

    /// Keeps the waker of a half that waits for something else, so that the end of the stream wakes it. Returns that end, if it has come.
    pub(crate) fn poll_end(&self, context: &Context<'_>) -> Poll<StreamError> {
        self.poll_state(context, Half::Writer, |state| state.broken.clone())
    }

    fn poll_state<R>(
        &self,
        context: &Context<'_>,
        half: Half,
        attempt: impl FnOnce(&mut State) -> Option<R>,
    ) -> Poll<R> {
        // The clone is wasted if there is no wait, but it must not be made under the lock.
        let waker = context.waker().clone();
        let mut state = self.lock();
        if let Some(result) = attempt(&mut state) {
            return Poll::Ready(result);
        }
        let place = match half {
            Half::Reader => &mut state.reader,
            Half::Writer => &mut state.writer,
        };
        let old = place.replace(waker);
        drop(state);
        drop(old);
        Poll::Pending
    }
}

impl State {
    fn expect_offset(&self, offset: u64) -> Result<(), StreamError> {
        if offset == self.received && self.finished == Finished::No {
            Ok(())
        } else {
            Err(StreamError::OutOfSequence { offset, expected: self.received })
        }
    }

    fn append(&mut self, offset: u64, bytes: &Bytes) -> Result<(), StreamError> {
        if let Some(broken) = &self.broken {
            return Err(broken.clone());
        }
        self.expect_offset(offset)?;
        if bytes.is_empty() {
            return Err(StreamError::OutOfSequence { offset, expected: self.received });
        }
        let sent = offset.saturating_add(bytes.len() as u64);
        if sent > self.granted {
            return Err(StreamError::WindowExceeded { sent, granted: self.granted });
        }
        let held = self.buffer.len();
        self.buffer.resize(held + bytes.len(), 0);
        let (first, second) = self.buffer.as_mut_slices();
        // The new bytes may continue from the end of the ring's memory at its start.
        let first = first.get_mut(held..).unwrap_or_default();
        let in_second = bytes.len() - first.len();
        let begin = second.len() - in_second;
        let copied = bytes.copy_to(0, first).and_then(|()| bytes.copy_to(first.len(), &mut second[begin..]));
        if copied.is_err() {
            self.buffer.truncate(held);
            return Err(StreamError::Unreadable);
        }
        self.received = sent;
        self.check();
        Ok(())
    }

    fn read(&mut self, wanted: usize, out: &mut impl FnMut(&[u8])) -> Option<Result<Read, StreamError>> {
        if self.buffer.is_empty() {
            return match (self.finished, &self.broken) {
                (Finished::Yes, _) => Some(Ok(Read { bytes: 0, credit: None })),
                (Finished::No, Some(broken)) => Some(Err(broken.clone())),
                (Finished::No, None) => None,
            };
        }
        let bytes = wanted.min(self.buffer.len());
        let (first, second) = self.buffer.as_slices();
        let in_first = bytes.min(first.len());
        out(&first[..in_first]);
        out(&second[..bytes - in_first]);
        self.buffer.drain(..bytes);
        let credit = self.credit();
        self.check();
        Some(Ok(Read { bytes, credit }))
    }

    /// Grants what was read, if that is half of the window: a credit for each read would be as many messages as pieces.
    fn credit(&mut self) -> Option<u64> {
        let until = self.received - self.buffer.len() as u64 + u64::from(self.window);
        let due = (until - self.granted) * 2 >= self.window.into();
        if self.finished == Finished::Yes || self.broken.is_some() || !due {
            return None;
        }
        self.granted = until;
        Some(until)
    }

    fn end(&mut self, error: StreamError) -> [Option<Waker>; 2] {
        if self.broken.is_some() {
            return [None, None];
        }
        self.broken = Some(error);
        [self.reader.take(), self.writer.take()]
    }

    fn check(&self) {
        debug_assert!(self.received <= self.granted, "more bytes were taken than granted");
        debug_assert!(
            self.granted <= self.received - self.buffer.len() as u64 + u64::from(self.window),
            "more bytes are granted than the buffer may hold"
        );
    }
}

fn wake(wakers: [Option<Waker>; 2]) {
    wakers.into_iter().flatten().for_each(Waker::wake);
}
