//! Statements about measured jobs, on either test bed.

use core::cmp::Ordering;

use crate::claim::{Claim, Verdict};
use crate::cosched::job::Library;
use crate::cosched::nodes::Means;
use crate::cosched::rank::App;
use crate::interval::{self, Interval};
use crate::report::decimals;

use super::column::{Column, against_linux, beyond_share, local_work, of};
use super::{Cell, Company, Scheme};

/// Smallest work of local tasks per CPU time, of that without a policy. Chosen by us; no source.
const LOCAL_WORK: f64 = 0.95;

/// Policies that are judged.
const JUDGED: [Scheme; 3] = [Scheme::Dynamic, Scheme::Predictive, Scheme::Carried];

/// Ids of the statements of a test bed.
pub(super) struct Ids {
    faster: &'static str,
    together: &'static str,
    local: &'static str,
    beyond: &'static str,
    near_0: &'static str,
    matters: &'static str,
}

pub(super) const HOST: Ids = Ids {
    faster: "S19-host",
    together: "S22-host",
    local: "S24-host",
    beyond: "S19-share",
    near_0: "S26a-host",
    matters: "S26b-host",
};

pub(super) const LAB: Ids = Ids {
    faster: "S19-lab",
    together: "S22-lab",
    local: "S24-lab",
    beyond: "S19-lab-share",
    near_0: "S26a-lab",
    matters: "S26b-lab",
};

/// An interval of a named row.
type Named = (String, Interval);

/// Returns the claims for which rows were measured.
pub(super) fn all(columns: &[Column], ids: &Ids) -> Vec<Claim> {
    let rows = |schemes: &[Scheme], is_counted: &dyn Fn(&Column) -> bool, value: Compared| -> Vec<Named> {
        let loaded = columns.iter().filter(|column| column.cell.tasks >= 3 && is_counted(column));
        let chosen = loaded.filter(|column| schemes.contains(&column.scheme));
        chosen.filter_map(|column| Some((column.name(), value(column, columns)?))).collect()
    };
    let is_alone = |column: &Column| column.cell.company == Company::Alone;
    let is_ours = |column: &Column| {
        column.cell.library == Library::Pronto && column.cell.actuator == Means::Nice && is_alone(column)
    };
    let is_nas = |column: &Column| is_ours(column) && column.cell.app != App::MasterSlave;
    let paper = rows(&[Scheme::Dynamic, Scheme::Predictive], &is_nas, against_linux);
    let local = rows(&JUDGED, &is_ours, local_work);
    let beyond = rows(&JUDGED, &is_nas, beyond_share);
    let is_over_mpi = |column: &Column| column.cell.library != Library::Pronto && is_alone(column);
    let over_mpi = rows(&JUDGED, &is_over_mpi, against_linux);
    let is_sort_with_other = |column: &Column| {
        let Cell { library, app, actuator, .. } = column.cell;
        !is_alone(column) && (library, app, actuator) == (Library::Pronto, App::Is, Means::Nice)
    };
    let together = rows(&[Scheme::Predictive], &is_sort_with_other, against_linux);
    let near_0: Vec<_> =
        columns.iter().filter(|column| is_ours(column)).flat_map(|column| near_0(column, columns)).collect();
    let matters: Vec<_> = columns
        .iter()
        .filter(|column| is_ours(column))
        .filter_map(|column| matters(column, columns))
        .collect();
    let less = |id, values: Vec<Named>| (!values.is_empty()).then(|| judged(id, &values, Ordering::Less));
    let local = (!local.is_empty()).then(|| {
        let least = local.iter().map(|(_, interval)| interval.mean).fold(f64::INFINITY, f64::min);
        let verdict = Verdict::from(least >= LOCAL_WORK);
        Claim::new(ids.local, listed(&local), decimals(least, 3), verdict).bar(LOCAL_WORK)
    });
    let matters = (!matters.is_empty()).then(|| judged(ids.matters, &matters, Ordering::Greater));
    let in_kernel: Vec<_> = columns.iter().filter_map(|column| in_kernel(column, columns)).collect();
    let decided: Vec<_> = columns.iter().filter_map(|column| decided_in_kernel(column, columns)).collect();
    let claims = [
        less("S13-lab", in_kernel),
        less("S13-lab-kernel", decided),
        less(ids.faster, paper),
        less(ids.together, together),
        local,
        less(ids.beyond, beyond),
        less("S14-host", over_mpi),
        less(ids.near_0, near_0),
        matters,
    ];
    claims.into_iter().flatten().collect()
}

