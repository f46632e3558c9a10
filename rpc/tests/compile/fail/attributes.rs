//! Only the known attributes, each once, each with a known value.

use pronto_rpc::{Message, Payload};

#[derive(Message)]
#[message(name = "a", priority = 3)]
struct Unknown;

#[derive(Message)]
#[message(name = "a", demo::reply = ())]
struct UnknownPath;

#[derive(Message)]
#[message(name = "a", class = bulk, class = control)]
struct Twice;

#[derive(Message)]
#[message(name = "a", class = urgent)]
struct WrongClass;

#[derive(Message)]
#[message(name = "a", idempotent)]
struct NoRequest;

#[derive(Payload)]
#[payload(name = "a")]
struct PayloadWithName;

fn main() {}
