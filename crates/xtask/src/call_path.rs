//! Checks the path of a call in ARCHITECTURE.md against a traced call.
//!
//! An example program makes calls of 32 bytes under callgrind, built without optimisation, so that every function is visible that is not
//! always inlined. Each function in the table must be defined in the named file, and must have run about once per call.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;

use anyhow::{Context, Result, bail, ensure};

use crate::child::{CommandLine, End};
use crate::workspace::Workspace;

const PAGE: &str = "ARCHITECTURE.md";
const HEADING: &str = "## One call, file by file";
const EXAMPLE: &str = "traced_call";
/// The build takes a minute on an idle machine, the traced run 20 s.
const LIMIT: Duration = Duration::from_secs(600);
/// A function on the path runs in at least one of this number of calls. Whether a thread polls or sleeps differs from call to call.
const RARELY: u64 = 10;

/// A function of the table.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    file: String,
    function: String,
}

/// Returns one sentence for each function of the table that is not on the path of a call. Prints the number of files on the path.
///
/// # Errors
/// If the page has no table, or the example cannot be built or traced.
pub(crate) fn check(workspace: &Workspace) -> Result<Vec<String>> {
    let page =
        fs::read_to_string(workspace.root.join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    let steps = steps(&page)?;
    let mut objections = Vec::new();
    for step in &steps {
        let source = fs::read_to_string(workspace.root.join(&step.file));
        match source {
            Ok(source) if defines(&source, &step.function) => {}
            Ok(_) => objections.push(format!("{PAGE}: {} does not define `{}`", step.file, step.function)),
            Err(_) => objections.push(format!("{PAGE}: no such file: {}", step.file)),
        }
    }
    if objections.is_empty() {
        let (calls, dump) = trace(workspace)?;
        let ran = Ran::read(&dump);
        objections.extend(missing(&steps, &ran, calls));
        let files = ran.files(calls, &workspace.root.to_string_lossy());
        let crates: BTreeSet<_> = files.iter().map(|file| crate_of(file)).collect();
        println!(
            "the path of a 32-byte call, without optimisation: {} files in {} crates",
            files.len(),
            crates.len()
        );
    }
    Ok(objections)
}

/// Reads the rows of the table: `file` `Type::function`.
fn steps(page: &str) -> Result<Vec<Step>> {
    let (_, section) = page.split_once(HEADING).with_context(|| format!("{PAGE} has no `{HEADING}`"))?;
    let section = section.split("\n## ").next().unwrap_or(section);
    let mut steps = Vec::new();
    for row in section.lines().filter(|line| line.starts_with('|')) {
        let Some(cell) = row.split('|').nth(3) else { bail!("{PAGE}: a row without a third column: {row}") };
        let mut quoted = cell.split('`').skip(1).step_by(2);
        let Some(file) = quoted.next() else { continue };
        let path = quoted.next().with_context(|| format!("{PAGE}: a row names no function: {row}"))?;
        let function = path.rsplit("::").next().unwrap_or(path);
        steps.push(Step { file: file.to_owned(), function: function.to_owned() });
    }
    ensure!(!steps.is_empty(), "{PAGE}: the table below `{HEADING}` names no function");
    Ok(steps)
}

fn defines(source: &str, function: &str) -> bool {
    source.match_indices(&format!("fn {function}")).any(|(at, found)| {
        !source[at + found.len()..].starts_with(|next: char| next.is_alphanumeric() || next == '_')
    })
}

/// Builds the example, runs it under callgrind, and returns the number of calls and what callgrind wrote.
fn trace(workspace: &Workspace) -> Result<(u64, String)> {
    // Callgrind finds the file of a function in them; CI builds without.
    let build = CommandLine::cargo(["build", "--package", "pronto", "--example", EXAMPLE])
        .env("CARGO_PROFILE_DEV_DEBUG", "line-tables-only");
    finish(&build)?;
    let program = workspace.target.join("debug").join("examples").join(EXAMPLE);
    let out = workspace.target.join("call-path.out");
    let command = CommandLine::new("valgrind", ["--quiet", "--tool=callgrind"])
        .args([format!("--callgrind-out-file={}", out.display()), program.display().to_string()])
        .quiet();
    let printed = finish(&command)?;
    let calls = printed.last().and_then(|line| line.parse().ok()).context("the example prints no number")?;
    let dump = fs::read_to_string(&out).with_context(|| format!("cannot read {}", out.display()))?;
    Ok((calls, dump))
}

fn finish(command: &CommandLine) -> Result<Vec<String>> {
    let outcome = command.run(LIMIT)?;
    match outcome.end {
        End::Exited(status) if status.success() => Ok(outcome.output),
        End::Exited(status) => bail!("`{command}`: {status}"),
        End::Killed => bail!("`{command}` ran longer than {LIMIT:?}"),
    }
}

fn missing(steps: &[Step], ran: &Ran, calls: u64) -> Vec<String> {
    let is_missing = |step: &&Step| ran.times(&step.file, &step.function) < calls / RARELY;
    let describe = |step: &Step| {
        let times = ran.times(&step.file, &step.function);
        format!("{PAGE}: `{}` of {} ran {times} times in {calls} calls", step.function, step.file)
    };
    steps.iter().filter(is_missing).map(describe).collect()
}

fn crate_of(file: &str) -> &str {
    file.split_once("/src/").map_or(file, |(name, _)| name)
}

/// Returns the end of the module path of a source file: `session::engine::` for `comm-core/src/session/engine/mod.rs`. Callgrind knows the
/// file of each line, but where code of another file is inlined first, not that of the function.
fn module_of(file: &str) -> String {
    let path = file.split_once("src/").map_or(file, |(_, path)| path).trim_end_matches(".rs");
    let path = path.trim_end_matches("/mod").trim_start_matches("lib").trim_start_matches("main");
    format!("{}::", path.replace('/', "::"))
}

/// How often functions ran, by callgrind's names: file and full path.
#[derive(Debug, Default)]
struct Ran(BTreeMap<(String, String), u64>);

impl Ran {
    /// Reads callgrind's format: names are numbered where they first occur, and `calls=` follows the name of the callee.
    fn read(dump: &str) -> Self {
        let (mut files, mut functions) = (HashMap::new(), HashMap::new());
        let mut homes: HashMap<String, String> = HashMap::new();
        let mut counts: HashMap<String, u64> = HashMap::new();
        let (mut file, mut callee_file, mut callee) = (String::new(), None, String::new());
        for line in dump.lines() {
            let Some((key, value)) = line.split_once('=') else { continue };
            match key {
                "fl" => file = resolve(&mut files, value),
                "fi" | "fe" => {
                    resolve(&mut files, value);
                }
                "fn" => {
                    let function = resolve(&mut functions, value);
                    homes.insert(function, file.clone());
                }
                "cfi" | "cfl" => callee_file = Some(resolve(&mut files, value)),
                "cfn" => callee = resolve(&mut functions, value),
                "calls" => {
                    let times = value.split_whitespace().next().and_then(|times| times.parse().ok());
                    *counts.entry(callee.clone()).or_default() += times.unwrap_or(0);
                    let home = callee_file.take().unwrap_or_else(|| file.clone());
                    homes.entry(callee.clone()).or_insert(home);
                }
                _ => {}
            }
        }
        let named = |(function, times): (String, u64)| {
            let home = homes.get(&function).cloned().unwrap_or_default();
            ((home, function), times)
        };
        Self(counts.into_iter().map(named).collect())
    }

    /// How often a function of this name in the module of this file ran, in all types.
    fn times(&self, file: &str, function: &str) -> u64 {
        let module = module_of(file);
        let is_it = |path: &str| path.contains(&module) && last_segment(path) == function;
        self.0.iter().filter(|((_, path), _)| is_it(path)).map(|(_, times)| times).sum()
    }

    /// The files below `root` with a function that ran at least once per call.
    fn files(&self, calls: u64, root: &str) -> BTreeSet<String> {
        let of_ours = |(home, _): &(String, String)| {
            home.split_once(root).map(|(_, file)| file.trim_start_matches('/').to_owned())
        };
        self.0.iter().filter(|(_, times)| **times >= calls).filter_map(|(key, _)| of_ours(key)).collect()
    }
}

/// Returns the name of `(number) name`, or the earlier name of `(number)`.
fn resolve(names: &mut HashMap<String, String>, value: &str) -> String {
    let Some((number, name)) = value.split_once(')') else { return value.to_owned() };
    let name = name.trim();
    if name.is_empty() {
        return names.get(number).cloned().unwrap_or_default();
    }
    names.insert(number.to_owned(), name.to_owned());
    name.to_owned()
}

/// Returns the function's own name: `e` of `a::<impl b::C<D>>::e`. A closure counts for its function, which may be inlined.
fn last_segment(path: &str) -> &str {
    // Recursive calls have a number at the end.
    let path = path.split('\'').next().unwrap_or(path).trim_end_matches("::{{closure}}");
    let mut depth = 0_i32;
    let mut begin = 0;
    let bytes = path.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'<' => depth += 1,
            b'>' if at == 0 || bytes[at - 1] != b'-' => depth -= 1,
            b':' if depth == 0 => begin = at + 1,
            _ => {}
        }
    }
    &path[begin..]
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "# A\n\n## One call, file by file\n\n| step | thread | function | |\n|---|---|---|---|\n\
                         | 1 | caller | `rpc/src/peer.rs` `Peer::call` | sends |\n\n## Next\n\n| | | `x.rs` `y` | |\n";

    #[test]
    fn the_table_ends_with_its_section() {
        let step = Step { file: "rpc/src/peer.rs".into(), function: "call".into() };
        assert_eq!(steps(TABLE).unwrap(), [step]);
        assert!(steps("# A").is_err());
        assert!(steps("## One call, file by file\n\nNo table.").is_err());
        assert!(steps("## One call, file by file\n| 1 | caller | `a.rs` | |").is_err());
    }

    #[test]
    fn a_function_is_defined_by_its_whole_name() {
        assert!(defines("pub fn call(&self) {}", "call") && defines("fn call<T>() {}", "call"));
        assert!(!defines("fn call_once() {}", "call") && !defines("call()", "call"));
    }

    #[test]
    fn names_without_their_types_and_arguments() {
        assert_eq!(last_segment("pronto_rpc::peer::Peer<H>::call"), "call");
        assert_eq!(last_segment("a::api::<impl a::Session<Q>>::wait'2"), "wait");
        assert_eq!(last_segment("<a::Sink as b::Sink<c::D>>::request"), "request");
        assert_eq!(last_segment("a::run::{{closure}}::{{closure}}"), "run");
    }

    #[test]
    fn a_function_that_no_call_reaches_is_reported() {
        let dump = "fl=(1) /w/rpc/src/peer.rs\nfn=(1) p::peer::Peer<H>::call\n10 5\ncfi=(2) /w/rpc/src/codec.rs\ncfn=(2) p::codec::encode\n\
                    calls=1000 3\n12 9\nfl=(3) /w/rpc/src/main.rs\nfn=(3) p::main\ncfi=(1)\ncfn=(1)\ncalls=1000 9\n3 4\n\
                    cfn=(4) p::setup\ncalls=1 8\n";
        let ran = Ran::read(dump);
        assert_eq!(ran.times("rpc/src/peer.rs", "call"), 1_000);
        assert_eq!(ran.times("rpc/src/codec.rs", "encode"), 1_000);
        assert_eq!(ran.times("rpc/src/main.rs", "setup"), 1);
        assert_eq!(module_of("comm-core/src/session/engine/mod.rs"), "session::engine::");
        assert_eq!(ran.files(1_000, "/w"), ["rpc/src/codec.rs", "rpc/src/peer.rs"].map(str::to_owned).into());
        let on_path = Step { file: "rpc/src/peer.rs".into(), function: "call".into() };
        let other = Step { file: "rpc/src/main.rs".into(), function: "setup".into() };
        assert_eq!(missing(&[on_path], &ran, 1_000), Vec::<String>::new());
        assert_eq!(missing(&[other], &ran, 1_000).len(), 1);
    }
}
