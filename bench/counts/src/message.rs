//! Message types of the scenarios; the payload is sent and returned.

use pronto_rpc::Message;

#[derive(Message, Clone, Debug, PartialEq)]
#[message(name = "counts.32.reply")]
pub(crate) struct Echo32 {
    pub(crate) bytes: [u8; 32],
}

/// Fits an inline message.
#[derive(Message, Clone, Debug)]
#[message(name = "counts.32", reply = Echo32)]
pub(crate) struct Ask32 {
    pub(crate) bytes: [u8; 32],
}

#[derive(Message, Clone, Debug, PartialEq)]
#[message(name = "counts.200.reply")]
pub(crate) struct Echo200 {
    pub(crate) bytes: [u8; 200],
}

/// Longer than an inline message.
#[derive(Message, Clone, Debug)]
#[message(name = "counts.200", reply = Echo200)]
pub(crate) struct Ask200 {
    pub(crate) bytes: [u8; 200],
}

/// A notification without a reply.
#[derive(Message, Clone, Debug)]
#[message(name = "counts.64")]
pub(crate) struct Told64 {
    pub(crate) bytes: [u8; 64],
}

/// Small numbers and an enum, as in a futex request.
#[derive(Message, Clone, Debug, PartialEq)]
#[message(name = "counts.small")]
pub(crate) struct Small {
    pub(crate) address: u64,
    pub(crate) task: u32,
    pub(crate) value: u32,
    pub(crate) wakes: bool,
}

/// A page.
#[derive(Message, Clone, Debug, PartialEq)]
#[message(name = "counts.page", class = bulk)]
pub(crate) struct Page {
    pub(crate) address: u64,
    pub(crate) bytes: Vec<u8>,
}
