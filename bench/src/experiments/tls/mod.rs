//! `tls`: calls and links over TCP with TLS and without, next to gRPC over TLS, in turns.

mod calls;
mod claims;
mod row;
mod set_up;

use pronto::WaitPolicy;

use crate::echo::{CLIENT, SERVER, Wait};
use crate::experiment::{Experiment, Rounds, Run};
use crate::params::Axis;
use crate::placement::ONE_CPU;
use crate::report::Report;
use crate::tls::certificates::Certificates;

/// Pronto's servers are separate processes, of which one is stopped while calls to the other are measured. Each round of tonic is a fresh
/// pair of processes.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "tls",
    question: "How much longer do calls and links take over TLS?",
    takes: [60, 15],
    about: "calls and links over TCP with TLS and without, next to tonic with rustls",
    axes: &[
        Axis::new("what", "Only calls, or only the set-up of links", &["call", "links"]),
        Axis::new("peer", "Only these projects", &["pronto", "tonic"]),
        Axis::new("wait", "Only calls with these waiting policies", &["spin", "block"]),
        Axis::new("size", "Only calls with these payload lengths, bytes", &calls::SIZES),
    ],
    // 15 rows of calls and 2 of links take a minute, or 13 s in a quick run.
    rounds: [Rounds::new(10, 200), Rounds::new(4, 60)],
    claims: &["E1", "E2", "E3", "E4"],
    run,
    ..Experiment::DEFAULT
};

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let certificates = Certificates::create(&[SERVER, CLIENT])?;
    // Measured before any thread is pinned, because the result has to hold for two CPUs.
    let wake_up = pronto_node::wake_up_cost();
    let mut waits =
        run.params.kept("wait", [WaitPolicy::Spin, WaitPolicy::Block].map(Wait), |wait| wait.name());
    if run.placement.pair().is_none() && waits.contains(&Wait(WaitPolicy::Spin)) {
        waits.retain(|wait| *wait != Wait(WaitPolicy::Spin));
        report.note(format!("{ONE_CPU}: calls with both sides spinning"));
    }
    let mut plan = calls::Plan::new(run.params, waits, &mut report);
    let links = run.params.keeps("what", "links") && run.params.keeps("peer", "pronto");
    run.begin(plan.cells() + if links { set_up::ROWS } else { 0 });
    let mut rows = plan.measure(run, &certificates, &mut report)?;
    let per_round = set_up::per_round(run.params);
    if links {
        rows.extend(set_up::measure(run, &certificates, per_round)?);
    }
    report.params = run
        .fields()
        .with(
            "server",
            "separate process, pinned; stopped during rounds of the other connection and of the floor",
        )
        .with("handler", "inline, returns the payload")
        .with("tonic", plan.version())
        .with("links", format!("{} of each kind, scaled to {}", per_round * run.rounds, set_up::LINKS))
        .with("wake_up_ns", wake_up.0);
    report.claims = claims::claims(&rows);
    report.rows = row::fields(&rows);
    Ok(report)
}
