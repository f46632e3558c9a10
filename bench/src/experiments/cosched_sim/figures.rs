//! Figures 2 to 4 of the paper, and the effects of P and of other policies.

use pronto_sched_sim::paper::coscheduling::App;

use super::cells::{Cell, Conditions, TIMED, Timed};
use super::models::{Model, PASTS, costly, others, paper};
use crate::plot::{Axis, BarSeries, Figure, Marks, Panel, Point, Series};
use crate::sample::approximate;

/// Returns all figures for which there are cells.
pub(super) fn all(cells: &[Cell]) -> Vec<Figure> {
    let most = cells.iter().map(|cell| cell.locals).max().unwrap_or_default();
    let master_slave = format!("master-slave, {most} local tasks");
    [
        Figure::of(
            "cosched-fig2",
            "NAS benchmarks with local tasks (coscheduling paper, Fig. 2)",
            [loads(cells, "is", "IS, class A"), loads(cells, "mg", "MG, class A")],
        ),
        Figure::of(
            "cosched-fig2-parts",
            "Fig. 2 as fractions of LINUX's time with the same seed",
            [gains(cells, "is", "IS, class A"), gains(cells, "mg", "MG, class A")],
        ),
        Figure::of(
            "cosched-fig3",
            "IS and MG at the same time (coscheduling paper, Fig. 3)",
            [
                loads(cells, "is-with-mg", "IS, class A"),
                loads(cells, "mg-with-is", "MG, class T (here: a class of our own)"),
            ],
        ),
        Figure::of(
            "cosched-fig3-s",
            "IS and MG at the same time, with class S instead of class T",
            [loads(cells, "is-with-mg-s", "IS, class A"), loads(cells, "mg-s-with-is", "MG, class S")],
        ),
        Figure::of(
            "cosched-fig4",
            "Local tasks, and master with slaves (coscheduling paper, Fig. 4)",
            [calcula(cells), pasts(cells, "master-slave", &master_slave, most)],
        ),
        Figure::of(
            "cosched-p",
            format!("Effect of P, with {most} local tasks"),
            [pasts(cells, "is", "IS", most), pasts(cells, "mg", "MG", most)],
        ),
        Figure::of(
            "cosched-costs",
            format!("PRED+ where page faults, switches or messages take long, with {most} local tasks"),
            [costs(cells, "is", "IS", most), costs(cells, "mg", "MG", most)],
        ),
        Figure::of(
            "cosched-rivals",
            format!("Other coscheduling policies, with {most} local tasks"),
            [rivals(cells, most)],
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn find<'a>(cells: &'a [Cell], app: &str, locals: usize, model: &Model) -> Option<&'a Cell> {
    cells.iter().find(|cell| cell.timed.name == app && cell.locals == locals && cell.model == *model)
}

/// Returns execution times as bars in groups, a bar per model.
fn times<'a>(
    cells: &[Cell],
    (title, x): (&str, &str),
    groups: Vec<String>,
    apps: &[(&str, usize)],
    models: impl IntoIterator<Item = &'a Model>,
) -> Option<Panel> {
    let series = models.into_iter().map(|model| {
        let bar = |(app, locals): &(&str, usize)| find(cells, app, *locals, model).and_then(Cell::spread);
        BarSeries::new(model.label(), apps.iter().map(bar))
    });
    Panel::bars(title, x, Axis::linear("execution time", "s"), groups, series)
}

/// Returns the execution time by number of local tasks.
fn loads(cells: &[Cell], app: &str, title: &str) -> Option<Panel> {
    let mut loads: Vec<_> =
        cells.iter().filter(|cell| cell.timed.name == app).map(|cell| cell.locals).collect();
    loads.sort_unstable();
    loads.dedup();
    let groups = loads.iter().map(ToString::to_string).collect();
    let apps: Vec<_> = loads.iter().map(|load| (app, *load)).collect();
    times(cells, (title, "local tasks per node"), groups, &apps, &paper())
}

