//! The 24-byte header that begins every message.
//!
//! ```text
//!  0      4     5      6     8           12    14       16        18        20          24
//!  | fabric | kind | flags | type | generation | slot | service | received | returned | deadline |
//! ```
//!
//! All fields are little endian. Only the provider uses the *fabric word*: shm stores the lap number and form of the slot
//! in it, tcp the kind and length of its frame; verbs does not need it. The other fields belong to the session. With 40
//! bytes of payload a message fills one 64-byte cache line.

use core::fmt;

use thiserror::Error;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::id::{ServiceId, TypeId};
use crate::pressure::Pressure;

/// Length of the header, bytes.
pub const HEADER_LEN: usize = 24;
/// Length of a message slot, bytes: header and inline payload, one cache line.
pub const LINE_LEN: usize = 64;
/// Longest payload of an inline message, bytes.
pub const INLINE_PAYLOAD: usize = LINE_LEN - HEADER_LEN;

const _: () = assert!(size_of::<RawHeader>() == HEADER_LEN);

/// A header in wire format. It is unchecked until [`Header::check`] accepts it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RawHeader {
    /// Four bytes that only the provider uses.
    pub fabric: U32,
    kind: u8,
    flags: u8,
    type_id: U16,
    generation: U32,
    slot: U16,
    service: U16,
    received: U16,
    returned: U16,
    deadline_us: U32,
}

impl RawHeader {
    /// Returns the header's bytes.
    pub fn as_array(&self) -> &[u8; HEADER_LEN] {
        zerocopy::transmute_ref!(self)
    }

    /// Returns the raw header of any 24 bytes.
    pub fn from_array(bytes: [u8; HEADER_LEN]) -> Self {
        zerocopy::transmute!(bytes)
    }

    /// Returns the header of a request that is sent for the first time, equal to the result of [`Header::emit_with`]. Always inlined, so
    /// that its three words stay in registers until they are stored in the message slot.
    #[inline(always)]
    pub fn request(
        call: CallId,
        type_id: TypeId,
        service: ServiceId,
        deadline_us: u32,
        (acks, first): (Acks, &FirstWords),
    ) -> Self {
        let first = first.request | u64::from(type_id.0) << 48;
        Self::of_words(first, call_word(call) | u64::from(service.0) << 48, last_word(acks, deadline_us))
    }

    /// Returns the header of a reply, equal to the result of [`Header::emit_with`].
    #[inline(always)]
    pub fn reply(call: CallId, (acks, first): (Acks, &FirstWords)) -> Self {
        Self::of_words(first.reply, call_word(call), last_word(acks, 0))
    }

    /// Returns the header of a notification, equal to the result of [`Header::emit_with`].
    #[inline(always)]
    pub fn notification(type_id: TypeId, service: ServiceId, (acks, first): (Acks, &FirstWords)) -> Self {
        let first = first.notification | u64::from(type_id.0) << 48;
        Self::of_words(first, u64::from(service.0) << 48, last_word(acks, 0))
    }

    #[inline(always)]
    fn of_words(first: u64, second: u64, third: u64) -> Self {
        let words: [U64; HEADER_LEN / 8] = [first.into(), second.into(), third.into()];
        zerocopy::transmute!(words)
    }

    /// Returns the sender's counts of messages received and credits returned.
    #[inline]
    pub fn acks(&self) -> Acks {
        Acks { received: self.received.get(), returned: self.returned.get() }
    }

    /// Returns whether this is the reply to `call`, with no other field and no flag set. Decides like [`Header::check`], but by comparing words.
    #[inline]
    pub fn is_reply_to(&self, call: CallId) -> bool {
        let [first, second, third] = self.words();
        first >> 32 == u64::from(REPLY) && second == call_word(call) && third >> 32 == 0
    }

    /// Returns the request that this header describes, if it is one. Decides like [`Header::check`], but by comparing words. A request
    /// uses every field.
    #[inline(always)]
    pub fn as_request(&self) -> Option<Request> {
        let [first, second, third] = self.words();
        let [_, _, _, _, kind, flags, type_id @ ..] = first.to_le_bytes();
        let [g0, g1, g2, g3, s0, s1, service @ ..] = second.to_le_bytes();
        let [_, _, _, _, deadline_us @ ..] = third.to_le_bytes();
        (kind == REQUEST && flags & !FLAG_RESENT == 0).then(|| Request {
            call: CallId {
                slot: u16::from_le_bytes([s0, s1]),
                generation: u32::from_le_bytes([g0, g1, g2, g3]),
            },
            type_id: TypeId(u16::from_le_bytes(type_id)),
            service: ServiceId(u16::from_le_bytes(service)),
            resent: flags != 0,
            deadline_us: u32::from_le_bytes(deadline_us),
        })
    }

