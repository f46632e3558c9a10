//! An order is one of three; the key is one field.

use pronto_rpc::Message;

#[derive(Message)]
#[message(name = "a", order = inline)]
struct Inline;

#[derive(Message)]
#[message(name = "a", order = sorted)]
struct Sorted;

#[derive(Message)]
#[message(name = "a", order = by_key)]
struct NoKey {
    account: u32,
}

#[derive(Message)]
#[message(name = "a", order = by_key(acount))]
struct NoSuchKey {
    account: u32,
}

#[derive(Message)]
#[message(name = "a", order = by_key(account, year))]
struct TwoKeys {
    account: u32,
    year: u32,
}

#[derive(Message)]
#[message(name = "a", order = by_key(account))]
enum Choice {
    One { account: u32 },
}

fn main() {}
