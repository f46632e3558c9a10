//! What the derives accept, and how they refuse the rest.
//!
//! After a change of wording, or of the toolchain: `TRYBUILD=overwrite cargo test -p pronto-rpc --test compile`, and
//! read the difference.

#[test]
fn derives() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/compile/pass/*.rs");
    cases.compile_fail("tests/compile/fail/*.rs");
}
