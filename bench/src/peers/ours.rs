//! Pronto as a participant: the echo service for single calls, the receiver of traffic for load.

use core::time::Duration;

use anyhow::Context as _;

use super::round::Rounds;
use super::{MORE_SIZES, PAYLOAD, WINDOW};
use crate::clock;
use crate::echo::{self, Form, Provider, Server, Wait};
use crate::placement::{CpuPair, alone};
use crate::sample::Recorder;
use crate::traffic::drive::{self, Open};
use crate::traffic::receiver::Receiver;

/// Runs one round over a transport, with one waiting policy on both sides. The form is that of the calls with pages.
pub(crate) fn round(
    (provider, wait): (Provider, Wait),
    form: Form,
    cpus: CpuPair,
    budget: Duration,
    rounds: &mut Rounds,
) -> anyhow::Result<()> {
    rounds.version = Some(format!("Pronto {}", env!("CARGO_PKG_VERSION")));
    let part = budget / 3;
    let mut round = Recorder::new();
    let call = echo::SIZES.iter().find(|size| size.bytes == PAYLOAD).context("a size of the echo service")?;
    let load = drive::SIZES.iter().find(|size| size.bytes == PAYLOAD).context("a size of the traffic")?;
    alone(cpus.caller, || {
        let server = Server::spawn(provider, wait, cpus.server)?;
        let (_client, peer) = server.meet(wait)?;
        call.measure(&peer, part, &mut round)?;
        for bytes in MORE_SIZES {
            let size =
                echo::SIZES.iter().find(|size| size.bytes == bytes).context("a size of the echo service")?;
            let mut round = Recorder::new();
            size.measure_in(form, &peer, part / 2, &mut round)?;
            rounds.calls_of(Some(bytes))?.end(&round)?;
        }
        anyhow::Ok(())
    })?;
    let ((calls, load_time), (notes, stream_time)) = alone(cpus.caller, || {
        let receiver = Receiver::spawn(provider, wait, cpus.server)?;
        let (_client, peer) = receiver.meet(wait)?;
        // As documented for windows of calls.
        let together = peer.together();
        load.calls(&peer, Open(WINDOW), part / 8)?;
        let started = clock::now();
        let calls = load.calls(&peer, Open(WINDOW), part)?;
        let load_time = started.elapsed();
        drop(together);
        load.counted(&peer)?;
        let started = clock::now();
        let notes = load.notes(&peer, part)?;
        // The round ends when the last message was received.
        let arrived = load.counted(&peer)?.notes;
        anyhow::ensure!(arrived == notes, "{notes} one-way messages were sent and {arrived} arrived");
        Ok(((calls, load_time), (notes, started.elapsed())))
    })?;
    rounds.load_of(calls, load_time);
    rounds.stream_of(notes, stream_time);
    rounds.calls.end(&round)
}
