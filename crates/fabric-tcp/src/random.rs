//! Random bytes from the kernel, for keys and tokens. Not used on the path of a message.

use pronto_core::fabric::FabricError;

/// Returns unpredictable bytes.
pub(crate) fn random_bytes<const N: usize>() -> Result<[u8; N], FabricError> {
    let refused = |error: getrandom::Error| FabricError::System { errno: error.raw_os_error().unwrap_or(0) };
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(refused)?;
    Ok(bytes)
}
