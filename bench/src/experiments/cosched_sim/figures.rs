//! Figures 2 to 4 as the paper has them, and what P and its rivals do.

use super::cells::{Cell, TIMED};
use super::models::{Model, PASTS, others, paper};
use crate::plot::{Axis, BarSeries, Bars, Figure, Lines, Marks, Panel, Point, Series};
use crate::sample::approximate;

/// All figures for which there are cells.
pub(super) fn all(cells: &[Cell]) -> Vec<Figure> {
    let most = cells.iter().map(|cell| cell.locals).max().unwrap_or_default();
    let figure = |file, title: String, panels: Vec<Option<Panel>>| Figure {
        file,
        title,
        panels: panels.into_iter().flatten().collect(),
    };
    let figures = [
        figure(
            "cosched-fig2",
            "NAS benchmarks with local tasks (coscheduling paper, Fig. 2)".into(),
            vec![loads(cells, "is", "IS, class A"), loads(cells, "mg", "MG, class A")],
        ),
        figure(
            "cosched-fig2-parts",
            "Fig. 2 as fractions of LINUX's time with the same seed".into(),
            vec![gains(cells, "is", "IS, class A"), gains(cells, "mg", "MG, class A")],
        ),
        figure(
            "cosched-fig3",
            "IS and MG at the same time (coscheduling paper, Fig. 3)".into(),
            vec![
                loads(cells, "is-beside-mg", "IS, class A"),
                loads(cells, "mg-beside-is", "MG, class T (here: S)"),
            ],
        ),
        figure(
            "cosched-fig4",
            "Local tasks, and master with slaves (coscheduling paper, Fig. 4)".into(),
            vec![calcula(cells), master_slave(cells, most)],
        ),
        figure(
            "cosched-p",
            format!("Effect of P, with {most} local tasks"),
            vec![pasts(cells, "is", "IS", most), pasts(cells, "mg", "MG", most)],
        ),
        figure(
            "cosched-rivals",
            format!("Other coscheduling policies, with {most} local tasks"),
            vec![rivals(cells, most)],
        ),
    ];
    figures.into_iter().filter(|figure| !figure.panels.is_empty()).collect()
}

fn find<'a>(cells: &'a [Cell], app: &str, locals: usize, model: &Model) -> Option<&'a Cell> {
    cells.iter().find(|cell| cell.timed.name == app && cell.locals == locals && cell.model == *model)
}

/// Execution time over local tasks, a bar per model.
fn loads(cells: &[Cell], app: &str, title: &str) -> Option<Panel> {
    let mut loads: Vec<_> =
        cells.iter().filter(|cell| cell.timed.name == app).map(|cell| cell.locals).collect();
    loads.sort_unstable();
    loads.dedup();
    let series = |model: &Model| BarSeries {
        name: model.label(),
        bars: loads.iter().map(|load| find(cells, app, *load, model).and_then(Cell::spread)).collect(),
    };
    bars(
        title,
        "local tasks per node",
        loads.iter().map(ToString::to_string).collect(),
        paper().iter().map(series),
    )
}

/// Parts of LINUX's time over local tasks, a line per model; lines stand a little apart, so that their ends can be told.
fn gains(cells: &[Cell], app: &str, title: &str) -> Option<Panel> {
    let models = paper();
    let series = |(nth, model): (usize, &Model)| {
        let apart = (approximate(nth as u64) - 2.0) * APART;
        let of_model = cells.iter().filter(|cell| cell.timed.name == app && cell.model == *model);
        let point = |cell: &Cell| {
            let linux = find(cells, app, cell.locals, &Model::linux())?;
            Some(Point { x: approximate(cell.locals as u64) + apart, y: cell.parts_of(linux)? })
        };
        Series { name: model.label(), points: of_model.filter_map(point).collect() }
    };
    let series: Vec<_> = models.iter().enumerate().map(series).filter(|s| !s.points.is_empty()).collect();
    (!series.is_empty()).then(|| {
        Panel::Lines(Lines {
            title: title.to_owned(),
            x: Axis::zoomed("local tasks per node", ""),
            y: Axis::zoomed("fraction of LINUX's time", ""),
            marks: Marks::Joined,
            series,
        })
    })
}

/// Between two lines at the same number of local tasks.
const APART: f64 = 0.06;

/// Execution time of `calcula` over what runs beside it.
fn calcula(cells: &[Cell]) -> Option<Panel> {
    let apps: Vec<_> = TIMED.iter().filter(|timed| timed.job.is_none()).map(|timed| timed.name).collect();
    let load = cells.iter().filter(|cell| cell.timed.job.is_none()).map(|cell| cell.locals).max()?;
    let series = |model: &Model| BarSeries {
        name: model.label(),
        bars: apps.iter().map(|app| find(cells, app, load, model).and_then(Cell::spread)).collect(),
    };
    let groups = apps.iter().map(|app| app.trim_start_matches("calcula-").replace('-', " ")).collect();
    let title = format!("calcula, {load} on each node");
    bars(&title, "jobs that run meanwhile", groups, paper().iter().map(series))
}

/// Execution time of master and slaves over P.
fn master_slave(cells: &[Cell], load: usize) -> Option<Panel> {
    pasts(cells, "master-slave", &format!("master-slave, {load} local tasks"), load)
}

/// Execution time over P, a line per policy; LINUX has none, so its line is level.
fn pasts(cells: &[Cell], app: &str, title: &str, locals: usize) -> Option<Panel> {
    let of = |policy: &'static str| {
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
        Series { name: policy.to_uppercase(), points: PASTS.iter().filter_map(point).collect() }
    };
    let series: Vec<_> =
        ["linux", "dyn", "pred"].map(of).into_iter().filter(|s| !s.points.is_empty()).collect();
    (!series.is_empty()).then(|| {
        Panel::Lines(Lines {
            title: title.to_owned(),
            x: Axis::linear("P, the weight of the past", ""),
            y: Axis::zoomed("execution time", "s"),
            marks: Marks::Joined,
            series,
        })
    })
}

/// Execution time of both benchmarks under everything that there is on the one kernel.
fn rivals(cells: &[Cell], load: usize) -> Option<Panel> {
    // The best of the paper's; more colours than there are could not be told apart.
    let of_paper =
        paper().into_iter().filter(|model| model.policy != "dyn" && model.p.is_none_or(|p| p == PASTS[4]));
    let rival = |model: &Model| {
        (model.preemption, model.reading) == ("goodness", "text") && model.measure != Some("bytes")
    };
    let models: Vec<_> = of_paper.chain(others().into_iter().filter(rival)).collect();
    let series = |model: &Model| BarSeries {
        name: model.label(),
        bars: ["is", "mg"].iter().map(|app| find(cells, app, load, model).and_then(Cell::spread)).collect(),
    };
    let groups = vec!["IS".to_owned(), "MG".to_owned()];
    bars("execution time", "benchmark", groups, models.iter().map(series))
}

/// A panel, if there is a bar in it.
fn bars(title: &str, x: &str, groups: Vec<String>, series: impl Iterator<Item = BarSeries>) -> Option<Panel> {
    let series: Vec<_> = series.filter(|series| series.bars.iter().any(Option::is_some)).collect();
    (!series.is_empty()).then(|| {
        Panel::Bars(Bars {
            title: title.to_owned(),
            x: x.to_owned(),
            y: Axis::linear("execution time", "s"),
            groups,
            series,
        })
    })
}
