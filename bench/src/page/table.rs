//! The folded parts below a figure: rows, notes, machine and parameters.

use core::fmt::Write as _;

use serde_json::Value;

use super::escaped;
use crate::results;

fn cell(value: &Value) -> String {
    escaped(&results::word(value))
}

/// Writes all rows, folded.
pub(super) fn rows(html: &mut String, result: &Value, axes: &[&str]) {
    let Some(first) = results::rows(result).next() else { return };
    // Selection columns come first, then measured columns in alphabetical order, and remarks, which are long, last.
    let mut columns: Vec<&String> = first.keys().collect();
    columns.sort_by_key(|column| {
        let axis = axes.iter().position(|axis| axis == column);
        (axis.unwrap_or(axes.len()), results::is_remark(column))
    });
    let count = results::rows(result).count();
    let _ = write!(
        html,
        "<details><summary>All {count} rows</summary><div class=\"wide\"><table class=\"rows\"><thead><tr>"
    );
    for column in &columns {
        // On paper, columns are as narrow as their words.
        let _ = write!(html, "<th>{}</th>", escaped(column).replace('_', "_<wbr>"));
    }
    html.push_str("</tr></thead><tbody>\n");
    for row in results::rows(result) {
        html.push_str("<tr>");
        for column in &columns {
            let value = row.get(*column);
            let class = if value.is_some_and(Value::is_number) { " class=\"number\"" } else { "" };
            let _ = write!(html, "<td{class}>{}</td>", value.map(cell).unwrap_or_default());
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody></table></div></details>\n");
}

/// Writes the notes of a run, and a warning if the machine was busy.
pub(super) fn notes(html: &mut String, result: &Value) {
    if result["host"]["oversubscribed"] == true {
        html.push_str(
            "<p class=\"warning\">More threads wanted CPUs than there are when this run began: expect scheduling delays in every row.</p>\n",
        );
    }
    let notes: Vec<_> = result["params"]["notes"].as_array().into_iter().flatten().collect();
    if notes.is_empty() {
        return;
    }
    let _ = writeln!(html, "<details><summary>Notes ({})</summary><ul>", notes.len());
    for note in notes {
        let _ = writeln!(html, "<li>{}</li>", cell(note));
    }
    html.push_str("</ul></details>\n");
}

/// Writes machine and parameters, folded.
pub(super) fn host(html: &mut String, result: &Value) {
    html.push_str("<details><summary>Machine and parameters</summary><table class=\"facts\">\n");
    for part in ["host", "params"] {
        let facts = result[part].as_object().into_iter().flatten().filter(|(key, _)| *key != "notes");
        for (key, value) in facts {
            let _ = writeln!(html, "<tr><th>{}</th><td>{}</td></tr>", escaped(key), cell(value));
        }
    }
    html.push_str("</table></details>\n");
}
