//! Claims of the coscheduling paper about figures 2 to 4, and our results.

use super::cells::Cell;
use crate::claim::Claim;
use crate::report::decimals;

/// Every claim of a whole run.
pub(super) const IDS: [&str; 8] = ["S5", "S11", "S19", "S20", "S22", "S24", "S26a", "S26b"];

/// The paper's effects begin to show here: "as the multiprogramming level increased" (section 4.1).
const MANY: usize = 3;

/// "Very similar" (sections 4.1 and 4.2): within this share of LINUX.
const SIMILAR: f64 = 0.05;

/// Fraction of a fair share of the CPUs from which the share counts as kept.
const KEPT: f64 = 0.95;

/// The cells of a run, by name.
pub(super) struct Table<'a>(pub(super) &'a [Cell]);

/// A model: policy and P, in packets, on the kernel that preempts by goodness, in the reading of the text.
type Name = (&'static str, Option<&'static str>);

const LINUX: Name = ("linux", None);
const DYN_0: Name = ("dyn", Some("0.01"));
const DYN_1: Name = ("dyn", Some("0.99"));
const PRED_0: Name = ("pred", Some("0.01"));
const PRED_1: Name = ("pred", Some("0.99"));

impl Table<'_> {
    fn cells(&self, app: &str) -> impl Iterator<Item = &Cell> {
        self.0.iter().filter(move |cell| {
            let model = &cell.model;
            cell.timed.name == app
                && (model.preemption, model.reading) == ("goodness", "text")
                && model.measure != Some("bytes")
                && ["linux", "dyn", "pred"].contains(&model.policy)
        })
    }

    fn cell(&self, app: &str, locals: usize, name: Name) -> Option<&Cell> {
        self.cells(app).find(|cell| (cell.locals, (cell.model.policy, cell.model.p)) == (locals, name))
    }

    /// Returns the time as a fraction of LINUX's.
    fn gain(&self, app: &str, locals: usize, name: Name) -> Option<f64> {
        self.cell(app, locals, name)?.relative_to(self.cell(app, locals, LINUX)?)
    }

    /// Returns the time as a fraction of LINUX's for each P of a policy.
    fn gains(&self, app: &str, locals: usize, policy: &str) -> Vec<(&'static str, f64)> {
        let of = |cell: &Cell| {
            let p = cell.model.p.filter(|_| cell.locals == locals && cell.model.policy == policy)?;
            Some((p, cell.relative_to(self.cell(app, locals, LINUX)?)?))
        };
        self.cells(app).filter_map(of).collect()
    }

    /// Returns the numbers of local tasks from [`MANY`] on with which an application was timed.
    fn loads(&self, app: &str) -> Vec<usize> {
        let mut loads: Vec<_> = self.cells(app).map(|cell| cell.locals).filter(|l| *l >= MANY).collect();
        loads.sort_unstable();
        loads.dedup();
        loads
    }

    /// Returns the loads of both benchmarks.
    fn benchmarks(&self) -> Vec<(&'static str, usize)> {
        ["is", "mg"]
            .into_iter()
            .flat_map(|app| self.loads(app).into_iter().map(move |load| (app, load)))
            .collect()
    }
}

/// Evaluates the claims for which the run has the rows.
pub(super) fn all(table: &Table<'_>) -> Vec<Claim> {
    [s5(table), s11(table), s19(table), s20(table), s22(table), s24(table), s26a(table), s26b(table)]
        .into_iter()
        .flatten()
        .collect()
}

fn least(gains: &[(&'static str, f64)]) -> Option<(&'static str, f64)> {
    gains.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1))
}

/// Returns the text of a claim, with the reason if it does not hold.
fn because(text: &str, holds: bool, why: &str) -> String {
    if holds { text.to_owned() } else { format!("{text}. {why}") }
}

/// A cell's part of a claim: benchmark and load, measured value, and whether the claim holds there.
type Verdict = (String, String, bool);

/// Returns a claim about cells, which holds if it holds in all of them.
fn of_cells(id: &'static str, text: &str, why: &str, cells: Vec<Verdict>) -> Option<Claim> {
    if cells.is_empty() {
        return None;
    }
    let holds = cells.iter().all(|(.., holds)| *holds);
    let measured: Vec<_> =
        cells.into_iter().map(|(cell, measured, _)| format!("{cell} {measured}")).collect();
    Some(Claim::new(id, because(text, holds, why), measured.join(", "), holds))
}

