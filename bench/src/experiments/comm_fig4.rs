//! `comm-fig4`: synchronous sends per second, by threads and size, as a multiple of the rate of one thread.

use core::time::Duration;

use pronto::{Peer, WaitPolicy};

use crate::claim::{Claim, Verdict};
use crate::clock;
use crate::echo::{Provider, Wait};
use crate::experiment::{Cpus, Experiment, Rounds, Run};
use crate::params::{Axis, numbers};
use crate::placement::apart;
use crate::report::{Fields, Report, decimals};
use crate::traffic::drive::together;
use crate::traffic::receiver::Receiver;
use crate::traffic::sends::polled_counted;
use crate::traffic::speed::Speed;

/// All numbers of threads take turns over one connection to a separate process.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "comm-fig4",
    question: "Do more sending threads on one connection send more?",
    takes: [45, 10],
    paper: Some("comm-layer"),
    figure: Some("Fig. 4"),
    about: "synchronous sends per second of 1 to 8 threads on one connection, relative to one thread",
    axes: &[
        Axis::PROVIDER,
        Axis::new("threads", "Only these numbers of senders; one is always measured", &THREAD_NAMES),
        Axis::new("size", "Only these payload lengths, bytes", &SIZE_NAMES),
    ],
    cpus: Cpus::Two,
    // 64 rows take 40 s, or 8 s in a quick run.
    rounds: [Rounds::new(8, 75), Rounds::new(4, 30)],
    claims: &["K41"],
    run,
    ..Experiment::DEFAULT
};

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let params = run.params;
    let is_kept = |count: &usize| *count == 1 || params.keeps("threads", &count.to_string());
    let threads: Vec<usize> = THREADS.into_iter().filter(is_kept).collect();
    let sizes = params.kept("size", SIZES, usize::to_string);
    let providers = Provider::kept(params);
    run.begin(providers.len() * sizes.len() * threads.len());
    let (mut rows, mut free) = (Vec::new(), 0);
    for provider in providers {
        let wait = Wait(WaitPolicy::Adaptive);
        let receiver = Receiver::spawn(provider, wait, run.cpus.server)?;
        rows.extend(apart(run.cpus.server, |left| {
            free = left;
            let (_node, peer) = receiver.meet(wait)?;
            let mut rows = Row::all(provider, &sizes, &threads);
            let label = |row: &Row| format!("{} {} B x{}", provider.name(), row.size, row.threads);
            run.in_turns(&mut rows, label, |row, budget| row.round(&peer, budget))?;
            Ok(rows)
        })?);
    }
    let mut report = Report {
        params: run
            .fields()
            .with("receiver", "separate process, pinned; reads every byte")
            .with("senders", "threads of one connection, on any CPU but the receiver's")
            .with("sender_cpus", free)
            .with("wait", "adaptive"),
        claims: claims(&rows, free),
        rows: rows.iter().map(|row| row.fields(&rows)).collect(),
        ..Report::default()
    };
    report
        .note(format!("senders have {free} CPU(s) here: growth is judged only up to that number of threads"));
    Ok(report)
}

/// One row.
#[derive(Clone, Debug)]
struct Row {
    provider: Provider,
    size: usize,
    threads: usize,
    speed: Speed,
}

impl Row {
    fn all(provider: Provider, sizes: &[usize], threads: &[usize]) -> Vec<Self> {
        let of = |size| threads.iter().map(move |threads| (size, *threads));
        let row = |(size, threads)| Self { provider, size, threads, speed: Speed::default() };
        sizes.iter().flat_map(|size| of(*size)).map(row).collect()
    }

    fn round(&mut self, peer: &Peer, budget: Duration) -> anyhow::Result<()> {
        let size = self.size;
        let started = clock::now();
        let sent = together(self.threads, || polled_counted(peer, size, budget))?;
        self.speed.round(sent, started.elapsed());
        Ok(())
    }

    /// Returns the sends per second as a multiple of those of one thread.
    fn normalised(&self, all: &[Self]) -> f64 {
        let one =
            all.iter().find(|row| (row.provider, row.size, row.threads) == (self.provider, self.size, 1));
        one.map_or(f64::NAN, |one| self.speed.per_second() / one.speed.per_second())
    }

    fn fields(&self, all: &[Self]) -> Fields {
        Fields::default()
            .with("provider", self.provider.name())
            .with("size", self.size)
            .with("threads", self.threads)
            .with("ops_per_s", decimals(self.speed.per_second(), 0))
            .with("normalised", decimals(self.normalised(all), 2))
            .with("aa", decimals(self.speed.a_to_a(), 2))
    }
}

/// Evaluates the paper's claim, up to the number of available CPUs.
fn claims(rows: &[Row], free: usize) -> Vec<Claim> {
    let judged: Vec<&Row> = rows.iter().filter(|row| (2..=free).contains(&row.threads)).collect();
    let grows = |row: &&Row| {
        let fewer = rows.iter().filter(|other| {
            (other.provider, other.size) == (row.provider, row.size) && other.threads < row.threads
        });
        let before = fewer.max_by_key(|other| other.threads);
        before.is_some_and(|before| row.speed.per_second() > before.speed.per_second())
    };
    let growing = judged.iter().filter(|row| grows(row)).count();
    if rows.is_empty() {
        return Vec::new();
    }
    let (detail, verdict) = if judged.is_empty() {
        let detail = format!(
            "needs a CPU for the receiver and one for each of two senders or more; here senders have {free}. With more CPUs, run \
             `pronto-bench comm-fig4`"
        );
        (detail, Verdict::NotResolvable)
    } else {
        let detail = format!("number of steps that grow, of {} up to {free} threads", judged.len());
        (detail, Verdict::graded(growing == judged.len(), growing > 0))
    };
    vec![Claim::new("K41", detail, growing, verdict)]
}

numbers!(SIZES: usize, SIZE_NAMES = 64, 1024, 4096, 65536);
numbers!(THREADS: usize, THREAD_NAMES = 1, 2, 3, 4, 5, 6, 7, 8);

#[cfg(test)]
mod tests {
    use super::*;

    fn row(threads: usize, rate: u64) -> Row {
        let mut speed = Speed::default();
        speed.round(rate, Duration::from_secs(1));
        Row { provider: Provider::Tcp, size: 64, threads, speed }
    }

    #[test]
    fn growth_is_judged_up_to_the_free_cpus_and_not_at_all_on_one() {
        let rows = [row(1, 100), row(2, 150), row(3, 140)];
        assert!((rows[1].normalised(&rows) - 1.5).abs() < 1e-9);
        let verdict = |free| claims(&rows, free).iter().map(|claim| claim.verdict).collect::<Vec<_>>();
        assert_eq!(
            (verdict(1), verdict(2), verdict(3)),
            (vec![Verdict::NotResolvable], vec![Verdict::Holds], vec![Verdict::InPart])
        );
        let falling = [row(1, 100), row(2, 100), row(3, 90)];
        assert_eq!(claims(&falling, 3)[0].verdict, Verdict::DoesNotHold);
        assert!(claims(&[], 4).is_empty());
    }
}
