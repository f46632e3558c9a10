//! The header of a message.

use pronto_wire::{HEADER_LEN, Header, RawHeader};

/// Checks that a valid header is encoded as the bytes that it was decoded from, except the provider's fabric word. The
/// bytes after the header in `input` are the payload.
pub fn header(input: &[u8]) {
    let Some((bytes, payload)) = input.split_first_chunk::<HEADER_LEN>() else { return };
    if let Ok(header) = Header::check(&RawHeader::from_array(*bytes), payload.len()) {
        assert_eq!(header.emit().as_array()[4..], bytes[4..], "{header:?}");
    }
}
