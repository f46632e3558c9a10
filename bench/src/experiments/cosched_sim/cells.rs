//! The cells of the table: a model, an application and a number of local tasks, run with every seed.

use pronto_sched_policy::policy::time::Nanos;
use pronto_sched_sim::link::Link;
use pronto_sched_sim::paper::coscheduling::{self, App, Measured, Setting};
use pronto_sched_sim::task::Faults;
use pronto_sched_sim::workload::parallel::mg::Class;

use super::models::Model;
use crate::plot::Spread;
use crate::progress::Progress;
use crate::report::{Fields, decimals};
use crate::workers;

/// An application that is timed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Timed {
    /// Value of the column `app`.
    pub(crate) name: &'static str,
    /// Application that runs.
    pub(crate) app: App,
    /// Index of the timed job of the application; `None` for its local tasks.
    pub(crate) job: Option<usize>,
    /// Conditions of the run.
    pub(crate) conditions: Conditions,
}

/// Conditions of a run: those of the paper, or one cost that the paper excludes or has little of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conditions {
    /// The paper's: programs fit into memory, a switch takes 10 us, and a message 0.1 ms.
    Paper,
    /// The tasks of jobs have page faults. One takes a hundred times the network's latency: "one or two orders of magnitude slower than
    /// the network latency" (section 4.1). It reads 16 pages, as Linux 2.2 does (`page_cluster` is 4). The interval is ours.
    PageFaults,
    /// A switch takes a millisecond: it refills the paper's "512KB of cache" (section 4) at 500 MB/s. The rate is ours.
    DearSwitches,
    /// A message takes 10 ms, as between distant sites. Chosen by us; no source.
    FarNodes,
}

impl Conditions {
    const FAULTS: Faults = Faults { every: Nanos::from_millis(50), takes: Nanos::from_millis(10), pages: 16 };

    fn apply(self, setting: Setting) -> Setting {
        match self {
            Self::Paper => setting,
            Self::PageFaults => Setting { faults: Some(Self::FAULTS), ..setting },
            Self::DearSwitches => Setting { switch: Nanos::from_millis(1), ..setting },
            Self::FarNodes => {
                Setting { link: Link { latency: Nanos::from_millis(10), ..setting.link }, ..setting }
            }
        }
    }
}

impl Timed {
    const fn new(name: &'static str, app: App, job: Option<usize>) -> Self {
        Self { name, app, job, conditions: Conditions::Paper }
    }

    const fn under(self, conditions: Conditions) -> Self {
        Self { conditions, ..self }
    }
}

/// IS with the class that stands for the paper's class T of MG, and with class S.
const BOTH: App = App::Both(Class::T);
const BOTH_S: App = App::Both(Class::S);

/// Figures 2 to 4, and figure 2 under conditions that the paper leaves as future work. The two applications of figure 3 share their runs.
pub(crate) const TIMED: [Timed; 16] = [
    Timed::new("is", App::Is, Some(0)),
    Timed::new("mg", App::Mg, Some(0)),
    Timed::new("is-with-mg", BOTH, Some(0)),
    Timed::new("mg-with-is", BOTH, Some(1)),
    Timed::new("is-with-mg-s", BOTH_S, Some(0)),
    Timed::new("mg-s-with-is", BOTH_S, Some(1)),
    Timed::new("calcula-with-is", App::Is, None),
    Timed::new("calcula-with-mg", App::Mg, None),
    Timed::new("calcula-with-both", BOTH, None),
    Timed::new("master-slave", App::MasterSlave, Some(0)),
    Timed::new("is-faults", App::Is, Some(0)).under(Conditions::PageFaults),
    Timed::new("mg-faults", App::Mg, Some(0)).under(Conditions::PageFaults),
    Timed::new("is-switches", App::Is, Some(0)).under(Conditions::DearSwitches),
    Timed::new("mg-switches", App::Mg, Some(0)).under(Conditions::DearSwitches),
    Timed::new("is-far", App::Is, Some(0)).under(Conditions::FarNodes),
    Timed::new("mg-far", App::Mg, Some(0)).under(Conditions::FarNodes),
];

/// CPU time of a local task if local tasks are timed: at least as long as the concurrent jobs take. Chosen by us; no source.
const LOCAL_WORK: Nanos = Nanos::from_millis(20_000);

/// A cell, and its results with each seed.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) model: Model,
    pub(crate) timed: Timed,
    pub(crate) locals: usize,
    /// Time for each seed; NaN if the run was given up.
    pub(crate) seconds: Vec<f64>,
    /// Median share of the CPUs that the local tasks got.
    pub(crate) local_share: f64,
}

