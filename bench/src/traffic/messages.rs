//! The payloads of the traffic, each as a call and as a one-way message, and the question how many were received.

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

/// What a receiver has counted since the last time that it was asked.
#[derive(Message, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[message(name = "traffic.counted")]
pub(crate) struct Counted {
    /// One-way messages.
    pub(crate) notes: u64,
    /// Bytes of them.
    pub(crate) bytes: u64,
    /// Sum of what was read of them, wrapping.
    pub(crate) sum: u64,
    /// What the process used so far: processor nanoseconds.
    pub(crate) cpu_ns: u64,
    /// And context switches.
    pub(crate) switches: u64,
}

/// Asks what was counted, behind all messages of this class that were sent before.
#[derive(Message, Clone, Debug)]
#[message(name = "traffic.count", reply = Counted)]
pub(crate) struct Count {}

/// The same behind bulk.
#[derive(Message, Clone, Debug)]
#[message(name = "traffic.count.bulk", reply = Counted, class = bulk)]
pub(crate) struct CountBulk {}
