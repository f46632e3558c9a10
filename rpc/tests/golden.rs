//! Fixed bytes and hashes of a few messages, as builds of different ages must be compatible.
//!
//! If one of these tests fails, the format has changed, and nodes built before the change are incompatible with nodes
//! built after it.

use core::time::Duration;

use pronto_rpc::{
    Class, Key, LayoutHash, Message, NameHash, NodeId, Order, Payload, Request, encode_message,
};

#[derive(Message)]
#[message(name = "demo.sum")]
struct Sum {
    total: u64,
}

#[derive(Message)]
#[message(name = "demo.add", reply = Sum, class = control, order = by_key(account), idempotent)]
struct Add {
    account: u32,
    values: Vec<u64>,
}

#[derive(Payload)]
enum Access {
    Read,
    Write { exclusive: bool },
}

#[derive(Message)]
#[message(name = "page.fetch", reply = (), class = bulk, order = ordered)]
struct Fetch {
    from: NodeId,
    access: [Access; 2],
    label: String,
    timeout: Option<Duration>,
    corner: (i16, char),
}

fn bytes_of<P: Payload>(value: &P) -> Vec<u8> {
    let mut bytes = vec![0; value.encoded_len()];
    assert_eq!(encode_message(value, &mut bytes), Ok(bytes.len()));
    bytes
}

/// Shows: messages.packed, messages.numbers
#[test]
fn fixed_struct() {
    assert_eq!(bytes_of(&Sum { total: 0x0102_0304_0506_0708 }), [8, 7, 6, 5, 4, 3, 2, 1]);
}

/// Shows: messages.packed, messages.structs
#[test]
fn count_and_numbers() {
    let add = Add { account: 0xaabb_ccdd, values: vec![1, 0xff00] };
    #[rustfmt::skip]
    let golden = [
        0xdd, 0xcc, 0xbb, 0xaa,
        2, 0, 0, 0,
        1, 0, 0, 0, 0, 0, 0, 0,
        0, 0xff, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(bytes_of(&add), golden);
}

/// Shows: messages.packed, messages.ids, messages.durations, messages.structs, messages.enums, messages.options, messages.arrays
/// Shows: messages.strings
#[test]
fn one_of_each() {
    let fetch = Fetch {
        from: NodeId(0x1234),
        access: [Access::Read, Access::Write { exclusive: true }],
        label: "né".into(),
        timeout: Some(Duration::new(5, 6)),
        corner: (-2, 'a'),
    };
    #[rustfmt::skip]
    let golden = [
        0x34, 0x12,
        0, 1, 1,
        3, 0, 0, 0, b'n', 0xc3, 0xa9,
        1, 5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0,
        0xfe, 0xff, b'a', 0, 0, 0,
    ];
    assert_eq!(bytes_of(&fetch), golden);
}

/// An enum whose discriminants are not the positions of its variants.
#[derive(Payload)]
#[repr(u8)]
enum Explicit {
    First = 7,
    Second = 3,
}

/// Shows: messages.discriminants
#[test]
fn positions_of_variants_are_sent() {
    assert_eq!((Explicit::First as u8, Explicit::Second as u8), (7, 3));
    assert_eq!([bytes_of(&Explicit::First), bytes_of(&Explicit::Second)], [[0], [1]]);
}

/// Shows: messages.layout
#[test]
fn hashes() {
    assert_eq!(Sum::type_key(), (NameHash::of("demo.sum"), LayoutHash(0xce34_86af_c6f7_ad4b)));
    assert_eq!(Add::type_key(), (NameHash::of("demo.add"), LayoutHash(0x49d5_b4b5_41d2_cd98)));
    assert_eq!(Fetch::type_key(), (NameHash::of("page.fetch"), LayoutHash(0xbc91_97a7_301d_83b7)));
    assert_eq!(<()>::type_key(), (NameHash::of("pronto.done"), LayoutHash(0x5b27_c910_07d8_a1f6)));
}

/// Shows: messages.reply, messages.class, messages.order
#[test]
fn attributes_become_constants() {
    assert_eq!(
        (Sum::NAME, Sum::CLASS, Sum::ORDER, Sum::IDEMPOTENT),
        ("demo.sum", Class::Control, Order::Unordered, false)
    );
    assert_eq!((Add::CLASS, Add::ORDER, Add::IDEMPOTENT), (Class::Control, Order::ByKey, true));
    assert_eq!((Fetch::CLASS, Fetch::ORDER, Fetch::IDEMPOTENT), (Class::Bulk, Order::Ordered, false));
    assert_eq!(<Add as Request>::Reply::NAME, "demo.sum");
}

/// Shows: messages.keys
#[test]
fn keys() {
    assert_eq!(Add { account: 7, values: vec![] }.key(), 7);
    assert_eq!(Sum { total: 7 }.key(), 0);
    assert_eq!((-1_i8).lane(), 255);
    assert_eq!([false.lane(), true.lane()], [0, 1]);
    assert_eq!('A'.lane(), 65);
    assert_eq!("foobar".to_owned().lane(), 0x8594_4171_f739_67e8);
    assert_eq!(NodeId(3).lane(), 3);
}
