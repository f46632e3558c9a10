//! Proof of the suite: a correct queue pair passes every test, and each mutant fails in the chapter for its flaw.

mod reference;

use std::panic::{set_hook, take_hook};

use pronto_conformance::{Capability, run, run_chapter};
use reference::{Flaw, ReferenceHarness};

/// One test only, because it suppresses the many expected panics for the whole process.
#[test]
fn the_reference_passes_and_every_mutant_is_caught_by_its_chapter() {
    let summary = run(&ReferenceHarness::new(None));
    println!("{summary}");
    summary.assert_complete(&[Capability::VisibleWhenPosted]);

    let loud = take_hook();
    set_hook(Box::new(|_| {}));
    let mutants = Flaw::ALL
        .map(|(flaw, chapter)| (flaw, chapter, run_chapter(&ReferenceHarness::new(Some(flaw)), chapter)));
    set_hook(loud);
    let mut missed = Vec::new();
    for (flaw, chapter, summary) in mutants {
        println!("{flaw:?}: {summary}");
        if summary.failed_chapters() != [chapter] {
            missed.push((flaw, chapter));
        }
    }
    assert!(missed.is_empty(), "not caught: {missed:?}");
}
