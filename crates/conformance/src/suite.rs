//! Running the suite: every chapter and every test, each under a watchdog.

use core::any::Any;
use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;

use pronto_core::fabric::{AtomicScope, OneSided, QueuePair, Revocation};

use crate::chapters;
use crate::rig::LIMITS;
use crate::summary::{Capability, Ended, Outcome, Summary};
use crate::watchdog::Watchdog;
use crate::{Harness, Pair};

/// One subject of the fabric.
pub(crate) struct Chapter<H: Harness> {
    pub(crate) name: &'static str,
    pub(crate) tests: Vec<Test<H>>,
}

/// One test: a name that states the tested property, the needed capabilities, and the code.
pub(crate) struct Test<H: Harness> {
    pub(crate) name: &'static str,
    pub(crate) needs: &'static [Capability],
    pub(crate) run: fn(&H),
}

/// Runs the whole suite against one provider.
///
/// # Panics
/// Never because of the provider; the summary lists failed tests.
pub fn run<H: Harness>(harness: &H) -> Summary {
    run_where(harness, |_| true)
}

/// Runs one chapter only.
///
/// # Panics
/// If there is no such chapter.
pub fn run_chapter<H: Harness>(harness: &H, chapter: &str) -> Summary {
    let summary = run_where(harness, |name| name == chapter);
    assert!(!summary.outcomes.is_empty(), "no chapter {chapter:?}");
    summary
}

fn run_where<H: Harness>(harness: &H, wanted: impl Fn(&str) -> bool) -> Summary {
    let lacks = lacks(harness);
    let watchdog = Watchdog::start(harness.name());
    let mut outcomes = Vec::new();
    for chapter in chapters::all::<H>().into_iter().filter(|chapter| wanted(chapter.name)) {
        for test in chapter.tests {
            let ended = match test.needs.iter().find(|need| lacks.contains(need)) {
                Some(lack) => Ended::Skipped(*lack),
                None => guard(&watchdog, chapter.name, test.name, || (test.run)(harness)),
            };
            outcomes.push(Outcome { chapter: chapter.name, test: test.name, ended });
        }
    }
    Summary { provider: harness.name(), lacks, outcomes }
}

fn lacks<H: Harness>(harness: &H) -> Vec<Capability> {
    let Pair { a, b, mut link } = harness.pair(LIMITS);
    let has = a.capabilities().clone();
    let mut lacks = Vec::new();
    match has.one_sided {
        OneSided::None => lacks.extend([
            Capability::OneSided,
            Capability::PassiveTarget,
            Capability::GlobalAtomics,
            Capability::EnforcedRevocation,
        ]),
        OneSided::Supported { passive_target, atomics, revocation } => {
            lacks.extend((!passive_target).then_some(Capability::PassiveTarget));
            lacks.extend((atomics == AtomicScope::Fabric).then_some(Capability::GlobalAtomics));
            lacks.extend((revocation == Revocation::Cooperative).then_some(Capability::EnforcedRevocation));
        }
    }
    lacks.extend((!has.by_reference).then_some(Capability::ByReference));
    lacks.extend((!has.polls_without_syscalls).then_some(Capability::PollsWithoutSyscalls));
    lacks.extend((!has.visible_when_posted).then_some(Capability::VisibleWhenPosted));
    lacks.extend(harness.event(&a).is_none().then_some(Capability::Channel));
    lacks.extend(
        a.channel().and_then(|channel| channel.caller_epoll).is_none().then_some(Capability::NearChannel),
    );
    lacks.extend((!harness.break_link(&mut link)).then_some(Capability::LinkCut));
    drop((a, b));
    lacks.sort_unstable();
    lacks
}

fn guard(watchdog: &Watchdog, chapter: &str, test: &str, run: impl FnOnce()) -> Ended {
    watchdog.begin(format!("{chapter}/{test}"));
    let ended = catch_unwind(AssertUnwindSafe(run));
    watchdog.end();
    ended.map_or_else(|panic| Ended::Failed(message(&*panic)), |()| Ended::Passed)
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message").to_owned()
}
