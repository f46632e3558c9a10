//! The context of an inline handler offers no operation that waits.

use pronto::{Message, Node};

#[derive(Message)]
#[message(name = "test.pong")]
struct Pong {}

#[derive(Message)]
#[message(name = "test.ping", reply = Pong)]
struct Ping {}

fn main() {
    let _node = Node::builder(1).handle_inline(|context, _: Ping| context.peer().call(&Ping {}).unwrap());
}
