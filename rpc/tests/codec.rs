//! Properties of the codec: every encoded value decodes to itself, and decoding arbitrary bytes does not panic.

use core::fmt::Debug;
use core::time::Duration;

use proptest::array::uniform4;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::test_runner::TestCaseError;

use pronto_rpc::codec::Fault;
use pronto_rpc::{Epoch, Full, Malformed, NodeId, Payload, ServiceId, decode_message, encode_message};

#[derive(Clone, Debug, PartialEq, Payload)]
struct Numbers {
    small: (u8, i8, u16, i16, bool),
    large: (u32, i32, u64, i64, u128, i128),
    text: char,
    ids: (NodeId, ServiceId, Epoch),
    pause: Duration,
}

#[derive(Clone, Debug, PartialEq, Payload)]
enum Access {
    Read,
    Write { exclusive: bool },
    Swap(u64, Box<[u16]>),
}

#[derive(Clone, Debug, PartialEq, Payload)]
struct Pair<T, const N: usize> {
    first: Option<T>,
    rest: [T; N],
}

#[derive(Clone, Debug, PartialEq, Payload)]
struct Everything {
    numbers: Numbers,
    accesses: Vec<Access>,
    names: Vec<Option<String>>,
    bytes: Vec<u8>,
    grid: Vec<[[i32; 2]; 4]>,
    pair: Pair<Access, 4>,
    nothing: (),
}

fn numbers() -> impl Strategy<Value = Numbers> {
    let ids = any::<(u16, u16, u64)>();
    let pause = (any::<u64>(), 0..1_000_000_000_u32);
    (any::<(u8, i8, u16, i16, bool)>(), any::<(u32, i32, u64, i64, u128, i128)>(), any::<char>(), ids, pause)
        .prop_map(|(small, large, text, (node, service, epoch), (seconds, nanoseconds))| Numbers {
            small,
            large,
            text,
            ids: (NodeId(node), ServiceId(service), Epoch(epoch)),
            pause: Duration::new(seconds, nanoseconds),
        })
}

fn access() -> impl Strategy<Value = Access> {
    prop_oneof![
        Just(Access::Read),
        any::<bool>().prop_map(|exclusive| Access::Write { exclusive }),
        (any::<u64>(), vec(any::<u16>(), 0..5)).prop_map(|(place, items)| Access::Swap(place, items.into())),
    ]
}

fn everything() -> impl Strategy<Value = Everything> {
    let pair = (option::of(access()), uniform4(access())).prop_map(|(first, rest)| Pair { first, rest });
    let (accesses, names) = (vec(access(), 0..8), vec(option::of(any::<String>()), 0..8));
    let (bytes, grid) = (vec(any::<u8>(), 0..300), vec(any::<[[i32; 2]; 4]>(), 0..8));
    (numbers(), accesses, names, bytes, grid, pair).prop_map(
        |(numbers, accesses, names, bytes, grid, pair)| Everything {
            numbers,
            accesses,
            names,
            bytes,
            grid,
            pair,
            nothing: (),
        },
    )
}

/// Encodes into a buffer of exactly the announced length.
fn encoded<P: Payload>(value: &P) -> Vec<u8> {
    let mut bytes = vec![0xa5; value.encoded_len()];
    assert_eq!(encode_message(value, &mut bytes), Ok(bytes.len()), "encoded_len is exact");
    assert!(P::MIN_LEN <= bytes.len() && P::MAX_LEN.is_none_or(|max| bytes.len() <= max));
    bytes
}

fn round_trip<P: Payload + PartialEq + Debug>(value: &P) -> Result<(), TestCaseError> {
    let bytes = encoded(value);
    let read = decode_message::<P>(&bytes);
    prop_assert_eq!(read.as_ref(), Ok(value));
    for len in [0, bytes.len() / 2, bytes.len().saturating_sub(1)] {
        if len < bytes.len() {
            prop_assert!(decode_message::<P>(&bytes[..len]).is_err(), "a message cut short was accepted");
            let refused = encode_message(value, &mut vec![0; len]);
            let is_true = matches!(refused, Err(Full { offset, needed, left }) if offset + left == len && needed > left);
            prop_assert!(is_true, "{refused:?}");
        }
    }
    let longer = [bytes.as_slice(), &[0]].concat();
    let trailing = Malformed { offset: bytes.len(), fault: Fault::Trailing(1) };
    prop_assert_eq!(decode_message::<P>(&longer), Err(trailing));
    Ok(())
}

/// Checks that bytes are refused, or are the only encoding of the decoded value.
fn refused_or_canonical<P: Payload>(bytes: &[u8]) -> Result<(), TestCaseError> {
    match decode_message::<P>(bytes) {
        Ok(value) => prop_assert_eq!(encoded(&value), bytes),
        Err(Malformed { offset, .. }) => prop_assert!(offset <= bytes.len()),
    }
    Ok(())
}

