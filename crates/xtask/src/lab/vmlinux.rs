//! Unpacks the kernel from Debian's compressed image. QEMU starts it directly (PVH), because unpacking it in the guest would take
//! seconds under emulation. Documentation/arch/x86/boot.rst describes the layout.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// Compression formats of a kernel: the first bytes, and the program that unpacks it.
const FORMATS: &[(&[u8], &str)] =
    &[(b"\x28\xb5\x2f\xfd", "zstd"), (b"\xfd7zXZ\0", "xz"), (b"\x1f\x8b", "gzip")];

/// Size of the length that the kernel's build appends for all formats except gzip, bytes.
const LENGTH: usize = 4;

/// Writes the kernel in `image` (a bzImage) to `vmlinux`; `scratch` is a folder for intermediate files.
///
/// # Errors
/// The file is not a kernel image, or its compression is not supported.
pub(super) fn extract(image: &Path, scratch: &Path, vmlinux: &Path) -> Result<()> {
    let bytes = std::fs::read(image).with_context(|| format!("cannot read {}", image.display()))?;
    let (program, payload) = payload(&bytes).with_context(|| format!("in {}", image.display()))?;
    let packed = scratch.join("payload");
    std::fs::write(&packed, payload)?;
    let status = Command::new(program)
        .args(["-d", "-c"])
        .stdin(File::open(&packed)?)
        .stdout(File::create(vmlinux)?)
        .stderr(Stdio::inherit())
        .status()
        .with_context(|| format!("cannot start {program}"))?;
    ensure!(status.success(), "{program} could not unpack the kernel");
    let mut magic = [0; 4];
    std::io::Read::read_exact(&mut File::open(vmlinux)?, &mut magic)?;
    ensure!(&magic == b"\x7fELF", "the content of the kernel image is not an ELF file");
    Ok(())
}

/// Returns the program that unpacks the compressed kernel in an image, and the compressed kernel.
fn payload(image: &[u8]) -> Result<(&'static str, &[u8])> {
    let field = |at: usize| -> Option<usize> {
        let bytes = image.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    ensure!(image.get(0x202..0x206) == Some(b"HdrS"), "not a kernel image");
    let sectors = match image[0x1f1] {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let found = field(0x248).zip(field(0x24c)).and_then(|(offset, length)| {
        let start = (sectors + 1) * 512 + offset;
        image.get(start..start.checked_add(length)?)
    });
    let payload = found.context("the image ends before its kernel")?;
    let Some((_, program)) = FORMATS.iter().find(|(magic, _)| payload.starts_with(magic)) else {
        bail!("the compression of the kernel is not supported");
    };
    let trailer = if *program == "gzip" { 0 } else { LENGTH };
    Ok((program, &payload[..payload.len().saturating_sub(trailer)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 1024 + 16];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x248..0x24c].copy_from_slice(&16_u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
        image.extend_from_slice(payload);
        image
    }

    #[test]
    fn the_payload_is_found_without_its_length() {
        let image = image(b"\x28\xb5\x2f\xfdkernel\x01\x02\x03\x04");
        assert_eq!(payload(&image).unwrap(), ("zstd", &b"\x28\xb5\x2f\xfdkernel"[..]));
    }

    #[test]
    fn invalid_images_are_errors() {
        assert!(payload(b"MZ").is_err());
        assert!(payload(&image(b"plain")).is_err());
        let cut = image(b"\x28\xb5\x2f\xfdkernel");
        assert!(payload(&cut[..cut.len() - 1]).is_err());
    }
}
