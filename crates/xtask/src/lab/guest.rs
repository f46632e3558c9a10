//! The protocol between the host and the guest's first process (lab/init) on the control port.
//!
//! The host sends fields that each end with a zero byte: the number of shared folders, and for each its mode (`ro,...` or `rw`) and
//! its path; the folder in which the command starts; the number of variables, and each as `NAME=value`; the number of words of the
//! command, and the words. After a time-out it sends [`TRACE`]. The guest replies with lines.

use std::path::{Path, PathBuf};

/// The request to write to the console which programs run and where they wait.
pub(super) const TRACE: &[u8] = b"trace\0";

/// A command for the guest.
#[derive(Debug, Default)]
pub(super) struct Request {
    /// Folders of the host, in the order in which they are mounted, at their own paths.
    pub(super) shares: Vec<Share>,
    /// The folder in which the command starts.
    pub(super) folder: PathBuf,
    /// Environment variables, `NAME=value`.
    pub(super) variables: Vec<String>,
    /// The program and its arguments.
    pub(super) words: Vec<String>,
}

/// A folder of the host that the guest can access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) folder: PathBuf,
    pub(super) access: Access,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// A message of the guest.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// The command starts. Contains the guest's clock, in seconds since it booted.
    Started(String),
    /// The command ended with this code.
    Exited(u8),
    /// The guest could not execute the request.
    Failed(String),
}

impl Request {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut field = |text: &[u8]| {
            bytes.extend_from_slice(text);
            bytes.push(0);
        };
        let path = |path: &Path| path.as_os_str().as_encoded_bytes().to_vec();
        field(self.shares.len().to_string().as_bytes());
        for share in &self.shares {
            field(share.access.options().as_bytes());
            field(&path(&share.folder));
        }
        field(&path(&self.folder));
        for list in [&self.variables, &self.words] {
            field(list.len().to_string().as_bytes());
            list.iter().for_each(|text| field(text.as_bytes()));
        }
        bytes
    }
}

impl Access {
    /// Returns the mount options. A read-only folder may be cached in the guest's memory.
    fn options(self) -> &'static str {
        match self {
            Self::Read => "ro,cache=loose",
            Self::Write => "rw",
        }
    }
}

impl Report {
    /// Parses a line. Returns `None` for other lines.
    pub(super) fn read(line: &str) -> Option<Self> {
        match line.split_once(' ')? {
            ("started", uptime) => Some(Self::Started(uptime.to_owned())),
            ("exit", code) => code.parse().ok().map(Self::Exited),
            ("failed", why) => Some(Self::Failed(why.to_owned())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_sent_unchanged() {
        let share = Share { folder: "/a b".into(), access: Access::Write };
        let words = ["sh", "-c", "echo \"x\ny\"", ""].map(str::to_owned).to_vec();
        let request = Request { shares: vec![share], folder: "/a b".into(), variables: Vec::new(), words };
        assert_eq!(request.encode(), b"1\0rw\0/a b\0/a b\x000\x004\0sh\0-c\0echo \"x\ny\"\0\0");
    }

    #[test]
    fn lines_of_the_guest_are_parsed() {
        assert_eq!(Report::read("exit 3"), Some(Report::Exited(3)));
        assert_eq!(Report::read("started 4.20"), Some(Report::Started("4.20".to_owned())));
        assert_eq!(Report::read("exit 300"), None);
        assert_eq!(Report::read("hello"), None);
    }
}
