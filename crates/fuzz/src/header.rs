//! The header of a message.

use pronto_wire::{HEADER_LEN, Header, RawHeader};

/// A header that passes the check is emitted as the bytes it came from, but for the provider's fabric word. What follows
/// the header in `input` is the payload.
pub fn header(input: &[u8]) {
    let Some((bytes, payload)) = input.split_first_chunk::<HEADER_LEN>() else { return };
    if let Ok(header) = Header::check(&RawHeader::from_array(*bytes), payload.len()) {
        assert_eq!(header.emit().as_array()[4..], bytes[4..], "{header:?}");
    }
}
