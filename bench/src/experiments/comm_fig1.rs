//! `comm-fig1`: the cost of setting up a buffer compared with moving its bytes.

use crate::experiment::Experiment;
#[cfg(not(feature = "verbs"))]
use crate::experiment::Run;
use crate::lab::Lab;
use crate::params::Axis;
#[cfg(feature = "verbs")]
use crate::rdma::fig1::run;
#[cfg(not(feature = "verbs"))]
use crate::report::Report;

/// Buffer lengths in bytes: the values of the column.
pub(crate) const SIZES: [&str; 8] =
    ["4096", "16384", "65536", "262144", "1048576", "2097152", "4194304", "16777216"];

/// Registration compared with transfer, in the lab under virtual time, where a duration is a number of instructions.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "comm-fig1",
    question: "How much of an RDMA transfer is the set-up of its buffer?",
    takes: [1800, 240],
    paper: Some("comm-layer"),
    figure: Some("Fig. 1"),
    about: "cost of registering a buffer, next to moving its bytes by RDMA (in the lab)",
    axes: &[
        Axis::new("size", "Only these buffer lengths, bytes", &SIZES),
        Axis::new("pages", "Only this page size", &["small", "huge"]),
    ],
    lab: |_| Ok(Some(Lab { virtual_time: true, verbs: true, limit: LIMIT, ..Lab::PLAIN })),
    claims: &["K11", "K12", "K32"],
    run,
    ..Experiment::DEFAULT
};

#[cfg(not(feature = "verbs"))]
fn run(_: &mut Run<'_>) -> anyhow::Result<Report> {
    anyhow::bail!("this program was built without RDMA: build it with `--features verbs`")
}

/// Limit in seconds; the experiment takes one to two minutes.
const LIMIT: u32 = 900;
