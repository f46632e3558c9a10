//! Claims of the coscheduling paper about figures 2 to 4, and our results.

use core::cmp::Ordering;

use super::SEEDS;
use super::cells::Cell;
use crate::claim::{Claim, Verdict};
use crate::interval::{self, Interval};

/// Every claim of a whole run.
pub(super) const IDS: [&str; 12] =
    ["S4a", "S4b", "S5", "S11", "S19", "S20", "S22", "S24", "S26a", "S26b", "S27a", "S27b"];

/// The paper's effects begin to show here: "as the multiprogramming level increased" (section 4.1).
const MANY: usize = 3;

/// "Very similar" (sections 4.1 and 4.2): within this share of LINUX. Chosen by us; no source.
const SIMILAR: f64 = 0.05;

/// Fraction of a fair share of the CPUs from which the share counts as kept. Chosen by us; no source.
const KEPT: f64 = 0.95;

/// "Not slower": by less than this share. Chosen by us; no source.
const NO_SLOWER: f64 = 0.01;

/// The cells of a run, by name.
pub(super) struct Table<'a>(pub(super) &'a [Cell]);

/// A model: policy and P, in packets, on the kernel that preempts by goodness, in the reading of the text.
type Name = (&'static str, Option<&'static str>);

const LINUX: Name = ("linux", None);
const PREEMPTING: Name = ("dyn-preempt", None);
const DYN_0: Name = ("dyn", Some("0.01"));
const DYN_1: Name = ("dyn", Some("0.99"));
const PRED_0: Name = ("pred", Some("0.01"));
const PRED_1: Name = ("pred", Some("0.99"));
const PLUS: Name = ("pred-plus", Some("0.99"));

impl Table<'_> {
    fn cells(&self, app: &str) -> impl Iterator<Item = &Cell> {
        self.0.iter().filter(move |cell| {
            let model = &cell.model;
            cell.timed.name == app
                && (model.preemption, model.reading) == ("goodness", "text")
                && model.measure != Some("bytes")
                && ["linux", "dyn", "pred", "dyn-preempt", "pred-plus"].contains(&model.policy)
        })
    }

    fn cell(&self, (app, locals): (&str, usize), name: Name) -> Option<&Cell> {
        self.cells(app).find(|cell| (cell.locals, (cell.model.policy, cell.model.p)) == (locals, name))
    }

    /// Returns the time as a fraction of LINUX's.
    fn gain(&self, case: (&str, usize), name: Name) -> Option<f64> {
        self.cell(case, name)?.relative_to(self.cell(case, LINUX)?)
    }

    /// Returns whether one model takes less or more time than another, if that exceeds what seeds differ by.
    fn side(&self, case: (&str, usize), name: Name, than: Name) -> Option<Ordering> {
        self.ratio(case, name, than)?.side_of(1.0)
    }

    /// Returns the time of one model as a fraction of another's.
    fn ratio(&self, case: (&str, usize), name: Name, than: Name) -> Option<Interval> {
        Some(Interval::of(&self.cell(case, name)?.ratios_to(self.cell(case, than)?)))
    }

    /// Returns the time as a fraction of LINUX's for each P of some policies, the shortest first.
    fn gains(&self, case: (&str, usize), policies: &[&str]) -> Vec<(Name, f64)> {
        let of = |cell: &Cell| {
            let name = (cell.model.policy, cell.model.p);
            let chosen = cell.locals == case.1 && policies.contains(&name.0);
            Some((name, self.gain(case, name).filter(|_| chosen)?))
        };
        let mut gains: Vec<_> = self.cells(case.0).filter_map(of).collect();
        gains.sort_by(|a, b| a.1.total_cmp(&b.1));
        gains
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

    /// Returns the smallest share of the CPUs that the local tasks of some cells got, as a fraction of a fair share.
    fn least_kept(&self, apps: &[&str], policy: &str) -> Option<f64> {
        let cells = apps.iter().flat_map(|app| self.cells(app)).filter(|cell| cell.model.policy == policy);
        cells.filter_map(fair_part).min_by(f64::total_cmp)
    }
}

