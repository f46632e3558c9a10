//! The derive explains types that are never payloads.

use pronto_rpc::Payload;

#[derive(Payload)]
struct Size {
    len: usize,
}

#[derive(Payload)]
struct NestedSize {
    offsets: Vec<(u8, [isize; 4])>,
}

#[derive(Payload)]
struct Borrowed {
    text: &'static str,
}

#[derive(Payload)]
struct Pointer(*const u8);

#[derive(Payload)]
struct Lifetime<'a> {
    text: std::borrow::Cow<'a, str>,
}

#[derive(Payload)]
struct Tree {
    children: Vec<Tree>,
}

fn main() {}
