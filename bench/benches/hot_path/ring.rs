//! Rings: one line written and read, one value pushed and popped, by one thread.

use core::hint::black_box;
use std::sync::Arc;

use criterion::Criterion;
use pronto_ring::lines::WORDS;
use pronto_ring::{Line, LineReader, LineWriter, Mpsc};

pub(crate) fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ring");
    group.bench_function("line", |bencher| {
        let lines: Arc<[Line]> = (0..DEPTH).map(|_| Line::default()).collect();
        let (mut writer, mut reader) = (LineWriter::new(Arc::clone(&lines)), LineReader::new(lines));
        bencher.iter(|| {
            writer.publish(1, black_box([7; WORDS]));
            reader.poll().expect("the reader keeps up").expect("it was just written")
        });
    });
    group.bench_function("mpsc", |bencher| {
        let (sender, mut receiver) = Mpsc::new(DEPTH);
        bencher.iter(|| {
            sender.push(black_box([7_u64; WORDS])).expect("there is room");
            receiver.pop().expect("it was just pushed")
        });
    });
    group.finish();
}

/// Depth of a connection's rings.
const DEPTH: usize = 64;
