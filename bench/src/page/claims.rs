//! Judged statements: their verdicts counted, an answer in one sentence, and a table.

use core::fmt::Write as _;

use serde_json::Value;

use super::escaped;
use super::value::of_statement;
use crate::claim::Verdict;
use crate::results;

/// Verdicts counted by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally([usize; Verdict::ALL.len()]);

impl Tally {
    /// Counts these claims.
    pub(super) fn of<'a>(claims: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut tally = Self::default();
        for claim in claims {
            let place = Verdict::ALL.iter().position(|verdict| *verdict == verdict_of(claim));
            tally.0[place.unwrap_or_default()] += 1;
        }
        tally
    }

    /// Returns the number of claims.
    pub(super) fn all(self) -> usize {
        self.0.iter().sum()
    }

    /// Returns each verdict with its number, in the order of [`Verdict::ALL`].
    pub(super) fn each(self) -> impl Iterator<Item = (Verdict, usize)> {
        Verdict::ALL.into_iter().zip(self.0)
    }

    /// Returns the verdicts that occur, in words.
    pub(super) fn words(self) -> String {
        let words: Vec<_> = self
            .each()
            .filter(|(_, count)| *count > 0)
            .map(|(verdict, count)| match verdict {
                Verdict::Holds if count > 1 => format!("{count} hold"),
                Verdict::DoesNotHold if count > 1 => format!("{count} do not hold"),
                _ => format!("{count} {}", verdict.name()),
            })
            .collect();
        if words.is_empty() { "no statements".to_owned() } else { words.join(", ") }
    }

    /// Writes the counts as a bar and in words.
    pub(super) fn write(self, html: &mut String) {
        let words = self.words();
        let _ = write!(html, "<span class=\"tally\" role=\"img\" aria-label=\"{words}\">");
        for (verdict, count) in self.each().filter(|(_, count)| *count > 0) {
            let _ = write!(html, "<i class=\"{}\" style=\"flex-grow:{count}\"></i>", class(verdict));
        }
        let _ = write!(html, "</span><span class=\"small\">{words}</span>");
    }
}

/// Returns the claims of a result.
pub(super) fn of(result: &Value) -> impl Iterator<Item = &Value> {
    result["claims"].as_array().into_iter().flatten()
}

/// Returns the verdict of a claim.
fn verdict_of(claim: &Value) -> Verdict {
    let named = claim["verdict"].as_str().and_then(Verdict::named);
    named.unwrap_or_else(|| Verdict::from(claim["holds"] == true))
}

/// Returns the class of a verdict.
const fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::InPart => "part",
        Verdict::DoesNotHold => "fails",
        Verdict::NotTransferable => "nowhere",
        Verdict::NotResolvable => "unclear",
    }
}

/// Returns the answer of a result in one or two sentences.
pub(super) fn answer(result: &Value) -> String {
    let tally = Tally::of(of(result));
    let rows = results::rows(result).count();
    if rows == 0 {
        return format!("Nothing was measured: {}.", first_note(result).trim_end_matches('.'));
    }
    let counts = tally.each().map(|(_, count)| count).collect::<Vec<_>>();
    let [all, good] = [tally.all(), counts[0]];
    let mut text = match (all, good) {
        (0, _) => return format!("A measurement of {rows} rows, which judges no statement."),
        (1, 1) => "The statement holds".to_owned(),
        (1, 0) => String::new(),
        (2, 2) => "Both statements hold".to_owned(),
        (all, good) if all == good => format!("All {all} statements hold"),
        (all, 0) => format!("None of {all} statements holds as a whole"),
        (all, good) => format!("{good} of {all} statements hold"),
    };
    if let (1, Some(claim)) = (good, of(result).next().filter(|_| all == 1)) {
        let _ = write!(text, "{}", values(claim));
    }
    let others: Vec<_> = of(result).filter(|claim| verdict_of(claim) != Verdict::Holds).collect();
    let named: Vec<_> = others.iter().take(NAMED).map(|claim| exception(claim)).collect();
    if !named.is_empty() {
        let _ = write!(text, "{}{}", if text.is_empty() { "" } else { "; " }, named.join("; "));
        if others.len() > NAMED {
            let _ = write!(text, "; {} more below", others.len() - NAMED);
        }
    }
    text + "."
}

/// Returns what became of a statement that does not hold as a whole.
fn exception(claim: &Value) -> String {
    let id = results::word(&claim["id"]);
    match verdict_of(claim) {
        Verdict::Holds => format!("{id} holds"),
        Verdict::InPart => format!("{id} holds in part{}", values(claim)),
        Verdict::DoesNotHold => format!("{id} does not hold{}", values(claim)),
        Verdict::NotTransferable => format!("{id} cannot be shown by any run here"),
        Verdict::NotResolvable => format!("this machine cannot judge {id}"),
    }
}

