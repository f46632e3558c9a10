//! `head-of-line`: the latency of 32-byte calls while 64 MiB messages go to the same peer.

use core::time::Duration;

use pronto_core::session::Chunking;

use crate::claim::Claim;
use crate::clock;
use crate::echo::{Provider, call_32};
use crate::experiment::{Cpus, Experiment, Rounds, Run};
use crate::params::Axis;
use crate::placement::alone;
use crate::rendezvous::stream::{MESSAGE, Stream};
use crate::report::{Fields, Report, decimals};
use crate::sample::Recorder;

/// The callee is a separate process, whose serving thread polls, replies to the calls and moves the messages. Rounds with and without
/// messages alternate.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "head-of-line",
    question: "How much do large messages delay calls to the same peer?",
    takes: [25, 8],
    about: "32 B calls while 64 MiB messages go to the same peer in chunks, and the same calls alone",
    axes: &[Axis::PROVIDER],
    cpus: Cpus::Two,
    // 20 s.; quick: 4 s.
    rounds: [Rounds::new(10, 500), Rounds::new(4, 250)],
    claims: &["H1", "H2"],
    run,
    ..Experiment::DEFAULT
};

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let providers = Provider::kept(run.params);
    run.begin(providers.len());
    let mut rows = Vec::new();
    for provider in providers {
        rows.push(alone(run.cpus.caller, || {
            let mut stream = Stream::start(provider, run.cpus.server)?;
            let mut row = [Row::new(provider)];
            run.in_turns(
                &mut row,
                |_| provider.name().into(),
                |row, budget| {
                    calls(&mut row.idle, budget, || call_32(&stream.peer).map(drop))?;
                    let loaded = &mut row.loaded;
                    let call = |peer: &pronto::Peer| calls(loaded, budget, || call_32(peer).map(drop));
                    let ((), messages, time) = stream.while_sending(call)?;
                    row.messages += messages;
                    row.time += time;
                    Ok(())
                },
            )?;
            let [row] = row;
            Ok(row)
        })?);
    }
    Ok(Report {
        params: run
            .fields()
            .with("callee", "separate process, pinned; its serving thread spins")
            .with("message_mib", MESSAGE >> 20),
        claims: rows.iter().filter_map(Row::claim).collect(),
        rows: rows.iter().flat_map(Row::fields).collect(),
        ..Report::default()
    })
}

/// Makes calls one after another and times each; makes at least one.
fn calls(
    into: &mut Recorder,
    budget: Duration,
    mut call: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let since = clock::now();
    into.as_round(|into| {
        loop {
            let before = clock::now();
            call()?;
            into.record_single(before.elapsed());
            if since.elapsed() >= budget {
                return Ok(());
            }
        }
    })
}

/// One transport.
struct Row {
    provider: Provider,
    idle: Recorder,
    loaded: Recorder,
    messages: u64,
    time: Duration,
}

impl Row {
    fn new(provider: Provider) -> Self {
        let (idle, loaded) = (Recorder::new(), Recorder::new());
        Self { provider, idle, loaded, messages: 0, time: Duration::ZERO }
    }

    /// Length of a chunk, bytes.
    const fn chunk(&self) -> u64 {
        match self.provider {
            Provider::Shm => Chunking::COPIED.len,
            Provider::Tcp => Chunking::INTO_BUFFERS.len,
        }
    }

    fn bytes_per_s(&self) -> f64 {
        (self.messages * MESSAGE) as f64 / self.time.as_secs_f64()
    }

    fn chunk_us(&self) -> f64 {
        self.chunk() as f64 / self.bytes_per_s() * 1e6
    }

    fn fields(&self) -> [Fields; 2] {
        [("idle", &self.idle), ("transfer", &self.loaded)].map(|(state, recorder)| {
            let sample = recorder.sample();
            Fields::default()
                .with("provider", self.provider.name())
                .with("state", state)
                .with("calls", sample.count)
                .with("p50_ns", sample.p50_ns)
                .with("p99_ns", sample.p99_ns)
                .with("p999_ns", sample.p999_ns)
                .with_aa(&sample)
                .with("chunk_bytes", self.chunk())
                .with("chunk_us", decimals(self.chunk_us(), 1))
                .with("messages", self.messages)
                .with("gbytes_per_s", decimals(self.bytes_per_s() / 1e9, 2))
        })
    }

    /// Returns `None` if no message was received: then nothing was measured.
    fn claim(&self) -> Option<Claim> {
        if self.messages == 0 {
            return None;
        }
        let [idle, loaded] = [&self.idle, &self.loaded].map(|recorder| recorder.sample().p99_ns as f64 / 1e3);
        let (id, bar, detail) = match self.provider {
            Provider::Shm => ("H1", SHM_US, ""),
            Provider::Tcp => ("H2", 2.0 * self.chunk_us(), "the bar is the time of two chunks"),
        };
        Some(Claim::at_most(id, detail, bar, loaded - idle, 1))
    }
}

/// The bar.
const SHM_US: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_needs_messages_and_compares_tails() {
        let mut row = Row::new(Provider::Shm);
        assert!(row.claim().is_none());
        row.idle.record_single(Duration::from_nanos(800));
        row.loaded.record_single(Duration::from_nanos(2_000));
        (row.messages, row.time) = (100, Duration::from_secs(1));
        assert!(row.claim().is_some_and(|claim| claim.id == "H1" && claim.holds()));
        row.loaded.record_single(Duration::from_micros(50));
        assert!(row.claim().is_some_and(|claim| !claim.holds()));
        // 6.4 GB/s over TCP: a chunk takes less than 100 us.
        let mut tcp = Row { provider: Provider::Tcp, idle: Recorder::new(), loaded: Recorder::new(), ..row };
        tcp.idle.record_single(Duration::from_micros(20));
        tcp.loaded.record_single(Duration::from_micros(30));
        assert!(tcp.claim().is_some_and(|claim| claim.id == "H2" && claim.holds()));
        tcp.loaded.record_single(Duration::from_millis(5));
        assert!(tcp.claim().is_some_and(|claim| !claim.holds()));
        let mut once = || {
            calls(&mut row.idle, Duration::from_millis(1), || {
                std::thread::yield_now();
                Ok(())
            })
        };
        assert!(once().and_then(|()| once()).is_ok());
        let aa = row.fields().map(|fields| fields.value("aa").and_then(serde_json::Value::as_f64));
        assert!(aa[0].is_some() && aa[1].is_none(), "each round of calls counts as one: {aa:?}");
    }
}