    /// Returns the type and the service of the notification that this header describes, if it is one, with no other field set. Decides
    /// like [`Header::check`], but by comparing words.
    #[inline(always)]
    pub fn as_notification(&self) -> Option<(TypeId, ServiceId)> {
        let [first, second, third] = self.words();
        let [_, _, _, _, kind, flags, type_id @ ..] = first.to_le_bytes();
        let is_plain = flags == 0 && second << 16 == 0 && third >> 32 == 0;
        (kind == NOTIFICATION && is_plain)
            .then(|| (TypeId(u16::from_le_bytes(type_id)), ServiceId((second >> 48) as u16)))
    }

    /// Returns the sender's pressure and the header without it, if the header has one and is of a kind that may have one. Without the
    /// agreement of both sides such a header is illegal.
    pub fn split_pressure(&self) -> Option<(Pressure, Self)> {
        let pressure = Pressure::from_bits(self.flags >> PRESSURE_SHIFT);
        let has_one = carries_pressure(self.kind) && pressure != Pressure::NONE;
        has_one.then_some((pressure, Self { flags: self.flags & !PRESSURE_FLAGS, ..*self }))
    }

    /// Returns the header as little-endian words.
    #[inline(always)]
    pub fn words(&self) -> [u64; HEADER_LEN / 8] {
        let words: [U64; HEADER_LEN / 8] = zerocopy::transmute!(*self);
        words.map(U64::get)
    }

    /// Returns the fields that are not zero, as a mask like that of [`fields_of`].
    #[inline]
    fn fields(&self) -> u8 {
        let mark = |set: bool, field: u8| if set { field } else { 0 };
        mark(self.slot.get() != 0 || self.generation.get() != 0, CALL_FIELDS)
            | mark(self.type_id.get() != 0, TYPE_FIELD)
            | mark(self.service.get() != 0, SERVICE_FIELD)
            | mark(self.deadline_us.get() != 0, DEADLINE_FIELD)
    }
}

/// Identifies one call: the caller's slot, and the number of earlier uses of that slot.
///
/// It is unique within the caller's epoch. The generation exposes a stale reply (`hazards`: a late reply after a time-out
/// must not complete another call in the same slot).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId {
    /// Index in the caller's table of calls.
    pub slot: u16,
    /// Use count of that slot, wrapping.
    pub generation: u32,
}

/// Cumulative wrapping counts that every message carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acks {
    /// Messages of any kind that the sender has taken out of its receive queue of this connection.
    pub received: u16,
    /// Request credits that the sender returns: requests and notifications that it has finished.
    pub returned: u16,
}

/// The reason why a call got a failure instead of a reply. Travels in the `service` field of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum FailureCode {
    /// The handler ran and returned an error; the payload is that error, encoded.
    HandlerError = 1,
    /// The handler ran and panicked.
    HandlerPanicked = 2,
    /// The callee has no handler for this type and service.
    NoHandler = 3,
    /// The payload is not a valid value of its type.
    Malformed = 4,
    /// Every worker waits in a nested call, and no spare worker is left.
    NoWorker = 5,
    /// The deadline passed before the handler started.
    Expired = 6,
    /// The caller cancelled the call before the handler started.
    Cancelled = 7,
    /// The node is shutting down and takes no new requests.
    Draining = 8,
    /// The reply is longer than its caller receives, or encodes to a length other than its `encoded_len`.
    ReplyTooLarge = 9,
    /// The handler dropped its call without a reply.
    NoReply = 10,
    /// The handler ran, but the callee got no send buffer for the reply.
    NoBuffer = 11,
    /// The caller may not use this type.
    NotPermitted = 12,
}

impl FailureCode {
    const ALL: [Self; 12] = [
        Self::HandlerError,
        Self::HandlerPanicked,
        Self::NoHandler,
        Self::Malformed,
        Self::NoWorker,
        Self::Expired,
        Self::Cancelled,
        Self::Draining,
        Self::ReplyTooLarge,
        Self::NoReply,
        Self::NoBuffer,
        Self::NotPermitted,
    ];

