//! `comm-fig4`: synchronous sends per second, by threads and size, as a multiple of the rate of one thread.

use core::time::Duration;
use std::thread;

use pronto::{Peer, WaitPolicy};

use crate::clock;
use crate::echo::{Provider, Wait};
use crate::experiment::Experiment;
use crate::params::{Axis, Params};
use crate::placement::{Placement, keep_off};
use crate::progress::Progress;
use crate::report::{Claim, Fields, Report, decimals};
use crate::traffic::receiver::Receiver;
use crate::traffic::sends::polled_counted;
use crate::traffic::speed::Speed;

/// The experiment. All numbers of threads take turns over one connection to a separate process.
#[derive(Debug)]
pub(crate) struct CommFig4;

impl Experiment for CommFig4 {
    fn name(&self) -> &'static str {
        "comm-fig4"
    }

    fn paper(&self) -> Option<&'static str> {
        Some("comm-layer")
    }

    fn figure(&self) -> Option<&'static str> {
        Some("Fig. 4")
    }

    fn about(&self) -> &'static str {
        "synchronous sends per second of 1 to 8 threads on one connection, relative to one thread"
    }

    fn axes(&self) -> &'static [Axis] {
        &[
            Axis { column: "provider", help: "Only these transports", values: &["shm", "tcp"] },
            Axis {
                column: "threads",
                help: "Only these numbers of senders; one is always measured",
                values: &["1", "2", "3", "4", "5", "6", "7", "8"],
            },
            Axis { column: "size", help: "Only these payload lengths, bytes", values: &SIZE_NAMES },
        ]
    }

    fn run(&self, params: &Params, progress: &mut Progress) -> anyhow::Result<Report> {
        let mut report = Report::default();
        let placement = Placement::choose()?;
        let Some(cpus) = placement.pair() else {
            report.note("skipped: needs two CPUs, but this process may use only one");
            return Ok(report);
        };
        let (rounds, budget) = if params.quick { (QUICK_ROUNDS, QUICK_BUDGET) } else { (ROUNDS, BUDGET) };
        let threads: Vec<usize> = (1..=8)
            .filter(|count: &usize| *count == 1 || params.keeps("threads", &count.to_string()))
            .collect();
        let sizes: Vec<usize> =
            SIZES.into_iter().filter(|size| params.keeps("size", &size.to_string())).collect();
        let providers: Vec<_> =
            Provider::ALL.into_iter().filter(|p| params.keeps("provider", p.name())).collect();
        progress.begin(u64::from(rounds) * (providers.len() * sizes.len() * threads.len()) as u64);
        let mut rows = Vec::new();
        let mut free = 0;
        for provider in providers {
            let wait = Wait(WaitPolicy::Adaptive);
            let receiver = Receiver::spawn(provider, wait, cpus.server)?;
            let measure = || -> anyhow::Result<Vec<Row>> {
                free = keep_off(cpus.server)?;
                let (_node, peer) = receiver.meet(wait)?;
                let mut rows = Row::all(provider, &sizes, &threads);
                for _ in 0..rounds {
                    for row in &mut rows {
                        progress.step(&format!("{} {} B x{}", provider.name(), row.size, row.threads));
                        row.round(&peer, budget)?;
                    }
                }
                Ok(rows)
            };
            // In a separate thread, so that its CPU affinity does not affect the caller.
            let found =
                thread::scope(|scope| scope.spawn(measure).join().expect("measurements do not panic"));
            rows.extend(found?);
        }
        report.params = Fields::default()
            .with("cpus", placement.numbers())
            .with("receiver", "process of its own, pinned; reads every byte")
            .with("senders", "threads of one connection, on any CPU but the receiver's")
            .with("sender_cpus", free)
            .with("wait", "adaptive")
            .with("rounds", rounds)
            .with("round_ms", decimals(budget.as_secs_f64() * 1e3, 0));
        report.note(format!(
            "senders have {free} CPU(s) here: growth is judged only up to that number of threads"
        ));
        report.claims = claims(&rows, free);
        report.rows = rows.iter().map(|row| row.fields(&rows)).collect();
        Ok(report)
    }
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
        let of_size = |size: &usize| {
            let (size, speed) = (*size, Speed::default());
            threads.iter().map(move |threads| Self {
                provider,
                size,
                threads: *threads,
                speed: speed.clone(),
            })
        };
        sizes.iter().flat_map(of_size).collect()
    }

    fn round(&mut self, peer: &Peer, budget: Duration) -> anyhow::Result<()> {
        let size = self.size;
        let started = clock::now();
        let sent: u64 = thread::scope(|scope| {
            let senders: Vec<_> =
                (0..self.threads).map(|_| scope.spawn(move || polled_counted(peer, size, budget))).collect();
            senders
                .into_iter()
                .map(|sender| sender.join().expect("senders do not panic"))
                .sum::<anyhow::Result<u64>>()
        })?;
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
    let text = if judged.is_empty() {
        format!(
            "sends per second grow with threads on every size: cannot be judged here with {free} CPU(s) for all senders"
        )
    } else {
        format!(
            "sends per second grow with threads on every size; of {} steps up to {free} threads, growing",
            judged.len()
        )
    };
    if rows.is_empty() {
        return Vec::new();
    }
    vec![Claim {
        id: "K41",
        text,
        published: judged.len().into(),
        measured: growing.into(),
        holds: !judged.is_empty() && growing == judged.len(),
    }]
}

const SIZES: [usize; 4] = [64, 1024, 4096, 65_536];
const SIZE_NAMES: [&str; 4] = ["64", "1024", "4096", "65536"];

/// 64 rows take 40 s.
const ROUNDS: u32 = 8;
const BUDGET: Duration = Duration::from_millis(75);

/// 64 rows take 8 s.
const QUICK_ROUNDS: u32 = 4;
const QUICK_BUDGET: Duration = Duration::from_millis(30);

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
        let verdict = |free| claims(&rows, free).iter().map(|claim| claim.holds).collect::<Vec<_>>();
        assert_eq!((verdict(1), verdict(2), verdict(3)), (vec![false], vec![true], vec![false]));
        assert!(claims(&rows, 1)[0].text.contains("cannot be judged"));
        assert!(claims(&[], 4).is_empty());
        assert_eq!(SIZES.map(|size| size.to_string()), SIZE_NAMES);
    }
}
