//! Large payloads, sent by every method. The receiver adds up each of them and replies with the sum.

use core::hint::black_box;
use core::time::Duration;
use std::collections::VecDeque;

use anyhow::Context as _;
use pronto::rpc::encode_message;
use pronto::{Peer, Pending, Region, Request};

use super::drive::{Open, PATIENCE};
use super::messages::{Decoded, Read, Taken, Total, sum};
use crate::clock;
use crate::params::choices;
use crate::sample::Recorder;

choices! {
    /// Path of a payload to its reader.
    pub(crate) enum Mode {
        /// Copied from private memory into send memory, and read there.
        Copied = "copied",
        /// Copied into send memory, then into the receiver's private memory, and read there.
        TwoCopies = "two-copies",
        /// Like two copies, but decoded into a typed vector, as for a plain handler.
        Decoded = "decoded",
        /// By reference to a region, and read there.
        Reference = "reference",
    }
}

/// Payloads of one size, ready to be sent in every mode.
#[derive(Debug)]
pub(crate) struct Blobs {
    bytes: usize,
    own: Vec<u8>,
    /// Encoded payloads, one after the other: as many as may be under way.
    region: Region,
    sum: u64,
    sum_decoded: u64,
}

impl Blobs {
    /// Prepares payloads of `bytes`, of which 4 are the count of the others; a region holds `open` of them.
    pub(crate) fn new(bytes: usize, open: Open) -> anyhow::Result<Self> {
        let own: Vec<u8> = (0..=255).cycle().take(bytes - size_of::<u32>()).collect();
        let mut encoded = vec![0; bytes];
        encode_message(&Read { bytes: own.clone() }, &mut encoded).context("a buffer of the right length")?;
        let region = pronto::region(bytes * open.0).context("a region")?;
        for place in 0..open.0 {
            region.write(place * bytes, &encoded).context("a part of the region")?;
        }
        Ok(Self { bytes, sum: sum(&encoded), sum_decoded: sum(&own), own, region })
    }

    /// Sends for about `time` with `open` payloads under way. Returns the number that arrived.
    pub(crate) fn send(&self, peer: &Peer, mode: Mode, open: Open, time: Duration) -> anyhow::Result<u64> {
        let bytes = || black_box(&self.own).clone();
        match mode {
            Mode::Copied => {
                let blob = Read { bytes: bytes() };
                pipeline(open, time, self.sum, |_| peer.start(black_box(&blob)))
            }
            Mode::TwoCopies => {
                let blob = Taken { bytes: bytes() };
                pipeline(open, time, self.sum, |_| peer.start(black_box(&blob)))
            }
            Mode::Decoded => {
                let blob = Decoded { bytes: bytes() };
                pipeline(open, time, self.sum_decoded, |_| peer.start(black_box(&blob)))
            }
            Mode::Reference => pipeline(open, time, self.sum, |count| {
                let start = count % open.0 as u64 * self.bytes as u64;
                peer.start_from::<Read>(&self.region, start..start + self.bytes as u64)
            }),
        }
    }
}

impl Blobs {
    /// Repeats one payload at a time, copied or by reference, for about `budget`, and adds the times to `into`.
    pub(crate) fn measure(
        &self,
        peer: &Peer,
        mode: Mode,
        budget: Duration,
        into: &mut Recorder,
    ) -> anyhow::Result<()> {
        let blob = Read { bytes: self.own.clone() };
        into.round(budget, || {
            let pending = match mode {
                Mode::Reference => peer.start_from::<Read>(&self.region, 0..self.bytes as u64),
                Mode::Copied | Mode::TwoCopies | Mode::Decoded => peer.start(black_box(&blob)),
            };
            let total = pending.and_then(Pending::wait).context("a large payload")?;
            anyhow::ensure!(total.sum == self.sum, "a payload was changed on its way");
            Ok(())
        })
    }
}