/// Runs the wanted cells with seeds from 1 to `seeds`.
pub(crate) fn run(wanted: &[(Model, Timed, usize)], seeds: u64, progress: &mut Progress) -> Vec<Cell> {
    let setting = |(model, timed, locals): &(Model, Timed, usize), seed: u64| {
        timed.conditions.apply(Setting {
            scheme: model.scheme,
            preemption: model.kernel(),
            measured: if timed.job.is_some() { Measured::Jobs } else { Measured::Locals(LOCAL_WORK) },
            ..Setting::plain(timed.app, *locals, seed)
        })
    };
    let mut settings: Vec<Setting> = Vec::new();
    for cell in wanted {
        settings.extend(
            (1..=seeds).map(|seed| setting(cell, seed)).filter(|s| !settings.contains(s)).collect::<Vec<_>>(),
        );
    }
    progress.begin(settings.len() as u64);
    let outcomes = workers::all(&settings, progress, coscheduling::run);
    let found = |setting: &Setting| {
        let place = settings.iter().position(|known| known == setting).expect("every setting was run");
        &outcomes[place]
    };
    let cell = |cell: &(Model, Timed, usize)| {
        let runs: Vec<_> = (1..=seeds).map(|seed| found(&setting(cell, seed))).collect();
        let took = |outcome: &coscheduling::Outcome| match cell.1.job {
            Some(job) => outcome.jobs[job],
            None => outcome.locals,
        };
        let shares: Vec<f64> = runs.iter().map(|run| run.local_share).collect();
        Cell {
            model: cell.0,
            timed: cell.1,
            locals: cell.2,
            seconds: runs.iter().map(|run| took(run).unwrap_or(f64::NAN)).collect(),
            local_share: Spread::of(&shares).map_or(f64::NAN, |spread| spread.middle),
        }
    };
    wanted.iter().map(cell).collect()
}

impl Cell {
    /// Returns median and extremes over all seeds; `None` if a run was given up.
    pub(crate) fn spread(&self) -> Option<Spread> {
        Spread::of_all(&self.seconds)
    }

    /// Returns the median of the time as a fraction of another's, seed by seed.
    pub(crate) fn relative_to(&self, other: &Self) -> Option<f64> {
        self.parts_of(other).map(|spread| spread.middle)
    }

    /// Returns median and extremes of the time as a fraction of another's, seed by seed.
    pub(crate) fn parts_of(&self, other: &Self) -> Option<Spread> {
        Spread::of_all(&self.ratios_to(other))
    }

    /// Returns the time as a fraction of another's, seed by seed.
    pub(crate) fn ratios_to(&self, other: &Self) -> Vec<f64> {
        self.seconds.iter().zip(&other.seconds).map(|(own, other)| own / other).collect()
    }

    /// Returns the row of the table; `linux` is the corresponding cell under LINUX on the same kernel.
    pub(crate) fn fields(&self, linux: Option<&Self>) -> Fields {
        let relative = linux.and_then(|linux| self.relative_to(linux)).unwrap_or(f64::NAN);
        Fields::default()
            .with("policy", self.model.policy)
            .with("p", self.model.p.and_then(|p| p.parse::<f64>().ok()))
            .with("wait", "block")
            .with("local_tasks", self.locals)
            .with("app", self.timed.name)
            .with_spread(self.spread(), 2)
            .with("to_linux", decimals(relative, 3))
            .with("local_share", decimals(self.local_share, 3))
            .with("measure", self.model.measure)
            .with("preemption", self.model.preemption)
            .with("reading", self.model.reading)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(seconds: &[f64]) -> Cell {
        Cell {
            model: Model::linux(),
            timed: TIMED[0],
            locals: 3,
            seconds: seconds.to_vec(),
            local_share: 0.75,
        }
    }

    #[test]
    fn times_are_compared_seed_by_seed() {
        let (a, b) = (cell(&[10.0, 20.0, 40.0]), cell(&[20.0, 20.0, 50.0]));
        assert_eq!(a.relative_to(&b), Some(0.8));
        assert_eq!(a.fields(Some(&b)).value("to_linux"), Some(&serde_json::json!(0.8)));
    }

    #[test]
    fn a_run_that_was_given_up_has_no_time() {
        let given_up = cell(&[10.0, f64::NAN]);
        assert_eq!((given_up.spread(), given_up.relative_to(&cell(&[1.0, 1.0]))), (None, None));
        assert_eq!(given_up.fields(None).value("seconds"), Some(&serde_json::Value::Null));
    }
}
