//! Decoding from memory to which another process can write.

use core::fmt::Debug;
use std::sync::{Arc, mpsc};
use std::thread;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Strategy, any, prop_assert_eq, proptest};

use pronto_core::fabric::region::{HeapMemory, SharedBytes};
use pronto_core::fabric::{self, Arrived, OutOfBounds, Region};
use pronto_rpc::{Bytes, InPlace, Payload, Unreadable, decode_message, decode_message_into, encode_message};

/// A payload that begins at an odd address of a region.
struct Lent {
    region: Region,
    len: usize,
}

/// Offset of the payload in its region.
const AT: usize = 3;

impl Lent {
    fn new(bytes: &[u8]) -> Self {
        let region = Region::new(Arc::new(HeapMemory::new(AT + bytes.len())));
        region.write(AT, bytes).expect("the region is long enough");
        Self { region, len: bytes.len() }
    }
}

impl fabric::Payload for Lent {
    fn len(&self) -> usize {
        self.len
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) -> Result<(), OutOfBounds> {
        self.region.read(AT + offset, out)
    }

    fn as_private(&self) -> Option<&[u8]> {
        None
    }

    fn as_shared(&self) -> Option<SharedBytes<'_>> {
        self.region.lend(AT, self.len).ok()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Payload)]
struct Mixed {
    small: u8,
    page: Vec<u8>,
    wide: u128,
    items: Vec<(u8, u32)>,
    numbers: Box<[u64]>,
    grid: [[u16; 20]; 3],
    name: String,
    names: Vec<Option<String>>,
}

fn mixed() -> impl Strategy<Value = Mixed> {
    let sequences = (vec(any::<u8>(), 0..600), vec(any::<(u8, u32)>(), 0..150), vec(any::<u64>(), 0..90));
    let names = (any::<String>(), vec(option::of(any::<String>()), 0..20));
    (any::<(u8, u128)>(), sequences, any::<[[u16; 20]; 3]>(), names).prop_map(
        |((small, wide), (page, items, numbers), grid, (name, names))| Mixed {
            small,
            page,
            wide,
            items,
            numbers: numbers.into(),
            grid,
            name,
            names,
        },
    )
}

fn encoded<P: Payload>(value: &P) -> Vec<u8> {
    let mut bytes = vec![0; value.encoded_len()];
    assert_eq!(encode_message(value, &mut bytes), Ok(bytes.len()));
    bytes
}

fn in_place<P: Payload + Debug>(bytes: &[u8]) -> Result<P, Unreadable> {
    InPlace::arrived(&Arrived::Buffer(Lent::new(bytes))).decode()
}

proptest! {
    #[test]
    fn shared_memory_is_decoded_like_a_slice(value in mixed(), place in any::<usize>(), byte in any::<u8>()) {
        let mut bytes = encoded(&value);
        prop_assert_eq!(in_place::<Mixed>(&bytes), Ok(value));
        let place = place % bytes.len();
        bytes[place] = byte;
        for bytes in [&bytes[..], &bytes[..place], &[&bytes[..], &[byte]].concat()] {
            let expected = decode_message::<Mixed>(bytes).map_err(Unreadable::Malformed);
            prop_assert_eq!(in_place::<Mixed>(bytes), expected);
        }
    }

    #[test]
    fn an_existing_value_is_replaced(mut old in mixed(), new in mixed()) {
        let bytes = encoded(&new);
        prop_assert_eq!(decode_message_into(&mut old, &bytes), Ok(()));
        prop_assert_eq!(&old, &new);
        let mut option = Some(new);
        prop_assert_eq!(decode_message_into(&mut option, &[0]), Ok(()));
        prop_assert_eq!(option, None);
    }
}

#[test]
fn an_existing_sequence_keeps_its_memory() {
    let mut value = (vec![1_u32; 100], "x".repeat(100));
    let before = (value.0.as_ptr(), value.1.as_ptr());
    let new = (vec![7_u32; 80], "long enough".to_owned());
    decode_message_into(&mut value, &encoded(&new)).unwrap();
    assert_eq!(value, new);
    assert_eq!((value.0.as_ptr(), value.1.as_ptr()), before);
}

/// Shows: messages.bytes
#[test]
fn bytes_and_vectors_of_bytes_are_the_same_on_the_wire() {
    let sent = (7_u8, vec![5_u8; 300]);
    let bytes = encoded(&sent);
    let (number, received) = in_place::<(u8, Bytes)>(&bytes).unwrap();
    assert_eq!((number, received.to_vec()), (sent.0, Ok(sent.1)));
    assert_eq!((received.len(), received.is_empty()), (300, false));
    assert_eq!(encoded(&(number, received)), bytes);
    let (_, none) = in_place::<(u8, Bytes)>(&encoded(&(7_u8, Vec::<u8>::new()))).unwrap();
    assert_eq!((none.len(), none.is_empty()), (0, true));
    assert_eq!(Bytes::LAYOUT, Vec::<u8>::LAYOUT);
}

/// The writer changes bytes while they are decoded. The result is a value, or an error with an offset within the message.
#[test]
fn memory_that_changes_meanwhile_gives_a_value_or_an_error() {
    let value = Mixed {
        page: vec![1; 600],
        items: vec![(1, 2); 100],
        names: vec![Some("a".repeat(50)); 20],
        ..Mixed::default()
    };
    let bytes = encoded(&value);
    let lent = Lent::new(&bytes);
    let region = lent.region.clone();
    let (ends, ended) = mpsc::channel::<()>();
    let payload = Arrived::Buffer(lent);
    let mut outcomes = [0_u32; 2];
    thread::scope(|scope| {
        let bytes = &bytes;
        scope.spawn(move || {
            let mut at = 0;
            while ended.try_recv() == Err(mpsc::TryRecvError::Empty) {
                at = (at + 97) % bytes.len();
                region.write(AT + at, &[0xff]).unwrap();
                region.write(AT + at, &bytes[at..=at]).unwrap();
            }
        });
        for _ in 0..3_000 {
            match InPlace::arrived(&payload).decode::<Mixed>() {
                Ok(_) => outcomes[0] += 1,
                Err(Unreadable::Malformed(malformed)) => {
                    assert!(malformed.offset <= bytes.len());
                    outcomes[1] += 1;
                }
                Err(other) => panic!("{other}"),
            }
        }
        drop(ends);
    });
    assert!(outcomes[0] > 0, "the unchanged message was never decoded: {outcomes:?}");
}