fn s5(table: &Table<'_>) -> Option<Claim> {
    let cell = |(app, load): (&str, usize)| {
        let (_, dynamic) = least(&table.gains(app, load, "dyn"))?;
        let (_, predictive) = least(&table.gains(app, load, "pred"))?;
        Some((format!("{app}/{load}"), format!("{predictive:.3}:{dynamic:.3}"), predictive < dynamic))
    };
    let text = "sends and receives predict better than receives alone: best PRED and best DYN, fractions of LINUX's time";
    let why = "The differences are not larger than those between seeds";
    of_cells("S5", text, why, table.benchmarks().into_iter().filter_map(cell).collect())
}

fn s11(table: &Table<'_>) -> Option<Claim> {
    let kept = |cell: &&Cell| cell.model.policy == "pred" && cell.locals > 0 && cell.timed.job.is_some();
    let part = |cell: &Cell| {
        let (locals, jobs) = (count(cell.locals), count(cell.timed.app.jobs().len()));
        cell.local_share * (locals + jobs) / locals
    };
    let apps = ["is", "mg", "is-beside-mg"];
    let all: Vec<f64> = apps.iter().flat_map(|app| table.cells(app).filter(kept).map(part)).collect();
    let worst = all.iter().copied().min_by(f64::total_cmp)?;
    let printed = table.0.iter().filter(|cell| cell.model.reading == "printed" && cell.timed.name == "is");
    let mut text =
        "local tasks do not starve under PRED: the smallest fraction of a fair share that they got"
            .to_owned();
    if let Some(printed) = printed.map(part).min_by(f64::total_cmp) {
        text += &format!(" (algorithm 2 as printed: {printed:.2})");
    }
    Some(Claim::new("S11", text, decimals(worst, 3), worst >= KEPT).bar(KEPT))
}

fn s19(table: &Table<'_>) -> Option<Claim> {
    let cell = |(app, load): (&str, usize)| {
        let mut worst = 0.0_f64;
        for name in [DYN_0, PRED_0, PRED_1] {
            worst = worst.max(table.gain(app, load, name)?);
        }
        let exception = table.gain(app, load, DYN_1)?;
        Some((format!("{app}/{load}"), format!("{worst:.3} ({exception:.3})"), worst < 1.0))
    };
    let text = "with 3 or more local tasks, DYN and PRED take less time than LINUX, except DYN with P near 1: the worst \
                of the others, and this exception, parts of LINUX's time";
    let why = "Where it fails, queues hold a packet or few when the scheduler looks, less than counters differ by. Where \
               counters alone preempt (2.2.1), none differs from LINUX by more than 2 %: the weight is not asked for";
    of_cells("S19", text, why, table.benchmarks().into_iter().filter_map(cell).collect())
}

fn s20(table: &Table<'_>) -> Option<Claim> {
    let cell = |(app, load): (&str, usize)| {
        let mut gains: Vec<(&str, &str, f64)> = Vec::new();
        for policy in ["dyn", "pred"] {
            gains.extend(table.gains(app, load, policy).into_iter().map(|(p, gain)| (policy, p, gain)));
        }
        let best = gains.into_iter().min_by(|a, b| a.2.total_cmp(&b.2))?;
        let near_1 = table.gain(app, load, PRED_1)?;
        let measured = format!("{} {} {:.3}:{near_1:.3}", best.0, best.1, best.2);
        Some((format!("{app}/{load}"), measured, (best.0, Some(best.1)) == PRED_1))
    };
    let text = "both benchmarks are fastest under PRED with P near 1: the fastest, and PRED with P near 1, parts of \
                LINUX's time";
    let why = "Other policies are faster by less than seeds differ";
    of_cells("S20", text, why, table.benchmarks().into_iter().filter_map(cell).collect())
}

fn s22(table: &Table<'_>) -> Option<Claim> {
    let load = *table.loads("mg-beside-is").last()?;
    let (_, is) = least(&table.gains("is-beside-mg", load, "pred"))?;
    let of_mg = |policy| table.gains("mg-beside-is", load, policy).into_iter().map(|(_, gain)| gain);
    let mg: Vec<f64> = of_mg("dyn").chain(of_mg("pred")).collect();
    let most = mg.iter().copied().max_by(|a, b| (a - 1.0).abs().total_cmp(&(b - 1.0).abs()))?;
    let holds = is < 1.0 && (most - 1.0).abs() <= SIMILAR;
    let text = "run at the same time, IS gains from PRED, and MG of class T is very similar under all (the one furthest \
                from LINUX), as it communicates less: parts of LINUX's time";
    let why = "No published suite has a class T. Class S stands for it, with small messages but one per 0.3 ms of computing: \
               it depends more on being scheduled together than class A does";
    let measured = format!("IS {is:.3}, MG-T {most:.3}");
    Some(Claim::new("S22", because(text, holds, why), measured, holds))
}

