//! What an experiment is: a name, where it comes from, the columns its rows are chosen by, and a run.

use core::fmt::Debug;

use crate::lab::Lab;
use crate::params::{Axis, Params};
use crate::progress::Progress;
use crate::report::Report;

/// One command of `pronto-bench`, one file in [`crate::experiments`].
pub trait Experiment: Debug + Sync {
    /// The command, lower case.
    fn name(&self) -> &'static str;

    /// The paper it belongs to; `None` if it answers a question of our own.
    fn paper(&self) -> Option<&'static str>;

    /// The figure, table or section of that paper.
    fn figure(&self) -> Option<&'static str>;

    /// What it measures, in one line.
    fn about(&self) -> &'static str;

    /// The columns by which rows can be chosen, with all values they have here.
    fn axes(&self) -> &'static [Axis];

    /// Examples for the help: arguments after the name, and what they are for.
    fn examples(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// How long it measures each part if nothing else is said, seconds; `None` if its length is its own affair.
    fn seconds(&self, quick: bool) -> Option<u32> {
        let _ = quick;
        None
    }

    /// Whether [`Report::figures`] holds pictures; the command then has `--plots`.
    fn draws(&self) -> bool {
        false
    }

    /// Whether [`Report::traces`] holds traces; the command then has `--trace`.
    fn traces(&self) -> bool {
        false
    }

    /// Why rows have no column `aa`, where they have none: counts and simulations come out the same each time. All others say in it what
    /// the even rounds gave by what the odd ones did ([`a_to_a`](crate::sample::a_to_a)).
    fn without_aa(&self) -> Option<&'static str> {
        None
    }

    /// The machine of the lab that the rows which `params` keeps are measured in; `None` for this host. Outside of the lab the
    /// experiment then starts that machine, and runs itself there.
    ///
    /// # Errors
    /// If `params` asks for rows that are never measured together.
    fn lab(&self, params: &Params) -> anyhow::Result<Option<Lab>> {
        let _ = params;
        Ok(None)
    }

    /// Measures the rows that `params` keeps; within 60 s if `params` says quick.
    ///
    /// # Errors
    /// If the measurement itself fails. What this host cannot do is no error: the row is left out and
    /// [`Report::note`] says why.
    fn run(&self, params: &Params, progress: &mut Progress) -> anyhow::Result<Report>;
}
