//! Recorded verdicts: those of the last whole runs, from which `docs/papers.md` is generated.

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::claim::Verdict;
use crate::results;

/// The recorded claims of all experiments, by the name of the experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Record(BTreeMap<String, Vec<Found>>);

/// A recorded claim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Found {
    /// Id of the statement.
    pub(crate) id: String,
    /// Name of the verdict.
    pub(crate) verdict: String,
    /// Measured value.
    pub(crate) measured: Value,
    /// Machine and length of the run.
    pub(crate) run: String,
}

impl Record {
    /// Returns the record in this repository.
    ///
    /// # Errors
    /// If it is not a valid record.
    pub(crate) fn recorded() -> anyhow::Result<Self> {
        serde_json::from_str(include_str!("../../verdicts.json")).context("reading the recorded verdicts")
    }

    /// Replaces the claims that a result has, as printed by `--json`, and keeps the others of the experiment.
    ///
    /// # Errors
    /// If a part is missing or unknown.
    pub(crate) fn add(&mut self, result: &Value) -> anyhow::Result<()> {
        let name = result["experiment"].as_str().context("the result names no experiment")?;
        let claims = result["claims"].as_array().context("the result has no claims")?;
        let (kernel, cpus) =
            (results::word(&result["host"]["kernel"]), results::word(&result["host"]["cores"]));
        let length = if result["params"]["quick"] == true { ", quick" } else { "" };
        let run = format!("Linux {kernel}, {cpus} CPUs{length}");
        let claims = claims.iter().map(|claim| found(claim, &run)).collect::<anyhow::Result<Vec<_>>>()?;
        let kept = self.0.entry(name.to_owned()).or_default();
        for claim in claims {
            match kept.iter_mut().find(|known| known.id == claim.id) {
                Some(known) => *known = claim,
                None => kept.push(claim),
            }
        }
        Ok(())
    }

    /// Returns the recorded claims of an experiment.
    pub(crate) fn of(&self, experiment: &str) -> &[Found] {
        self.0.get(experiment).map_or(&[], Vec::as_slice)
    }
}

fn found(claim: &Value, run: &str) -> anyhow::Result<Found> {
    let text = |key: &str| claim[key].as_str().with_context(|| format!("a claim has no {key}"));
    let verdict = text("verdict")?;
    anyhow::ensure!(Verdict::named(verdict).is_some(), "no verdict is called {verdict:?}");
    let (id, verdict) = (text("id")?.to_owned(), verdict.to_owned());
    Ok(Found { id, verdict, measured: claim["measured"].clone(), run: run.to_owned() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result(claims: &Value) -> Value {
        json!({
            "experiment": "latency", "host": {"kernel": "6.1", "cores": 4}, "params": {"quick": true}, "rows": [],
            "claims": claims,
        })
    }

    #[test]
    fn a_run_replaces_the_claims_that_it_has() {
        let mut record = Record::default();
        let claim = |id: &str, verdict: &str| json!({"id": id, "verdict": verdict, "measured": 2});
        record.add(&result(&json!([claim("K2", "holds"), claim("L1", "holds")]))).unwrap();
        record.add(&result(&json!([claim("K2", "does not hold")]))).unwrap();
        let verdicts: Vec<_> =
            record.of("latency").iter().map(|found| (found.id.as_str(), found.verdict.as_str())).collect();
        assert_eq!(verdicts, [("K2", "does not hold"), ("L1", "holds")]);
        assert_eq!(record.of("latency")[0].run, "Linux 6.1, 4 CPUs, quick");
        assert!(record.of("rate").is_empty());
    }

    #[test]
    fn an_unknown_verdict_is_refused() {
        let error = Record::default().add(&result(&json!([{"id": "K2", "verdict": "perhaps"}]))).unwrap_err();
        assert_eq!(error.to_string(), "no verdict is called \"perhaps\"");
    }
}