    /// Returns whether the handler ran before this failure was sent.
    pub const fn executed(self) -> bool {
        matches!(
            self,
            Self::HandlerError | Self::HandlerPanicked | Self::ReplyTooLarge | Self::NoReply | Self::NoBuffer
        )
    }

    /// Returns the failure code with this number.
    pub fn from_wire(code: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|known| *known as u16 == code)
    }
}

impl fmt::Display for FailureCode {
    /// Formats the reason as a phrase about the callee.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HandlerError => "the handler returned an error",
            Self::HandlerPanicked => "the handler panicked: see the log of its node",
            Self::NoHandler => "no handler for this message type: register one on the callee",
            Self::Malformed => {
                "the request is not a valid value of its type: build both nodes from the same declaration"
            }
            Self::NoWorker => {
                "all workers of the callee wait in calls of their own, and no spare worker is left: try again"
            }
            Self::Expired => "the deadline passed before the handler started",
            Self::Cancelled => "the call was cancelled before the handler started",
            Self::Draining => "the callee is shutting down and takes no new requests",
            Self::ReplyTooLarge => {
                "the reply is longer than the caller's limits.max_payload, or than its announced length"
            }
            Self::NoReply => "the handler dropped its responder without a reply",
            Self::NoBuffer => "the callee had no send memory for the reply",
            Self::NotPermitted => {
                "the callee permits this node no such message: its [[allow]] rules have to name the message for this node; without any \
                 rule, the state of a node is for its own user over shared memory, and for certificates with the role admin"
            }
        })
    }
}

/// A call as its callee receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Id of the call.
    pub call: CallId,
    /// The callee's number for the message type.
    pub type_id: TypeId,
    /// Service that the message is addressed to.
    pub service: ServiceId,
    /// Whether the request was sent or composed on an earlier link of the session. The callee may have received it on that link, and
    /// grants that it names ended with that link.
    pub resent: bool,
    /// Time left until the deadline when the request was sent, microseconds; 0 means no deadline. Time in flight is not subtracted, as
    /// the nodes share no clock.
    pub deadline_us: u32,
}

/// The kind of a message, with the fields that this kind has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A request, which gets exactly one reply or failure.
    Request {
        /// Id of the call.
        call: CallId,
        /// The callee's number for the message type.
        type_id: TypeId,
        /// Service that the message is addressed to.
        service: ServiceId,
        /// Whether the request was sent or composed on an earlier link of the session. The callee may have received it on that link, and
        /// grants that it names ended with that link.
        resent: bool,
        /// Time left until the deadline when the request was sent, microseconds; 0 means no deadline. Time in flight is not subtracted,
        /// as the nodes share no clock.
        deadline_us: u32,
    },
    /// A one-way message.
    Notification {
        /// The receiver's number for the message type.
        type_id: TypeId,
        /// Service that the message is addressed to.
        service: ServiceId,
    },
    /// The handler's reply.
    Reply {
        /// The call that this is the response to.
        call: CallId,
    },
    /// A response other than a reply.
    Failure {
        /// The call that this is the response to.
        call: CallId,
        /// The reason.
        code: FailureCode,
    },
    /// A message that the caller no longer waits for a call.
    Cancel {
        /// The cancelled call.
        call: CallId,
    },
    /// A message that carries only acknowledgements.
    Credit,
    /// A message without content, which shows that the sender is alive.
    Heartbeat,
    /// A message that the sender takes no new requests and will close the link once idle.
    Goodbye,
    /// A request for a larger window: the sender has used every credit of this connection.
    CreditRequest,
    /// A message that the window of this connection has grown.
    WindowUpdate {
        /// Number of requests and notifications that may be in flight now.
        requests: u16,
    },
    /// A message that the sender has nothing open, sends no request or notification before the answer, and wants to end the link.
    Pause,
    /// The answer to a [`Kind::Pause`] that the sender has nothing open either. The receiver ends the link.
    PauseAccepted,
    /// The answer to a [`Kind::Pause`] that the link stays.
    PauseDeclined,
}

const REQUEST: u8 = 1;
const NOTIFICATION: u8 = 2;
const REPLY: u8 = 3;
const FAILURE: u8 = 4;
const CANCEL: u8 = 5;
const CREDIT: u8 = 6;
const HEARTBEAT: u8 = 7;
const GOODBYE: u8 = 8;
const CREDIT_REQUEST: u8 = 9;
const WINDOW_UPDATE: u8 = 10;
const PAUSE: u8 = 11;
const PAUSE_ACCEPTED: u8 = 12;
const PAUSE_DECLINED: u8 = 13;

