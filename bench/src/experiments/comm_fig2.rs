//! `comm-fig2`: the distribution of message sizes in a run of k-means on the mini distributed OS.

use core::time::Duration;
use std::io;

use anyhow::Context as _;
use minidos::account::{Lengths, Step};
use minidos::data::Source;
use minidos::demo::{Moment, Options, Progress, Sizes, Transport};

use crate::claim::{Claim, Verdict};
use crate::echo::Provider;
use crate::experiment::{Experiment, Run};
use crate::params::Axis;
use crate::placement::unpinned;
use crate::report::{Fields, Report, decimals};
use crate::side::{Arguments, Side};

/// The run of `pronto demo`: four nodes in separate processes, and the bundled points.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "comm-fig2",
    question: "Are most messages of a distributed OS small, and most bytes in large ones?",
    takes: [30, 20],
    paper: Some("comm-layer"),
    figure: Some("Fig. 2"),
    about: "sizes of the messages of k-means on a distributed OS, by number and by bytes",
    axes: &[Axis::PROVIDER],
    without_aa: Some("it counts messages"),
    claims: &["K16a", "K16b"],
    run,
    ..Experiment::DEFAULT
};

/// The process of a node.
pub(crate) const SIDE: Side = Side { name: "serve-demo", arguments: &[], more: None, run: serve };

fn serve(_: &Arguments<'_>) -> anyhow::Result<()> {
    minidos::node_main(io::BufReader::new(io::stdin()), io::stdout()).context("a node of the demo")
}

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let providers = Provider::kept(run.params);
    run.progress.begin(providers.len() as u64);
    let (mut report, mut all) = (Report::default(), Lengths::default());
    for provider in providers {
        run.progress.step(provider.name());
        let lengths = measure(provider)?;
        report.rows.extend(lengths.steps().iter().map(|step| row(provider, step)));
        all.add(&lengths);
    }
    report.claims = claims(&all);
    report.params = Fields::default()
        .with("nodes", NODES)
        .with("placement", "separate processes, not pinned")
        .with("work", "k-means on the bundled handwritten digits; result compared with that of one process");
    report.note("sizes are those of payloads, without our header of 24 bytes");
    Ok(report)
}

/// Runs the demo. Returns the lengths of its messages.
fn measure(provider: Provider) -> anyhow::Result<Lengths> {
    let program = std::env::current_exe().context("asking for this program's path")?;
    let options = Options {
        nodes: NODES,
        transport: match provider {
            Provider::Shm => Transport::Shm,
            Provider::Tcp => Transport::Tcp,
        },
        places: Vec::new(),
        source: Source::Digits,
        deadline: DEADLINE,
        node_program: (program, vec![SIDE.name.into()]),
    };
    let report = unpinned(|| minidos::demo::run(&options, &mut Unseen))?.context("the demo failed")?;
    anyhow::ensure!(report.is_good(), "the demo's checks failed over {}:\n{report}", provider.name());
    Ok(report.lengths())
}

/// Shows no progress, because a run takes a few seconds.
struct Unseen;

impl Progress for Unseen {
    fn at(&mut self, _: &Moment) {}
}

fn row(provider: Provider, step: &Step) -> Fields {
    Fields::default()
        .with("provider", provider.name())
        .with("length", step.length)
        .with("messages", step.messages)
        .with("messages_up_to", decimals(step.messages_up_to, 4))
        .with("bytes_up_to", decimals(step.bytes_up_to, 4))
}

/// Evaluates whether the two shares are close to the paper's. The shape alone, more than half of each, is a part of the statement.
fn claims(lengths: &Lengths) -> Vec<Claim> {
    if lengths.steps().is_empty() {
        return Vec::new();
    }
    let claim = |id, measured: f64, published: f64| {
        let distance = (measured - published).abs();
        let detail = format!("differs by {:.3}; the bar is the largest difference", distance);
        Claim::new(id, detail, decimals(measured, 3), Verdict::graded(distance <= CLOSE, measured > 0.5))
            .bar(CLOSE)
    };
    let paper = Sizes::PUBLISHED;
    vec![
        claim("K16a", lengths.small_messages(), paper.messages_under_100),
        claim("K16b", lengths.large_bytes(), paper.bytes_over_1k),
    ]
}

/// Number of nodes in the paper.
const NODES: u16 = 4;
/// Time after which a run has failed. It takes a few seconds.
const DEADLINE: Duration = Duration::from_secs(120);
/// Largest difference from a share of the paper that counts as close. The paper's points are unknown, and so are their numbers.
const CLOSE: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(counts: &[(u64, u64)]) -> Vec<(&'static str, Verdict)> {
        claims(&counts.iter().copied().collect()).iter().map(|claim| (claim.id, claim.verdict)).collect()
    }

    #[test]
    fn shares_are_compared_with_the_papers_from_both_sides() {
        let [a, b] = ["K16a", "K16b"];
        // 75 % of the messages and 97 % of the bytes; then 90 % and 99.7 %.
        assert_eq!(verdicts(&[(40, 75), (4_000, 25)]), [(a, Verdict::Holds), (b, Verdict::Holds)]);
        assert_eq!(verdicts(&[(4, 90), (400_000, 10)]), [(a, Verdict::InPart), (b, Verdict::Holds)]);
        assert_eq!(verdicts(&[(99, 70), (2_000, 10)]), [(a, Verdict::InPart), (b, Verdict::InPart)]);
        assert_eq!(
            verdicts(&[(40, 10), (1_000, 90)]),
            [(a, Verdict::DoesNotHold), (b, Verdict::DoesNotHold)]
        );
        assert!(verdicts(&[]).is_empty());
    }

    #[test]
    fn a_row_has_both_shares_of_its_length() {
        let lengths: Lengths = [(40, 3), (360, 1)].into_iter().collect();
        let row = row(Provider::Shm, &lengths.steps()[0]);
        let of = |column| row.value(column).unwrap().clone();
        assert_eq!([of("messages_up_to"), of("bytes_up_to")], [0.75, 0.25].map(serde_json::Value::from));
    }
}
