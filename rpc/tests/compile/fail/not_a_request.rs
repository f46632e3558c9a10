//! Only a message with a reply can be called.

use pronto_rpc::{Message, Request};

#[derive(Message)]
#[message(name = "demo.sum")]
struct Sum(u64);

fn call<R: Request>(_: R) {}

fn main() {
    call(Sum(1));
}
