//! Listening: stale files, live ones, and clean-up.

use core::time::Duration;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::LIMITS;
use crate::error::SetupError;
use crate::handshake::{Handshake, Listener};

const LIMIT: Duration = Duration::from_secs(60);

/// Directory of one test, removed at its end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("pronto-shm-{}-{name}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        std::fs::remove_dir(&self.0).expect("the directory is empty");
    }
}

/// Every process that may open the directory may lock it.
#[test]
fn a_directory_that_stays_locked_is_an_error() {
    let directory = Directory::new("locked");
    let path = directory.0.join("node.sock");
    let opened = std::fs::File::open(&directory.0).unwrap();
    let lock = nix::fcntl::Flock::lock(opened, nix::fcntl::FlockArg::LockShared).unwrap();
    assert!(matches!(Listener::bind(&path), Err(SetupError::Locked)));
    drop(lock);
    drop(Listener::bind(&path).unwrap());
}

/// Shows: operations.folder, operations.same-user
#[test]
fn a_link_is_established_and_no_file_is_left() {
    let directory = Directory::new("link");
    let path = directory.0.join("node.sock");
    let listener = Listener::bind(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut dialled = Handshake::dial(&path, LIMIT).unwrap();
    let mut accepted = listener.accept().unwrap();
    for peer in [dialled.peer(), accepted.peer()] {
        assert!(peer.same_user());
        assert_eq!(peer.pid, i32::try_from(std::process::id()).unwrap());
    }
    dialled.send(b"hello").unwrap();
    assert_eq!(accepted.receive(5).unwrap(), b"hello");
    let other = std::thread::spawn(move || accepted.establish([LIMITS; 2]).unwrap());
    let link = dialled.establish([LIMITS; 2]).unwrap();
    let other = other.join().unwrap();
    assert!(!link.lifeline.is_cut().unwrap());
    drop(other);
    assert!(link.lifeline.is_cut().unwrap());
    drop(listener);
    assert!(!path.exists());
}

#[test]
fn a_stale_file_is_replaced_and_a_live_one_is_not() {
    let directory = Directory::new("stale");
    let path = directory.0.join("node.sock");
    let dead = std::os::unix::net::UnixListener::bind(&path).unwrap();
    drop(dead);
    assert!(path.exists(), "the standard library leaves the file");
    assert_eq!(Handshake::dial(&path, LIMIT).unwrap_err(), SetupError::NotListening);
    let listener = Listener::bind(&path).unwrap();
    assert_eq!(Listener::bind(&path).unwrap_err(), SetupError::InUse);
    let _dialled = Handshake::dial(&path, LIMIT).unwrap();
    drop(listener);
    assert_eq!(Handshake::dial(&path, LIMIT).unwrap_err(), SetupError::NotListening);
}

#[test]
fn other_files_are_left_alone() {
    let directory = Directory::new("other");
    let path = directory.0.join("data");
    std::fs::write(&path, b"precious").unwrap();
    assert_eq!(Listener::bind(&path).unwrap_err(), SetupError::InUse);
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_listener_removes_only_its_own_file() {
    let directory = Directory::new("own");
    let path = directory.0.join("node.sock");
    let old = Listener::bind(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let new = Listener::bind(&path).unwrap();
    drop(old);
    assert!(path.exists(), "the new listener's file is still there");
    drop(new);
}

/// Shows: operations.abstract
#[test]
fn abstract_names_need_no_file() {
    let name = format!("@pronto-shm-test-{}", std::process::id());
    let listener = Listener::bind(Path::new(&name)).unwrap();
    assert_eq!(Listener::bind(Path::new(&name)).unwrap_err(), SetupError::InUse);
    assert!(listener.as_raw_fd() > 0);
    let _dialled = Handshake::dial(Path::new(&name), LIMIT).unwrap();
    assert!(listener.accept().is_ok());
    drop(listener);
    assert_eq!(Handshake::dial(Path::new(&name), LIMIT).unwrap_err(), SetupError::NotListening);
}

#[test]
fn invalid_addresses_are_rejected() {
    for path in ["", "@", &"x".repeat(200), &format!("@{}", "x".repeat(200))] {
        assert_eq!(Listener::bind(Path::new(path)).unwrap_err(), SetupError::Address);
        assert_eq!(Handshake::dial(Path::new(path), LIMIT).unwrap_err(), SetupError::Address);
    }
}