const FLAG_RESENT: u8 = 1;
/// The flags that hold the sender's pressure.
const PRESSURE_FLAGS: u8 = Pressure::MOST.as_bits() << PRESSURE_SHIFT;
const PRESSURE_SHIFT: u32 = 5;

const _: () = assert!(
    PRESSURE_FLAGS & FLAG_RESENT == 0 && PRESSURE_FLAGS >> PRESSURE_SHIFT == Pressure::MOST.as_bits()
);

/// Returns whether headers of this kind may have the sender's pressure: messages of programs, not those of the protocol itself.
const fn carries_pressure(kind: u8) -> bool {
    REQUEST <= kind && kind <= FAILURE
}

const CALL_FIELDS: u8 = 1;
const TYPE_FIELD: u8 = 2;
const SERVICE_FIELD: u8 = 4;
const DEADLINE_FIELD: u8 = 8;

/// Returns the mask of fields that a kind uses, apart from acknowledgements and flags.
const fn fields_of(kind: u8) -> u8 {
    match kind {
        REQUEST => CALL_FIELDS | TYPE_FIELD | SERVICE_FIELD | DEADLINE_FIELD,
        NOTIFICATION => TYPE_FIELD | SERVICE_FIELD,
        REPLY | CANCEL => CALL_FIELDS,
        // The service field holds the code.
        FAILURE => CALL_FIELDS | SERVICE_FIELD,
        // The service field holds the number.
        WINDOW_UPDATE => SERVICE_FIELD,
        _ => 0,
    }
}

/// Returns the header's second word for a call, with service 0.
#[inline(always)]
fn call_word(call: CallId) -> u64 {
    u64::from(call.generation) | u64::from(call.slot) << 32
}

/// Returns the header's third word.
#[inline(always)]
fn last_word(Acks { received, returned }: Acks, deadline_us: u32) -> u64 {
    u64::from(received) | u64::from(returned) << 16 | u64::from(deadline_us) << 32
}

/// The first words of the headers that a side sends, by kind, without the type: the kind, and this side's pressure in the flags. Composed
/// when the pressure changes, so that a header with pressure takes no more instructions than one without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstWords {
    request: u64,
    notification: u64,
    reply: u64,
    flags: u64,
}

impl FirstWords {
    /// The first words of headers without pressure.
    pub const PLAIN: Self = Self::with(Pressure::NONE);

    /// Returns the first words of headers with this pressure.
    pub const fn with(pressure: Pressure) -> Self {
        let flags = (pressure.as_bits() as u64) << PRESSURE_SHIFT << 40;
        Self {
            request: (REQUEST as u64) << 32 | flags,
            notification: (NOTIFICATION as u64) << 32 | flags,
            reply: (REPLY as u64) << 32 | flags,
            flags,
        }
    }
}

/// A checked header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind of the message.
    pub kind: Kind,
    /// The sender's acknowledgements.
    pub acks: Acks,
}

/// An error of a header. Always the peer's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HeaderFault {
    /// The kind byte is unknown.
    #[error("unknown kind of message {0}")]
    UnknownKind(u8),
    /// The kind does not allow these flags.
    #[error("kind {kind} with illegal flags {flags:#04x}")]
    IllegalFlags {
        /// The kind byte.
        kind: u8,
        /// The flags byte.
        flags: u8,
    },
    /// The failure code is unknown.
    #[error("unknown failure code {0}")]
    UnknownFailure(u16),
    /// A field that the kind does not use is not zero.
    #[error("kind {0} with a field set that the kind does not use")]
    StrayField(u8),
    /// The kind does not allow a payload.
    #[error("kind {kind} with {len} bytes of payload")]
    StrayPayload {
        /// The kind byte.
        kind: u8,
        /// Payload length, bytes.
        len: usize,
    },
}

impl Header {
    /// Checks the header of a message whose payload is `payload_len` bytes long.
    #[inline]
    pub fn check(raw: &RawHeader, payload_len: usize) -> Result<Self, HeaderFault> {
        let call = CallId { slot: raw.slot.get(), generation: raw.generation.get() };
        if let Some(Request { call, type_id, service, resent, deadline_us }) = raw.as_request() {
            let kind = Kind::Request { call, type_id, service, resent, deadline_us };
            return Ok(Self { kind, acks: raw.acks() });
        }
        let kind = match raw.kind {
            REPLY if raw.flags == 0 && raw.fields() & !CALL_FIELDS == 0 => Kind::Reply { call },
            _ => Self::check_other(raw, call, payload_len)?,
        };
        Ok(Self { kind, acks: raw.acks() })
    }

