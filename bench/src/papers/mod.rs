//! The five papers: every claim and mechanism by id, its state in this project, and the statements that experiments judge.
//!
//! `docs/papers.md` is generated from these tables and from `bench/verdicts.json`, and experiments take the texts and published figures of
//! their claims from here: the page and the JSON cannot differ.

mod comm_layer;
mod coscheduling;
mod expedite;
mod overlap;
mod own;
pub(crate) mod page;
mod pioman;
mod record;
#[cfg(test)]
mod tests;

use serde_json::Value;

/// A paper.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paper {
    /// Name in JSON and on the command line.
    pub(crate) key: &'static str,
    /// First letter of the ids of its rows.
    pub(crate) letter: char,
    /// Authors, title and year.
    pub(crate) title: &'static str,
    /// One sentence on where the experiments differ from the paper's setting.
    pub(crate) setting: &'static str,
    /// Claims and mechanisms in the order of their ids.
    pub(crate) rows: &'static [Row],
    /// Results that no row has, a paragraph each.
    pub(crate) findings: &'static [&'static str],
}

/// A claim or mechanism of a paper. A declaration names what differs from [`Self::DEFAULT`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// Letter of the paper and a number.
    pub(crate) id: &'static str,
    /// Section, figure or table.
    pub(crate) place: &'static str,
    /// The claim or mechanism, in one line.
    pub(crate) text: &'static str,
    /// Extent to which this project has it.
    pub(crate) state: State,
    /// Files and folders with the code, relative to the root of the repository.
    pub(crate) code: &'static [&'static str],
    /// Experiments that ask the paper's question.
    pub(crate) runs: &'static [&'static str],
    /// Tests: files relative to the root of the repository, optionally followed by `::` and the name of a function.
    pub(crate) tests: &'static [&'static str],
    /// Difference from the paper, the missing part, or the reason for a verdict.
    pub(crate) remark: &'static str,
    /// Statements that the experiments judge.
    pub(crate) statements: &'static [Statement],
}

impl Row {
    /// A row without code, evidence and statements.
    pub(crate) const DEFAULT: Self = Self {
        id: "",
        place: "",
        text: "",
        state: State::Absent,
        code: &[],
        runs: &[],
        tests: &[],
        remark: "",
        statements: &[],
    };
}

/// Extent to which this project has a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Code, and a test or an experiment that asks the paper's question. The verdict of the experiment may be that the claim does not hold.
    Done,
    /// Some of it, as the remark says.
    Partly,
    /// None of it.
    Absent,
    /// It says nothing about a communication layer, as the remark says.
    NotApplicable,
}

impl State {
    /// Returns the name on the page.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Partly => "partly",
            Self::Absent => "absent",
            Self::NotApplicable => "not applicable",
        }
    }
}

/// A statement that an experiment judges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Statement {
    /// Id of its row, with a suffix if the row has several statements; or an id of our own.
    pub(crate) id: &'static str,
    /// The statement, in one line.
    pub(crate) text: &'static str,
    /// Figure in the paper.
    pub(crate) published: Published,
}

impl Statement {
    /// Stands for an id that no table has. A run with such a claim fails.
    pub(crate) const UNKNOWN: Self = Self { id: "", text: "", published: Published::Nothing };
}

/// A figure as published, or `Nothing` if the paper has none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Published {
    Nothing,
    Number(f64),
    Text(&'static str),
}

impl Published {
    /// Returns the value in JSON.
    pub(crate) fn to_json(self) -> Value {
        match self {
            Self::Nothing => Value::Null,
            Self::Number(number) => number.into(),
            Self::Text(text) => text.into(),
        }
    }
}

/// Every paper, in the order of the page.
pub(crate) const ALL: [&Paper; 5] =
    [&comm_layer::PAPER, &expedite::PAPER, &coscheduling::PAPER, &pioman::PAPER, &overlap::PAPER];

/// Returns every statement: those of the papers, and our own.
pub(crate) fn statements() -> impl Iterator<Item = &'static Statement> {
    ALL.iter().flat_map(|paper| paper.rows).flat_map(|row| row.statements).chain(own::STATEMENTS)
}

/// Returns the statement with that id.
pub(crate) fn statement(id: &str) -> Option<&'static Statement> {
    statements().find(|statement| statement.id == id)
}
