//! Parts of a call: a ring of lines, a queue of many senders, the codec.

use core::hint::black_box;
use std::sync::Arc;

use pronto_ring::lines::WORDS;
use pronto_ring::{Line, LineReader, LineWriter, Mpsc};
use pronto_rpc::{Message, decode_message, encode_message};

use crate::count;
use crate::message::{Page, Small};

/// Depth of the rings, as in a connection.
const DEPTH: usize = 64;

/// Counts the parts.
///
/// # Errors
/// A part returns something other than its input.
pub(crate) fn run() -> anyhow::Result<()> {
    let lines: Arc<[Line]> = (0..DEPTH).map(|_| Line::default()).collect();
    let (mut writer, mut reader) = (LineWriter::new(Arc::clone(&lines)), LineReader::new(lines));
    count("ring-line", || {
        writer.publish(1, black_box([7; WORDS]));
        black_box(reader.poll().expect("the reader keeps up").expect("it was just written"));
    });
    let (sender, mut receiver) = Mpsc::new(DEPTH);
    count("ring-mpsc", || {
        sender.push(black_box([7_u64; WORDS])).expect("there is room");
        black_box(receiver.pop().expect("it was just pushed"));
    });
    let small = Small { address: 1 << 40, task: 7, value: 1, wakes: true };
    let mut buffer = encode("small", &small);
    count("decode-small", || {
        black_box(decode_message::<Small>(black_box(&buffer)).expect("it was encoded"));
    });
    let back = decode_message::<Small>(&buffer);
    anyhow::ensure!(back.as_ref() == Ok(&small), "the decoded message differs from the encoded one");
    // Decoding this allocates memory, whose cost depends on all earlier allocations: it is not a scenario.
    let page = Page { address: 1 << 40, bytes: vec![7; 4096] };
    buffer = encode("page", &page);
    anyhow::ensure!(decode_message(&buffer) == Ok(page), "the decoded message differs from the encoded one");
    Ok(())
}

fn encode<M: Message>(name: &str, message: &M) -> Vec<u8> {
    let mut buffer = vec![0; message.encoded_len()];
    count(&format!("encode-{name}"), || {
        black_box(encode_message(black_box(message), &mut buffer).expect("it fits"));
    });
    buffer
}
