//! Long messages: over Pronto, other projects' libraries, bare memory and bare sockets, all with the same work on both sides.
//!
//! A sender has as many messages in its memory as are under way, and sends them in turns. The receiver adds up every byte of a message
//! where it has arrived, and answers with the sum, which the sender compares. The second word of each message is its number, so that the
//! sum of an earlier message is wrong.
//!
//! | module | content |
//! | --- | --- |
//! | [`line_up`] | the participants, with their transports and settings |
//! | [`ours`], [`receiver`] | Pronto as a participant: the sending side, and the child that receives |
//! | [`raw`] | the floors: one core that copies and reads, two cores, and a stream |
//! | [`round`] | the rounds of a participant, and the output of the programs in `bench/peers` |
//! | [`sum`] | the sum, which is also that of `bench/peers` |

pub(crate) mod line_up;
pub(crate) mod ours;
pub(crate) mod raw;
pub(crate) mod receiver;
pub(crate) mod round;
pub(crate) mod sum;

use core::time::Duration;

use crate::clock;
use crate::params::choices;

choices! {
    /// Number of messages under way.
    pub(crate) enum Window {
        One = "one",
        Pipelined = "pipelined",
    }
}

choices! {
    /// The memory in which the receiver reads a message.
    pub(crate) enum Read {
        /// A buffer that it has posted.
        Posted = "posted",
        /// The memory in which the transport delivers the message.
        InPlace = "in-place",
    }
}

/// A length of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    /// Length, bytes.
    pub(crate) bytes: usize,
    /// Name of the length, as a value of a column.
    pub(crate) name: &'static str,
}

/// The lengths of messages, which are multiples of [`sum::BLOCK`].
pub(crate) const SIZES: [Size; 4] = [
    Size { bytes: 64 << 10, name: "65536" },
    Size { bytes: 1 << 20, name: "1048576" },
    Size { bytes: 16 << 20, name: "16777216" },
    Size { bytes: 64 << 20, name: "67108864" },
];

/// Messages of one length, and the number of them under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cell {
    /// Length of a message, bytes.
    pub(crate) bytes: usize,
    /// Number of messages under way, of buffers of the sender, and of buffers of the receiver.
    pub(crate) open: usize,
}

impl Cell {
    /// Returns the cell of a length and a window.
    pub(crate) fn new(bytes: usize, window: Window) -> Self {
        let open = match window {
            Window::One => 1,
            Window::Pipelined => (UNDER_WAY / bytes).clamp(2, MOST_OPEN),
        };
        Self { bytes, open }
    }

    /// Returns the length of all buffers of one side, bytes.
    pub(crate) const fn footprint(self) -> usize {
        self.bytes * self.open
    }

    /// Returns the cell as an argument of the programs in `bench/peers`.
    pub(crate) fn argument(self) -> String {
        format!("{}:{}", self.bytes, self.open)
    }

    /// Returns the message of a slot. Its number is 0.
    fn message(self, slot: usize) -> Vec<u8> {
        let byte = |at: usize| (at * 7 + at / 4096 + slot).to_le_bytes()[0];
        let mut message: Vec<u8> = (0..self.bytes).map(byte).collect();
        stamp(&mut message, 0);
        message
    }
}

/// Sets the number of a message.
fn stamp(message: &mut [u8], number: u64) {
    message[NUMBER..NUMBER + size_of::<u64>()].copy_from_slice(&number.to_le_bytes());
}

/// The sending side of a cell.
trait Sender {
    /// Starts to send the message of a slot, with a number.
    fn start(&mut self, slot: usize, number: u64) -> anyhow::Result<()>;

    /// Waits for the sum of the message of a slot, and until its memory may change.
    fn finish(&mut self, slot: usize) -> anyhow::Result<u64>;
}

/// The messages of a cell that have been sent and answered.
struct Progress<'a, S> {
    sender: &'a mut S,
    open: u64,
    /// Sum of the message of each slot, with the number 0.
    sums: &'a [u64],
    sent: u64,
    answered: u64,
}

