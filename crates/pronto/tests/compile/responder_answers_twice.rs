//! A responder can be used only once.

use pronto::{Message, Responder};

#[derive(Message)]
#[message(name = "test.pong")]
struct Pong {}

fn answer(responder: Responder<Pong>) {
    responder.reply(&Pong {});
    responder.reply(&Pong {});
}

fn main() {}