fn s24(table: &Table<'_>) -> Option<Claim> {
    let cell = |app: &'static str| {
        let load = table.cells(app).map(|cell| cell.locals).max()?;
        let gains = ["dyn", "pred"].map(|policy| table.gains(app, load, policy)).concat();
        let most = gains.into_iter().map(|(_, gain)| gain).max_by(f64::total_cmp)?;
        Some((app.replace("calcula-", ""), format!("{most:.3}"), most - 1.0 <= SIMILAR))
    };
    let apps = ["calcula-beside-is", "calcula-beside-mg", "calcula-beside-both"];
    let text = "local tasks take about the same time under all three, a little less under LINUX: the longest, as a fraction of LINUX's";
    of_cells("S24", text, "", apps.into_iter().filter_map(cell).collect())
}

fn s26a(table: &Table<'_>) -> Option<Claim> {
    let load = *table.loads("master-slave").last()?;
    let (best, gain) = least(&table.gains("master-slave", load, "pred"))?;
    let near_0 = table.gain("master-slave", load, PRED_0)?;
    let holds = best == "0.01";
    let text =
        "master and slaves are fastest with P near 0: the best P, and P near 0, fractions of LINUX's time";
    let why = "When a slave is woken its queue holds one packet, regardless of its history: P matters less than seeds";
    let measured = format!("P = {best} {gain:.3}:{near_0:.3}");
    Some(Claim::new("S26a", because(text, holds, why), measured, holds))
}

fn s26b(table: &Table<'_>) -> Option<Claim> {
    let load = *table.loads("master-slave").last()?;
    let range = |policy| {
        let gains = table.gains("master-slave", load, policy);
        let most = gains.iter().map(|(_, gain)| *gain).max_by(f64::total_cmp)?;
        Some(most - least(&gains)?.1)
    };
    let (dynamic, predictive) = (range("dyn")?, range("pred")?);
    let holds = dynamic > predictive;
    let text = "P matters more to DYN than to PRED for master and slaves: range over all P, fractions of LINUX's time";
    let why =
        "A slave's message is acknowledged before the scheduler runs again: both policies count the same";
    let measured = format!("DYN {dynamic:.3}, PRED {predictive:.3}");
    Some(Claim::new("S26b", because(text, holds, why), measured, holds))
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use pronto_sched_policy::policy::coschedule::Policy;

    use super::super::cells::TIMED;
    use super::super::models::{Model, paper};
    use super::*;

    /// A whole run in which each model takes what `time` says, in tenths of LINUX's time.
    fn cells(time: impl Fn(&Model) -> f64) -> Vec<Cell> {
        let cell = |model: &Model, timed, locals: usize| Cell {
            model: *model,
            timed,
            locals,
            seconds: vec![time(model), time(model) * 2.0],
            local_share: count(locals) / (count(locals) + 1.0),
        };
        TIMED
            .iter()
            .flat_map(|timed| paper().into_iter().map(move |model| (model, *timed)))
            .map(|(model, timed)| cell(&model, timed, 5))
            .collect()
    }

    fn verdicts(cells: &[Cell]) -> Vec<(&'static str, bool)> {
        all(&Table(cells)).iter().map(|claim| (claim.id, claim.holds())).collect()
    }

    fn holds(cells: &[Cell], id: &str) -> bool {
        verdicts(cells).iter().any(|(known, holds)| *known == id && *holds)
    }

    #[test]
    fn a_whole_run_has_every_claim_and_an_empty_one_none() {
        let found: Vec<_> = verdicts(&cells(|_| 10.0)).iter().map(|(id, _)| *id).collect();
        assert_eq!(found, IDS);
        assert!(verdicts(&[]).is_empty());
    }

    #[test]
    fn without_differences_only_claims_of_equality_hold() {
        let same = cells(|_| 10.0);
        for (id, expected) in [("S5", false), ("S19", false), ("S20", false), ("S24", true), ("S26b", false)]
        {
            assert_eq!(holds(&same, id), expected, "{id}");
        }
    }

    #[test]
    fn the_papers_order_is_recognised() {
        let order = cells(|model| match (model.policy, model.p) {
            ("linux", _) | ("dyn", Some("0.99")) => 10.0,
            ("dyn", _) => 9.9,
            (_, Some("0.99")) => 9.7,
            _ => 9.8,
        });
        for id in ["S5", "S19", "S20", "S24"] {
            assert!(holds(&order, id), "{id}");
        }
        assert!(!holds(&order, "S26a"), "P near 1 is best here");
    }

    #[test]
    fn other_kernels_and_measures_do_not_count() {
        let mut mixed = cells(|_| 10.0);
        let better = Model { preemption: "counter", ..Model::of_paper(Policy::Predictive, "0.99") };
        mixed.insert(0, Cell { model: better, seconds: vec![1.0, 1.0], ..mixed[0].clone() });
        assert!(!holds(&mixed, "S20"));
    }
}