impl<S: Sender> Progress<'_, S> {
    /// Sends at least `least` messages, and until `budget` is over. Returns their number.
    fn send(&mut self, least: u64, budget: Duration) -> anyhow::Result<u64> {
        let (first, started) = (self.sent, clock::now());
        while self.sent - first < least || started.elapsed() < budget {
            if self.sent - self.answered == self.open {
                self.finish()?;
            }
            self.sender.start(self.slot(self.sent), self.sent)?;
            self.sent += 1;
        }
        while self.answered < self.sent {
            self.finish()?;
        }
        Ok(self.sent - first)
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        let slot = self.slot(self.answered);
        let sum = self.sender.finish(slot)?;
        let expected = self.sums[slot].wrapping_add(self.answered);
        anyhow::ensure!(sum == expected, "message {} was changed on its way", self.answered);
        self.answered += 1;
        Ok(())
    }

    fn slot(&self, number: u64) -> usize {
        usize::try_from(number % self.open).expect("less than the number of slots")
    }
}

/// Sends the messages of a cell for about `budget`, after some that touch all memory. `sums` has the sum of each slot's message with the
/// number 0. Returns the number of messages, and their time.
fn send_cell(
    sender: &mut impl Sender,
    cell: Cell,
    sums: &[u64],
    budget: Duration,
) -> anyhow::Result<(u64, Duration)> {
    let mut progress = Progress { sender, open: cell.open as u64, sums, sent: 0, answered: 0 };
    progress.send(LEAST * cell.open as u64, Duration::ZERO)?;
    let started = clock::now();
    let count = progress.send(LEAST * cell.open as u64, budget)?;
    Ok((count, started.elapsed()))
}

/// Place of the number of a message: its second word, because a message that is read in place begins with the count of its bytes.
const NUMBER: usize = 8;

/// Bytes under way when pipelined, if the number of messages is within its bounds.
const UNDER_WAY: usize = 8 << 20;
/// Maximum number of messages under way: a peer has places for as many receives. Also in the programs of `bench/peers`.
const MOST_OPEN: usize = 16;
/// Number of messages per slot that touch all memory, and least number that is measured.
const LEAST: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Choice as _;

    #[test]
    fn cells_state_what_is_under_way() {
        let open = SIZES.map(|size| Cell::new(size.bytes, Window::Pipelined).open);
        assert_eq!(open, [16, 8, 2, 2]);
        for size in SIZES {
            assert_eq!(size.name, size.bytes.to_string());
            assert!(size.bytes.is_multiple_of(sum::BLOCK));
            assert_eq!(Cell::new(size.bytes, Window::One), Cell { bytes: size.bytes, open: 1 });
        }
        assert_eq!(Cell { bytes: 64, open: 3 }.argument(), "64:3");
        assert_eq!((Window::NAMES.len(), Read::NAMES.len()), (2, 2));
    }

    /// A receiver that answers with the sums of its messages, and of which `wrong` says what it does with a sum.
    struct Echo {
        messages: Vec<Vec<u8>>,
        order: Vec<(usize, u64)>,
        wrong: fn(u64) -> u64,
    }

    impl Sender for Echo {
        fn start(&mut self, slot: usize, number: u64) -> anyhow::Result<()> {
            stamp(&mut self.messages[slot], number);
            self.order.push((slot, number));
            Ok(())
        }

        fn finish(&mut self, slot: usize) -> anyhow::Result<u64> {
            Ok((self.wrong)(sum::of(&self.messages[slot])))
        }
    }

    #[test]
    fn slots_take_turns_and_every_sum_is_compared() {
        let cell = Cell { bytes: 256, open: 3 };
        let messages: Vec<_> = (0..cell.open).map(|slot| cell.message(slot)).collect();
        let sums: Vec<_> = messages.iter().map(|message| sum::of(message)).collect();
        let mut echo = Echo { messages, order: Vec::new(), wrong: |sum| sum };
        let (count, _) = send_cell(&mut echo, cell, &sums, Duration::ZERO).unwrap();
        assert_eq!(count, 6, "the first ones are not counted");
        let expected: Vec<_> = (0..12).map(|number| ((number % 3) as usize, number)).collect();
        assert_eq!(echo.order, expected);
        echo.wrong = |sum| sum - 1;
        assert!(send_cell(&mut echo, cell, &sums, Duration::ZERO).is_err(), "the sum of an earlier message");
    }
}
