//! Soft-RoCE nodes, and completion channels without a library.

use std::fs::File;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::process::Command;

use crate::program::run;

/// Commands of a device file of RDMA (`include/uapi/rdma/ib_user_verbs.h`).
const GET_CONTEXT: u32 = 0;
const CREATE_COMP_CHANNEL: u32 = 17;

#[expect(clippy::disallowed_types, reason = "the kernel needs the address of the word")]
type Word = core::sync::atomic::AtomicU64;

/// Makes a request of a device that has no arguments. Returns the first 32 bits of the response: a descriptor.
fn request(device: &File, command: u32) -> OwnedFd {
    let response = Word::new(0);
    let words = |bytes: usize| u16::try_from(bytes / 4).unwrap().to_ne_bytes();
    let address = response.as_ptr().expose_provenance() as u64;
    let mut request = command.to_ne_bytes().to_vec();
    // The length of the request, with this header, and that of the response.
    request.extend(words(16));
    request.extend(words(size_of::<Word>()));
    request.extend(address.to_ne_bytes());
    assert_eq!(nix::unistd::write(device, &request), Ok(request.len()));
    let [a, b, c, d, ..] = response.load(pronto_sync::atomic::Ordering::Acquire).to_ne_bytes();
    // SAFETY: the kernel created the descriptor for this function.
    unsafe { OwnedFd::from_raw_fd(i32::from_ne_bytes([a, b, c, d])) }
}

/// Two nodes, and an open device of the first. The nodes end when this is dropped; completion channels must have been closed before.
pub(crate) struct Rdma {
    /// The device, and its events. Closed before the nodes end, which wait for that.
    open: Option<(File, OwnedFd)>,
}

impl Rdma {
    pub(crate) fn start() -> Self {
        run(Command::new("lab-nodes").arg("2"));
        let device = File::options().read(true).write(true).open("/dev/infiniband/uverbs0").unwrap();
        let events = request(&device, GET_CONTEXT);
        Self { open: Some((device, events)) }
    }

    pub(crate) fn completion_channel(&self) -> OwnedFd {
        let (device, _) = self.open.as_ref().unwrap();
        request(device, CREATE_COMP_CHANNEL)
    }
}

impl Drop for Rdma {
    fn drop(&mut self) {
        self.open = None;
        run(Command::new("lab-nodes").arg("0"));
    }
}
