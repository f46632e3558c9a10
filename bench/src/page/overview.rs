//! The first screen: a line for each paper and for our own comparisons, and the machine.

use core::fmt::Write as _;
use std::collections::BTreeMap;

use comfy_table::{Table, presets};
use serde_json::Value;

use super::claims::{self, Tally};
use super::value::of_statement;
use super::{Result, escaped};
use crate::claim::Verdict;
use crate::papers;
use crate::results;

/// A paper's line, or that of our own statements.
struct Line {
    /// Key in the results; empty for our own.
    key: &'static str,
    title: &'static str,
    /// Statements of which the first that was judged with a number is shown.
    headlines: &'static [&'static str],
}

/// The statements that say most about each paper, the most telling first.
const HEADLINES: [(&str, &[&str]); 5] = [
    ("comm-layer", &["K40", "K11", "K16a"]),
    ("expedite", &["X25", "X24"]),
    ("coscheduling", &["S19", "S20", "S5", "S11"]),
    ("pioman", &["P33", "P34.event", "P34.poll"]),
    ("overlap", &["Q5", "Q7b", "Q6a"]),
];
const OWN: Line = Line {
    key: "",
    title: "Comparisons of our own, with peers and with floors",
    headlines: &["V1", "L1", "V7", "L2"],
};

fn lines() -> impl Iterator<Item = Line> {
    let of_paper = |paper: &&papers::Paper| {
        let found = HEADLINES.iter().find(|(key, _)| *key == paper.key);
        Line { key: paper.key, title: paper.title, headlines: found.map_or(&[], |(_, headlines)| headlines) }
    };
    papers::ALL.into_iter().map(move |paper| of_paper(&paper)).chain([OWN])
}

/// Returns the key of the paper that makes a statement; empty for our own.
fn paper_of(id: &str) -> &'static str {
    papers::ALL.into_iter().find(|paper| id.starts_with(paper.letter)).map_or("", |paper| paper.key)
}

/// Returns the claims of a paper in all results.
fn claims_of<'a>(results: &[&'a Value], key: &str) -> Vec<&'a Value> {
    let is_its = |claim: &&Value| claim["id"].as_str().is_some_and(|id| paper_of(id) == key);
    results.iter().flat_map(|result| claims::of(result)).filter(is_its).collect()
}

/// Writes the lines of the papers, with links to the sections of their experiments. `anchors` names the section of each result.
pub(super) fn papers(html: &mut String, found: &[Result], anchors: &[String]) {
    let results: Vec<&Value> = found.iter().map(|found| &found.json).collect();
    html.push_str("<ul class=\"papers\">\n");
    for line in lines() {
        let claims = claims_of(&results, line.key);
        let _ = write!(html, "<li><h3>{}</h3><p>", escaped(line.title));
        Tally::of(claims.iter().copied()).write(html);
        html.push_str("</p>");
        if let Some(headline) = line.headlines.iter().find_map(|id| headline(&claims, id)) {
            let _ = write!(html, "<p class=\"headline\">{headline}</p>");
        }
        html.push_str("<p class=\"links\">");
        for (result, anchor) in results.iter().zip(anchors) {
            if result["paper"].as_str().unwrap_or_default() == line.key {
                let _ = write!(html, "<a href=\"#{0}\">{0}</a> ", escaped(anchor));
            }
        }
        html.push_str("</p></li>\n");
    }
    html.push_str("</ul>\n");
}

/// Returns the measured value of a statement, next to the paper's; `None` if it was not judged with a number.
fn headline(claims: &[&Value], id: &str) -> Option<String> {
    let claim = claims.iter().find(|claim| claim["id"] == id && claim["measured"].is_number())?;
    let (text, unit) = of_statement(claim["text"].as_str()?);
    let show = |key: &str| match &claim[key] {
        Value::Null => None,
        Value::String(text) => Some(format!("\"{text}\"")),
        value => Some(unit.show_value(value)),
    };
    let measured = escaped(&show("measured")?);
    let beside = match (show("published"), show("bar")) {
        (Some(published), _) => format!("; the paper: {published}"),
        (None, Some(bar)) => format!("; our bar is {bar}"),
        (None, None) => String::new(),
    };
    Some(format!("<b>{measured}</b> {} ({}{})", escaped(text), escaped(id), escaped(&beside)))
}