/// Returns the time as a fraction of LINUX's by number of local tasks, a line per model. The lines are shifted slightly, so that their
/// error bars can be distinguished.
fn gains(cells: &[Cell], app: &str, title: &str) -> Option<Panel> {
    let models = paper();
    let series = models.iter().enumerate().map(|(nth, model)| {
        let shift = (approximate(nth as u64) - 2.0) * SHIFT;
        let of_model = cells.iter().filter(|cell| cell.timed.name == app && cell.model == *model);
        let point = |cell: &Cell| {
            let linux = find(cells, app, cell.locals, &Model::linux())?;
            Some(Point { x: approximate(cell.locals as u64) + shift, y: cell.parts_of(linux)? })
        };
        Series::new(model.label(), of_model.map(point))
    });
    let y = Axis::zoomed("fraction of LINUX's time", "");
    Panel::lines(title, Axis::zoomed("local tasks per node", ""), y, Marks::Joined, series)
}

/// Distance of two lines at one number of local tasks.
const SHIFT: f64 = 0.06;

/// Returns the execution time of `calcula` by the concurrent jobs.
fn calcula(cells: &[Cell]) -> Option<Panel> {
    let load = cells.iter().filter(|cell| cell.timed.job.is_none()).map(|cell| cell.locals).max()?;
    let apps: Vec<_> =
        TIMED.iter().filter(|timed| timed.job.is_none()).map(|timed| (timed.name, load)).collect();
    let groups = apps.iter().map(|(app, _)| app.trim_start_matches("calcula-").replace('-', " ")).collect();
    let title = format!("calcula, {load} on each node");
    times(cells, (&title, "jobs that run meanwhile"), groups, &apps, &paper())
}

/// Returns the execution time by P, a line per policy; that of LINUX, which has no P, is level.
fn pasts(cells: &[Cell], app: &str, title: &str, locals: usize) -> Option<Panel> {
    let series = ["linux", "dyn", "pred"].map(|policy| {
        let point = |p: &&'static str| {
            let is = |cell: &&Cell| {
                let model = &cell.model;
                (cell.timed.name, cell.locals, model.policy) == (app, locals, policy)
                    && model.p.is_none_or(|own| own == *p)
                    && (model.preemption, model.reading) == ("goodness", "text")
                    && model.measure != Some("bytes")
            };
            Some(Point { x: p.parse().ok()?, y: cells.iter().find(is)?.spread()? })
        };
        Series::new(policy.to_uppercase(), PASTS.iter().map(point))
    });
    let x = Axis::linear("P, the weight of the past", "");
    Panel::lines(title, x, Axis::zoomed("execution time", "s"), Marks::Joined, series)
}

/// Returns the execution time of a benchmark by condition.
fn costs(cells: &[Cell], benchmark: &str, title: &str, load: usize) -> Option<Panel> {
    let of_benchmark = |timed: &&Timed| {
        timed.name == benchmark
            || timed.conditions != Conditions::Paper
                && timed.app == if benchmark == "is" { App::Is } else { App::Mg }
    };
    let apps: Vec<_> = TIMED.iter().filter(of_benchmark).map(|timed| (timed.name, load)).collect();
    let groups = apps
        .iter()
        .map(|(app, _)| app.split_once('-').map_or("as in the paper", |(_, cost)| cost).to_owned());
    times(cells, (title, "condition"), groups.collect(), &apps, &costly())
}

/// Returns the execution time of both benchmarks under every policy on one kernel.
fn rivals(cells: &[Cell], load: usize) -> Option<Panel> {
    // Only the best of the paper's policies, and no crash, because more colours could not be distinguished.
    let of_paper =
        paper().into_iter().filter(|model| model.policy != "dyn" && model.p.is_none_or(|p| p == PASTS[4]));
    let rival = |model: &Model| {
        (model.preemption, model.reading) == ("goodness", "text")
            && model.measure != Some("bytes")
            && !["explicit-crash", "pred-plus"].contains(&model.policy)
    };
    let models: Vec<_> = of_paper.chain(others().into_iter().filter(rival)).collect();
    let groups = vec!["IS".to_owned(), "MG".to_owned()];
    times(cells, ("execution time", "benchmark"), groups, &[("is", load), ("mg", load)], &models)
}
