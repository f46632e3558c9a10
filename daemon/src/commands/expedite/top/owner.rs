//! Owners of the rows of the table: threads, and the processes, users and control groups to which they belong.

use std::fs;

use crate::commands::printable;

/// Kind of the owner of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Thread,
    Process,
    User,
    Cgroup,
}

impl By {
    pub(super) const ALL: [Self; 4] = [Self::Thread, Self::Process, Self::User, Self::Cgroup];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Thread => "thread",
            Self::Process => "process",
            Self::User => "user",
            Self::Cgroup => "cgroup",
        }
    }
}

/// A thread, or to whom it belongs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    Thread {
        pid: u32,
        tid: i32,
        name: String,
    },
    Process {
        pid: u32,
        name: String,
    },
    User {
        uid: u32,
    },
    /// A control group, by its path below the root of all groups that this process sees.
    Cgroup(String),
}

impl Owner {
    /// Returns the owner of a thread, from `/proc`; `None` if the thread has ended.
    pub(super) fn of(pid: u32, tid: i32, by: By) -> Option<Self> {
        let of_thread = |file: &str| fs::read(format!("/proc/{pid}/task/{tid}/{file}")).ok();
        Some(match by {
            By::Thread => Self::Thread { pid, tid, name: printable(&of_thread("comm")?) },
            By::Process => {
                Self::Process { pid, name: printable(&fs::read(format!("/proc/{pid}/comm")).ok()?) }
            }
            By::User => Self::User { uid: real_user(&String::from_utf8_lossy(&of_thread("status")?))? },
            By::Cgroup => {
                Self::Cgroup(printable(cgroup(&String::from_utf8_lossy(&of_thread("cgroup")?)).as_bytes()))
            }
        })
    }
}

/// Returns the payer for the boosts of a thread, from its file `status`: the real user id, the first one.
fn real_user(status: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().next()?.parse().ok()
}

/// Returns the control group of a thread, from its file `cgroup`: that of version 2, or that of the CPU controller of version 1 if the
/// former is the root. `man 7 cgroups` describes the file.
fn cgroup(text: &str) -> &str {
    let groups = || {
        text.lines().filter_map(|line| {
            let (_, rest) = line.split_once(':')?;
            rest.split_once(':')
        })
    };
    let unified = groups().find(|(controllers, path)| controllers.is_empty() && *path != "/");
    let of_cpu = || groups().find(|(controllers, _)| controllers.split(',').any(|name| name == "cpu"));
    unified.or_else(of_cpu).map_or("/", |(_, path)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_control_the_terminal() {
        assert_eq!(printable(b"\x1b[2Jcat\xff\n"), "?[2Jcat\u{fffd}");
    }

    #[test]
    fn the_group_is_that_of_version_2_or_of_the_cpu_controller() {
        assert_eq!(cgroup("0::/system.slice/redis.service\n"), "/system.slice/redis.service");
        let both = "7:cpu,cpuacct:/batch\n1:name=systemd:/user.slice\n0::/user.slice:a\n";
        assert_eq!(cgroup(both), "/user.slice:a");
        assert_eq!(cgroup("7:cpu,cpuacct:/batch\n3:memory:/other\n0::/\n"), "/batch");
        assert_eq!((cgroup("0::/\n"), cgroup("")), ("/", "/"));
    }

    #[test]
    fn the_user_is_the_real_one() {
        assert_eq!(real_user("Name:\tx\nUid:\t1000\t0\t0\t0\n"), Some(1000));
        assert_eq!(real_user("Name:\tx\n"), None);
    }

    #[test]
    fn this_thread_has_owners() {
        let pid = std::process::id();
        for by in By::ALL {
            let owner = Owner::of(pid, pid.cast_signed(), by).expect("it has not ended");
            let is_it = match (&owner, by) {
                (Owner::Thread { pid: its, tid, name }, By::Thread) => {
                    *its == pid && tid.cast_unsigned() == pid && !name.is_empty()
                }
                (Owner::Process { pid: its, name }, By::Process) => *its == pid && !name.is_empty(),
                (Owner::User { .. }, By::User) => true,
                (Owner::Cgroup(path), By::Cgroup) => path.starts_with('/'),
                _ => false,
            };
            assert!(is_it, "{owner:?}");
        }
    }
}
