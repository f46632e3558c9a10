//! Tables of the page: contents, claims, rows, hosts.

use core::fmt::Write as _;

use serde_json::Value;

use super::escaped;
use crate::results;

fn claims_of(result: &Value) -> impl Iterator<Item = &Value> {
    result["claims"].as_array().into_iter().flatten()
}

fn cell(value: &Value) -> String {
    escaped(&results::word(value))
}

/// Writes every result in one line, with the number of claims that hold.
pub(super) fn contents(html: &mut String, found: &[Value]) {
    html.push_str("<nav><ul>\n");
    for result in found {
        let name = cell(&result["experiment"]);
        let (all, good) =
            (claims_of(result).count(), claims_of(result).filter(|claim| claim["holds"] == true).count());
        let verdict = if all == 0 { "no claims".to_owned() } else { format!("{good} of {all} claims hold") };
        let _ =
            writeln!(html, "<li><a href=\"#{name}\">{name}</a> <span class=\"small\">{verdict}</span></li>");
    }
    html.push_str("</ul></nav>\n");
}

/// Writes the claims: published value or our bar, and measured value.
pub(super) fn claims(html: &mut String, result: &Value) {
    if claims_of(result).next().is_none() {
        return;
    }
    html.push_str("<div class=\"wide\"><table class=\"claims\"><tr><th>claim</th><th>says</th><th>published or bar</th><th>measured</th><th></th></tr>\n");
    for claim in claims_of(result) {
        let (class, verdict) =
            if claim["holds"] == true { ("yes", "holds") } else { ("no", "does not hold") };
        let [id, text, published, measured] =
            ["id", "text", "published", "measured"].map(|key| cell(&claim[key]));
        let _ = write!(
            html,
            "<tr><td>{id}</td><td class=\"text\">{text}</td><td data-label=\"bar\">{published}</td><td data-label=\"measured\">{measured}</td>"
        );
        let _ = writeln!(html, "<td class=\"{class}\">{verdict}</td></tr>");
    }
    html.push_str("</table></div>\n");
}

/// Writes all rows, folded.
pub(super) fn rows(html: &mut String, result: &Value, axes: &[&str]) {
    let Some(first) = results::rows(result).next() else {
        html.push_str("<p>No row was measured.</p>\n");
        return;
    };
    // Selection columns come first, then measured columns in alphabetical order, and remarks, which are long, last.
    let mut columns: Vec<&String> = first.keys().collect();
    columns.sort_by_key(|column| {
        let axis = axes.iter().position(|axis| axis == column);
        (axis.unwrap_or(axes.len()), results::is_remark(column))
    });
    let _ = write!(
        html,
        "<details><summary>All {} rows</summary><div class=\"wide\"><table><tr>",
        results::rows(result).count()
    );
    for column in &columns {
        let _ = write!(html, "<th>{}</th>", escaped(column));
    }
    html.push_str("</tr>\n");
    for row in results::rows(result) {
        html.push_str("<tr>");
        for column in &columns {
            let _ = write!(html, "<td>{}</td>", row.get(*column).map(cell).unwrap_or_default());
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table></div></details>\n");
}

/// Writes notes, host and parameters.
pub(super) fn host(html: &mut String, result: &Value) {
    let notes = result["params"]["notes"].as_array().into_iter().flatten();
    for note in notes {
        let _ = writeln!(html, "<p class=\"small\">Note: {}</p>", cell(note));
    }
    if result["host"]["oversubscribed"] == true {
        html.push_str("<p class=\"warning\">More threads wanted CPUs than there are when this began: expect scheduling delays in every row.</p>\n");
    }
    html.push_str("<details><summary>Host and parameters</summary><div class=\"wide\"><table>\n");
    for part in ["host", "params"] {
        for (key, value) in result[part].as_object().into_iter().flatten() {
            let _ =
                writeln!(html, "<tr><td>{}</td><td class=\"text\">{}</td></tr>", escaped(key), cell(value));
        }
    }
    html.push_str("</table></div></details>\n");
}