/// Writes the machines of the results, and how they ran.
pub(super) fn machine(html: &mut String, found: &[Result]) {
    let mut machines: BTreeMap<String, usize> = BTreeMap::new();
    for Result { json, .. } in found {
        let fact = |key: &str| results::word(&json["host"][key]);
        let machine = format!(
            "Linux {}, {} CPUs of {} ({} usable; virtualisation: {}), {} build by {}",
            fact("kernel"),
            fact("cores"),
            fact("cpu"),
            fact("cores_allowed"),
            fact("accelerator"),
            fact("profile"),
            fact("rustc"),
        );
        *machines.entry(machine).or_default() += 1;
    }
    html.push_str("<dl class=\"machine\">\n");
    for (machine, count) in &machines {
        let part = if machines.len() > 1 { format!(" of {count} results") } else { String::new() };
        let _ = writeln!(html, "<dt>Machine{part}</dt><dd>{}</dd>", escaped(machine));
    }
    let count = |is: &dyn Fn(&Value) -> bool| found.iter().filter(|found| is(&found.json)).count();
    let (quick, busy) = (
        count(&|json| json["params"]["quick"] == true),
        count(&|json| json["host"]["oversubscribed"] == true),
    );
    let length = match quick {
        0 => "full".to_owned(),
        quick if quick == found.len() => "quick: coarser numbers".to_owned(),
        quick => format!("{quick} of {} are quick", found.len()),
    };
    let load = match busy {
        0 => "as many threads as CPUs at most when each run began".to_owned(),
        busy => format!("busy: more threads than CPUs when {busy} of {} runs began", found.len()),
    };
    let _ = writeln!(html, "<dt>Runs</dt><dd>{length}</dd><dt>Load</dt><dd>{load}</dd></dl>");
}

/// Returns a table with the verdicts of each paper.
pub(super) fn summary(results: &[&Value]) -> String {
    let mut table = Table::new();
    let header = ["paper"].into_iter().chain(Verdict::ALL.map(Verdict::name));
    table.load_style(presets::NOTHING).set_header(header);
    for line in lines() {
        let counts = Tally::of(claims_of(results, line.key)).each().map(|(_, count)| count.to_string());
        table.add_row([line.title.to_owned()].into_iter().chain(counts));
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found() -> Vec<Result> {
        let claims = [
            json!({"id": "K40", "text": "Share of the buffer", "published": 0.066, "measured": 0.071, "verdict": "does not hold"}),
            json!({"id": "L1", "text": "A call as a multiple of a round trip", "bar": 3.0, "measured": 2.0, "verdict": "holds"}),
        ];
        let host = json!({"kernel": "6.1", "cores": 2, "oversubscribed": true});
        let json = json!({
            "experiment": "comm-fig3", "paper": "comm-layer", "host": host, "params": {"quick": true}, "rows": [], "claims": claims,
        });
        vec![Result { json, figures: Vec::new() }]
    }

    #[test]
    fn every_paper_has_a_line_with_its_verdicts_and_its_headline() {
        let mut html = String::new();
        papers(&mut html, &found(), &["comm-fig3".to_owned()]);
        assert_eq!(html.matches("<li>").count(), papers::ALL.len() + 1);
        for part in
            ["1 does not hold", "<b>7.1 %</b> Share of the buffer", "the paper: 6.6 %", "href=\"#comm-fig3\""]
        {
            assert!(html.contains(part), "{part} is missing in:\n{html}");
        }
        assert!(html.contains("our bar is 3\u{d7}"), "{html}");
    }

    #[test]
    fn the_letter_of_an_id_tells_its_paper() {
        let of = |paper: &papers::Paper| paper.rows.iter().flat_map(|row| row.statements).count();
        for paper in papers::ALL {
            let found = papers::statements().filter(|statement| paper_of(statement.id) == paper.key).count();
            assert_eq!(found, of(paper), "{}", paper.key);
        }
    }

    #[test]
    fn headlines_are_statements_of_their_papers() {
        for (key, ids) in HEADLINES {
            assert!(papers::ALL.iter().any(|paper| paper.key == key), "{key}");
            assert!(ids.iter().all(|id| paper_of(id) == key), "{ids:?}");
        }
        assert!(OWN.headlines.iter().all(|id| papers::statement(id).is_some() && paper_of(id).is_empty()));
    }

    #[test]
    fn the_machine_and_its_load_are_named() {
        let mut html = String::new();
        machine(&mut html, &found());
        assert!(html.contains("Linux 6.1") && html.contains("quick") && html.contains("busy"), "{html}");
    }

    #[test]
    fn the_summary_counts_by_paper() {
        let found = found();
        let text = summary(&[&found[0].json]);
        assert_eq!(text.lines().count(), papers::ALL.len() + 2, "{text}");
        assert!(text.contains("does not hold"), "{text}");
    }
}
