//! A message has a name, and it is legal.

use pronto_rpc::Message;

#[derive(Message)]
struct Nameless {
    total: u64,
}

#[derive(Message)]
#[message(class = bulk)]
struct StillNameless;

#[derive(Message)]
#[message(name = "")]
struct Empty;

#[derive(Message)]
#[message(name = "two words")]
struct Spaced;

#[derive(Message)]
#[message(name = demo)]
struct Unquoted;

fn main() {}
