//! Random bytes from the kernel, for keys and tokens. Not used on the path of a message.

use std::fs::File;
use std::io::{self, Read as _};

use pronto_core::fabric::FabricError;

/// Returns unpredictable bytes.
pub(crate) fn random_bytes<const N: usize>() -> Result<[u8; N], FabricError> {
    let refused = |error: io::Error| FabricError::System { errno: error.raw_os_error().unwrap_or(0) };
    let mut bytes = [0; N];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)).map_err(refused)?;
    Ok(bytes)
}
