//! `expedite-nice`: a flagged handler of low priority against computing processes of high priority.

use core::time::Duration;

use super::trial::{Seen, Traffic, Trial, loss, median, of, seen_of};
use super::{IN_THE_LAB, described};
use crate::claim::{Claim, Verdict};
use crate::expedite::{Kind, Load, Machine, Setting, Transport, Work};
use crate::experiment::{Experiment, Run};
use crate::params::{Axis, Choice as _};
use crate::report::{Fields, Report, decimals};

/// Nice values of the handler, and of the background.
const LOW: i32 = 10;
const HIGH: i32 = -10;
/// Number of computing processes.
const HOGS: usize = 2;
const INTERVAL: Duration = Duration::from_millis(5);

const SETTINGS: [Setting; 3] = [Setting::Off, Setting::Module, Setting::Fifo];

/// "Briefly": the largest share of the CPU that the handler may use while boosted, for 200 messages per second. The module itself would
/// grant five times as much.
const BRIEF: f64 = 0.02;
/// Factor by which the handler's p90 must be better than without a boost for it to pass the others.
const PASSES: f64 = 2.0;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "expedite-nice",
    question: "Does a flagged handler of low priority pass those of high priority, briefly?",
    takes: [3600, 120],
    figure: Some("Section 3.4"),
    about: "a flagged handler at nice +10 against processes at nice -10: whether it passes them, and their loss",
    axes: &[Axis::new("setting", "Only handlers with this boost", &["off", "module", "fifo"])],
    claims: &["X13"],
    run,
    ..IN_THE_LAB
};

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let machine = Machine::prepare()?;
    let settings = run.params.kept("setting", SETTINGS, |setting| setting.name());
    let works = settings.into_iter().map(|of| Work { nice: LOW, ..Work::one(Transport::BareTcp, of) });
    let mut trials = Trial::start_all(works, &mut report)?;
    let mut loads = Load::start_all(Kind::Compute, HOGS, HIGH)?;
    let traffic = Traffic { count: if run.params.quick { 40 } else { 400 }, interval: INTERVAL };
    run.begin(trials.len());
    run.in_turns(&mut trials, Trial::label, |trial, _| trial.round(&machine, &mut loads, traffic))?;
    report.rows = trials.iter().map(row).collect();
    let seen: Vec<_> = trials.iter().map(Trial::seen).collect();
    let lost = of(&trials, Setting::Off).zip(of(&trials, Setting::Module));
    let lost = lost.map(|(off, module)| loss(&module.rates(), &off.rates()));
    report.claims.extend(lost.and_then(|lost| passes(&seen, lost)));
    report.params = described(run, traffic)
        .with("hogs", HOGS)
        .with("handler_nice", LOW)
        .with("background_nice", HIGH)
        .with("transport", "tcp");
    Ok(report)
}

fn row(trial: &Trial) -> Fields {
    let row = Fields::default().with("setting", trial.work.setting.name());
    trial
        .counted(trial.columns(row, |_| true))
        .with("granted", decimals(trial.granted(), 3))
        .with("elements_per_s", decimals(median(trial.rates()), 0))
        .with("background_share", decimals(median(trial.shares()), 4))
}

/// Judges the handler: `lost` is the share of their work that the others lose to it, and to messages of which fewer come without a boost.
fn passes(seen: &[Seen], lost: f64) -> Option<Claim> {
    let (off, module) = (seen_of(seen, Setting::Off)?, seen_of(seen, Setting::Module)?);
    let share = module.boosted_share;
    let detail = format!(
        "share of the CPU that it uses while boosted; p90 {:.0} us, {:.0} without; the others lose {:.1} % of their work to it and \
         to the messages, of which fewer come without",
        module.p90_us,
        off.p90_us,
        100.0 * lost
    );
    let is_first = module.p90_us * PASSES < off.p90_us;
    let verdict = Verdict::graded(is_first && share <= BRIEF, is_first);
    Some(Claim::new("X13", detail, decimals(share, 4), verdict).bar(BRIEF))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_must_pass_the_others_and_stay_brief() {
        let judged = |p90_us, boosted_share| {
            let off = Seen { p90_us: 9_000.0, ..Seen::nothing(Setting::Off) };
            let module = Seen { p90_us, boosted_share, ..Seen::nothing(Setting::Module) };
            passes(&[off, module], 0.01).map(|claim| claim.verdict)
        };
        assert_eq!(judged(80.0, 0.008), Some(Verdict::Holds));
        assert_eq!(judged(80.0, 0.05), Some(Verdict::InPart));
        assert_eq!(judged(8_000.0, 0.008), Some(Verdict::DoesNotHold));
        assert!(passes(&[Seen::nothing(Setting::Off)], 0.0).is_none());
    }
}
