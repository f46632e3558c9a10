//! Payloads from one core to another: the floor of any transfer in which both sides touch every byte.

use core::hint::{black_box, spin_loop};
use core::time::Duration;
use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::sync::mpsc;

use anyhow::Context as _;

use super::socket::tcp_pair;
use crate::clock;
use crate::placement::{CpuPair, face_to_face};

/// Memory of a stream of payloads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Footprint {
    /// Number of buffers, which are used in turns.
    pub(crate) buffers: usize,
    /// Largest number of buffers that hold a payload at a time.
    pub(crate) under_way: usize,
}

/// One thread copies `bytes` from a private buffer into the next of several, the other adds them up there and returns the buffer.
/// Returns the number of bytes, and their time.
pub(crate) fn copy_and_sum(
    cpus: CpuPair,
    bytes: usize,
    Footprint { buffers, under_way }: Footprint,
    budget: Duration,
) -> anyhow::Result<(u64, Duration)> {
    let words = bytes / size_of::<u64>();
    let (to_reader, full) = mpsc::sync_channel::<Box<[u64]>>(buffers);
    let (to_writer, read) = mpsc::sync_channel::<Box<[u64]>>(buffers);
    let mut free: VecDeque<Box<[u64]>> = (0..buffers).map(|_| vec![1; words].into()).collect();
    let reader = move || {
        while let Some(buffer) = next(&full) {
            black_box(buffer.iter().fold(0, |sum: u64, word| sum.wrapping_add(*word)));
            // Fails only if the writer has ended.
            let _ = to_writer.send(buffer);
        }
        Ok(())
    };
    let writer = move || {
        let source = vec![7_u64; words];
        let mut copy = |times: u32| {
            for _ in 0..times {
                while let Ok(buffer) = read.try_recv() {
                    free.push_back(buffer);
                }
                while buffers - free.len() >= under_way.min(buffers) {
                    free.push_back(next(&read).context("the reader has ended")?);
                }
                let mut buffer = free.pop_front().context("no buffer is free")?;
                buffer.copy_from_slice(black_box(&source));
                to_reader.send(buffer).context("the reader has ended")?;
            }
            anyhow::Ok(())
        };
        copy(WARM_UP)?;
        let started = clock::now();
        let mut copied = 0;
        while started.elapsed() < budget {
            copy(PER_READING)?;
            copied += u64::from(PER_READING);
        }
        Ok((copied * bytes as u64, started.elapsed()))
    };
    face_to_face(cpus, reader, writer)
}

/// One thread writes `bytes` at a time to a TCP connection on the loopback interface, the other reads and adds them up. Returns the
/// number of bytes, and their time.
pub(crate) fn tcp_stream(cpus: CpuPair, bytes: usize, budget: Duration) -> anyhow::Result<(u64, Duration)> {
    let (mut near, mut far) = tcp_pair()?;
    let reader = || {
        let mut buffer = vec![0; bytes.max(READ_BYTES)];
        loop {
            match far.read(&mut buffer).context("reading from the loopback interface")? {
                0 => return Ok(()),
                read => black_box(buffer[..read].iter().fold(0, |sum: u64, byte| sum + u64::from(*byte))),
            };
        }
    };
    let writer = move || {
        let source = vec![7; bytes];
        let started = clock::now();
        let mut written = 0;
        while started.elapsed() < budget {
            near.write_all(black_box(&source)).context("writing to the loopback interface")?;
            written += bytes as u64;
        }
        Ok((written, started.elapsed()))
    };
    face_to_face(cpus, reader, writer)
}

/// Polls for the next buffer; `None` if the other side has ended.
fn next<T>(from: &mpsc::Receiver<T>) -> Option<T> {
    loop {
        match from.try_recv() {
            Ok(buffer) => return Some(buffer),
            Err(mpsc::TryRecvError::Empty) => spin_loop(),
            Err(mpsc::TryRecvError::Disconnected) => return None,
        }
    }
}

/// Enough to fault in every buffer.
const WARM_UP: u32 = 32;
/// Number of copies between two clock readings.
const PER_READING: u32 = 4;
/// Bytes that one system call reads at most if messages are shorter.
const READ_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Placement;

    #[test]
    fn whole_buffers_are_copied_for_the_requested_time() {
        let Some(cpus) = Placement::choose().unwrap().pair() else {
            return pronto_skip::because(pronto_skip::ONE_CPU);
        };
        let budget = Duration::from_millis(3);
        for (bytes, time) in [
            copy_and_sum(cpus, 4096, Footprint { buffers: 4, under_way: 2 }, budget).unwrap(),
            tcp_stream(cpus, 4096, budget).unwrap(),
        ] {
            assert!(bytes > 0 && bytes.is_multiple_of(4096) && time >= budget);
        }
    }
}