/// A comparison of a column with others.
type Compared = fn(&Column, &[Column]) -> Option<Interval>;

/// Judges a statement that all ratios lie on one side of 1.
fn judged(id: &'static str, values: &[Named], wanted: Ordering) -> Claim {
    let sides: Vec<_> = values.iter().map(|(_, interval)| interval.side_of(1.0)).collect();
    Claim::new(id, "by job, local tasks and policy", listed(values), interval::verdict(wanted, &sides))
}

fn listed(values: &[Named]) -> String {
    let each = values.iter().map(|(name, interval)| match interval {
        Interval { mean, .. } if mean.is_nan() => format!("{name} void"),
        Interval { mean, error } => format!("{name} {mean:.3} ± {error:.3}"),
    });
    each.collect::<Vec<_>>().join(", ")
}

/// Returns the time of a master with slaves under PRED with P near 0, divided by that with each other P, if `column` is that with P near 0.
fn near_0(column: &Column, columns: &[Column]) -> Vec<Named> {
    if column.cell.app != App::MasterSlave || column.scheme != Scheme::PredictivePresent {
        return Vec::new();
    }
    let others = [Scheme::Predictive, Scheme::PredictivePast].into_iter();
    let others = others.filter_map(|scheme| of(columns, column.cell, scheme));
    let ratio = |other: &Column| {
        let name = format!("{} to {}", column.name(), other.name());
        (name, Interval::of(&column.ratios(other, |run| run.seconds)))
    };
    others.map(ratio).collect()
}

/// Returns the time of a job with weights of the BPF scheduler and carried pressure, of that without weights there, divided by the same with
/// nice values, if `column` is that of the scheduler with carried pressure.
fn in_kernel(column: &Column, columns: &[Column]) -> Option<Named> {
    if column.scheme != Scheme::Carried || column.cell.actuator != Means::Scheduler {
        return None;
    }
    let with_nice = Cell { actuator: Means::Nice, ..column.cell };
    let base = of(columns, column.cell, Scheme::Linux)?;
    let [carried, linux] = [of(columns, with_nice, Scheme::Carried)?, of(columns, with_nice, Scheme::Linux)?];
    let seconds = |column: &Column, round: usize| Some(column.runs.get(round)?.as_ref()?.seconds);
    let in_round = |round| {
        let in_scheduler = seconds(column, round)? / seconds(base, round)?;
        Some(in_scheduler * seconds(linux, round)? / seconds(carried, round)?)
    };
    let ratios: Vec<f64> = (0..column.runs.len()).filter_map(in_round).collect();
    Some((column.name(), Interval::of(&ratios)))
}

/// Returns the time of a job under PRED in the kernel, divided by that under PRED of a daemon that gives the same weights, if `column` is
/// the first of these.
fn decided_in_kernel(column: &Column, columns: &[Column]) -> Option<Named> {
    if column.scheme != Scheme::Predictive || column.cell.actuator != Means::Kernel {
        return None;
    }
    let daemon = of(columns, Cell { actuator: Means::Scheduler, ..column.cell }, Scheme::Predictive)?;
    Some((column.name(), Interval::of(&column.ratios(daemon, |run| run.seconds))))
}

