//! What the types forbid is a compile error. To refresh after a new compiler: `TRYBUILD=overwrite cargo test -p pronto --test compile`.

#[test]
fn what_must_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/compile/*.rs");
}