/// Returns the share of the CPUs that the local tasks of a cell got, as a fraction of a fair share.
fn fair_part(cell: &Cell) -> Option<f64> {
    let (locals, jobs) = (count(cell.locals), count(cell.timed.app.jobs().len()));
    (cell.locals > 0 && cell.timed.job.is_some()).then(|| cell.local_share * (locals + jobs) / locals)
}

/// Evaluates the claims for which the run has the rows.
pub(super) fn all(table: &Table<'_>) -> Vec<Claim> {
    let judges = [s4a, s4b, s5, s11, s19, s20, s22, s24, s26a, s26b, s27a, s27b];
    judges.into_iter().filter_map(|judge| judge(table)).collect()
}

/// A case of a claim: benchmark and load, the measured value, and the side of the bar that it is clearly on.
type Case = (String, String, Option<Ordering>);

/// Returns a claim that some value is below the bar in each case. `why` is the reason if it is not.
fn of_cases(table: &Table<'_>, id: &'static str, about: &str, why: &str, cases: Vec<Case>) -> Option<Claim> {
    if cases.is_empty() {
        return None;
    }
    let sides: Vec<_> = cases.iter().map(|(.., side)| *side).collect();
    let verdict = interval::verdict(Ordering::Less, &sides);
    let measured: Vec<_> = cases.iter().map(|(case, measured, _)| format!("{case} {measured}")).collect();
    let seeds = table.0.first().map_or(0, |cell| cell.seconds.len() as u64);
    let open: Vec<_> = cases.iter().filter(|(.., side)| side.is_none()).map(|(case, ..)| &**case).collect();
    let mut detail = about.to_owned();
    if !open.is_empty() {
        detail += &format!("; not clear of the differences between {seeds} seeds: {}", open.join(", "));
        if seeds < SEEDS {
            detail += &format!(" (without --quick there are {SEEDS})");
        }
    }
    if verdict != Verdict::Holds {
        detail += why;
    }
    Some(Claim::new(id, detail, measured.join(", "), verdict))
}

fn s4a(table: &Table<'_>) -> Option<Claim> {
    let case = |case: (&str, usize)| {
        let gain = table.gain(case, PREEMPTING)?;
        Some((name(case), format!("{gain:.3}"), table.side(case, PREEMPTING, LINUX)))
    };
    let cases = table.benchmarks().into_iter().filter_map(case).collect();
    of_cases(table, "S4a", "fractions of LINUX's time by benchmark and load", "", cases)
}

fn s4b(table: &Table<'_>) -> Option<Claim> {
    let worst = table.least_kept(&["is", "mg"], PREEMPTING.0)?;
    Some(Claim::at_least("S4b", "the budget of our boost is the guard", KEPT, worst, 3))
}

fn s5(table: &Table<'_>) -> Option<Claim> {
    let case = |case: (&str, usize)| {
        let (dynamic, most) = *table.gains(case, &["dyn"]).first()?;
        let (predictive, least) = *table.gains(case, &["pred"]).first()?;
        Some((name(case), format!("{least:.3}:{most:.3}"), table.side(case, predictive, dynamic)))
    };
    let cases = table.benchmarks().into_iter().filter_map(case).collect();
    of_cases(table, "S5", "best PRED and best DYN, fractions of LINUX's time", "", cases)
}

fn s11(table: &Table<'_>) -> Option<Claim> {
    let worst = table.least_kept(&["is", "mg", "is-with-mg", "is-with-mg-s"], "pred")?;
    let printed = table.0.iter().filter(|cell| cell.model.reading == "printed" && cell.timed.name == "is");
    let detail = match printed.filter_map(fair_part).min_by(f64::total_cmp) {
        Some(printed) => format!("with algorithm 2 as printed: {printed:.2}"),
        None => String::new(),
    };
    Some(Claim::at_least("S11", detail, KEPT, worst, 3))
}

