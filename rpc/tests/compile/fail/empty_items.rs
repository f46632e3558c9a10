//! The items of a sequence have at least one byte.

use pronto_rpc::Payload;

#[derive(Payload)]
struct Marks {
    marks: Vec<()>,
}

fn main() {}