/// Returns how much longer a master with slaves takes with P near 1 than with P near 0 under DYN, divided by the same under PRED, if `column`
/// is that of DYN with P near 1.
fn matters(column: &Column, columns: &[Column]) -> Option<Named> {
    if column.cell.app != App::MasterSlave || column.scheme != Scheme::DynamicPast {
        return None;
    }
    let other = |scheme| of(columns, column.cell, scheme);
    let seconds = |column: &Column, round: usize| Some(column.runs.get(round)?.as_ref()?.seconds);
    let [dynamic, past, present] =
        [other(Scheme::DynamicPresent)?, other(Scheme::PredictivePast)?, other(Scheme::PredictivePresent)?];
    let in_round = |round| {
        let of_dynamic = seconds(column, round)? / seconds(dynamic, round)?;
        Some(of_dynamic * seconds(present, round)? / seconds(past, round)?)
    };
    let ratios: Vec<f64> = (0..column.runs.len()).filter_map(in_round).collect();
    Some((column.name(), Interval::of(&ratios)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cosched::local::Work;
    use crate::experiments::cosched_host::Timed;

    const CELL: Cell = Cell {
        library: Library::Pronto,
        app: App::Is,
        company: Company::Alone,
        tasks: 3,
        actuator: Means::Nice,
    };

    /// A column whose runs take `seconds`, with a share of the CPU and a rate of local work.
    fn column(scheme: Scheme, seconds: f64, share: f64, units: u64) -> Column {
        let run = |round: u32| {
            let noise = 1.0 + f64::from(round % 2) * 1e-3;
            let local = Work { units, cpu_ns: 1_000_000_000 };
            Some(Timed {
                seconds: seconds * noise,
                share,
                local,
                samples: [100, 10, 5],
                periods: 100,
                changes: 3,
            })
        };
        Column { cell: CELL, scheme, runs: (0..10).map(run).collect() }
    }

    /// Static weights with which the time is inversely proportional to the share.
    fn fixed() -> Vec<Column> {
        [(Scheme::Linux, 0.2), (Scheme::Low, 0.25), (Scheme::Middle, 0.4), (Scheme::High, 0.5)]
            .map(|(scheme, share)| column(scheme, 1.0 / share, share, 1_000))
            .into()
    }

    fn verdicts(mut columns: Vec<Column>) -> Vec<Verdict> {
        columns.extend(fixed());
        all(&columns, &HOST).iter().map(|claim| claim.verdict).collect()
    }

    #[test]
    fn the_statements_can_fail() {
        let holds = Verdict::Holds;
        // Shorter than without a policy, and than with the same share by a static weight; local tasks are not disturbed.
        let better = |scheme| column(scheme, 0.9 / 0.3, 0.3, 1_000);
        assert_eq!(verdicts(vec![better(Scheme::Dynamic), better(Scheme::Predictive)]), [holds; 3]);
        // Shorter only because of the share.
        let bought = |scheme| column(scheme, 1.1 / 0.3, 0.3, 1_000);
        let found = verdicts(vec![bought(Scheme::Dynamic), bought(Scheme::Predictive)]);
        assert_eq!(found, [holds, holds, Verdict::DoesNotHold]);
        // Longer, and local tasks lose.
        let worse = |scheme| column(scheme, 6.0, 0.3, 900);
        let found = verdicts(vec![worse(Scheme::Dynamic), worse(Scheme::Predictive)]);
        assert_eq!(found, [Verdict::DoesNotHold; 3]);
    }

    #[test]
    fn unmodified_programs_are_judged_apart() {
        let over_mpi = |scheme, seconds| {
            let mut column = column(scheme, seconds, 0.3, 1_000);
            column.cell.library = Library::MpiYields;
            column
        };
        let found = |carried: f64| {
            let columns = [over_mpi(Scheme::Linux, 5.0), over_mpi(Scheme::Carried, carried)];
            all(&columns, &HOST).iter().map(|claim| (claim.id, claim.verdict)).collect::<Vec<_>>()
        };
        assert_eq!(found(4.5), [("S14-host", Verdict::Holds)]);
        assert_eq!(found(5.5), [("S14-host", Verdict::DoesNotHold)]);
    }

    #[test]
    fn the_statement_about_weights_of_the_scheduler_can_fail() {
        let verdict = |in_scheduler| {
            let row = |actuator, scheme, seconds| {
                let mut column = column(scheme, seconds, 0.3, 1_000);
                column.cell.actuator = actuator;
                column
            };
            let columns = [
                row(Means::Nice, Scheme::Linux, 5.0),
                row(Means::Nice, Scheme::Carried, 4.0),
                row(Means::Scheduler, Scheme::Linux, 6.0),
                row(Means::Scheduler, Scheme::Carried, in_scheduler),
            ];
            let claims = all(&columns, &LAB);
            claims.iter().find(|claim| claim.id == "S13-lab").map(|claim| claim.verdict)
        };
        // With nice values a job takes 0.8 of its time.
        assert_eq!(verdict(4.2), Some(Verdict::Holds));
        assert_eq!(verdict(5.4), Some(Verdict::DoesNotHold));
    }

    #[test]
    fn the_statement_about_decisions_in_the_kernel_can_fail() {
        let verdict = |in_kernel| {
            let row = |actuator, seconds| {
                let mut column = column(Scheme::Predictive, seconds, 0.3, 1_000);
                column.cell.actuator = actuator;
                column
            };
            let columns = [row(Means::Scheduler, 5.0), row(Means::Kernel, in_kernel)];
            let claims = all(&columns, &LAB);
            claims.iter().find(|claim| claim.id == "S13-lab-kernel").map(|claim| claim.verdict)
        };
        assert_eq!(verdict(4.0), Some(Verdict::Holds));
        assert_eq!(verdict(6.0), Some(Verdict::DoesNotHold));
    }

    #[test]
    fn the_statement_about_jobs_that_run_together_can_fail() {
        let verdict = |company, pred| {
            let row = |scheme, seconds| {
                let mut column = column(scheme, seconds, 0.3, 1_000);
                column.cell.company = company;
                column
            };
            let claims = all(&[row(Scheme::Linux, 5.0), row(Scheme::Predictive, pred)], &HOST);
            claims.iter().find(|claim| claim.id == "S22-host").map(|claim| claim.verdict)
        };
        assert_eq!(verdict(Company::Together, 4.0), Some(Verdict::Holds));
        assert_eq!(verdict(Company::Together, 6.0), Some(Verdict::DoesNotHold));
        assert_eq!(verdict(Company::Alone, 4.0), None);
    }

    /// P of a master with slaves.
    #[test]
    fn the_statements_about_p_can_fail() {
        let verdicts = |pred: [f64; 3], dynamic: [f64; 2]| {
            let present = [Scheme::PredictivePresent, Scheme::Predictive, Scheme::PredictivePast];
            let dynamics = [Scheme::DynamicPresent, Scheme::DynamicPast];
            let rows = present.into_iter().zip(pred).chain(dynamics.into_iter().zip(dynamic));
            let columns: Vec<_> = rows
                .map(|(scheme, seconds)| {
                    let mut column = column(scheme, seconds, 0.3, 1_000);
                    column.cell.app = App::MasterSlave;
                    column
                })
                .collect();
            all(&columns, &LAB).iter().map(|claim| (claim.id, claim.verdict)).collect::<Vec<_>>()
        };
        let (holds, not) = (Verdict::Holds, Verdict::DoesNotHold);
        let of = |near_0, matters| vec![("S26a-lab", near_0), ("S26b-lab", matters)];
        assert_eq!(verdicts([1.0, 1.2, 1.3], [1.0, 2.0]), of(holds, holds));
        assert_eq!(verdicts([1.0, 0.9, 1.3], [1.0, 1.1]), of(Verdict::InPart, not));
        assert_eq!(verdicts([1.0, 0.9, 0.8], [1.0, 2.0]), of(not, holds));
    }
}
