//! Faults in the files of this node's own credentials.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::world::{World, load, write_secret};
use pronto_trust::authority::REVOKED;
use pronto_trust::{FIRST_VISITOR, Name, Source, TrustError};
use pronto_wire::id::NodeId;
use rcgen::KeyPair;

/// Right credentials, and the paths of their files.
struct Files {
    certificate: PathBuf,
    key: PathBuf,
    authorities: PathBuf,
    revoked: PathBuf,
    source: Source,
    _world: World,
}

impl Files {
    fn new() -> Self {
        let world = World::new();
        let source = world.source(Name::Node(NodeId(2)));
        let Source::Certificates { certificate, key, authorities, revoked } = source.clone() else {
            panic!("certificates")
        };
        let revoked = revoked.expect("the world has a list");
        Self { certificate, key, authorities, revoked, source, _world: world }
    }

    fn error(&self) -> TrustError {
        load(&self.source, 2).expect_err("a fault")
    }
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the file is ours");
}

#[test]
fn a_key_that_others_can_access_is_refused() {
    let files = Files::new();
    for bad in [0o640, 0o604, 0o644, 0o620, 0o601] {
        mode(&files.key, bad);
        let text = files.error().to_string();
        let advice = format!("(mode {bad:03o}): run `chmod 600 {}`", files.key.display());
        assert!(text.ends_with(&advice), "{text}");
    }
    for good in [0o600, 0o400] {
        mode(&files.key, good);
        assert!(load(&files.source, 2).is_ok());
    }
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let files = Files::new();
    write_secret(&files.key, &KeyPair::generate().expect("random numbers").serialize_pem());
    assert!(matches!(files.error(), TrustError::KeyMismatch { .. }));
}

#[test]
fn the_certificate_of_another_node_is_refused() {
    let files = Files::new();
    let error = load(&files.source, 3).expect_err("node 2's certificate");
    assert!(error.to_string().ends_with("is of node 2, but this is node 3"), "{error}");
    assert!(load(&files.source, FIRST_VISITOR.0).is_ok(), "a visitor may use it");
}

#[test]
fn missing_files_are_named() {
    for kind in 0..4 {
        let files = Files::new();
        let path = [&files.revoked, &files.authorities, &files.certificate, &files.key][kind];
        fs::remove_file(path).expect("it exists");
        let error = files.error();
        assert!(matches!(&error, TrustError::Read { path: named, .. } if named == path), "{error}");
    }
}

#[test]
fn files_with_the_wrong_content_are_named() {
    for (kind, section) in [(0, "PRIVATE KEY"), (1, "CERTIFICATE"), (2, "CERTIFICATE"), (3, "X509 CRL")] {
        let files = Files::new();
        let path = [&files.key, &files.certificate, &files.authorities, &files.revoked][kind];
        write_secret(path, "no PEM\n");
        let text = files.error().to_string();
        let named = text.starts_with(&format!("{} contains no ", path.display()));
        assert!(named && text.contains(&format!("-----BEGIN {section}-----")), "{text}");
        write_secret(path, &format!("-----BEGIN {section}-----\nAAAA\n-----END {section}-----\n"));
        let text = files.error().to_string();
        assert!(text.contains(&path.display().to_string()), "{text}");
        write_secret(path, &format!("-----BEGIN {section}-----\nAAAA\n"));
        assert!(matches!(files.error(), TrustError::Pem { .. }));
    }
}

#[test]
fn a_file_without_a_key_needs_no_other_permissions() {
    let files = Files::new();
    fs::copy(&files.certificate, &files.key).expect("the folder is writable");
    mode(&files.key, 0o644);
    let text = files.error().to_string();
    assert!(text.contains("contains no private key"), "{text}");
    for key in ["EC PRIVATE KEY", "ENCRYPTED PRIVATE KEY"] {
        fs::write(&files.key, format!("-----BEGIN {key}-----\nAAAA\n")).expect("the file is ours");
        assert!(matches!(files.error(), TrustError::Permissions { .. }), "{key}");
    }
}

/// Shows: operations.trust-one-list
#[test]
fn two_lists_of_one_authority_are_refused() {
    let (files, other) = (Files::new(), World::new());
    let own = fs::read_to_string(&files.revoked).expect("stored");
    let others = fs::read_to_string(other.path(REVOKED)).expect("stored");
    let write = |lists: &[&str]| fs::write(&files.revoked, lists.concat()).expect("the file is ours");
    write(&[&own, &others, &own]);
    let text = files.error().to_string();
    let named = text.starts_with(&format!("{} has two lists of the authority \"", files.revoked.display()));
    assert!(named && text.contains("O=example.org, CN=Pronto authority "), "{text}");
    assert!(text.ends_with("keep only the newest list of each authority"), "{text}");
    write(&[&others, &own]);
    assert!(load(&files.source, 2).is_ok(), "one list of each");
}

#[test]
fn an_older_key_format_is_named() {
    let files = Files::new();
    write_secret(&files.key, "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n");
    assert!(files.error().to_string().contains("openssl pkcs8 -topk8"));
}

#[test]
fn a_huge_file_is_refused() {
    let files = Files::new();
    let file = fs::File::create(&files.revoked).expect("the folder is writable");
    file.set_len(5 << 20).expect("a sparse file");
    assert!(matches!(files.error(), TrustError::TooLong { .. }));
}
