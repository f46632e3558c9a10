//! Declarations that the derives accept, and the compile errors for others.
//!
//! After a change of wording or of the toolchain, run `TRYBUILD=overwrite cargo test -p pronto-rpc --test compile` and
//! review the difference.

/// Shows: messages.name, messages.reply, messages.crate, messages.keys, messages.not-inline, messages.not-supported
/// Shows: messages.type-parameters
#[test]
fn derives() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/compile/pass/*.rs");
    cases.compile_fail("tests/compile/fail/*.rs");
}
