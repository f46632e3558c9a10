//! A program that sets flags of a socket with `fcntl`, as programs of the paper do.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;

/// `O_EXPEDITE` of `kernel/expedite/expedite.h`.
pub(crate) const O_EXPEDITE: i32 = 0x2000_0000;

/// Variable that is set in the process with the library.
const INSIDE: &str = "PRONTO_UNDER_PRELOAD";

/// A connection: messages from the first to the second end.
pub(crate) struct Ends {
    #[allow(dead_code, reason = "not every test sends messages")]
    pub(crate) sender: OwnedFd,
    pub(crate) receiver: OwnedFd,
}

impl Ends {
    /// Returns the flags of the receiving end.
    pub(crate) fn flags(&self) -> Result<i32, i32> {
        // SAFETY: the call takes numbers only.
        result(unsafe { libc::fcntl(self.receiver.as_raw_fd(), libc::F_GETFL) })
    }

    pub(crate) fn set_flags(&self, flags: i32) -> Result<(), i32> {
        // SAFETY: the call takes numbers only.
        result(unsafe { libc::fcntl(self.receiver.as_raw_fd(), libc::F_SETFL, flags) }).map(drop)
    }
}

fn result(result: i32) -> Result<i32, i32> {
    if result == -1 { Err(std::io::Error::last_os_error().raw_os_error().unwrap()) } else { Ok(result) }
}

/// Returns whether this is the process with the library.
#[allow(dead_code, reason = "not every test has to know")]
pub(crate) fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Runs `work` in a process of its own that has loaded the library. `test` is the name of the calling test.
pub(crate) fn under_preload(test: &str, work: impl FnOnce(&Ends)) {
    if is_inside() {
        let (receiver, sender) = UnixStream::pair().unwrap();
        return work(&Ends { sender: sender.into(), receiver: receiver.into() });
    }
    let program = std::env::current_exe().unwrap();
    // cargo builds it for the tests, in the folder of the test programs.
    let library = program.parent().unwrap().join("libexpedite.so");
    assert!(library.exists(), "{}: build it with cargo build -p pronto-expedite-preload", library.display());
    let mut inside = Command::new(program);
    inside
        .args(["--exact", "--include-ignored", "--nocapture", test])
        .env(INSIDE, "1")
        .env("LD_PRELOAD", library);
    let output = inside.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "{text}");
}
