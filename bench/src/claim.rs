//! A statement's verdict in a run, and the claim that carries it.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::papers::{self, Statement};
use crate::report::decimals;

/// Whether a statement holds on this machine in this run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It holds.
    Holds,
    /// A part of it holds, or a weaker form, as the detail of the claim says.
    InPart,
    /// It does not hold.
    DoesNotHold,
    /// It rests on hardware or software that no run of this project can have.
    NotTransferable,
    /// This machine cannot tell, for lack of CPUs, hardware or quiet. The detail names the command that can.
    NotResolvable,
}

impl Verdict {
    /// Every verdict, the best first.
    pub(crate) const ALL: [Self; 5] =
        [Self::Holds, Self::InPart, Self::DoesNotHold, Self::NotTransferable, Self::NotResolvable];

    /// Returns the verdict in JSON, on the page and in the table.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::InPart => "in part",
            Self::DoesNotHold => "does not hold",
            Self::NotTransferable => "not transferable",
            Self::NotResolvable => "not resolvable",
        }
    }

    /// Returns the verdict with that name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| verdict.name() == name)
    }

    /// Returns the verdict on a statement that holds if `whole`, and of which a part holds if `part`.
    pub(crate) const fn graded(whole: bool, part: bool) -> Self {
        match (whole, part) {
            (true, _) => Self::Holds,
            (false, true) => Self::InPart,
            (false, false) => Self::DoesNotHold,
        }
    }
}

impl From<bool> for Verdict {
    fn from(holds: bool) -> Self {
        Self::graded(holds, false)
    }
}

/// A judged statement. Its text and the published figure are those of [`papers::statement`].
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    /// Id of the statement.
    pub(crate) id: &'static str,
    /// The exact quantity, other values of this run, and the reason if the statement does not hold; may be empty.
    pub(crate) detail: String,
    /// Our own threshold, chosen without a source; `null` if the verdict has none.
    pub(crate) bar: Value,
    /// Value of this run.
    pub(crate) measured: Value,
    /// Verdict of this run.
    pub(crate) verdict: Verdict,
}

impl Claim {
    /// A claim without a bar.
    pub(crate) fn new(
        id: &'static str,
        detail: impl Into<String>,
        measured: impl Into<Value>,
        verdict: impl Into<Verdict>,
    ) -> Self {
        Self {
            id,
            detail: detail.into(),
            bar: Value::Null,
            measured: measured.into(),
            verdict: verdict.into(),
        }
    }

    /// A claim that holds if `measured` is not above `bar`. Both are shown with at most `digits` decimals.
    pub(crate) fn at_most(
        id: &'static str,
        detail: impl Into<String>,
        bar: f64,
        measured: f64,
        digits: i32,
    ) -> Self {
        Self::new(id, detail, decimals(measured, digits), measured <= bar).bar(decimals(bar, digits))
    }

    /// A claim that holds if `measured` is not below `bar`. Both are shown with at most `digits` decimals.
    pub(crate) fn at_least(
        id: &'static str,
        detail: impl Into<String>,
        bar: f64,
        measured: f64,
        digits: i32,
    ) -> Self {
        Self { verdict: (measured >= bar).into(), ..Self::at_most(id, detail, bar, measured, digits) }
    }

    /// Sets the bar.
    pub(crate) fn bar(self, bar: impl Into<Value>) -> Self {
        Self { bar: bar.into(), ..self }
    }

    /// Returns whether the whole statement holds.
    pub(crate) fn holds(&self) -> bool {
        self.verdict == Verdict::Holds
    }

    /// Returns the statement.
    pub(crate) fn statement(&self) -> &'static Statement {
        papers::statement(self.id).unwrap_or(&Statement::UNKNOWN)
    }
}

impl Serialize for Claim {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Statement { text, published, .. } = self.statement();
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", self.id)?;
        map.serialize_entry("text", text)?;
        map.serialize_entry("detail", &self.detail)?;
        map.serialize_entry("published", &published.to_json())?;
        map.serialize_entry("bar", &self.bar)?;
        map.serialize_entry("measured", &self.measured)?;
        map.serialize_entry("verdict", self.verdict.name())?;
        map.serialize_entry("holds", &self.holds())?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_statement_holds() {
        let holding: Vec<_> = Verdict::ALL
            .into_iter()
            .filter(|verdict| Claim::new("X24", "", Value::Null, *verdict).holds())
            .collect();
        assert_eq!(holding, [Verdict::Holds]);
        for verdict in Verdict::ALL {
            assert_eq!(Verdict::named(verdict.name()), Some(verdict));
        }
        assert_eq!(Verdict::named("perhaps"), None);
        assert_eq!(Verdict::graded(false, true), Verdict::InPart);
        assert_eq!(Verdict::from(false), Verdict::DoesNotHold);
    }

    #[test]
    fn a_claim_has_the_text_and_figure_of_its_statement_and_a_bar_of_its_own() {
        let claim = Claim::at_most("X28", "median of the rounds", 0.01, 0.0234, 3);
        let json = serde_json::to_value(&claim).unwrap();
        let statement = papers::statement("X28").unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "id": "X28", "text": statement.text, "detail": "median of the rounds", "published": 0.01,
                "bar": 0.01, "measured": 0.023, "verdict": "does not hold", "holds": false
            })
        );
        assert!(
            Claim::at_least("L1", "", 1.0, 1.0, 0).holds() && !Claim::at_least("L1", "", 1.0, 0.9, 1).holds()
        );
    }
}