proptest! {
    /// Shows: messages.lengths, messages.numbers, messages.ids, messages.arrays, messages.canonical
    #[test]
    fn everything_round_trips(value in everything()) {
        round_trip(&value)?;
        round_trip(&value.numbers)?;
        round_trip(&value.pair)?;
        round_trip(&value.names)?;
    }

    /// Shows: messages.numbers
    #[test]
    fn floats_keep_their_bits(double in any::<u64>(), single in any::<u32>()) {
        let value = (f64::from_bits(double), [f32::from_bits(single); 3]);
        let read = decode_message::<(f64, [f32; 3])>(&encoded(&value)).unwrap();
        prop_assert_eq!(read.0.to_bits(), double);
        prop_assert_eq!(read.1.map(f32::to_bits), [single; 3]);
    }

    /// Shows: messages.slices
    #[test]
    fn slices_of_numbers_are_their_numbers_in_a_row(items in vec(any::<u64>(), 0..100), tail in any::<[u16; 9]>()) {
        let one_by_one: Vec<u8> = items.iter().flat_map(encoded).collect();
        prop_assert_eq!(&encoded(&items)[4..], one_by_one);
        round_trip(&items)?;
        round_trip(&tail)?;
        round_trip(&items.iter().map(|item| [item.count_ones(), 7]).collect::<Box<[_]>>())?;
    }

    /// Shows: messages.chars, messages.canonical
    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        refused_or_canonical::<Everything>(&bytes)?;
        refused_or_canonical::<Vec<Access>>(&bytes)?;
        refused_or_canonical::<Pair<String, 2>>(&bytes)?;
        refused_or_canonical::<Vec<Option<(char, bool)>>>(&bytes)?;
        refused_or_canonical::<Duration>(&bytes)?;
        refused_or_canonical::<Box<[[u16; 3]]>>(&bytes)?;
    }

    /// Shows: messages.canonical
    #[test]
    fn damaged_messages_never_panic(value in everything(), place in any::<usize>(), byte in any::<u8>()) {
        let mut bytes = encoded(&value);
        let place = place % bytes.len();
        bytes[place] = byte;
        refused_or_canonical::<Everything>(&bytes)?;
    }
}

fn fault_of<P: Payload + Debug>(bytes: &[u8]) -> (usize, Fault) {
    let Malformed { offset, fault } = decode_message::<P>(bytes).expect_err("the bytes are malformed");
    (offset, fault)
}

/// Shows: messages.bools, messages.chars, messages.durations, messages.enums, messages.options, messages.strings
#[test]
fn faults_have_kind_and_offset() {
    assert_eq!(fault_of::<(u16, bool)>(&[0, 0, 2]), (2, Fault::Bool(2)));
    assert_eq!(fault_of::<(u8, char)>(&[0, 0, 0xd8, 0, 0]), (1, Fault::Char(0xd800)));
    assert_eq!(fault_of::<Option<u8>>(&[7]), (0, Fault::Option(7)));
    assert_eq!(fault_of::<String>(&[3, 0, 0, 0, b'a', 0xff, b'c']), (5, Fault::Utf8));
    assert_eq!(fault_of::<Access>(&[3]), (0, Fault::Variant { of: "Access", variant: 3 }));
    let second = [[0; 8].as_slice(), &1_000_000_000_u32.to_le_bytes()].concat();
    assert_eq!(fault_of::<Duration>(&second), (8, Fault::Nanoseconds(1_000_000_000)));
    assert_eq!(fault_of::<u64>(&[0; 5]), (0, Fault::Truncated { needed: 8, left: 5 }));
}

/// Shows: messages.lists
#[test]
fn four_giga_of_items_in_ten_bytes_are_refused() {
    let bytes = [[0xff; 4].as_slice(), &[0; 10]].concat();
    let refused = (0, Fault::Count { count: u32::MAX, left: 10 });
    assert_eq!(fault_of::<Vec<u8>>(&bytes), refused);
    assert_eq!(fault_of::<Vec<Option<u64>>>(&bytes), refused);
    assert_eq!(fault_of::<Box<[u64]>>(&bytes), refused);
    assert_eq!(fault_of::<String>(&bytes), refused);
}

/// Shows: messages.lists
#[test]
fn a_count_of_huge_items_reserves_no_more_than_the_input_justifies() {
    // An absent item is 1 byte on the wire and 1 MiB in memory. All items would need 256 TiB, more than the address space
    // has, so that the process would abort.
    let items = 256_u32 << 20;
    let decode = move || {
        let mut bytes = vec![0; 4 + items as usize];
        bytes[..4].copy_from_slice(&items.to_le_bytes());
        bytes[4] = 2;
        fault_of::<Vec<Option<[u64; 128 << 10]>>>(&bytes)
    };
    // A stack for decoders that return items of 1 MiB.
    let thread =
        std::thread::Builder::new().stack_size(64 << 20).spawn(decode).expect("a thread can be started");
    assert_eq!(thread.join().expect("the decoder does not panic"), (4, Fault::Option(2)));
}

/// Shows: messages.lengths, messages.nothing
#[test]
fn lengths_are_constants() {
    assert_eq!((Numbers::MIN_LEN, Numbers::MAX_LEN), (91, Some(91)));
    assert_eq!((Access::MIN_LEN, Access::MAX_LEN), (1, None));
    assert_eq!((Option::<[u32; 3]>::MIN_LEN, Option::<[u32; 3]>::MAX_LEN), (1, Some(13)));
    assert_eq!((Pair::<u64, 2>::MIN_LEN, Pair::<u64, 2>::MAX_LEN), (17, Some(25)));
    assert_eq!((<()>::MIN_LEN, <()>::MAX_LEN), (0, Some(0)));
}
