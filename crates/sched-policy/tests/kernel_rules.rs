//! Searches the sources and the compiled code for constructs that the kernel rejects or does not survive.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the part of each file that the kernel compiles: everything before the tests, without comments.
fn sources() -> Vec<(String, String)> {
    let mut sources = Vec::new();
    for entry in fs::read_dir(folder().join("src/policy")).expect("the folder is there") {
        let path = entry.expect("it can be listed").path();
        let text = fs::read_to_string(&path).expect("a source is text");
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let code = code.lines().map(|line| line.split("//").next().unwrap_or_default());
        sources.push((path.display().to_string(), code.collect::<Vec<_>>().join("\n")));
    }
    assert!(sources.len() > 3, "the folder is not empty");
    sources
}

/// Compiles as the kernel does, with overflow checks and every function kept; returns the assembly.
fn compiled(source: &Path, name: &str) -> String {
    let assembly = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let output = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args(["--edition", "2021", "--crate-type", "lib", "--crate-name", "included", "--emit", "asm"])
        .args([
            "-Copt-level=2",
            "-Coverflow-checks=on",
            "-Cpanic=abort",
            "-Clink-dead-code",
            "-Ccodegen-units=1",
        ])
        .args(["-Csymbol-mangling-version=v0", "-Dwarnings", "-o"])
        .args([&assembly, source])
        .output()
        .expect("there is a compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::read_to_string(assembly).expect("the compiler wrote it")
}

/// Returns the mangled names of functions that mention a panic of the core library.
fn panicking(assembly: &str) -> Vec<&str> {
    let (mut function, mut found) = ("", Vec::new());
    for line in assembly.lines() {
        if let Some(label) = line.strip_suffix(':').filter(|label| label.starts_with("_R")) {
            function = label;
        } else if line.contains("9panicking") {
            found.push(function);
        }
    }
    // Exists for every ordered type, called or not; the sources may not call it.
    found.retain(|function| !function.contains("5clamp"));
    found
}

#[test]
fn the_sources_use_nothing_that_only_user_space_has() {
    for (path, code) in sources() {
        for word in [
            "crate::", "std::", "alloc::", "u128", "i128", "f32", "f64", ".clamp(", "unsafe ", "extern ",
            "static ",
        ] {
            assert!(!code.contains(word), "{path} contains `{word}`");
        }
    }
}

#[test]
fn the_compiled_code_has_no_call_to_a_panic() {
    let assembly = compiled(&folder().join("examples/included.rs"), "included.s");
    assert!(assembly.contains("8refilled"), "the functions are in there");
    assert_eq!(panicking(&assembly), [""; 0]);
}

#[test]
fn a_panic_would_be_found() {
    let source = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("panics.rs");
    fs::write(&source, "#![no_std]\npub fn sum(a: u64, b: u64) -> u64 { a + b }\n")
        .expect("a folder for tests");
    assert_eq!(panicking(&compiled(&source, "panics.s")).len(), 1);
}