fn s19(table: &Table<'_>) -> Option<Claim> {
    let case = |case: (&str, usize)| {
        let names = [DYN_0, PRED_0, PRED_1];
        let worst = names.into_iter().map(|name| table.gain(case, name)).collect::<Option<Vec<_>>>()?;
        let worst = worst.into_iter().max_by(f64::total_cmp)?;
        let exception = table.gain(case, DYN_1)?;
        let sides = names.map(|name| table.side(case, name, LINUX));
        let slower = sides.contains(&Some(Ordering::Greater)).then_some(Ordering::Greater);
        let side = if sides.contains(&None) { slower } else { sides.into_iter().flatten().max() };
        Some((name(case), format!("{worst:.3} ({exception:.3})"), side))
    };
    let about = "the worst of the others, and DYN with P near 1 in brackets, fractions of LINUX's time";
    let why = ". Queues hold a packet or few when the scheduler looks, less than counters differ by";
    of_cases(table, "S19", about, why, table.benchmarks().into_iter().filter_map(case).collect())
}

fn s20(table: &Table<'_>) -> Option<Claim> {
    let case = |case: (&str, usize)| {
        let gains = table.gains(case, &["dyn", "pred"]);
        let (rival, best) = *gains.iter().find(|(name, _)| *name != PRED_1)?;
        let own = table.gain(case, PRED_1)?;
        let measured = format!("{own:.3}:{best:.3} ({})", spelled(rival));
        Some((name(case), measured, table.side(case, PRED_1, rival)))
    };
    let about = "PRED with P near 1 and the best other policy, fractions of LINUX's time";
    of_cases(table, "S20", about, "", table.benchmarks().into_iter().filter_map(case).collect())
}

fn s22(table: &Table<'_>) -> Option<Claim> {
    let load = *table.loads("mg-with-is").last()?;
    let of_is = |app| Some((*table.gains((app, load), &["pred"]).first()?, app));
    let far = |a: &f64, b: &f64| (a - 1.0).abs().total_cmp(&(b - 1.0).abs());
    let farthest =
        |app| table.gains((app, load), &["dyn", "pred"]).into_iter().map(|(_, gain)| gain).max_by(far);
    let ((best, is), app) = of_is("is-with-mg")?;
    let mg = farthest("mg-with-is")?;
    let gains = table.side((app, load), best, LINUX) == Some(Ordering::Less);
    let similar = (mg - 1.0).abs() <= SIMILAR;
    let mut detail = format!(
        "{load} local tasks, fractions of LINUX's time: IS under the best PRED, MG under the policy furthest from 1"
    );
    if let Some((((_, is), _), mg)) = of_is("is-with-mg-s").zip(farthest("mg-s-with-is")) {
        detail +=
            &format!("; with class S, which communicates more often than class A: IS {is:.3}, MG {mg:.3}");
    }
    let verdict = Verdict::graded(gains && similar, gains || similar);
    Some(Claim::new("S22", detail, format!("IS {is:.3}, MG {mg:.3}"), verdict).bar(SIMILAR))
}

fn s24(table: &Table<'_>) -> Option<Claim> {
    let case = |app: &'static str| {
        let load = table.cells(app).map(|cell| cell.locals).max()?;
        let (_, most) = *table.gains((app, load), &["dyn", "pred"]).last()?;
        Some((app.replace("calcula-", ""), most))
    };
    let apps = ["calcula-with-is", "calcula-with-mg", "calcula-with-both"];
    let cases: Vec<_> = apps.into_iter().filter_map(case).collect();
    let measured: Vec<_> = cases.iter().map(|(case, most)| format!("{case} {most:.3}")).collect();
    let similar = |(_, most): &(String, f64)| most - 1.0 <= SIMILAR;
    let verdict = Verdict::graded(cases.iter().all(similar), cases.iter().any(similar));
    let detail = "the longest time under DYN and PRED, fractions of LINUX's";
    let claim = || Claim::new("S24", detail, measured.join(", "), verdict).bar(1.0 + SIMILAR);
    (!cases.is_empty()).then(claim)
}

