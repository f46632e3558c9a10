//! `comm-fig1`: the cost of setting up a buffer compared with moving its bytes.

use crate::experiment::Experiment;
use crate::lab::Lab;
use crate::params::{Axis, Params};
use crate::progress::Progress;
use crate::report::Report;

/// The experiment. It runs in the lab, under virtual time, and counts instructions.
#[derive(Debug)]
pub(crate) struct CommFig1;

/// Buffer lengths in bytes: the values of the column.
pub(crate) const SIZES: [&str; 8] =
    ["4096", "16384", "65536", "262144", "1048576", "2097152", "4194304", "16777216"];

impl Experiment for CommFig1 {
    fn name(&self) -> &'static str {
        "comm-fig1"
    }

    fn paper(&self) -> Option<&'static str> {
        Some("comm-layer")
    }

    fn figure(&self) -> Option<&'static str> {
        Some("Fig. 1")
    }

    fn about(&self) -> &'static str {
        "cost of registering a buffer, next to moving its bytes by RDMA (in the lab)"
    }

    fn axes(&self) -> &'static [Axis] {
        &[
            Axis { column: "size", help: "Only these buffer lengths, bytes", values: &SIZES },
            Axis { column: "pages", help: "Only this page size", values: &["small", "huge"] },
        ]
    }

    fn lab(&self, _: &Params) -> anyhow::Result<Option<Lab>> {
        Ok(Some(Lab { cpus: 2, virtual_time: true, verbs: true, module: None, limit: LIMIT }))
    }

    #[cfg(feature = "verbs")]
    fn run(&self, params: &Params, progress: &mut Progress) -> anyhow::Result<Report> {
        crate::rdma::fig1::run(params, progress)
    }

    #[cfg(not(feature = "verbs"))]
    fn run(&self, _: &Params, _: &mut Progress) -> anyhow::Result<Report> {
        anyhow::bail!("this program was built without RDMA: build it with `--features verbs`")
    }
}

/// The experiment takes one to two minutes.
const LIMIT: u32 = 900;
