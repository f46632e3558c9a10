//! Misuse that the types must reject at compile time. To update the expected output after a compiler update, run
//! `TRYBUILD=overwrite cargo test -p pronto --test compile`.

/// Shows: calls.inline-calls
#[test]
fn misuse_does_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/compile/*.rs");
}
