//! Reasons why the kernel does not permit access to the files of another process.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use nix::errno::Errno;

use crate::process::Process;

/// Rule of the kernel by which this process may not duplicate the descriptors of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Denial {
    /// The process belongs to this other user.
    #[error(
        "it belongs to user id {0}, and only that user and root have access: run this as that user, or as root"
    )]
    OtherUser(u32),
    /// The process protects its memory and its descriptors.
    #[error(
        "it protects itself (its program cannot be read, or has changed its user), so only root has access: run this as root"
    )]
    NotDumpable,
    /// `kernel.yama.ptrace_scope` is not 0. The number is its value.
    #[error("{}", of_scope(*.0))]
    PtraceScope(u8),
    /// A filter of system calls rejects the call, also for files of this process itself.
    #[error(
        "pidfd_open or pidfd_getfd fails with {0} even for files of the caller, so a filter of system calls (seccomp) rejects it, as in a container: \
         permit pidfd_open and pidfd_getfd in the container's profile, or run this outside of the container"
    )]
    Filtered(Errno),
    /// Another rule: capabilities, or a security module.
    #[error(
        "it has capabilities that this process lacks, or a security module (AppArmor, SELinux) forbids it: run this as root with \
         CAP_SYS_PTRACE, and outside of a container"
    )]
    Privileged,
}

/// Returns the text for a value of `kernel.yama.ptrace_scope`, as in the kernel's `Documentation/admin-guide/LSM/Yama.rst`.
const fn of_scope(scope: u8) -> &'static str {
    match scope {
        1 => {
            "kernel.yama.ptrace_scope=1 permits access only to processes that the caller has started: start the program with pronto \
             expedite run, run this as root, or permit it (sysctl kernel.yama.ptrace_scope=0)"
        }
        2 => {
            "kernel.yama.ptrace_scope=2 permits access only with CAP_SYS_PTRACE: run this as root, or permit it (sysctl \
             kernel.yama.ptrace_scope=0)"
        }
        _ => {
            "kernel.yama.ptrace_scope=3 forbids access to everybody until the next boot: let the program set its flags itself, with \
             LD_PRELOAD=libexpedite.so, or boot with another value"
        }
    }
}

impl Denial {
    /// Returns the rule by which the kernel did not permit access to a process. `errno` is what it returned.
    pub(crate) fn of(pid: u32, errno: Errno) -> Self {
        if let Err(errno @ (Errno::EPERM | Errno::EACCES | Errno::ENOSYS)) = Process::try_own_files() {
            return Self::Filtered(errno);
        }
        let (Some(own), Some(its)) = (user_ids("self"), user_ids(&pid.to_string())) else {
            return if errno == Errno::ENOSYS { Self::Filtered(errno) } else { Self::Privileged };
        };
        // The kernel compares the caller's real user id with all ids of the process (`__ptrace_may_access`).
        if let Some(other) = its.into_iter().find(|id| *id != own[REAL]) {
            return Self::OtherUser(other);
        }
        // This folder of a process that is not dumpable belongs to root.
        if fs::metadata(format!("/proc/{pid}/fd")).is_ok_and(|folder| folder.uid() != its[EFFECTIVE]) {
            return Self::NotDumpable;
        }
        match ptrace_scope() {
            Some(scope @ 1..) => Self::PtraceScope(scope),
            _ => Self::Privileged,
        }
    }
}

/// Places of the ids in the line `Uid:` of `/proc/PID/status`.
const REAL: usize = 0;
const EFFECTIVE: usize = 1;

/// Returns the real, effective and saved user id of a process.
fn user_ids(process: &str) -> Option<[u32; 3]> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let mut ids = line.split_whitespace().map_while(|id| id.parse().ok());
    Some([ids.next()?, ids.next()?, ids.next()?])
}

/// Returns the value of `kernel.yama.ptrace_scope`; `None` if the kernel has no such rule.
fn ptrace_scope() -> Option<u8> {
    fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_user_ids_are_read() {
        let [real, effective, saved] = user_ids("self").unwrap();
        assert_eq!((real, effective), (saved, saved));
        assert_eq!(user_ids("2147483647"), None);
    }

    #[test]
    fn every_denial_suggests_an_action() {
        let scopes = (1..=3).map(Denial::PtraceScope);
        let others =
            [Denial::OtherUser(1), Denial::NotDumpable, Denial::Filtered(Errno::EPERM), Denial::Privileged];
        for denial in scopes.chain(others) {
            let text = denial.to_string();
            let (reason, action) = text.rsplit_once(": ").unwrap_or((&text, ""));
            assert!(!reason.is_empty(), "{text}");
            let verbs = ["run ", "start ", "let ", "permit "];
            assert!(verbs.iter().any(|verb| action.starts_with(verb)), "{text}");
        }
    }
}
