//! Code of the kernel that system calls of a thread reach (KCOV; Linux, Documentation/dev-tools/kcov.rst).
//!
//! The kernel of `cargo xtask lab --debug-kernel` has it, for the code of the module only.

use core::num::NonZero;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::Command;

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

const FILE: &str = "/sys/kernel/debug/kcov";

/// Requests of the file (include/uapi/linux/kcov.h): make a buffer of that many words, begin to record, end it.
const INIT_TRACE: libc::c_ulong = 0x8008_6301;
const ENABLE: libc::c_ulong = 0x6364;
const DISABLE: libc::c_ulong = 0x6365;

/// Mode of recording: addresses of executed code.
const TRACE_PC: libc::c_ulong = 0;

/// Words of the buffer; the first one is the number of addresses.
const WORDS: usize = 4096;

/// Records the code that the calling thread reaches.
pub(crate) struct Coverage {
    file: File,
    buffer: core::ptr::NonNull<u64>,
}

impl Coverage {
    /// Begins to record for the calling thread; `None` if the kernel cannot do it.
    pub(crate) fn begin() -> Option<Self> {
        if !Path::new(FILE).exists() {
            // Fails if it is mounted already.
            let _mounted =
                Command::new("mount").args(["-t", "debugfs", "none", "/sys/kernel/debug"]).output();
        }
        let file = File::options().read(true).write(true).open(FILE).ok()?;
        request(&file, INIT_TRACE, WORDS as libc::c_ulong);
        let length = NonZero::new(WORDS * size_of::<u64>()).unwrap();
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let buffer = unsafe {
            mmap(None, length, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED, &file, 0)
        };
        let coverage = Self { file, buffer: buffer.unwrap().cast() };
        request(&coverage.file, ENABLE, TRACE_PC);
        Some(coverage)
    }

    /// Calls `work`, and returns its result and the addresses that it has reached.
    pub(crate) fn of<R>(&self, work: impl FnOnce() -> R) -> (R, Vec<u64>) {
        self.set_count(0);
        let result = work();
        let count = usize::try_from(self.word(0)).unwrap().min(WORDS - 1);
        (result, (1..=count).map(|at| self.word(at)).collect())
    }

    fn word(&self, at: usize) -> u64 {
        assert!(at < WORDS);
        // SAFETY: the mapping has `WORDS` words.
        let place = unsafe { self.buffer.add(at) };
        // SAFETY: the mapping exists as long as `self`. The kernel writes to it only during system calls of this thread, since the pointer
        // keeps the type on its thread.
        unsafe { place.read_volatile() }
    }

    fn set_count(&self, count: u64) {
        // SAFETY: as in `word`.
        unsafe { self.buffer.write_volatile(count) }
    }
}

impl Drop for Coverage {
    fn drop(&mut self) {
        request(&self.file, DISABLE, 0);
        // SAFETY: the mapping was made in `begin`, and no reference to it is left.
        unsafe { munmap(self.buffer.cast(), WORDS * size_of::<u64>()) }.unwrap();
    }
}

fn request(file: &File, number: libc::c_ulong, argument: libc::c_ulong) {
    // SAFETY: these requests take numbers, not addresses.
    let result = nix::errno::Errno::result(unsafe { libc::ioctl(file.as_raw_fd(), number, argument) });
    result.unwrap();
}
