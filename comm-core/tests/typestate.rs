//! Programs that must not compile: each file in `typestate/` misuses a stage of a send buffer, and the compiler explains why.

#[test]
fn misuse_of_a_send_buffer_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/typestate/*.rs");
}
