//! A reply is a message.

use pronto_rpc::{Message, Payload};

#[derive(Payload)]
struct Sum {
    total: u64,
}

#[derive(Message)]
#[message(name = "demo.add", reply = Sum)]
struct Add {
    values: Vec<u64>,
}

fn main() {}
