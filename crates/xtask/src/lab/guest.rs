//! What the host and the guest's first process (lab/init) say to each other over the control port.
//!
//! The host sends fields that each end with a zero byte: how many folders are shared, for each its mode (`ro,...` or
//! `rw`) and its path; the folder to start in; how many variables, each as `NAME=value`; how many words, the words. When
//! the time is up it sends [`TRACE`]. The guest answers with lines.

use std::path::{Path, PathBuf};

/// Asks the guest to write to the console what runs and where it waits.
pub(super) const TRACE: &[u8] = b"trace\0";

/// What the guest shall do.
#[derive(Debug, Default)]
pub(super) struct Request {
    /// Folders of the host, in the order in which they are mounted, at the same paths.
    pub(super) shares: Vec<Share>,
    /// Where the command starts.
    pub(super) folder: PathBuf,
    /// `NAME=value`.
    pub(super) variables: Vec<String>,
    /// The program and its words.
    pub(super) words: Vec<String>,
}

/// A folder of the host that the guest sees.
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

/// What the guest says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// The command starts; the guest's clock, in seconds since it booted.
    Started(String),
    /// The command ended with this code.
    Exited(u8),
    /// The guest could not do what was asked.
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
    /// How the guest mounts it. What nobody writes to may be kept in the guest's memory.
    fn options(self) -> &'static str {
        match self {
            Self::Read => "ro,cache=loose",
            Self::Write => "rw",
        }
    }
}

impl Report {
    /// Understands a line; other lines are none.
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
    fn words_are_sent_as_they_are() {
        let share = Share { folder: "/a b".into(), access: Access::Write };
        let words = ["sh", "-c", "echo \"x\ny\"", ""].map(str::to_owned).to_vec();
        let request = Request { shares: vec![share], folder: "/a b".into(), variables: Vec::new(), words };
        assert_eq!(request.encode(), b"1\0rw\0/a b\0/a b\x000\x004\0sh\0-c\0echo \"x\ny\"\0\0");
    }

    #[test]
    fn lines_of_the_guest_are_understood() {
        assert_eq!(Report::read("exit 3"), Some(Report::Exited(3)));
        assert_eq!(Report::read("started 4.20"), Some(Report::Started("4.20".to_owned())));
        assert_eq!(Report::read("exit 300"), None);
        assert_eq!(Report::read("hello"), None);
    }
}
