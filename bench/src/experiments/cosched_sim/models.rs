//! The compared models: coscheduling policy, P, and kernel.

use pronto_sched_policy::policy::coschedule::{Policy, Prediction, Reading};
use pronto_sched_policy::policy::occupancy::Measure;
use pronto_sched_policy::policy::share::Share;
use pronto_sched_policy::policy::time::Nanos;
use pronto_sched_sim::paper::coscheduling::{Scheme, predicted};
use pronto_sched_sim::scheduler::linux2::Preemption;

/// A column of the figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Model {
    /// `linux`, `dyn`, `pred`, or one of its rivals.
    pub(crate) policy: &'static str,
    /// P, if there is one: the share as in the option.
    pub(crate) p: Option<&'static str>,
    /// `packets` or `bytes`, if anything is counted.
    pub(crate) measure: Option<&'static str>,
    /// `goodness` or `counter`.
    pub(crate) preemption: &'static str,
    /// `text` or `printed`.
    pub(crate) reading: &'static str,
    /// Scheme of the simulator.
    pub(crate) scheme: Scheme,
}

/// Values of P: near 0 and near 1 as in the paper, and between.
pub(crate) const PASTS: [&str; 5] = ["0.01", "0.25", "0.5", "0.75", "0.99"];

/// Names of policies.
pub(crate) const POLICIES: [&str; 11] = [
    "linux",
    "dyn",
    "pred",
    "dyn-preempt",
    "pred-carried",
    "pred-plus",
    "pred-auto",
    "gang",
    "explicit",
    "explicit-crash",
    "bcs",
];

/// Time of the master's crash after the start of the jobs: in the middle of the shortest one.
const CRASH: Nanos = Nanos::from_millis(5_000);

impl Model {
    fn new(policy: &'static str, scheme: Scheme) -> Self {
        Self { policy, p: None, measure: None, preemption: "goodness", reading: "text", scheme }
    }

    /// Returns LINUX, the baseline of the others.
    pub(crate) fn linux() -> Self {
        Self::new("linux", Scheme::Predicted(Prediction::default()))
    }

    /// Returns DYN or PRED counting packets, as in the paper.
    pub(crate) fn of_paper(policy: Policy, p: &'static str) -> Self {
        let name = if policy == Policy::Dynamic { "dyn" } else { "pred" };
        let scheme = Scheme::Predicted(predicted(policy, past(p)));
        Self { p: Some(p), measure: Some("packets"), ..Self::new(name, scheme) }
    }

    /// Makes the model count bytes and messages, as in our implementation.
    fn in_bytes(self) -> Self {
        let measure = Measure::BytesAndMessages;
        let scheme = match self.scheme {
            Scheme::Predicted(prediction) => Scheme::Predicted(Prediction { measure, ..prediction }),
            Scheme::Carried(prediction) => Scheme::Carried(Prediction { measure, ..prediction }),
            Scheme::Costed(prediction) => Scheme::Costed(Prediction { measure, ..prediction }),
            other => other,
        };
        Self { measure: Some("bytes"), scheme, ..self }
    }

    /// Selects the kernel in which only counters decide whether a woken task preempts.
    fn by_counter(self) -> Self {
        Self { preemption: "counter", ..self }
    }

    /// Selects the algorithm as printed.
    fn printed(self) -> Self {
        let scheme = match self.scheme {
            Scheme::Predicted(prediction) => {
                Scheme::Predicted(Prediction { reading: Reading::Printed, ..prediction })
            }
            other => other,
        };
        Self { reading: "printed", scheme, ..self }
    }

    /// Returns the preemption rule of the kernel.
    pub(crate) fn kernel(&self) -> Preemption {
        if self.preemption == "counter" { Preemption::ByCounter } else { Preemption::ByGoodness }
    }

    /// Returns the label in figures.
    pub(crate) fn label(&self) -> String {
        let name = self.policy.to_uppercase();
        match self.p {
            Some("0.01") => format!("{name}, P near 0"),
            Some("0.99") => format!("{name}, P near 1"),
            Some(p) => format!("{name}, P = {p}"),
            None => name,
        }
    }
}

