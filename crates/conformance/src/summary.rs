//! Results of a run of the suite for one provider.

use core::fmt;
use std::io::{self, Write as _};

/// A capability that a provider may lack. Tests that need it are skipped, and the summary names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Capability {
    /// Read, write, compare-and-swap, fetch-add on a peer's memory.
    OneSided,
    /// One-sided operations complete while the target makes no call.
    PassiveTarget,
    /// Atomic operations are atomic with the owner's own instructions, too.
    GlobalAtomics,
    /// A revocation holds against a peer that violates the protocol.
    EnforcedRevocation,
    /// Payloads in regions are sent without a copy into send memory.
    ByReference,
    /// Polling and posting make no system call.
    PollsWithoutSyscalls,
    /// Messages are visible to the peer as soon as they are posted.
    VisibleWhenPosted,
    /// A channel to sleep on.
    Channel,
    /// A separate channel for callers that sleep.
    NearChannel,
    /// The harness can cut the connection while both ends live.
    LinkCut,
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OneSided => "one-sided operations",
            Self::PassiveTarget => "passive target",
            Self::GlobalAtomics => "atomics with the owner's own",
            Self::EnforcedRevocation => "enforced revocation",
            Self::ByReference => "payloads by reference",
            Self::PollsWithoutSyscalls => "polling without system calls",
            Self::VisibleWhenPosted => "messages that are visible when posted",
            Self::Channel => "an event channel",
            Self::NearChannel => "a channel for callers",
            Self::LinkCut => "a link that can be cut",
        })
    }
}

/// Result of one test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The test passed.
    Passed,
    /// The test failed, with this message.
    Failed(String),
    /// The test was not run: the provider lacks this capability.
    Skipped(Capability),
}

/// Outcome of one test of one chapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Name of the chapter.
    pub chapter: &'static str,
    /// Name of the test.
    pub test: &'static str,
    /// Result of the test.
    pub ended: Ended,
}

/// Outcome of a whole run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The provider.
    pub provider: &'static str,
    /// Capabilities that it lacks.
    pub lacks: Vec<Capability>,
    /// Every test, in the order of the suite.
    pub outcomes: Vec<Outcome>,
}

impl Summary {
    /// Returns the chapters with a failed test, each once.
    pub fn failed_chapters(&self) -> Vec<&'static str> {
        let failed = self.outcomes.iter().filter(|o| matches!(o.ended, Ended::Failed(_)));
        let mut chapters: Vec<_> = failed.map(|o| o.chapter).collect();
        chapters.dedup();
        chapters
    }

    /// Prints the number of passed tests to stderr, which is visible even if the test runner captures output, and the
    /// whole summary to the captured output.
    pub fn announce(&self) {
        // stderr may be closed.
        let _ = writeln!(io::stderr(), "{}", self.headline());
        println!("{self}");
    }

    fn headline(&self) -> String {
        let count = |which: fn(&Ended) -> bool| self.outcomes.iter().filter(|o| which(&o.ended)).count();
        let passed = count(|ended| *ended == Ended::Passed);
        let skipped = count(|ended| matches!(ended, Ended::Skipped(_)));
        let all = self.outcomes.len();
        format!("conformance of {}: {passed} of {all} tests passed, {skipped} not offered", self.provider)
    }

    /// Panics unless every test passed, except those that need a capability that the provider is known to lack. `lacks`
    /// lists these capabilities in any order: a capability that is lost or gained unnoticed is a failure, too.
    ///
    /// # Panics
    /// As described above; the message is the summary.
    #[track_caller]
    pub fn assert_complete(&self, lacks: &[Capability]) {
        assert!(self.failed_chapters().is_empty(), "{self}");
        let mut expected = lacks.to_vec();
        expected.sort_unstable();
        assert!(self.lacks == expected, "{self}\nexpected to lack exactly {expected:?}");
    }

    fn chapters(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.outcomes.iter().map(|o| o.chapter).collect();
        names.dedup();
        names
    }

    fn count(&self, chapter: &str, which: fn(&Ended) -> bool) -> usize {
        self.outcomes.iter().filter(|o| o.chapter == chapter && which(&o.ended)).count()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.headline())?;
        for chapter in self.chapters() {
            let ran = self.count(chapter, |ended| !matches!(ended, Ended::Skipped(_)));
            let failed = self.count(chapter, |ended| matches!(ended, Ended::Failed(_)));
            let skipped = self.count(chapter, |ended| matches!(ended, Ended::Skipped(_)));
            write!(f, "  {chapter:<13} {ran:>2} ran")?;
            if failed > 0 {
                write!(f, ", {failed} FAILED")?;
            }
            if skipped > 0 {
                write!(f, ", {skipped} skipped")?;
            }
            writeln!(f)?;
            for outcome in self.outcomes.iter().filter(|o| o.chapter == chapter) {
                match &outcome.ended {
                    Ended::Passed => {}
                    Ended::Failed(why) => writeln!(f, "    {} failed: {why}", outcome.test)?,
                    Ended::Skipped(lack) => writeln!(f, "    {} skipped: needs {lack}", outcome.test)?,
                }
            }
        }
        match self.lacks.as_slice() {
            [] => write!(f, "  lacks nothing"),
            lacks => {
                let names: Vec<_> = lacks.iter().map(Capability::to_string).collect();
                write!(f, "  lacks: {}", names.join("; "))
            }
        }
    }
}
