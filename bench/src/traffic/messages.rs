//! The payloads of the traffic, each as a call and as a one-way message, and the queries for the received counts.

use pronto::Message;

macro_rules! payloads {
    ($($class:ident $bytes:ty: $call:ident $call_name:literal => $reply:ident $reply_name:literal, $note:ident $note_name:literal;)*) => {$(
        #[derive(Message, Clone, Debug, PartialEq)]
        #[message(name = $reply_name, class = $class)]
        pub(crate) struct $reply {
            pub(crate) bytes: $bytes,
        }

        #[derive(Message, Clone, Debug)]
        #[message(name = $call_name, reply = $reply, class = $class)]
        pub(crate) struct $call {
            pub(crate) bytes: $bytes,
        }

        #[derive(Message, Clone, Debug)]
        #[message(name = $note_name, class = $class)]
        pub(crate) struct $note {
            pub(crate) bytes: $bytes,
        }
    )*};
}

payloads! {
    control [u8; 32]: Call32 "traffic.call.32" => Back32 "traffic.back.32", Note32 "traffic.note.32";
    control [u8; 224]: Call224 "traffic.call.224" => Back224 "traffic.back.224", Note224 "traffic.note.224";
    bulk Vec<u8>: CallMany "traffic.call.many" => BackMany "traffic.back.many", NoteMany "traffic.note.many";
}

/// A call of 32 bytes whose handler runs on a worker.
#[derive(Message, Clone, Debug)]
#[message(name = "traffic.pooled.32", reply = Back32)]
pub(crate) struct Pooled32 {
    pub(crate) bytes: [u8; 32],
}

/// A call whose handler takes 20 us.
#[derive(Message, Clone, Debug)]
#[message(name = "traffic.slow", reply = ())]
pub(crate) struct Slow {}

/// A one-way message that the receiver reads in place.
#[derive(Message, Clone, Debug)]
#[message(name = "traffic.one-way", class = bulk)]
pub(crate) struct OneWay {
    pub(crate) bytes: Vec<u8>,
}

/// Counts of a receiver since the last query.
#[derive(Message, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[message(name = "traffic.counted")]
pub(crate) struct Counted {
    /// Number of one-way messages.
    pub(crate) notes: u64,
    /// Number of their bytes.
    pub(crate) bytes: u64,
    /// Wrapping sum of their payloads.
    pub(crate) sum: u64,
    /// CPU time of the process so far, in nanoseconds.
    pub(crate) cpu_ns: u64,
    /// Context switches of the process so far.
    pub(crate) switches: u64,
}

/// Query for the counts, ordered behind earlier messages of class control.
#[derive(Message, Clone, Debug)]
#[message(name = "traffic.count", reply = Counted)]
pub(crate) struct Count {}

/// Query for the counts, ordered behind earlier messages of class bulk.
#[derive(Message, Clone, Debug)]
#[message(name = "traffic.count.bulk", reply = Counted, class = bulk)]
pub(crate) struct CountBulk {}

/// Sum of a payload, as computed by [`sum`].
#[derive(Message, Clone, Copy, Debug, PartialEq, Eq)]
#[message(name = "traffic.total", class = bulk)]
pub(crate) struct Total {
    pub(crate) sum: u64,
}

macro_rules! blobs {
    ($($(#[$doc:meta])* $blob:ident $name:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Message, Clone, Debug)]
        #[message(name = $name, reply = Total, class = bulk)]
        pub(crate) struct $blob {
            pub(crate) bytes: Vec<u8>,
        }
    )*};
}

blobs! {
    /// Bytes that the receiver reads in place.
    Read "traffic.blob.read";
    /// Bytes that the receiver copies to private memory, and reads there.
    Taken "traffic.blob.taken";
    /// Bytes that the receiver decodes into a vector.
    Decoded "traffic.blob.decoded";
}

/// Returns the wrapping sum of bytes as words of eight, the last one padded with zeros.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks();
    let mut last = [0; size_of::<u64>()];
    last[..rest.len()].copy_from_slice(rest);
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    words.chain([u64::from_le_bytes(last)]).fold(0, u64::wrapping_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_the_same_in_pieces_of_whole_words() {
        let bytes: Vec<u8> = (0..=255).cycle().take(10_003).collect();
        let pieces = bytes.chunks(4096).map(sum).fold(0, u64::wrapping_add);
        assert_eq!(sum(&bytes), pieces);
        assert_eq!(sum(&[1, 0, 0, 0, 0, 0, 0, 0, 2, 1]), 1 + 0x102);
        assert_eq!(sum(&[]), 0);
    }
}
