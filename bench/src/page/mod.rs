//! `report FILE...`: one self-contained HTML page of results, without scripts, fonts or other external content.
//!
//! Each result has its claims (published value or our bar, and measured value), plots of its rows with the floor of the same run, and all
//! rows. Figures that `--plots` wrote can be added.

mod plot;
mod table;

use core::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Arg, ArgMatches, Command};
use serde_json::Value;

use crate::experiments;
use crate::results;

/// Name of the command.
pub(crate) const REPORT: &str = "report";

pub(crate) fn command() -> Command {
    Command::new(REPORT)
        .about("Creates one HTML page from results, as printed by --json, and from figures, as written by --plots")
        .after_help("Example:\n  pronto-bench report latency.json peers.json cosched-scale.svg --out page.html")
        .arg(
            Arg::new(FILES)
                .required(true)
                .num_args(1..)
                .value_name("FILE")
                .help("Results (.json) in the order of the page, and figures (.svg)")
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
    let (mut found, mut figures) = (Vec::new(), Vec::new());
    for file in files {
        if file.extension().is_some_and(|end| end == "svg") {
            figures.push(figure(file)?);
        } else {
            found.push(results::read(file)?);
        }
    }
    fs::write(out, page(&found, &figures)).with_context(|| format!("writing {}", out.display()))?;
    Ok(format!("{} results and {} figures: {}", found.len(), figures.len(), out.display()))
}

/// Reads a figure. Returns its name and the SVG.
fn figure(path: &Path) -> anyhow::Result<(String, String)> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let start = text.find("<svg").with_context(|| format!("{} is not an SVG file", path.display()))?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok((name, text[start..].to_owned()))
}

fn page(found: &[Value], figures: &[(String, String)]) -> String {
    let mut html = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    html.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    let _ = write!(html, "<title>Pronto, measured</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n");
    html.push_str("<header><h1>Pronto, measured</h1>\n<p>Only ratios within one run can be compared. The floor is the time of the same machine in the same ");
    html.push_str("run for the bare mechanism, without anything built on it.</p></header>\n");
    table::contents(&mut html, found);
    for result in found {
        section(&mut html, result);
    }
    if !figures.is_empty() {
        html.push_str("<section id=\"figures\"><h2>Figures</h2>\n");
        for (name, svg) in figures {
            let _ = writeln!(
                html,
                "<figure class=\"print\">{svg}<figcaption>{}</figcaption></figure>",
                escaped(name)
            );
        }
        html.push_str("</section>\n");
    }
    html.push_str("</body>\n</html>\n");
    html
}

fn section(html: &mut String, result: &Value) {
    let name = result["experiment"].as_str().unwrap_or_default();
    let experiment = experiments::find(name);
    let about = experiment.map_or("", |experiment| experiment.about);
    let axes: Vec<&str> =
        experiment.map_or(&[][..], |experiment| experiment.axes).iter().map(|axis| axis.column).collect();
    let _ = write!(html, "<section id=\"{0}\"><h2>{0}</h2>\n<p>{1}</p>\n", escaped(name), escaped(about));
    if let (Some(paper), Some(figure)) = (result["paper"].as_str(), result["figure"].as_str()) {
        let _ = writeln!(html, "<p class=\"small\">Paper: {}, {}</p>", escaped(paper), escaped(figure));
    }
    table::claims(html, result);
    plot::all(html, result, &axes);
    table::rows(html, result, &axes);
    table::host(html, result);
    html.push_str("</section>\n");
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

    fn result() -> Value {
        json!({
            "experiment": "latency", "paper": null, "figure": null,
            "host": {"kernel": "6.1 <test>", "oversubscribed": true}, "params": {"notes": ["one & two"]},
            "rows": [
                {"provider": "shm", "wait": "spin", "size": 32, "p50_ns": 150, "floor": "cache-line", "floor_ns": 100, "ratio": 1.5},
                {"provider": "tcp", "wait": "block", "size": 32, "p50_ns": 53_000, "floor": "tcp", "floor_ns": 52_000, "ratio": 1.02},
            ],
            "claims": [{"id": "L1", "text": "a < b", "published": 2.5, "measured": 1.5, "holds": true}],
        })
    }

    #[test]
    fn a_page_has_claims_plots_and_rows_and_no_external_content() {
        let html = page(&[result()], &[("fig".into(), "<svg></svg>".into())]);
        for part in [
            "id=\"latency\"",
            "a &lt; b",
            "2.5",
            "<svg",
            "shm spin size 32",
            "6.1 &lt;test&gt;",
            "one &amp; two",
            "figcaption",
        ] {
            assert!(html.contains(part), "{part} is missing in:\n{html}");
        }
        for outside in ["<script", "src=", "@import", "url("] {
            assert!(!html.contains(outside), "{outside}");
        }
        assert!(html.contains("prefers-color-scheme: dark") && html.contains("width=device-width"));
    }

    #[test]
    fn values_far_apart_have_a_logarithmic_axis_and_their_floors() {
        let html = page(&[result()], &[]);
        assert!(html.contains("logarithmic") && html.matches("class=\"floor\"").count() >= 2, "{html}");
    }

    #[test]
    fn many_rows_are_divided_by_their_selection() {
        let rows: Vec<_> = ["shm", "tcp"]
            .iter()
            .flat_map(|provider| {
                (0..20).map(move |size| json!({"provider": provider, "size": size, "p50_ns": 9}))
            })
            .collect();
        let html = page(&[json!({"experiment": "latency", "rows": rows})], &[]);
        assert_eq!(html.matches("<svg").count(), 2);
        assert!(html.contains("<details open><summary>p50_ns, nanoseconds: shm</summary>"), "{html}");
        assert!(html.contains(">size 19<"), "{html}");
    }
}
