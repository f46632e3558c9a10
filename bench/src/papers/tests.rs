//! The tables are complete, name what exists, and agree with the page and the experiments.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::record::Record;
use super::{ALL, Published, Row, State, page, statements};
use crate::experiments;
use crate::params::Params;

/// Number of rows of each paper.
const ROWS: [(char, usize); 5] = [('K', 46), ('X', 33), ('S', 29), ('P', 37), ('Q', 16)];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn rows() -> impl Iterator<Item = &'static Row> {
    ALL.iter().flat_map(|paper| paper.rows)
}

#[test]
fn every_id_has_a_row() {
    for (paper, (letter, count)) in ALL.iter().zip(ROWS) {
        assert_eq!(paper.letter, letter);
        let ids: Vec<_> = paper.rows.iter().map(|row| row.id.to_owned()).collect();
        let expected: Vec<_> = (1..=count).map(|number| format!("{letter}{number}")).collect();
        assert_eq!(ids, expected, "{}", paper.key);
    }
    assert_eq!(rows().count(), 161);
}

#[test]
fn a_state_has_its_evidence() {
    for row in rows() {
        let has_evidence = !row.runs.is_empty() || !row.tests.is_empty();
        let is_complete = !row.text.is_empty()
            && !row.place.is_empty()
            && match row.state {
                State::Done => !row.code.is_empty() && has_evidence,
                State::Partly => !row.code.is_empty() && !row.remark.is_empty(),
                State::Absent | State::NotApplicable => {
                    row.code.is_empty()
                        && !has_evidence
                        && row.statements.is_empty()
                        && !row.remark.is_empty()
                }
            };
        assert!(is_complete, "{row:?}");
    }
}

#[test]
fn paths_and_tests_exist() {
    for row in rows() {
        for path in row.code {
            assert!(root().join(path).exists(), "{}: {path} does not exist", row.id);
        }
        for test in row.tests {
            let (path, name) = test.split_once("::").unwrap_or((test, ""));
            let text = fs::read_to_string(root().join(path));
            let is_there = match text {
                Ok(text) => text.contains(&format!("fn {name}")),
                Err(_) => name.is_empty() && root().join(path).is_dir(),
            };
            assert!(is_there, "{}: {test} does not exist", row.id);
        }
        for run in row.runs {
            assert!(experiments::find(run).is_some(), "{}: no experiment {run}", row.id);
        }
    }
}

#[test]
fn statements_belong_to_their_rows_and_are_unique() {
    let mut ids = BTreeSet::new();
    for statement in statements() {
        assert!(ids.insert(statement.id) && !statement.text.is_empty(), "{statement:?}");
        assert!(statement.published != Published::Text(""), "{statement:?}");
    }
    for row in rows() {
        for statement in row.statements {
            let suffix = statement.id.strip_prefix(row.id).expect("an id begins with that of its row");
            assert!(!suffix.starts_with(|c: char| c.is_ascii_digit()), "{} in {}", statement.id, row.id);
        }
    }
}

#[test]
fn experiments_declare_the_statements_that_rows_expect_of_them() {
    let declared: BTreeMap<&str, &[&str]> =
        experiments::ALL.iter().map(|experiment| (experiment.name, experiment.claims)).collect();
    for id in declared.values().flat_map(|ids| ids.iter()) {
        assert!(statements().any(|statement| statement.id == *id), "no statement {id}");
    }
    for row in rows().filter(|row| !row.statements.is_empty()) {
        for statement in row.statements {
            let judges = row.runs.iter().any(|run| declared[run].contains(&statement.id));
            assert!(judges, "no experiment of {} declares {}", row.id, statement.id);
        }
    }
    for (experiment, ids) in &declared {
        for row in rows() {
            let asks = row.statements.iter().any(|statement| ids.contains(&statement.id));
            assert!(!asks || row.runs.contains(experiment), "{}: {experiment} is missing", row.id);
        }
    }
}

#[test]
fn experiments_name_papers_by_their_keys() {
    for experiment in experiments::ALL {
        let is_known = |key: &str| ALL.iter().any(|paper| paper.key == key);
        assert!(experiment.paper.is_none_or(is_known), "{}: {:?}", experiment.name, experiment.paper);
    }
}

/// Statements that only a run over verbs judges, in the lab.
const OVER_VERBS: [&str; 3] = ["RV1", "RV2", "P30.verbs"];

#[test]
fn every_experiment_with_claims_has_recorded_verdicts_of_them() {
    let record = Record::recorded().unwrap();
    for experiment in experiments::ALL {
        let found: BTreeSet<_> = record.of(experiment.name).iter().map(|found| found.id.as_str()).collect();
        let declared: BTreeSet<_> = experiment.claims.iter().copied().collect();
        assert!(found.is_subset(&declared), "{}: {found:?}", experiment.name);
        if (experiment.lab)(&Params::new()).unwrap().is_none() {
            let missing = declared.difference(&found).filter(|id| !OVER_VERBS.contains(*id));
            assert_eq!(missing.count(), 0, "{}: only {found:?} of {declared:?}", experiment.name);
        }
    }
}

#[test]
fn the_page_is_the_one_that_the_tables_and_the_record_give() {
    let page = page::markdown(&Record::recorded().unwrap());
    let file = fs::read_to_string(root().join("docs/papers.md")).unwrap();
    assert!(file.trim_end() == page.trim_end(), "run `pronto-bench papers > docs/papers.md`");
}