    #[inline(never)]
    fn check_other(raw: &RawHeader, call: CallId, payload_len: usize) -> Result<Kind, HeaderFault> {
        if !(REQUEST..=PAUSE_DECLINED).contains(&raw.kind) {
            return Err(HeaderFault::UnknownKind(raw.kind));
        }
        if raw.flags != 0 {
            return Err(HeaderFault::IllegalFlags { kind: raw.kind, flags: raw.flags });
        }
        let kind = match raw.kind {
            NOTIFICATION => Kind::Notification {
                type_id: TypeId(raw.type_id.get()),
                service: ServiceId(raw.service.get()),
            },
            FAILURE => {
                let code = raw.service.get();
                Kind::Failure {
                    call,
                    code: FailureCode::from_wire(code).ok_or(HeaderFault::UnknownFailure(code))?,
                }
            }
            CANCEL => Kind::Cancel { call },
            CREDIT => Kind::Credit,
            HEARTBEAT => Kind::Heartbeat,
            GOODBYE => Kind::Goodbye,
            CREDIT_REQUEST => Kind::CreditRequest,
            WINDOW_UPDATE => Kind::WindowUpdate { requests: raw.service.get() },
            PAUSE => Kind::Pause,
            PAUSE_ACCEPTED => Kind::PauseAccepted,
            PAUSE_DECLINED => Kind::PauseDeclined,
            // A reply with a field set that replies do not use.
            _ => return Err(HeaderFault::StrayField(raw.kind)),
        };
        if (CANCEL..=PAUSE_DECLINED).contains(&raw.kind) && payload_len != 0 {
            return Err(HeaderFault::StrayPayload { kind: raw.kind, len: payload_len });
        }
        // Unused fields must be zero, so that a later version can give them a meaning.
        if raw.fields() & !fields_of(raw.kind) != 0 {
            return Err(HeaderFault::StrayField(raw.kind));
        }
        Ok(kind)
    }

    /// Returns the header in wire format, with a zero fabric word and without pressure.
    #[inline]
    pub fn emit(&self) -> RawHeader {
        self.emit_with(&FirstWords::PLAIN)
    }

    /// Returns the header in wire format, with a zero fabric word, and the pressure of `first` if its kind may have one.
    ///
    /// Composes three words instead of single fields: a copy of the header reads words, and reading a word that was written
    /// in pieces stalls store forwarding.
    #[inline]
    pub fn emit_with(&self, first: &FirstWords) -> RawHeader {
        let type_field = |type_id: TypeId| u64::from(type_id.0) << 48;
        let service_field = |service: u16| u64::from(service) << 48;
        let (first, call, deadline_us) = match self.kind {
            Kind::Request { call, type_id, service, resent, deadline_us } => {
                let flags = if resent { u64::from(FLAG_RESENT) << 40 } else { 0 };
                let first = first.request | flags | type_field(type_id);
                (first, call_word(call) | service_field(service.0), deadline_us)
            }
            Kind::Notification { type_id, service } => {
                (first.notification | type_field(type_id), service_field(service.0), 0)
            }
            Kind::Reply { call } => (first.reply, call_word(call), 0),
            Kind::Failure { call, code } => {
                (u64::from(FAILURE) << 32 | first.flags, call_word(call) | service_field(code as u16), 0)
            }
            Kind::Cancel { call } => (u64::from(CANCEL) << 32, call_word(call), 0),
            Kind::Credit => (u64::from(CREDIT) << 32, 0, 0),
            Kind::Heartbeat => (u64::from(HEARTBEAT) << 32, 0, 0),
            Kind::Goodbye => (u64::from(GOODBYE) << 32, 0, 0),
            Kind::CreditRequest => (u64::from(CREDIT_REQUEST) << 32, 0, 0),
            Kind::WindowUpdate { requests } => (u64::from(WINDOW_UPDATE) << 32, service_field(requests), 0),
            Kind::Pause => (u64::from(PAUSE) << 32, 0, 0),
            Kind::PauseAccepted => (u64::from(PAUSE_ACCEPTED) << 32, 0, 0),
            Kind::PauseDeclined => (u64::from(PAUSE_DECLINED) << 32, 0, 0),
        };
        RawHeader::of_words(first, call, last_word(self.acks, deadline_us))
    }
}

#[cfg(test)]
mod tests;
