//! Streams between real nodes, over shared memory and TCP.

mod cut;
mod ends;
mod flow;
mod hostile;
mod rig;
mod smol;

#[test]
fn the_program_in_the_documentation_is_the_example() {
    let page = include_str!("../../../../docs/adapters.md");
    assert!(page.contains(include_str!("../../examples/echo.rs")));
}
