//! The codec: a derived message encoded into a buffer and decoded from it.

use core::hint::black_box;

use criterion::{Criterion, Throughput};
use pronto::Message;
use pronto::rpc::codec::{decode_message, encode_message};

/// Fields like those of a futex request: small numbers and a flag.
#[derive(Message, Clone, Debug, PartialEq)]
#[message(name = "bench.small")]
pub(crate) struct Small {
    pub(crate) address: u64,
    pub(crate) task: u32,
    pub(crate) value: u32,
    pub(crate) wakes: bool,
}

#[derive(Message, Clone, Debug, PartialEq)]
#[message(name = "bench.page", class = bulk)]
struct Bytes {
    address: u64,
    bytes: Vec<u8>,
}

pub(crate) fn benches(criterion: &mut Criterion) {
    both_ways(criterion, "small", &Small { address: 1 << 40, task: 7, value: 1, wakes: true });
    both_ways(criterion, "bytes-4096", &Bytes { address: 1 << 40, bytes: vec![7; 4096] });
}

fn both_ways<M: Message + PartialEq + core::fmt::Debug>(criterion: &mut Criterion, name: &str, message: &M) {
    let mut group = criterion.benchmark_group("codec");
    group.throughput(Throughput::Bytes(message.encoded_len() as u64));
    let mut buffer = vec![0; message.encoded_len()];
    group.bench_function(format!("encode/{name}"), |bencher| {
        bencher.iter(|| encode_message(black_box(message), &mut buffer).expect("it fits"));
    });
    group.bench_function(format!("decode/{name}"), |bencher| {
        bencher.iter(|| decode_message::<M>(black_box(&buffer)).expect("it was encoded"));
    });
    assert_eq!(decode_message::<M>(&buffer).as_ref(), Ok(message), "the codec is measured");
    group.finish();
}