impl Blobs {
    /// Repeats one payload at a time for about `budget`, each by reference to a region that the peer does not know yet. The time of a
    /// payload ends when its region is removed; allocating and filling the region is not timed.
    pub(crate) fn measure_fresh(
        &self,
        peer: &Peer,
        budget: Duration,
        into: &mut Recorder,
    ) -> anyhow::Result<()> {
        let encoded = self.encoded()?;
        let started = clock::now();
        into.as_round(|recorder| {
            while started.elapsed() < budget {
                let region = pronto::region(self.bytes).context("a region")?;
                region.write(0, &encoded).context("a part of the region")?;
                let before = clock::now();
                let pending = peer.start_from::<Read>(&region, 0..self.bytes as u64);
                let total = pending.and_then(Pending::wait).context("a large payload")?;
                drop(region);
                recorder.record_single(before.elapsed());
                anyhow::ensure!(total.sum == self.sum, "a payload was changed on its way");
            }
            Ok(())
        })
    }

    /// Repeats a copy of the payload into a region for about `budget`.
    pub(crate) fn measure_copy(&self, budget: Duration, into: &mut Recorder) -> anyhow::Result<()> {
        let (encoded, region) = (self.encoded()?, pronto::region(self.bytes).context("a region")?);
        into.round(budget, || region.write(0, black_box(&encoded)).context("a copy"))
    }

    /// Returns a copy of one payload.
    fn encoded(&self) -> anyhow::Result<Vec<u8>> {
        let mut encoded = vec![0; self.bytes];
        self.region.read(0, &mut encoded).context("the payload")?;
        Ok(encoded)
    }
}

fn pipeline<M: Request<Reply = Total>>(
    open: Open,
    time: Duration,
    expected: u64,
    mut start: impl FnMut(u64) -> Result<Pending<M>, pronto::CallError>,
) -> anyhow::Result<u64> {
    let started = clock::now();
    let mut pending: VecDeque<Pending<M>> = VecDeque::with_capacity(open.0);
    let mut answered = 0;
    let finish = |oldest: Pending<M>| {
        let total = oldest.wait().context("a large payload")?;
        anyhow::ensure!(total.sum == expected, "a payload was changed on its way");
        anyhow::Ok(())
    };
    let mut sent = 0;
    while sent == 0 || started.elapsed() < time {
        if pending.len() == open.0
            && let Some(oldest) = pending.pop_front()
        {
            finish(oldest)?;
            answered += 1;
        }
        match start(sent) {
            Ok(next) => {
                pending.push_back(next);
                sent += 1;
            }
            // No room for another payload: a reply has to arrive first, or the ring has to prepare memory again.
            Err(error) if error.is_retryable() => match pending.pop_front() {
                Some(oldest) => {
                    finish(oldest)?;
                    answered += 1;
                }
                None if started.elapsed() < PATIENCE => std::thread::yield_now(),
                None => return Err(error).context("sending a large payload"),
            },
            Err(error) => return Err(error).context("sending a large payload"),
        }
    }
    answered += pending.len() as u64;
    pending.into_iter().try_for_each(finish)?;
    Ok(answered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::echo::Provider;
    use crate::params::Choice as _;
    use crate::traffic::receiver::connected;

    #[test]
    fn every_mode_delivers_every_byte_on_both_transports() {
        for provider in Provider::ALL {
            let (_nodes, peer) = connected(provider, "-blobs").unwrap();
            for (bytes, open) in [(100, Open(3)), (5_000, Open(3)), (300_004, Open(2))] {
                let blobs = Blobs::new(bytes, open).unwrap();
                for mode in Mode::ALL.iter().copied() {
                    let sent = blobs.send(&peer, mode, open, Duration::from_millis(2)).unwrap();
                    assert!(sent > 0, "{mode:?}, {bytes} B");
                }
            }
            let blobs = Blobs::new(5_000, Open(1)).unwrap();
            let mut fresh = Recorder::new();
            blobs.measure_fresh(&peer, Duration::from_millis(2), &mut fresh).unwrap();
            blobs.measure_copy(Duration::from_millis(2), &mut fresh).unwrap();
            blobs.measure(&peer, Mode::Reference, Duration::from_millis(2), &mut fresh).unwrap();
            assert!(fresh.sample().count > 2);
            let mut wrong = Blobs::new(5_000, Open(1)).unwrap();
            wrong.sum += 1;
            assert!(wrong.send(&peer, Mode::Reference, Open(1), Duration::from_millis(1)).is_err());
        }
    }
}
