//! What a run of the suite found out about one provider.

use core::fmt;
use std::io::{self, Write as _};

/// What a provider may lack. Tests that need it are skipped, and the summary names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Capability {
    /// Read, write, compare-and-swap, fetch-add on a peer's memory.
    OneSided,
    /// One-sided operations complete while the target makes no call.
    PassiveTarget,
    /// Atomic operations are atomic with the owner's own instructions too.
    GlobalAtomics,
    /// A revocation holds against a peer that does not play by the rules.
    EnforcedRevocation,
    /// Payloads in regions travel without a copy into send memory.
    ByReference,
    /// Polling and posting make no system call.
    PollsWithoutSyscalls,
    /// A channel to sleep on.
    Channel,
    /// A channel of its own for callers that sleep.
    NearChannel,
    /// The harness can cut the connection with both ends alive.
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
            Self::Channel => "an event channel",
            Self::NearChannel => "a channel for callers",
            Self::LinkCut => "a link that can be cut",
        })
    }
}

/// How one test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// As it should.
    Passed,
    /// What was found.
    Failed(String),
    /// Not run: the provider lacks this.
    Skipped(Capability),
}

/// One test of one chapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Its chapter.
    pub chapter: &'static str,
    /// Its name.
    pub test: &'static str,
    /// How it ended.
    pub ended: Ended,
}

/// The outcome of a whole run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The provider.
    pub provider: &'static str,
    /// What it lacks.
    pub lacks: Vec<Capability>,
    /// Every test, in the order of the book.
    pub outcomes: Vec<Outcome>,
}

impl Summary {
    /// The chapters in which a test failed, each once.
    pub fn failed_chapters(&self) -> Vec<&'static str> {
        let failed = self.outcomes.iter().filter(|o| matches!(o.ended, Ended::Failed(_)));
        let mut chapters: Vec<_> = failed.map(|o| o.chapter).collect();
        chapters.dedup();
        chapters
    }

    /// Says on stderr how many tests passed, also under a test runner that keeps to itself what tests print; and all of it to
    /// the runner.
    pub fn announce(&self) {
        // Nobody may be reading it.
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

    /// Panics unless every test passed, but for those that need what the provider is known to lack. `lacks` is that
    /// list, in any order: a capability that is lost or gained unnoticed fails too.
    ///
    /// # Panics
    /// See above; the message is the summary.
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
