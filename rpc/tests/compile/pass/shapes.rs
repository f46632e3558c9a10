//! Every shape of type that can be derived, under names chosen to collide.
#![deny(warnings)]

use pronto_rpc::{Message, Payload};

type Result = ();
type Option = ();

#[derive(Message)]
#[message(name = "unit")]
struct Unit;

#[derive(Message)]
#[message(name = "tuple", reply = Unit, order = by_key(1))]
struct Tuple(u8, String);

#[derive(Message)]
#[message(name = "two-attributes", reply = ())]
#[message(class = bulk, order = ordered, idempotent)]
pub struct Named {
    out: Vec<u8>,
    input: [Nested<u32, 3>; 2],
    r#type: core::option::Option<Box<[Choice]>>,
    nothing: (Result, Option),
}

#[derive(Payload)]
struct Nested<T, const N: usize>
where
    T: Copy,
{
    items: [T; N],
}

#[derive(Payload)]
#[repr(u8)]
enum Choice {
    Unit,
    Tuple(u8, u16),
    Named { field_0: u8, out: String, variant: bool },
    Explicit {} = 9,
}

#[derive(Message)]
#[message(name = "choice")]
#[repr(u8)]
enum Single {
    Only = 7,
}

fn assert_message<M: Message>() {}

fn main() {
    assert_message::<Unit>();
    assert_message::<Tuple>();
    assert_message::<Named>();
    assert_message::<Single>();
}
