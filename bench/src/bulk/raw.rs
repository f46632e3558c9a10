//! Floors: a memcpy and a read by one core, a memcpy by one core and the read by another, and a stream over the loopback interface.

use core::hint::{black_box, spin_loop};
use core::time::Duration;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc;

use anyhow::Context as _;

use super::round::Rounds;
use super::{Cell, Sender, send_cell, stamp, sum};
use crate::clock;
use crate::floor::tcp_pair;
use crate::placement::{CpuPair, alone, face_to_face};

/// A bare mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Raw {
    /// One core copies a message into another buffer, and reads it there.
    OneCore,
    /// One core copies a message into another buffer, which another core reads.
    TwoCores,
    /// A blocking TCP stream on the loopback interface, into a buffer per message, which is read when the message is complete.
    Stream,
    /// Such a stream whose reader adds up each piece as it arrives.
    StreamInPieces,
}

impl Raw {
    /// Runs one round.
    pub(crate) fn round(
        self,
        cpus: CpuPair,
        cells: &[Cell],
        budget: Duration,
        rounds: &mut Rounds,
    ) -> anyhow::Result<()> {
        let reading = alone(cpus.server, || {
            let bytes = vec![7; READ];
            Ok(time_reading(|| sum::of(black_box(&bytes))))
        })?;
        rounds.reading.round(reading.0, reading.1);
        for cell in cells {
            let made = match self {
                Self::OneCore => one_core(cpus, *cell, budget),
                Self::TwoCores => two_cores(cpus, *cell, budget),
                Self::Stream => stream(cpus, *cell, cell.bytes, budget),
                Self::StreamInPieces => stream(cpus, *cell, cell.bytes.min(PIECE), budget),
            };
            rounds.cell(*cell, made?);
        }
        Ok(())
    }
}

/// Times the sum of [`READ`] bytes, which `read` returns, several times. Returns the number of bytes, and the shortest time.
pub(super) fn time_reading(mut read: impl FnMut() -> u64) -> (u64, Duration) {
    let time = |_| {
        let started = clock::now();
        black_box(read());
        started.elapsed()
    };
    (READ as u64, (0..READ_TIMES).map(time).min().unwrap_or_default())
}

/// Messages of a cell in private memory, and their sums.
struct Sources {
    messages: Vec<Vec<u8>>,
    sums: Vec<u64>,
}

impl Sources {
    fn new(cell: Cell) -> Self {
        let messages: Vec<_> = (0..cell.open).map(|slot| cell.message(slot)).collect();
        let sums = messages.iter().map(|message| sum::of(message)).collect();
        Self { messages, sums }
    }

    /// Returns the message of a slot, with a number.
    fn stamped(&mut self, slot: usize, number: u64) -> &[u8] {
        let message = &mut self.messages[slot];
        stamp(message, number);
        black_box(message)
    }
}

/// Copies and reads a message when it is started.
struct OneCore<'a> {
    messages: &'a mut Sources,
    targets: Vec<Vec<u8>>,
    answers: Vec<u64>,
}

impl Sender for OneCore<'_> {
    fn start(&mut self, slot: usize, number: u64) -> anyhow::Result<()> {
        self.targets[slot].copy_from_slice(self.messages.stamped(slot, number));
        self.answers[slot] = sum::of(black_box(&self.targets[slot]));
        Ok(())
    }

    fn finish(&mut self, slot: usize) -> anyhow::Result<u64> {
        Ok(self.answers[slot])
    }
}

fn one_core(cpus: CpuPair, cell: Cell, budget: Duration) -> anyhow::Result<(u64, Duration)> {
    alone(cpus.server, || {
        let mut messages = Sources::new(cell);
        let sums = messages.sums.clone();
        let targets = vec![vec![1; cell.bytes]; cell.open];
        let mut sender = OneCore { messages: &mut messages, targets, answers: vec![0; cell.open] };
        send_cell(&mut sender, cell, &sums, budget)
    })
}

/// Copies into a buffer that another core reads, which gives the buffer back with the sum.
struct TwoCores {
    messages: Sources,
    free: Vec<Vec<u8>>,
    full: mpsc::Sender<Vec<u8>>,
    read: mpsc::Receiver<(Vec<u8>, u64)>,
}

impl Sender for TwoCores {
    fn start(&mut self, slot: usize, number: u64) -> anyhow::Result<()> {
        let mut buffer = self.free.pop().context("no buffer is free")?;
        buffer.copy_from_slice(self.messages.stamped(slot, number));
        self.full.send(buffer).context("the reader has ended")
    }

