//! BPF programs of `kernel/`: opened from their object files, loaded, and attached. libbpf is opened at run time, so no build needs it.
//!
//! [`open`] checks what a machine needs, and names what is missing. The maps of an [`Object`] are set before [`Object::load`]; then it is
//! attached. Programs are detached when [`Attached`] is dropped, and also if the process is killed.
#![deny(unsafe_code)]

mod libbpf;
pub mod wakeups;

use std::path::{Path, PathBuf};

use nix::errno::Errno;

use libbpf::{Libbpf, NotOpened, Unusable};

pub use libbpf::{Attached, Fault, Iterator, Map, Object};

/// Type data of the kernel, without which no BPF program can be adapted to it.
const TYPES: &str = "/sys/kernel/btf/vmlinux";

/// Messages of libbpf, among them those of the kernel's verifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Messages {
    /// They are printed on standard error.
    Shown,
    /// They are not printed.
    Hidden,
}

/// Reason why an object file cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The kernel was built without type data.
    #[error("this kernel has no type data in {TYPES} (CONFIG_DEBUG_INFO_BTF)")]
    NoTypes,
    /// The library is not installed.
    #[error("libbpf.so.1 is missing: install libbpf (Debian: libbpf1)")]
    NoLibbpf,
    /// The library lacks a function.
    #[error("libbpf is too old: it has no function {0}")]
    OldLibbpf(&'static str),
    /// The file cannot be opened.
    #[error("cannot open {}: {errno} (`make -C {folder} install` builds it for the running kernel)", path.display())]
    NoObject {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        errno: Errno,
        /// Folder of its sources.
        folder: &'static str,
    },
    /// The file is not an object of BPF programs.
    #[error("{} is not a BPF program: {fault} (`make -C {folder} install` builds one)", path.display())]
    Invalid {
        /// Path of the file.
        path: PathBuf,
        /// Its fault.
        fault: Fault,
        /// Folder of its sources.
        folder: &'static str,
    },
    /// The file has another BPF program, or one for another version of the program that opens it.
    #[error("{} is another BPF program, or was built from other sources than this program: build it again (`make -C {folder} install`)", path.display())]
    OtherVersion {
        /// Path of the file.
        path: PathBuf,
        /// Folder of its sources.
        folder: &'static str,
    },
}

/// Reason why the kernel does not load an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// This process may not load BPF programs.
    #[error(
        "this process may not load BPF programs: it needs root, or CAP_BPF and CAP_PERFMON, and no kernel lockdown"
    )]
    NotPermitted,
    /// The kernel's verifier rejects it.
    #[error("the kernel rejects the BPF program: {0}")]
    Rejected(Errno),
}

/// Opens the object file of the programs whose sources are in `folder`, a folder of this workspace.
///
/// # Errors
/// The kernel has no type data, libbpf is missing or too old, or the file is missing or invalid.
pub fn open(file: &Path, folder: &'static str, messages: Messages) -> Result<Object, OpenError> {
    if !Path::new(TYPES).exists() {
        return Err(OpenError::NoTypes);
    }
    let library = Libbpf::open().map_err(|unusable| match unusable {
        Unusable::Missing => OpenError::NoLibbpf,
        Unusable::TooOld(function) => OpenError::OldLibbpf(function),
    })?;
    if messages == Messages::Hidden {
        library.silence();
    }
    library.open_object(file).map_err(|why| match why {
        NotOpened::System(errno) => OpenError::NoObject { path: file.into(), errno, folder },
        NotOpened::Invalid(fault) => OpenError::Invalid { path: file.into(), fault, folder },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let refused = open(Path::new("/nowhere.bpf.o"), "kernel/queues", Messages::Hidden).unwrap_err();
        match &refused {
            OpenError::NoTypes | OpenError::NoLibbpf | OpenError::OldLibbpf(_) => {
                pronto_skip::because(&format!("no file is opened: {refused}"));
            }
            OpenError::NoObject { errno, .. } => {
                assert_eq!(*errno, Errno::ENOENT);
                assert!(refused.to_string().contains("make -C kernel/queues install"), "{refused}");
            }
            other => panic!("{other:?}"),
        }
    }
}
