//! The figures, in the style of the paper's.

use pronto_sched_sim::paper::expedite::{Boost, RANKS};

use super::claims::Results;
use super::trials::{CURVES, Measured, Over, boost_name};
use crate::plot::{Axis, BarSeries, Figure, Marks, Panel, Point, Series, Spread};
use crate::sample::approximate;

/// Returns all figures for which there are trials.
pub(super) fn figures(results: Results<'_>) -> Vec<Figure> {
    let none = Boost::None;
    let pings = |file, title: &str, panels: &[(&str, &str, Boost)]| {
        Figure::of(
            file,
            title,
            panels.iter().map(|(caption, figure, boost)| trips(results, caption, figure, *boost)),
        )
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

/// Returns the round trips of a trial in their order.
fn trips(results: Results<'_>, caption: &str, figure: &str, boost: Boost) -> Option<Panel> {
    scattered(caption, results.find(figure, boost)?.drawn.first()?)
}

/// Returns round trips in their order. All such panels have one height, a little more than the longest delay.
fn scattered(caption: &str, trips: &[f64]) -> Option<Panel> {
    let point = |(number, ms): (u64, &f64)| Some(Point { x: approximate(number), y: Spread::exact(*ms) });
    let x = Axis::linear("ping, of those drawn", "");
    let y = Axis::linear("round-trip time", "ms").reaching(6);
    Panel::lines(caption, x, y, Marks::Scattered, [Series::new("", (1..).zip(trips).map(point))])
}

/// Returns the mean of each of ten pairs.
fn ten_pairs(results: Results<'_>) -> Option<Figure> {
    let bars = |name, measured: &Measured| BarSeries::new(name, means_ms(measured, 10));
    let series = [
        bars("none of them uses Expedite", results.find("3a", Boost::None)?),
        bars("1 to 9 use it, 10 does not", results.find("3b", Boost::Counter)?),
    ];
    let groups = (1..=10).map(|pair| pair.to_string()).collect();
    let panel = Panel::bars("", "pair", Axis::linear("mean round-trip time", "ms"), groups, series);
    Figure::of("expedite-fig3", "Ten concurrent pairs (Expedite, Fig. 3), simulated", [panel])
}

/// Returns the means of pairs or ranks in milliseconds.
fn means_ms(measured: &Measured, count: usize) -> impl Iterator<Item = Option<Spread>> {
    (0..count).map(|index| Some(spread(measured.over(index, |summary| summary.mean_us / 1e3))))
}

/// Returns the pair that does not use Expedite, before and after the others use it.
fn tenth(results: Results<'_>) -> Option<Figure> {
    let panel = |caption, measured: &Measured| scattered(caption, measured.drawn.get(9)?);
    let before = panel("no pair uses Expedite", results.find("3a", Boost::None)?)?;
    let after = panel("the other nine use it", results.find("3b", Boost::Counter)?)?;
    let title = "The pair that did not use Expedite (Fig. 4), simulated";
    Figure::of("expedite-fig4", title, [Some(before), Some(after)])
}

/// Returns the share of boosts kept, and of late pings, by the computation after each pong.
fn curve(results: Results<'_>) -> Option<Figure> {
    let line = |boost: &Boost, number: &dyn Fn(&Measured) -> Option<Over>| {
        let trials = results.0.iter().filter(|m| m.trial.figure == "5-curve" && m.trial.boost() == *boost);
        let point = |measured: &Measured| {
            let extra = measured.trial.extra()?;
            Some(Point { x: approximate(extra.0) / 1e6, y: spread(number(measured)?) })
        };
        Series::new(curve_name(*boost), trials.map(point))
    };
    let panel = |title: &str, quantity: &str, number: &dyn Fn(&Measured) -> Option<Over>| {
        let x = Axis::linear("computing after each pong", "ms");
        let series = CURVES.iter().map(|boost| line(boost, number));
        Panel::lines(title, x, Axis::linear(quantity, ""), Marks::Joined, series)
    };
    let kept = panel("boosts kept", "share of requested boosts", &Measured::kept)?;
    let late = panel("late pings", "share of pings late by 1 ms", &|m| Some(m.over(0, |s| s.late)))?;
    let title = "When is a boost lost? Supplement to Fig. 5 of Expedite, simulated";
    Figure::of("expedite-fig5-curve", title, [Some(kept), Some(late)])
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

/// Returns the time that each rank spends.
fn scatter(results: Results<'_>) -> Option<Figure> {
    let unloaded = results.find("7-unloaded", Boost::None)?;
    let bars = |name, measured: &Measured| BarSeries::new(name, means_ms(measured, RANKS));
    let panel = |title: &str, reaches: u32, measured: &Measured| {
        let y = Axis::linear("time on MPI_Scatter()", "ms").reaching(reaches);
        let groups = (0..RANKS).map(|rank| rank.to_string()).collect();
        let series = [bars("with top on rank 4", measured), bars("without", unloaded)];
        Panel::bars(title, "rank", y, groups, series)
    };
    let panels = [
        // (b) and (c) are compared with each other, and would both be invisible on the scale of (a).
        panel("(a) polling", 8, results.find("7a", Boost::None)?),
        panel("(b) handler thread: another scale", 2, results.find("7b", Boost::None)?),
        panel("(c) handler thread with Expedite", 2, results.find("7c", Boost::Counter)?),
    ];
    Figure::of("expedite-fig7", "Scatter among eight nodes (Expedite, Fig. 7), simulated", panels)
}

/// Returns mean and extremes over all seeds.
fn spread(over: Over) -> Spread {
    Spread { middle: over.mean, least: over.least, most: over.most }
}