/// Returns the measured value next to that of the paper, or our bar.
fn values(claim: &Value) -> String {
    let (_, unit) = of_statement(claim["text"].as_str().unwrap_or_default());
    let show =
        |key: &str| Some(&claim[key]).filter(|value| value.is_number()).map(|value| unit.show_value(value));
    match (show("measured"), show("published"), show("bar")) {
        (Some(measured), Some(published), _) => format!(": {measured} where the paper has {published}"),
        (Some(measured), None, Some(bar)) => format!(": {measured} where our bar is {bar}"),
        (Some(measured), None, None) => format!(": {measured}"),
        _ => String::new(),
    }
}

fn first_note(result: &Value) -> String {
    result["params"]["notes"].get(0).map_or_else(|| "the run gives no reason".to_owned(), results::word)
}

/// Writes the claims: a short text, the value of the paper, our bar, the measured value and the verdict; details are folded.
pub(super) fn table(html: &mut String, result: &Value) {
    if of(result).next().is_none() {
        return;
    }
    html.push_str("<table class=\"claims\"><thead><tr><th>id</th><th>statement</th><th>paper</th><th>our bar</th><th>measured</th><th>verdict</th></tr></thead><tbody>\n");
    for claim in of(result) {
        let verdict = verdict_of(claim);
        let (text, unit) = of_statement(claim["text"].as_str().unwrap_or_default());
        let (text, id, detail) = (escaped(text), cell(&claim["id"]), results::word(&claim["detail"]));
        let _ = write!(html, "<tr><td class=\"id\">{id}</td><td class=\"text\">{text}");
        if !matches!(detail.as_str(), "" | "-") {
            let _ = write!(html, "<details><summary>details</summary>{}</details>", escaped(&detail));
        }
        html.push_str("</td>");
        for (key, label) in [("published", "paper"), ("bar", "our bar"), ("measured", "measured")] {
            let value = Some(&claim[key]).filter(|value| !value.is_null());
            let value = value.map(|value| escaped(&unit.show_value(value))).unwrap_or_default();
            let _ = write!(html, "<td data-label=\"{label}\">{value}</td>");
        }
        let _ = writeln!(html, "<td><b class=\"badge {}\">{}</b></td></tr>", class(verdict), verdict.name());
    }
    html.push_str("</tbody></table>\n");
}

fn cell(value: &Value) -> String {
    escaped(&results::word(value))
}

/// Number of statements that an answer names.
const NAMED: usize = 2;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(id: &str, verdict: &str) -> Value {
        json!({
            "id": id, "text": "Share of late pings", "detail": "of 5 < 6", "published": 0.066, "bar": null, "measured": 0.071,
            "verdict": verdict, "holds": verdict == "holds"
        })
    }

    fn result(claims: &[Value]) -> Value {
        json!({"experiment": "x", "rows": [{"a": 1}], "claims": claims})
    }

    #[test]
    fn an_answer_counts_verdicts_and_names_those_that_are_not_whole() {
        let holds = || claim("K1", "holds");
        assert_eq!(answer(&result(&[holds()])), "The statement holds: 7.1 % where the paper has 6.6 %.");
        assert_eq!(answer(&result(&[holds(), holds(), holds()])), "All 3 statements hold.");
        assert_eq!(answer(&result(&[holds(), holds()])), "Both statements hold.");
        assert_eq!(
            answer(&result(&[holds(), claim("K40", "does not hold"), claim("K41", "not resolvable")])),
            "1 of 3 statements hold; K40 does not hold: 7.1 % where the paper has 6.6 %; this machine cannot judge K41."
        );
        assert_eq!(
            answer(&result(&[claim("K9", "in part")])),
            "K9 holds in part: 7.1 % where the paper has 6.6 %."
        );
        assert!(answer(&result(&[])).contains("judges no statement"));
        let skipped = json!({"rows": [], "claims": [], "params": {"notes": ["needs two CPUs."]}});
        assert_eq!(answer(&skipped), "Nothing was measured: needs two CPUs.");
    }

    #[test]
    fn a_table_has_units_badges_and_folded_details() {
        let mut html = String::new();
        table(&mut html, &result(&[claim("K1", "not transferable")]));
        for part in ["badge nowhere", "7.1 %", "6.6 %", "<summary>details</summary>of 5 &lt; 6"] {
            assert!(html.contains(part), "{part} is missing in:\n{html}");
        }
    }

    #[test]
    fn results_without_verdicts_count_what_holds() {
        let old = [json!({"id": "L1", "holds": true}), json!({"id": "L2", "holds": false})];
        assert_eq!(Tally::of(&old).words(), "1 holds, 1 does not hold");
        assert_eq!(Tally::of(old.iter().chain(&old)).words(), "2 hold, 2 do not hold");
        assert_eq!(Tally::default().words(), "no statements");
    }
}
