//! The layout hash changes if and only if the bytes or their meaning change.

use pronto_rpc::{LayoutHash, Message, NodeId, Payload, ServiceId};

/// Declares a struct or enum of which only the layout is used.
macro_rules! layout {
    ($($item:tt)*) => {
        #[derive(Payload)]
        $($item)*
    };
}

/// Declares a struct or enum and returns its layout hash.
macro_rules! hash_of {
    (struct $fields:tt) => {{
        layout!(struct Probe $fields);
        <Probe as Payload>::LAYOUT
    }};
    (enum $variants:tt) => {{
        layout!(enum Probe $variants);
        <Probe as Payload>::LAYOUT
    }};
}

fn all_different(hashes: &[LayoutHash]) {
    for (i, one) in hashes.iter().enumerate() {
        for (j, other) in hashes.iter().enumerate().skip(i + 1) {
            assert_ne!(one, other, "layouts {i} and {j}");
        }
    }
}

/// Shows: messages.layout, messages.field-renamed
#[test]
fn structs_differ_by_name_type_order_and_number_of_fields() {
    all_different(&[
        hash_of!(struct { a: u32, b: u64 }),
        hash_of!(struct { a: u32, c: u64 }),
        hash_of!(struct { a: u32, b: i64 }),
        hash_of!(struct { b: u64, a: u32 }),
        hash_of!(struct { a: u64, b: u32 }),
        hash_of!(struct { a: u32 }),
        hash_of!(struct { a: (u32, u64) }),
        hash_of!(struct {}),
    ]);
}

/// Shows: messages.layout
#[test]
fn enums_differ_by_variants_and_their_fields() {
    all_different(&[
        hash_of!(enum { A, B }),
        hash_of!(enum { B, A }),
        hash_of!(enum { A, B, C }),
        hash_of!(enum { A, C }),
        hash_of!(enum { A, B(u8) }),
        hash_of!(enum { A(u8), B }),
        hash_of!(enum { A, B { x: u8 } }),
        hash_of!(struct { a: u8, b: u8 }),
    ]);
}

/// Shows: messages.layout
#[test]
fn types_of_one_length_differ() {
    all_different(&[
        u16::LAYOUT,
        i16::LAYOUT,
        NodeId::LAYOUT,
        ServiceId::LAYOUT,
        <[u8; 2]>::LAYOUT,
        <[i8; 2]>::LAYOUT,
        <(u8, u8)>::LAYOUT,
        <(u8, (u8,))>::LAYOUT,
        <((u8,), u8)>::LAYOUT,
        <[[u8; 1]; 2]>::LAYOUT,
        <[[u8; 2]; 1]>::LAYOUT,
        Option::<u8>::LAYOUT,
        Vec::<u8>::LAYOUT,
        String::LAYOUT,
        Vec::<Option<u8>>::LAYOUT,
        Option::<Vec<u8>>::LAYOUT,
    ]);
}

/// Shows: messages.type-renamed
#[test]
fn types_with_equal_encodings_have_equal_hashes() {
    assert_eq!(Vec::<u8>::LAYOUT, Box::<[u8]>::LAYOUT);
    layout!(
        struct One {
            a: u32,
        }
    );
    layout!(
        struct Two {
            a: u32,
        }
    );
    assert_eq!(One::LAYOUT, Two::LAYOUT);
    layout!(
        struct Raw {
            r#type: u32,
        }
    );
    assert_ne!(One::LAYOUT, Raw::LAYOUT);
}

/// Shows: messages.layout-reply
#[test]
fn a_request_includes_its_reply() {
    #[derive(Message)]
    #[message(name = "ask", reply = ())]
    struct Ask;

    #[derive(Message)]
    #[message(name = "answer")]
    struct Answer(u8);

    #[derive(Message)]
    #[message(name = "ask", reply = Answer)]
    struct AskMore;

    assert_eq!(Ask::LAYOUT, AskMore::LAYOUT);
    assert_ne!(Ask::type_key(), AskMore::type_key());
}
