//! What was found, and how bad it is.

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// As it should be.
    Ok,
    /// It may cost time, or is not there, or cannot be seen.
    Note,
    /// It costs time, or keeps Pronto from working.
    Problem,
}

impl Level {
    /// As it is printed.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Problem => "problem",
        }
    }
}

/// One line of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) level: Level,
    /// What it is about.
    pub(super) subject: &'static str,
    /// What was found.
    pub(super) text: String,
    /// What to do, of notes and problems.
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
