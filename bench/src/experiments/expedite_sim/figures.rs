//! The figures, in the style of the paper's.

use pronto_sched_sim::paper::expedite::{Boost, RANKS};

use super::claims::Results;
use super::trials::{CURVES, Measured, Over, boost_name};
use crate::plot::{Axis, BarSeries, Bars, Figure, Lines, Marks, Panel, Point, Series, Spread};
use crate::sample::approximate;

/// All figures that these trials can show.
pub(super) fn figures(results: Results<'_>) -> Vec<Figure> {
    let none = Boost::None;
    let pings = |file, title: &str, panels: &[(&str, &str, Boost)]| {
        let panels: Vec<Panel> = panels
            .iter()
            .filter_map(|(caption, figure, boost)| trips(results, caption, figure, *boost))
            .collect();
        (!panels.is_empty()).then(|| Figure { file, title: title.to_owned(), panels })
    };
    [
        pings(
            "expedite-fig1",
            "Round-trip time of pings with the existing kernel (Expedite, Fig. 1), simulated",
            &[("(a) compute-only in background", "1a", none), ("(b) and two sleep-mostly", "1b", none)],
        ),
        pings(
            "expedite-fig2",
            "Round-trip time of pings with Expedite (Fig. 2), simulated",
            &[
                ("(a) compute-only in background", "2a", Boost::Counter),
                ("(b) and two sleep-mostly", "2b", Boost::Counter),
            ],
        ),
        ten_pairs(results),
        tenth(results),
        pings(
            "expedite-fig5",
            "Round-trip time with 1.6 ms of computation after each pong (Expedite, Fig. 5), simulated",
            &[
                ("without Expedite", "5", none),
                ("Expedite as printed: ten ticks", "5", Boost::Counter),
                ("as meant: our budget", "5", Boost::Sleepers),
            ],
        ),
        curve(results),
        scatter(results),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Round trips in their order.
fn trips(results: Results<'_>, caption: &str, figure: &str, boost: Boost) -> Option<Panel> {
    let measured = results.find(figure, boost)?;
    Some(scattered(caption, measured.drawn.first()?))
}

/// Round trips in their order; all such panels have the same height, a little more than the longest delay.
fn scattered(caption: &str, trips: &[f64]) -> Panel {
    let point = |(number, ms): (u64, &f64)| Point { x: approximate(number), y: Spread::exact(*ms) };
    let points = (1..).zip(trips).map(point).collect();
    Panel::Lines(Lines {
        title: caption.to_owned(),
        x: Axis::linear("ping, of those drawn", ""),
        y: Axis::linear("round-trip time", "ms").reaching(6),
        marks: Marks::Scattered,
        series: vec![Series { name: String::new(), points }],
    })
}

/// Of each of ten pairs the mean.
fn ten_pairs(results: Results<'_>) -> Option<Figure> {
    let bars = |name: &str, measured: &Measured| BarSeries {
        name: name.to_owned(),
        bars: (0..10).map(|pair| Some(spread(measured.over(pair, |s| s.mean_us / 1e3)))).collect(),
    };
    let series = vec![
        bars("none of them uses Expedite", results.find("3a", Boost::None)?),
        bars("1 to 9 use it, 10 does not", results.find("3b", Boost::Counter)?),
    ];
    let panel = Panel::Bars(Bars {
        title: String::new(),
        x: "pair".to_owned(),
        y: Axis::linear("mean round-trip time", "ms"),
        groups: (1..=10).map(|pair| pair.to_string()).collect(),
        series,
    });
    let title = "Ten concurrent pairs (Expedite, Fig. 3), simulated".to_owned();
    Some(Figure { file: "expedite-fig3", title, panels: vec![panel] })
}

/// The pair that does not use Expedite, before and after the others do.
fn tenth(results: Results<'_>) -> Option<Figure> {
    let panel = |caption, measured: &Measured| measured.drawn.get(9).map(|trips| scattered(caption, trips));
    let before = panel("no pair uses Expedite", results.find("3a", Boost::None)?)?;
    let after = panel("the other nine use it", results.find("3b", Boost::Counter)?)?;
    let title = "The pair that did not use Expedite (Fig. 4), simulated".to_owned();
    Some(Figure { file: "expedite-fig4", title, panels: vec![before, after] })
}

/// Boosts kept, and late pings, over computing after each pong.
fn curve(results: Results<'_>) -> Option<Figure> {
    let line = |boost: Boost, number: &dyn Fn(&Measured) -> Option<Over>| {
        let trials = results.0.iter().filter(|m| m.trial.figure == "5-curve" && m.trial.boost() == boost);
        let point = |measured: &Measured| {
            let extra = measured.trial.extra()?;
            Some(Point { x: approximate(extra.0) / 1e6, y: spread(number(measured)?) })
        };
        let points: Vec<Point> = trials.filter_map(point).collect();
        (!points.is_empty()).then(|| Series { name: curve_name(boost).to_owned(), points })
    };
    let panel = |title: &str, quantity: &str, number: &dyn Fn(&Measured) -> Option<Over>| {
        let series: Vec<Series> = CURVES.iter().filter_map(|boost| line(*boost, number)).collect();
        (!series.is_empty()).then(|| {
            Panel::Lines(Lines {
                title: title.to_owned(),
                x: Axis::linear("computing after each pong", "ms"),
                y: Axis::linear(quantity, ""),
                marks: Marks::Joined,
                series,
            })
        })
    };
    let kept = panel("boosts kept", "share of requested boosts", &Measured::kept)?;
    let late = panel("late pings", "share of pings late by 1 ms", &|m| Some(m.over(0, |s| s.late)))?;
    let title = "When is a boost lost? Supplement to Fig. 5 of Expedite, simulated".to_owned();
    Some(Figure { file: "expedite-fig5-curve", title, panels: vec![kept, late] })
}

fn curve_name(boost: Boost) -> &'static str {
    match boost {
        Boost::None => "without Expedite",
        Boost::Counter => "printed rule: ten ticks",
        Boost::Sleepers => "our budget, all time counts",
        Boost::Budget => "our budget, boosted time counts",
        other => boost_name(other),
    }
}

/// The time that each rank spends.
fn scatter(results: Results<'_>) -> Option<Figure> {
    let unloaded = results.find("7-unloaded", Boost::None)?;
    let bars = |name: &str, measured: &Measured| BarSeries {
        name: name.to_owned(),
        bars: (0..RANKS).map(|rank| Some(spread(measured.over(rank, |s| s.mean_us / 1e3)))).collect(),
    };
    let panel = |title: &str, reaches: u32, measured: &Measured| {
        Panel::Bars(Bars {
            title: title.to_owned(),
            x: "rank".to_owned(),
            y: Axis::linear("time on MPI_Scatter()", "ms").reaching(reaches),
            groups: (0..RANKS).map(|rank| rank.to_string()).collect(),
            series: vec![bars("with top on rank 4", measured), bars("without", unloaded)],
        })
    };
    let panels = vec![
        // (b) and (c) are compared with each other, and would both vanish beside (a).
        panel("(a) polling", 8, results.find("7a", Boost::None)?),
        panel("(b) handler thread: another scale", 2, results.find("7b", Boost::None)?),
        panel("(c) handler thread with Expedite", 2, results.find("7c", Boost::Counter)?),
    ];
    let title = "Scatter among eight nodes (Expedite, Fig. 7), simulated".to_owned();
    Some(Figure { file: "expedite-fig7", title, panels })
}

/// The mean, and all seeds between the ends.
fn spread(over: Over) -> Spread {
    Spread { middle: over.mean, least: over.least, most: over.most }
}
