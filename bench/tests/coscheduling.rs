//! The simulated experiments of the coscheduling paper, from outside: rows, claims, figures.

mod program;

use std::fs;
use std::path::PathBuf;

use program::json;
use serde_json::Value;

fn ids(object: &Value) -> Vec<&str> {
    let claims = object["claims"].as_array().into_iter().flatten();
    claims.filter_map(|claim| claim["id"].as_str()).collect()
}

/// Returns the path of a folder for figures, which does not exist.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    match fs::remove_dir_all(&folder) {
        Ok(()) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
    }
    folder
}

#[test]
fn benchmarks_with_local_tasks_have_rows_and_figures() {
    let plots = folder("cosched");
    let object = json(&[
        "cosched-sim",
        "--json",
        "--quick",
        "--app",
        "mg",
        "--policy",
        "linux,dyn,pred",
        "--local_tasks",
        "3",
        "--plots",
        &plots.display().to_string(),
    ]);
    let rows = object["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 5, "LINUX, and DYN and PRED at both ends of P");
    for row in rows {
        for column in ["policy", "p", "wait", "local_tasks", "app", "seconds"] {
            assert!(row.as_object().unwrap().contains_key(column), "{column} of {row}");
        }
        assert!(row["seconds"].as_f64().unwrap() > 50.0, "four tasks share each CPU: {row}");
    }
    assert_eq!((&rows[0]["policy"], &rows[0]["to_linux"]), (&"linux".into(), &1.0.into()));
    assert_eq!(ids(&object), ["S5", "S11", "S19", "S20"], "the claims about these rows");
    let figure = fs::read_to_string(plots.join("cosched-fig2.svg")).expect("the figure was written");
    for text in ["MG, class A", "PRED, P near 1", "local tasks per node", "execution time (s)"] {
        assert!(figure.contains(text), "{text}");
    }
}

#[test]
fn jobs_have_a_pattern_and_a_spread_over_p() {
    let plots = folder("cosched-pattern");
    let plots_text = plots.display().to_string();
    let object =
        json(&["cosched-pattern", "--json", "--quick", "--app", "mg,master-slave", "--plots", &plots_text]);
    let rows = object["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    let number = |row: usize, column: &str| rows[row][column].as_f64().unwrap_or_else(|| panic!("{column}"));
    assert!(number(0, "computing") > 0.8 && number(1, "computing") < 0.4, "{rows:?}");
    assert!(number(0, "both") > number(1, "both"), "slaves send nothing while they receive: {rows:?}");
    for row in 0..2 {
        let past = ["near_0", "p_25", "p_50", "p_75", "near_1"].map(|column| number(row, column));
        let range = past.iter().copied().fold(0.0, f64::max) - past.iter().copied().fold(9.0, f64::min);
        assert!((range - number(row, "spread")).abs() < 0.002 && number(row, "spread_aa") > 0.0, "{rows:?}");
    }
    assert_eq!(ids(&object), ["S28a", "S28c"], "two jobs have no correlation");
    let figure = fs::read_to_string(plots.join("cosched-pattern.svg")).expect("the figure was written");
    assert!(figure.contains("share of computing") && figure.contains("A/A"));
}

#[test]
fn the_same_seeds_give_the_same_rows() {
    let args = [
        "wait-sim",
        "--json",
        "--quick",
        "--app",
        "grid",
        "--network",
        "fast",
        "--local_tasks",
        "0",
        "--policy",
        "linux,implicit",
    ];
    let (one, two) = (json(&args), json(&args));
    assert_eq!(one["rows"], two["rows"]);
    assert_eq!(one["rows"].as_array().unwrap().len(), 4 + 1, "implicit waits in one way only");
    assert_eq!(ids(&one), ["W1", "W2", "W4"]);
    assert_eq!(one["claims"], two["claims"]);
}

#[test]
fn clusters_of_some_nodes_are_compared_with_the_job_alone() {
    let object =
        json(&["cosched-scale", "--json", "--quick", "--nodes", "4,64", "--policy", "alone,linux,gang"]);
    let rows = object["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6);
    assert!(rows.iter().all(|row| row["slowdown"].as_f64().unwrap() >= 0.99), "{rows:?}");
    assert!(rows.iter().all(|row| (row["policy"] == "alone") == (row["slowdown"] == 1.0)), "{rows:?}");
    assert_eq!(ids(&object), ["C1", "C3", "C4", "C5"]);
}
