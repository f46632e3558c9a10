//! The plan: which experiments run, which do not and why, and how long it takes.

use crate::experiment::Experiment;
use crate::experiments;
use crate::params::Params;
use crate::rdma::VERBS;

/// An experiment over the transports of this host, or over verbs in the lab.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) experiment: &'static Experiment,
    /// Whether only the rows over verbs are measured.
    verbs: bool,
}

impl PartialEq for Part {
    fn eq(&self, other: &Self) -> bool {
        (self.experiment.name, self.verbs) == (other.experiment.name, other.verbs)
    }
}

impl Part {
    /// Returns every part, in the order of the experiments.
    pub(super) fn every() -> impl Iterator<Item = Self> {
        let has_verbs = |experiment: &Experiment| {
            experiment.axes.iter().any(|axis| axis.column == PROVIDER && axis.values.contains(&VERBS))
        };
        let parts = move |experiment: &&'static Experiment| {
            let verbs = has_verbs(experiment).then_some(true);
            [Some(false), verbs]
                .into_iter()
                .flatten()
                .map(|verbs| Self { experiment, verbs })
                .collect::<Vec<_>>()
        };
        experiments::ALL.iter().flat_map(parts)
    }

    /// Returns its name, which is that of its file of results.
    pub(super) fn name(self) -> String {
        format!("{}{}", self.experiment.name, if self.verbs { "-verbs" } else { "" })
    }

    /// Returns the arguments of the program that select its rows.
    pub(super) fn arguments(self, quick: bool) -> Vec<&'static str> {
        let mut arguments = vec![self.experiment.name];
        if self.verbs {
            arguments.extend(["--provider", VERBS]);
        }
        if quick {
            arguments.push("--quick");
        }
        arguments
    }

    /// Returns the command that measures it alone.
    pub(super) fn command(self, quick: bool) -> String {
        format!("pronto-bench {}", self.arguments(quick).join(" "))
    }

    /// Returns whether it runs in the lab.
    fn needs_lab(self) -> bool {
        let mut params = Params::new();
        if self.verbs {
            params.choose(PROVIDER, vec![VERBS.to_owned()]);
        }
        (self.experiment.lab)(&params).is_ok_and(|lab| lab.is_some())
    }

    /// Returns its rough duration in seconds, with the boot of the lab.
    fn seconds(self, quick: bool) -> f64 {
        let [full, short] = self.experiment.takes;
        let boot = if self.needs_lab() { BOOT_S } else { 0 };
        f64::from(boot + if quick { short } else { full })
    }
}

/// The parts that run, in this order.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) parts: Vec<Part>,
    lab: bool,
    /// Number of wanted parts that do not run because they need the lab.
    outside: usize,
}

impl Plan {
    /// Plans the parts of the experiments in `only`, or of all, without those that have a result.
    pub(super) fn new(lab: bool, only: Option<&[&str]>, is_kept: impl Fn(Part) -> bool) -> Self {
        let is_wanted = |part: &Part| only.is_none_or(|only| only.contains(&part.experiment.name));
        let wanted = Part::every().filter(|part| is_wanted(part) && !is_kept(*part));
        let (parts, outside): (Vec<_>, Vec<_>) = wanted.partition(|part| lab || !part.needs_lab());
        Self { parts, lab, outside: outside.len() }
    }

    /// Returns the reason why a part is not in the plan.
    pub(super) fn reason(&self, part: Part) -> &'static str {
        if part.needs_lab() && !self.lab {
            "needs the lab, a virtual machine: add --lab"
        } else {
            "was not selected"
        }
    }

    /// Returns the number of experiments and the estimated time.
    pub(super) fn describe(&self, quick: bool, kept: usize) -> String {
        let time = span(self.left(0, quick, 0.0));
        let kept = if kept == 0 { String::new() } else { format!(", {kept} results kept") };
        let outside = self.outside;
        let lab = if outside == 0 { String::new() } else { format!("; {outside} more need --lab") };
        format!("{} experiments, roughly {time} on an idle machine{kept}{lab}", self.parts.len())
    }

    /// Returns the time in seconds that the parts from `index` on take, after those before it took `elapsed` seconds: their estimates,
    /// corrected by the pace so far.
    pub(super) fn left(&self, index: usize, quick: bool, elapsed: f64) -> f64 {
        let sum = |parts: &[Part]| parts.iter().map(|part| part.seconds(quick)).sum::<f64>();
        let (done, left) = self.parts.split_at(index);
        let pace = if done.is_empty() { 1.0 } else { (elapsed / sum(done)).clamp(0.5, 4.0) };
        sum(left) * pace
    }
}

/// Returns a duration in words.
pub(super) fn span(seconds: f64) -> String {
    match seconds {
        short if short < 90.0 => format!("{short:.0} s"),
        medium if medium < 5_400.0 => format!("{:.0} min", medium / 60.0),
        long => format!("{:.1} h", long / 3_600.0),
    }
}

const PROVIDER: &str = "provider";
/// Time until a machine of the lab runs the program, in seconds.
const BOOT_S: u32 = 60;

#[cfg(test)]
mod tests {
    use super::*;

    fn names(plan: &Plan) -> Vec<String> {
        plan.parts.iter().map(|part| part.name()).collect()
    }

    #[test]
    fn without_the_lab_its_experiments_are_not_run_and_the_reason_says_so() {
        let plan = Plan::new(false, None, |_| false);
        let all = names(&plan);
        assert!(all.contains(&"latency".into()) && !all.contains(&"latency-verbs".into()), "{all:?}");
        assert!(!all.contains(&"comm-fig1".into()) && !all.contains(&"expedite-late".into()), "{all:?}");
        let verbs = Part::every().find(|part| part.name() == "latency-verbs").unwrap();
        assert!(plan.reason(verbs).contains("lab"));
        assert_eq!(verbs.command(true), "pronto-bench latency --provider verbs --quick");
        let lab = Plan::new(true, None, |_| false);
        assert_eq!(lab.parts.len(), Part::every().count());
    }

    #[test]
    fn selected_parts_run_unless_they_have_a_result() {
        let only = ["floor", "latency", "expedite-sim"];
        assert_eq!(names(&Plan::new(false, Some(&only), |_| false)), only);
        let plan = Plan::new(false, Some(&only), |part| part.name() == "latency");
        assert_eq!(names(&plan), ["floor", "expedite-sim"]);
        let rate = Part::every().find(|part| part.name() == "rate").unwrap();
        assert!(plan.reason(rate).contains("not selected"));
    }

    #[test]
    fn the_time_left_follows_the_pace() {
        let plan = Plan::new(false, Some(&["floor", "latency"]), |_| false);
        let of = |part: usize| plan.parts[part].seconds(true);
        assert!((plan.left(0, true, 0.0) - of(0) - of(1)).abs() < 1e-9);
        assert!((plan.left(1, true, 2.0 * of(0)) - 2.0 * of(1)).abs() < 1e-9);
        assert!((plan.left(1, true, 1e9) - 4.0 * of(1)).abs() < 1e-9, "one slow start says little");
    }

    /// The bar for `all --quick` without the lab is 30 minutes; half of it leaves room for slower machines.
    #[test]
    fn quick_runs_of_this_host_take_less_than_a_quarter_of_an_hour() {
        let seconds = Plan::new(false, None, |_| false).left(0, true, 0.0);
        assert!(seconds < 900.0, "{seconds}");
    }

    #[test]
    fn durations_are_coarse() {
        assert_eq!([42.4, 100.0, 5_400.0].map(span), ["42 s", "2 min", "1.5 h"]);
    }
}
