//! Shapes of type that cannot travel.

use pronto_rpc::{Message, Payload};

#[derive(Payload)]
union Either {
    number: u32,
    bytes: [u8; 4],
}

#[derive(Payload)]
enum Never {}

#[derive(Message)]
#[message(name = "a")]
struct Generic<T> {
    value: T,
}

fn main() {}
