//! The runs of a job under one policy, and how they compare with those under others.

use crate::cosched::job::Library;
use crate::cosched::nodes::Means;
use crate::interval::Interval;
use crate::params::Choice as _;
use crate::sample::approximate;

use super::{Cell, Company, Scheme, Timed};

/// The runs of a cell under one policy, by round; `None` for a void one.
pub(super) struct Column {
    pub(super) cell: Cell,
    pub(super) scheme: Scheme,
    pub(super) runs: Vec<Option<Timed>>,
}

impl Column {
    pub(super) fn name(&self) -> String {
        let Cell { library, app, company, tasks, actuator } = self.cell;
        let library = if library == Library::Pronto { String::new() } else { format!("{}/", library.name()) };
        let actuator = if actuator == Means::Nice { String::new() } else { format!("/{}", actuator.name()) };
        let company = if company == Company::Alone { "" } else { "+" };
        format!("{library}{}{company}/{tasks}{actuator}/{}", app.name(), self.scheme.name())
    }

    pub(super) fn valid(&self) -> impl Iterator<Item = &Timed> {
        self.runs.iter().flatten()
    }

    pub(super) fn mean(&self, value: impl Fn(&Timed) -> f64) -> f64 {
        let values: Vec<_> = self.valid().map(value).collect();
        values.iter().sum::<f64>() / approximate(values.len() as u64)
    }

    /// Returns the ratios of a value to that of another column in the same round.
    pub(super) fn ratios(&self, other: &Self, value: impl Fn(&Timed) -> f64) -> Vec<f64> {
        let pairs = self.runs.iter().zip(&other.runs);
        pairs.filter_map(|(own, other)| Some(value(own.as_ref()?) / value(other.as_ref()?))).collect()
    }
}

pub(super) fn of(columns: &[Column], cell: Cell, scheme: Scheme) -> Option<&Column> {
    columns.iter().find(|column| column.cell == cell && column.scheme == scheme)
}

/// Returns the time under a policy divided by that under no policy, in each round.
pub(super) fn against_linux(column: &Column, columns: &[Column]) -> Option<Interval> {
    let linux = of(columns, column.cell, Scheme::Linux)?;
    (column.scheme != Scheme::Linux).then(|| interval(&column.ratios(linux, |run| run.seconds)))?
}

/// Returns the time divided by that of a static weight with the same share of the CPU, in each round.
pub(super) fn beyond_share(column: &Column, columns: &[Column]) -> Option<Interval> {
    if column.scheme.is_fixed() {
        return None;
    }
    let fixed: Vec<_> =
        columns.iter().filter(|other| other.cell == column.cell && other.scheme.is_fixed()).collect();
    let in_round = |round: usize| {
        let own = column.runs[round].as_ref()?;
        let points: Option<Vec<_>> = fixed
            .iter()
            .map(|other| other.runs.get(round)?.as_ref().map(|run| (run.share, run.seconds)))
            .collect();
        Some(own.seconds / interpolated(points?, own.share)?)
    };
    let ratios: Vec<_> = (0..column.runs.len()).filter_map(in_round).collect();
    interval(&ratios)
}

/// Returns the interval of ratios; `None` if all runs are void.
fn interval(ratios: &[f64]) -> Option<Interval> {
    (!ratios.is_empty()).then(|| Interval::of(ratios))
}

/// Returns the time at a share of the CPU, from points of share and time: by the line of least squares through their logarithms, because
/// time is about proportional to a power of the share. `None` with fewer than two different shares.
fn interpolated(points: Vec<(f64, f64)>, share: f64) -> Option<f64> {
    let logarithms: Vec<_> = points.into_iter().map(|(share, seconds)| (share.ln(), seconds.ln())).collect();
    let count = approximate(logarithms.len() as u64);
    let mean = |value: fn(&(f64, f64)) -> f64| logarithms.iter().map(value).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let spread: f64 = logarithms.iter().map(|point| (point.0 - x).powi(2)).sum();
    let slope = logarithms.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>() / spread;
    (spread > 1e-9).then(|| (slope * (share.ln() - x) + y).exp())
}

/// Returns the work of local tasks per CPU time divided by that under no policy.
pub(super) fn local_work(column: &Column, columns: &[Column]) -> Option<Interval> {
    let linux = of(columns, column.cell, Scheme::Linux)?;
    (column.cell.tasks > 0 && column.scheme != Scheme::Linux)
        .then(|| interval(&column.ratios(linux, |run| run.local.rate())))?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A void run where there are no seconds.
    fn column(seconds: &[Option<f64>]) -> Column {
        let run = |seconds| Timed {
            seconds,
            share: 0.3,
            local: crate::cosched::local::Work { units: 1_000, cpu_ns: 1_000_000_000 },
            samples: [100, 10, 5],
            periods: 100,
            changes: 3,
        };
        let cell = Cell {
            library: Library::Pronto,
            app: crate::cosched::rank::App::Is,
            company: Company::Alone,
            tasks: 3,
            actuator: Means::Nice,
        };
        let runs = seconds.iter().map(|seconds| seconds.map(run)).collect();
        Column { cell, scheme: Scheme::Predictive, runs }
    }

    #[test]
    fn a_time_is_interpolated_between_the_static_weights() {
        let points = [0.2, 0.25, 0.4, 0.5].map(|share: f64| (share, 1.0 / share)).to_vec();
        assert!((interpolated(points, 0.3).unwrap() - 1.0 / 0.3).abs() < 1e-6);
        assert_eq!(interpolated(vec![(0.2, 5.0), (0.2, 5.1)], 0.3), None);
    }

    #[test]
    fn a_row_without_a_valid_run_has_no_ratio() {
        let mut linux = column(&[Some(1.0), Some(1.0)]);
        linux.scheme = Scheme::Linux;
        let columns = [linux, column(&[None, None])];
        assert!(
            against_linux(&columns[1], &columns).is_none() && local_work(&columns[1], &columns).is_none()
        );
    }

    #[test]
    fn void_runs_are_left_out() {
        let (own, other) = (column(&[None, Some(2.0), Some(3.0)]), column(&[Some(4.0), Some(4.0), None]));
        assert_eq!(own.ratios(&other, |run| run.seconds), [0.5]);
    }
}
