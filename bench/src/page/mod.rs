//! One self-contained HTML page of results, without scripts, fonts or other external content: `report FILE...`, and the end of `all`.
//!
//! The first screen has a line for each paper. Each result has a question, an answer, figures, its claims and its rows.

mod claims;
mod figure;
mod overview;
mod table;
mod value;

use core::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Arg, ArgMatches, Command};
use serde_json::Value;

use crate::experiments;
use crate::papers;
use crate::results;

/// Name of the command.
pub(crate) const REPORT: &str = "report";

/// A result, and the figures that its experiment drew.
#[derive(Debug)]
pub(crate) struct Result {
    /// The object that `--json` prints.
    pub(crate) json: Value,
    /// Names and SVG of its figures.
    pub(crate) figures: Vec<(String, String)>,
}

/// An experiment without a result.
#[derive(Debug)]
pub(crate) struct Missing {
    pub(crate) name: String,
    pub(crate) reason: String,
    /// The command that measures it.
    pub(crate) command: String,
}

pub(crate) fn command() -> Command {
    Command::new(REPORT)
        .about("Creates one HTML page from results, as printed by --json, and from figures, as written by --plots")
        .after_help("Example:\n  pronto-bench report latency.json peers.json cosched-scale.svg --out page.html")
        .arg(
            Arg::new(FILES)
                .required(true)
                .num_args(1..)
                .value_name("FILE")
                .help("Results (.json) in the order of the page, and figures (.svg), each after its result")
                .value_parser(clap::value_parser!(PathBuf)),
        )
        .arg(
            Arg::new(OUT)
                .long(OUT)
                .value_name("FILE")
                .default_value("pronto-bench.html")
                .help("Path of the page")
                .value_parser(clap::value_parser!(PathBuf)),
        )
}

/// Writes the page. Returns a line with its path.
pub(crate) fn run(options: &ArgMatches) -> anyhow::Result<String> {
    let files = options.get_many::<PathBuf>(FILES).context("files are required")?;
    let out = options.get_one::<PathBuf>(OUT).context("it has a default")?;
    let (mut found, mut figures): (Vec<Result>, _) = (Vec::new(), Vec::new());
    for file in files {
        if file.extension().is_some_and(|end| end == "svg") {
            let drawn = figure(file)?;
            found.last_mut().map_or(&mut figures, |found| &mut found.figures).push(drawn);
        } else {
            found.push(Result { json: results::read(file)?, figures: Vec::new() });
        }
    }
    let is_missing = |name: &str| found.iter().all(|found| found.json["experiment"] != name);
    let missing = experiments::ALL.iter().filter(|experiment| is_missing(experiment.name));
    let missing: Vec<_> = missing
        .map(|experiment| Missing {
            name: experiment.name.to_owned(),
            reason: "no result was given".to_owned(),
            command: format!("pronto-bench {} --json", experiment.name),
        })
        .collect();
    write(out, &found, &figures, &missing)?;
    let drawn = figures.len() + found.iter().map(|found| found.figures.len()).sum::<usize>();
    Ok(format!("{} results and {drawn} figures: {}", found.len(), out.display()))
}

/// Writes the page of these results, in this order, of figures without a result, and of experiments without a result.
pub(crate) fn write(
    path: &Path,
    found: &[Result],
    figures: &[(String, String)],
    missing: &[Missing],
) -> anyhow::Result<()> {
    fs::write(path, page(found, figures, missing)).with_context(|| format!("writing {}", path.display()))
}

/// Returns the verdicts of a result, counted, in words.
pub(crate) fn tally(result: &Value) -> String {
    claims::Tally::of(claims::of(result)).words()
}

/// Returns a table with the verdicts of each paper.
pub(crate) fn summary<'a>(results: impl Iterator<Item = &'a Value>) -> String {
    overview::summary(&results.collect::<Vec<_>>())
}

/// Reads a figure. Returns its name and the SVG.
pub(crate) fn figure(path: &Path) -> anyhow::Result<(String, String)> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let start = text.find("<svg").with_context(|| format!("{} is not an SVG file", path.display()))?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok((name, text[start..].to_owned()))
}

fn page(found: &[Result], figures: &[(String, String)], missing: &[Missing]) -> String {
    let mut html = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    html.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    let _ = write!(html, "<title>Pronto, measured</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n");
    html.push_str("<header><h1>Pronto, measured</h1>\n");
    overview::machine(&mut html, found);
    html.push_str("</header>\n");
    let anchors = anchors(found);
    overview::papers(&mut html, found, &anchors);
    html.push_str(
        "<p class=\"small\">Only ratios within one run can be compared. The floor is the time of the same machine in the same run for \
         the bare mechanism, without anything built on it. Values of a paper are those that its text or tables state.</p>\n",
    );
    for (result, anchor) in found.iter().zip(&anchors) {
        section(&mut html, result, anchor);
    }
    if !figures.is_empty() {
        html.push_str("<section id=\"figures\"><h2>Figures</h2>\n");
        drawn(&mut html, figures);
        html.push_str("</section>\n");
    }
    not_run(&mut html, missing);
    html.push_str("</body>\n</html>\n");
    html
}

/// Returns a name for the section of each result: its experiment, with the transport if only verbs was measured, and a number if the name
/// is taken.
fn anchors(found: &[Result]) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    for Result { json, .. } in found {
        let experiment = results::word(&json["experiment"]);
        let verbs = json["params"]["provider"].get(0).is_some_and(|provider| provider == "verbs");
        let name = if verbs { experiment + "-verbs" } else { experiment };
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        let free = [name.clone()].into_iter().chain(numbered).find(|name| !anchors.contains(name));
        anchors.push(free.unwrap_or(name));
    }
    anchors
}

