//! The program in the README is the example that is built and run.

/// Returns a program without comments, white space and trailing commas, with one spelling of the standard library's paths.
fn normalised(program: &str) -> String {
    let without_comments = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
    let code: String = program.replace("shm:/", "shm:").lines().map(without_comments).collect();
    let code: String = code.chars().filter(|c| !c.is_whitespace()).collect();
    code.replace("std::", "core::").replace(",}", "}").replace(";}", "}")
}

#[test]
fn the_program_in_the_readme_is_the_example() {
    let readme = include_str!("../../../README.md");
    let (_, rest) = readme.split_once("```rust\n").expect("the README has a program");
    let (program, _) = rest.split_once("```").expect("the program ends");
    let example = include_str!("../examples/adder.rs");
    assert_eq!(normalised(program), normalised(example));
}
