//! The key's type must pick a lane.

use pronto_rpc::Message;

#[derive(Message)]
#[message(name = "a", order = by_key(weight))]
struct Weighed {
    weight: f64,
}

fn main() {}