    fn finish(&mut self, _slot: usize) -> anyhow::Result<u64> {
        let (buffer, sum) = next(&self.read).context("the reader has ended")?;
        self.free.push(buffer);
        Ok(sum)
    }
}

fn two_cores(cpus: CpuPair, cell: Cell, budget: Duration) -> anyhow::Result<(u64, Duration)> {
    let (full, to_read) = mpsc::channel::<Vec<u8>>();
    let (to_writer, read) = mpsc::channel();
    let reader = move || {
        while let Some(buffer) = next(&to_read) {
            let sum = sum::of(&buffer);
            // Fails only if the writer has ended.
            let _ = to_writer.send((buffer, sum));
        }
        Ok(())
    };
    let writer = move || {
        let messages = Sources::new(cell);
        let sums = messages.sums.clone();
        let free = vec![vec![1; cell.bytes]; cell.open];
        send_cell(&mut TwoCores { messages, free, full, read }, cell, &sums, budget)
    };
    face_to_face(cpus, reader, writer)
}

/// Polls for the next value; `None` if the other side has ended.
fn next<T>(from: &mpsc::Receiver<T>) -> Option<T> {
    loop {
        match from.try_recv() {
            Ok(value) => return Some(value),
            Err(mpsc::TryRecvError::Empty) => spin_loop(),
            Err(mpsc::TryRecvError::Disconnected) => return None,
        }
    }
}

/// Writes messages into a socket, and reads the sums from it.
struct Stream {
    messages: Sources,
    socket: TcpStream,
}

impl Sender for Stream {
    fn start(&mut self, slot: usize, number: u64) -> anyhow::Result<()> {
        self.socket.write_all(self.messages.stamped(slot, number)).context("writing a message")
    }

    fn finish(&mut self, _slot: usize) -> anyhow::Result<u64> {
        let mut sum = [0; 8];
        self.socket.read_exact(&mut sum).context("reading a sum")?;
        Ok(u64::from_le_bytes(sum))
    }
}

/// Sends messages over the loopback interface, whose reader adds up `piece` bytes at a time.
fn stream(cpus: CpuPair, cell: Cell, piece: usize, budget: Duration) -> anyhow::Result<(u64, Duration)> {
    let (near, mut far) = tcp_pair()?;
    let reader = move || {
        // Buffers of whole messages take turns; pieces are read into one buffer.
        let mut buffers = vec![vec![1; piece]; if piece == cell.bytes { cell.open } else { 1 }];
        for slot in (0..buffers.len()).cycle() {
            let mut total = 0_u64;
            for _ in 0..cell.bytes / piece {
                let buffer = &mut buffers[slot];
                match far.read_exact(buffer) {
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
                    read => read.context("reading a message")?,
                }
                total = total.wrapping_add(sum::of(black_box(buffer)));
            }
            far.write_all(&total.to_le_bytes()).context("writing a sum")?;
        }
        Ok(())
    };
    let writer = move || {
        let messages = Sources::new(cell);
        let sums = messages.sums.clone();
        let mut sender = Stream { messages, socket: near };
        let made = send_cell(&mut sender, cell, &sums, budget);
        sender.socket.shutdown(Shutdown::Write).context("ending the stream")?;
        made
    };
    face_to_face(cpus, reader, writer)
}

/// Length of the buffer of which the sum alone is timed, and number of sums; also in `bench/peers`.
pub(super) const READ: usize = 1 << 20;
const READ_TIMES: u32 = 16;
/// Length of the pieces of a stream that is read in pieces; divides all lengths.
const PIECE: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Placement;

    #[test]
    fn every_floor_delivers_every_byte() {
        let Some(cpus) = Placement::choose().unwrap().pair() else {
            return pronto_skip::because(pronto_skip::ONE_CPU);
        };
        let cells = [Cell { bytes: 128 << 10, open: 1 }, Cell { bytes: 128 << 10, open: 3 }];
        for raw in [Raw::OneCore, Raw::TwoCores, Raw::Stream, Raw::StreamInPieces] {
            let mut rounds = Rounds::default();
            raw.round(cpus, &cells, Duration::from_millis(2), &mut rounds).unwrap();
            assert!(cells.iter().all(|cell| rounds.cells[cell].per_second() > 0.0), "{raw:?}");
            assert!(rounds.reading.per_second() > 0.0);
        }
    }
}
