//! The header of a message.

use pronto_wire::{FirstWords, HEADER_LEN, Header, RawHeader};

/// Checks that a valid header is encoded as the bytes that it was decoded from, except the provider's fabric word. The
/// bytes after the header in `input` are the payload. A header with pressure is valid only without it, and is encoded again with it.
pub fn header(input: &[u8]) {
    let Some((bytes, payload)) = input.split_first_chunk::<HEADER_LEN>() else { return };
    let raw = RawHeader::from_array(*bytes);
    let (plain, first) = match raw.split_pressure() {
        Some((pressure, plain)) => {
            assert!(Header::check(&raw, payload.len()).is_err(), "{raw:?}");
            (plain, FirstWords::with(pressure))
        }
        None => (raw, FirstWords::PLAIN),
    };
    if let Ok(header) = Header::check(&plain, payload.len()) {
        assert_eq!(header.emit_with(&first).as_array()[4..], bytes[4..], "{header:?}");
    }
}
