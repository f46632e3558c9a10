//! Findings and their severity.

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// Nothing to do.
    Ok,
    /// Something that may cost time, is missing, or cannot be read.
    Note,
    /// Something that costs time, or prevents Pronto from working.
    Problem,
}

impl Level {
    /// Returns the name that the output shows.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Problem => "problem",
        }
    }
}

/// One finding: a line of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) level: Level,
    /// The subject that was inspected.
    pub(super) subject: &'static str,
    /// The result.
    pub(super) text: String,
    /// The advice; notes and problems have one.
    pub(super) advice: Option<String>,
}

impl Finding {
    pub(super) fn ok(subject: &'static str, text: impl Into<String>) -> Self {
        Self { level: Level::Ok, subject, text: text.into(), advice: None }
    }

    pub(super) fn note(subject: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { level: Level::Note, subject, text: text.into(), advice: Some(advice.into()) }
    }

    pub(super) fn problem(subject: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { level: Level::Problem, subject, text: text.into(), advice: Some(advice.into()) }
    }
}