/// Returns the paper's models: LINUX, and both policies at both ends of P.
pub(crate) fn paper() -> Vec<Model> {
    let ends = [PASTS[0], PASTS[4]];
    let of = |policy| ends.map(|p| Model::of_paper(policy, p));
    [Model::linux()].into_iter().chain(of(Policy::Dynamic)).chain(of(Policy::Predictive)).collect()
}

/// Returns both policies with P between its ends.
pub(crate) fn between() -> Vec<Model> {
    let of = |policy| PASTS[1..4].iter().map(move |p| Model::of_paper(policy, p));
    of(Policy::Dynamic).chain(of(Policy::Predictive)).collect()
}

/// Returns our models and other policies on one kernel, and the paper's on other kernels, with another measure, and as printed.
pub(crate) fn others() -> Vec<Model> {
    let pred = Model::of_paper(Policy::Predictive, PASTS[4]);
    let Scheme::Predicted(prediction) = pred.scheme else { unreachable!("PRED predicts") };
    let plus = Model { policy: "pred-plus", scheme: Scheme::Costed(prediction), ..pred };
    let carried = Model { policy: "pred-carried", scheme: Scheme::Carried(prediction), ..pred };
    let auto = Model { measure: Some("packets"), ..Model::new("pred-auto", Scheme::Auto(Measure::Packets)) };
    let mut models = vec![
        Model::new("dyn-preempt", Scheme::Preempting),
        carried,
        carried.in_bytes(),
        plus,
        auto,
        Model::new("gang", Scheme::Gang),
        Model::new("explicit", Scheme::Explicit { crash: None }),
        Model::new("explicit-crash", Scheme::Explicit { crash: Some(CRASH) }),
        Model::new("bcs", Scheme::Bcs),
        pred.printed(),
    ];
    let paper = paper();
    models.extend(paper.iter().filter(|model| model.measure.is_some()).map(|model| model.in_bytes()));
    models.extend(paper.iter().map(|model| model.by_counter()));
    models
}

/// Returns the models under conditions that the paper leaves as future work: LINUX, the best PRED of the paper, and PRED+.
pub(crate) fn costly() -> Vec<Model> {
    let plus = others().into_iter().filter(|model| model.policy == "pred-plus");
    [Model::linux(), Model::of_paper(Policy::Predictive, PASTS[4])].into_iter().chain(plus).collect()
}

/// Returns the scheme of a policy, with P at the end at which the paper found it best.
pub(crate) fn scheme(policy: &str) -> Scheme {
    let near_1 = past(PASTS[4]);
    match policy {
        "dyn" => Scheme::Predicted(predicted(Policy::Dynamic, past(PASTS[0]))),
        "pred" => Scheme::Predicted(predicted(Policy::Predictive, near_1)),
        "pred-carried" => Scheme::Carried(predicted(Policy::Predictive, near_1)),
        "gang" => Scheme::Gang,
        "bcs" => Scheme::Bcs,
        "implicit" => Scheme::Implicit,
        _ => Scheme::Predicted(predicted(Policy::Linux, near_1)),
    }
}

/// Returns P as a share.
fn past(p: &str) -> Share {
    let hundredths = match p {
        "0.01" => 1,
        "0.25" => 25,
        "0.5" => 50,
        "0.75" => 75,
        _ => 99,
    };
    Share::percent(hundredths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_differ_and_their_names_are_known() {
        let mut all = paper();
        all.extend(between());
        all.extend(others());
        for (index, model) in all.iter().enumerate() {
            assert!(
                POLICIES.contains(&model.policy) && model.p.is_none_or(|p| PASTS.contains(&p)),
                "{model:?}"
            );
            let same = |other: &Model| (other.scheme, other.preemption) == (model.scheme, model.preemption);
            assert!(!all[..index].iter().any(same), "{model:?} twice");
        }
    }

    #[test]
    fn shares_match_their_names() {
        let millionths = PASTS.map(|p| f64::from(past(p).as_millionths()) / 1e6);
        let named = PASTS.map(|p| p.parse::<f64>().unwrap());
        assert_eq!(millionths, named);
    }
}
