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

/// Which memory a stream of payloads goes through.
#[derive(Clone, Copy, Debug)]
pub struct Footprint {
    /// Buffers, used in turns.
    pub buffers: usize,
    /// How many of them hold a payload at a time, at most.
    pub under_way: usize,
}

/// One thread copies `bytes` out of a buffer of its own into the next of several, the other adds them up there and gives the buffer
/// back: bytes and the time they took.
///
/// # Errors
/// If a thread cannot be pinned.
pub fn copy_and_sum(
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
            // A writer that is gone wants no buffer back.
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
                    free.push_back(next(&read).context("the reader gives every buffer back")?);
                }
                let mut buffer = free.pop_front().context("fewer are under way")?;
                buffer.copy_from_slice(black_box(&source));
                to_reader.send(buffer).context("the reader takes every buffer")?;
            }
            anyhow::Ok(())
        };
        copy(WARM_UP)?;
        let started = clock::now();
        let mut copied = 0;
        while started.elapsed() < budget {
            copy(PER_LOOK)?;
            copied += u64::from(PER_LOOK);
        }
        Ok((copied * bytes as u64, started.elapsed()))
    };
    face_to_face(cpus, reader, writer)
}

/// One thread writes `bytes` at a time to a TCP connection on the loopback interface, the other reads and adds them up: bytes and
/// the time they took.
///
/// # Errors
/// If a thread cannot be pinned, or the sockets fail.
pub fn tcp_stream(cpus: CpuPair, bytes: usize, budget: Duration) -> anyhow::Result<(u64, Duration)> {
    let (mut near, mut far) = tcp_pair()?;
    let reader = || {
        let mut buffer = vec![0; bytes.max(READ_AT_ONCE)];
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

/// The next buffer, waited for without sleeping; none if the other side is gone.
fn next<T>(from: &mpsc::Receiver<T>) -> Option<T> {
    loop {
        match from.try_recv() {
            Ok(buffer) => return Some(buffer),
            Err(mpsc::TryRecvError::Empty) => spin_loop(),
            Err(mpsc::TryRecvError::Disconnected) => return None,
        }
    }
}

/// Enough to have every buffer in memory.
const WARM_UP: u32 = 32;
/// Copies between two looks at the clock.
const PER_LOOK: u32 = 4;
/// What one system call reads at most, bytes, if messages are shorter.
const READ_AT_ONCE: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Placement;

    #[test]
    fn whole_buffers_are_copied_for_the_time_asked() {
        let Some(cpus) = Placement::choose().unwrap().pair() else { return };
        let budget = Duration::from_millis(3);
        for (bytes, time) in [
            copy_and_sum(cpus, 4096, Footprint { buffers: 4, under_way: 2 }, budget).unwrap(),
            tcp_stream(cpus, 4096, budget).unwrap(),
        ] {
            assert!(bytes > 0 && bytes.is_multiple_of(4096) && time >= budget);
        }
    }
}