fn s26a(table: &Table<'_>) -> Option<Claim> {
    let case = ("master-slave", *table.loads("master-slave").last()?);
    let gains = table.gains(case, &["pred"]);
    let (rival, best) = *gains.iter().find(|(name, _)| *name != PRED_0)?;
    let near_0 = table.gain(case, PRED_0)?;
    let about = "P near 0 and the best other P, fractions of LINUX's time";
    let why = ". When a slave is woken, its queue holds one packet, regardless of its history";
    let measured = format!("{near_0:.3}:{best:.3} ({})", spelled(rival));
    of_cases(table, "S26a", about, why, vec![(name(case), measured, table.side(case, PRED_0, rival))])
}

fn s26b(table: &Table<'_>) -> Option<Claim> {
    let case = ("master-slave", *table.loads("master-slave").last()?);
    let linux = table.cell(case, LINUX)?;
    let ranges = |policy| {
        let gains = table.gains(case, &[policy]);
        let cells = gains.iter().filter_map(|(name, _)| table.cell(case, *name));
        let ratios: Vec<_> = cells.map(|cell| cell.ratios_to(linux)).collect();
        let of_seed = |seed: usize| {
            let all = || ratios.iter().map(|ratios| ratios[seed]);
            all().fold(f64::NEG_INFINITY, f64::max) - all().fold(f64::INFINITY, f64::min)
        };
        (!ratios.is_empty()).then(|| (0..linux.seconds.len()).map(of_seed).collect::<Vec<_>>())
    };
    let (dynamic, predictive) = (ranges("dyn")?, ranges("pred")?);
    let more: Vec<_> =
        predictive.iter().zip(&dynamic).map(|(predictive, dynamic)| predictive - dynamic).collect();
    let measured =
        format!("DYN {:.3}, PRED {:.3}", Interval::of(&dynamic).mean, Interval::of(&predictive).mean);
    let about = "mean over seeds of the range over all P, fractions of LINUX's time";
    let why =
        ". A slave's message is acknowledged before the scheduler runs again: both policies count the same";
    of_cases(table, "S26b", about, why, vec![(name(case), measured, Interval::of(&more).side_of(0.0))])
}

/// Returns the cases in which PRED+ was compared with PRED, and on which side of `bar` its time is as a fraction of PRED's.
fn plus_by_pred(table: &Table<'_>, apps: &[&str], bar: f64) -> Vec<Case> {
    let case = |case: (&str, usize)| {
        let ratio = table.ratio(case, PLUS, PRED_1)?;
        Some((name(case), format!("{:.3}", ratio.mean), ratio.side_of(bar)))
    };
    apps.iter()
        .flat_map(|app| table.loads(app).into_iter().map(|load| (*app, load)))
        .filter_map(case)
        .collect()
}

fn s27a(table: &Table<'_>) -> Option<Claim> {
    let cases = plus_by_pred(table, &["is", "mg"], 1.0 + NO_SLOWER);
    let about = "fractions of PRED's time, P near 1, where costs are those of the paper";
    of_cases(table, "S27a", about, "", cases).map(|claim| claim.bar(1.0 + NO_SLOWER))
}

fn s27b(table: &Table<'_>) -> Option<Claim> {
    let apps = ["is-faults", "mg-faults", "is-switches", "mg-switches", "is-far", "mg-far"];
    let about =
        "fractions of PRED's time, P near 1, with page faults, switches of 1 ms, and messages of 10 ms";
    of_cases(table, "S27b", about, "", plus_by_pred(table, &apps, 1.0))
}

/// Returns the name of a benchmark with a number of local tasks.
fn name((app, load): (&str, usize)) -> String {
    format!("{app}/{load}")
}

/// Returns the name of a policy with its P.
fn spelled((policy, p): Name) -> String {
    p.map_or_else(|| policy.to_owned(), |p| format!("{policy} {p}"))
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests;