fn section(html: &mut String, result: &Result, anchor: &str) {
    let json = &result.json;
    let experiment = experiments::find(json["experiment"].as_str().unwrap_or_default());
    let (question, about) = experiment.map_or(("", ""), |experiment| (experiment.question, experiment.about));
    let axes: Vec<&str> =
        experiment.map_or(&[][..], |experiment| experiment.axes).iter().map(|axis| axis.column).collect();
    let _ = writeln!(html, "<section id=\"{0}\"><h2><a href=\"#{0}\">{0}</a></h2>", escaped(anchor));
    if !question.is_empty() {
        let _ = writeln!(html, "<p class=\"question\">{}</p>", escaped(question));
    }
    let _ = writeln!(html, "<p class=\"answer\">{}</p>", escaped(&claims::answer(json)));
    let _ = writeln!(html, "<p class=\"small\">{}{}</p>", escaped(&source(json)), escaped(about));
    figure::all(html, json, &axes, !result.figures.is_empty());
    drawn(html, &result.figures);
    claims::table(html, json);
    table::notes(html, json);
    table::rows(html, json, &axes);
    table::host(html, json);
    html.push_str("</section>\n");
}

/// Returns the paper of a result and the part of it, to be followed by text.
fn source(result: &Value) -> String {
    let paper = papers::ALL.iter().find(|paper| result["paper"] == paper.key);
    let Some(paper) = paper else { return String::new() };
    let figure = result["figure"].as_str().map(|figure| format!(", {figure}")).unwrap_or_default();
    format!("{}{figure}. Measured: ", paper.title)
}

/// Writes figures that experiments drew, suitable for print: with a light background.
fn drawn(html: &mut String, figures: &[(String, String)]) {
    for (name, svg) in figures {
        let _ = writeln!(
            html,
            "<figure class=\"print\"><div class=\"wide\">{svg}</div><figcaption>{}.svg</figcaption></figure>",
            escaped(name)
        );
    }
}

/// Writes the experiments without a result.
fn not_run(html: &mut String, missing: &[Missing]) {
    if missing.is_empty() {
        return;
    }
    html.push_str("<section id=\"not-run\"><h2>Not run</h2>\n<table class=\"facts\">\n");
    for Missing { name, reason, command } in missing {
        let _ = writeln!(
            html,
            "<tr><th>{}</th><td>{}<br><code>{}</code></td></tr>",
            escaped(name),
            escaped(reason),
            escaped(command)
        );
    }
    html.push_str("</table></section>\n");
}

/// Returns text escaped for HTML, including attributes.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const FILES: &str = "files";
const OUT: &str = "out";
const STYLE: &str = include_str!("style.css");

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result() -> Result {
        let json = json!({
            "experiment": "comm-fig3", "paper": "comm-layer", "figure": "Fig. 3",
            "host": {"kernel": "6.1 <test>", "oversubscribed": true}, "params": {"notes": ["one & two"], "quick": true},
            "rows": [
                {"provider": "shm", "size": 64, "alloc_ns": 5.0, "release_ns": 5.0, "send_ns": 200},
                {"provider": "tcp", "size": 1024, "alloc_ns": 5.0, "release_ns": 5.0, "send_ns": 10_000},
            ],
            "claims": [{
                "id": "K40", "text": "Share of a < b", "detail": "\"why\"", "published": 0.066, "bar": null, "measured": 0.05,
                "verdict": "in part", "holds": false
            }],
        });
        Result { json, figures: vec![("<fig>".into(), "<svg></svg>".into())] }
    }

    fn missing() -> Missing {
        Missing { name: "peers".into(), reason: "failed: a & b".into(), command: "pronto-bench peers".into() }
    }

    #[test]
    fn a_page_has_all_parts_escaped_and_no_external_content() {
        let html = page(&[result()], &[], &[missing()]);
        for part in [
            "<section id=\"comm-fig3\">",
            "What share of a send goes to its buffer?",
            "K40 holds in part: 5 % where the paper has 6.6 %.",
            "Share of a &lt; b",
            "&quot;why&quot;",
            "Fig. 3: parts of the time of a send",
            "the paper: 3.5 % to 6.6 %",
            "<h4>shm</h4>",
            "1 KiB",
            "badge part",
            "All 2 rows",
            "6.1 &lt;test&gt;",
            "one &amp; two",
            "&lt;fig&gt;.svg",
            "failed: a &amp; b",
            "<code>pronto-bench peers</code>",
            "</html>",
        ] {
            assert!(html.contains(part), "{part} is missing in:\n{html}");
        }
        for outside in ["<script", "src=", "@import", "url(", "http"] {
            assert!(!html.contains(outside), "{outside}");
        }
        assert!(html.contains("prefers-color-scheme: dark") && html.contains("width=device-width"));
        assert!(html.contains("@media print"));
    }

    #[test]
    fn two_results_of_an_experiment_have_sections_of_their_own() {
        let verbs = json!({"experiment": "comm-fig3", "params": {"provider": ["verbs"]}, "rows": []});
        let found = [result(), result(), Result { json: verbs, figures: Vec::new() }];
        assert_eq!(anchors(&found), ["comm-fig3", "comm-fig3-2", "comm-fig3-verbs"]);
    }

    #[test]
    fn a_result_of_an_unknown_experiment_is_shown() {
        let json = json!({"experiment": "later", "rows": [{"p50_ns": 3}], "claims": []});
        let html = page(&[Result { json, figures: Vec::new() }], &[], &[]);
        assert!(html.contains("<section id=\"later\">") && html.contains("3 ns"), "{html}");
    }
}
