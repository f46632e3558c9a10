//! The files of an authority, and what it issues and refuses.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::world::{NOW, World, write_secret};
use pronto_trust::authority::{Authority, AuthorityError, CERTIFICATE, KEY, REVOKED, Request, save_key};
use pronto_trust::inspect::{self, Part};
use pronto_trust::{Name, Timestamp, TrustError};
use pronto_wire::id::NodeId;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("stored").permissions().mode() & 0o777
}

fn certificate(path: &Path) -> inspect::Certificate {
    match inspect::file(path).expect("readable").swap_remove(0) {
        Part::Certificate(certificate) => certificate,
        other => panic!("{other:?}"),
    }
}

fn revoked(path: &Path) -> Vec<String> {
    match inspect::file(path).expect("readable").swap_remove(0) {
        Part::RevocationList(list) => list.revoked,
        other => panic!("{other:?}"),
    }
}

#[test]
fn files_have_their_modes_and_are_never_replaced() {
    let world = World::new();
    assert_eq!([CERTIFICATE, KEY, REVOKED].map(|name| mode(&world.path(name))), [0o644, 0o600, 0o644]);
    let key = fs::read(world.path(KEY)).expect("stored");
    let other = Authority::create("example.org", NOW, 10).expect("valid");
    assert!(matches!(other.save(&world.folder), Err(AuthorityError::Exists { .. })));
    assert_eq!(fs::read(world.path(KEY)).expect("stored"), key);

    let issued = world.issue(Name::Node(NodeId(2)), &[]);
    let files = issued.save(&world.folder).expect("new");
    assert_eq!((mode(&files.certificate), mode(&files.key)), (0o644, 0o600));
    assert!(files.key.ends_with("node-2.key") && files.certificate.ends_with("node-2.pem"));
    fs::remove_file(&files.certificate).expect("stored");
    assert!(matches!(issued.save(&world.folder), Err(AuthorityError::Exists { path }) if path == files.key));
    assert!(!files.certificate.exists(), "nothing is written");
    assert!(matches!(save_key(&files.key, ""), Err(AuthorityError::Exists { .. })));
}

#[test]
fn certificates_say_what_was_requested() {
    let world = World::new();
    let issued = world.issue(Name::Operator("alice".to_owned()), &["admin", "audit"]);
    let files = issued.save(&world.path("out")).expect("new");
    let shown = certificate(&files.certificate);
    assert_eq!(shown.name, Ok(Name::Operator("alice".to_owned())));
    assert_eq!(shown.roles, ["admin", "audit"]);
    assert_eq!((shown.not_before, shown.not_after), (Timestamp(NOW.0 - 3_600), NOW.plus_days(100)));
    assert!(!shown.is_authority && shown.fingerprint.len() == 64);
    let authority = certificate(&world.path(CERTIFICATE));
    assert!(authority.is_authority && authority.name.is_err());
    assert_eq!(shown.issuer, authority.subject);
    let again = world.issue(Name::Operator("alice".to_owned()), &[]).save(&world.path("again")).expect("new");
    assert_ne!(certificate(&again.certificate).serial, shown.serial);
}

#[test]
fn wrong_requests_are_refused() {
    let world = World::new();
    let refused = |name, role: &str, days| {
        let request = Request::for_days(name, vec![role.to_owned()], NOW, days);
        world.authority.issue(&request).expect_err("refused")
    };
    let node = |id| Name::Node(NodeId(id));
    assert!(matches!(refused(node(0), "a", 1), AuthorityError::Node { .. }));
    assert!(matches!(refused(node(64_000), "a", 1), AuthorityError::Node { .. }));
    assert!(matches!(refused(node(1), "a/b", 1), AuthorityError::Word { .. }));
    assert!(matches!(refused(Name::Operator(String::new()), "a", 1), AuthorityError::Word { .. }));
    assert!(matches!(refused(node(1), "a", 1_001), AuthorityError::TooLong { .. }));
    let empty = Request { name: node(1), roles: Vec::new(), not_before: NOW, not_after: NOW };
    assert!(matches!(world.authority.issue(&empty), Err(AuthorityError::Empty { .. })));
    for domain in ["", "Example", "a/b", "a b"] {
        assert!(matches!(Authority::create(domain, NOW, 1), Err(AuthorityError::Domain { .. })), "{domain}");
    }
    assert!(matches!(Authority::create("a", NOW, u32::MAX), Err(AuthorityError::Date { .. })));
}

#[test]
fn revocations_accumulate() {
    let world = World::new();
    let path = world.path(REVOKED);
    assert!(revoked(&path).is_empty());
    let mut serials = Vec::new();
    for id in [2, 3] {
        let files = world.issue(Name::Node(NodeId(id)), &[]).save(&world.path("out")).expect("new");
        let mut authority = Authority::load(&world.folder).expect("stored");
        let der = inspect::first_certificate(&files.certificate).expect("stored");
        authority.revoke(&der, NOW).expect("its own certificate");
        assert!(matches!(authority.revoke(&der, NOW), Err(AuthorityError::AlreadyRevoked { .. })));
        authority.save_revoked(&world.folder).expect("unchanged");
        serials.push(certificate(&files.certificate).serial);
        assert_eq!(revoked(&path), serials);
    }
    assert_eq!(mode(&path), 0o644);
    let mut authority = Authority::load(&world.folder).expect("stored");
    let der = inspect::first_certificate(&world.path("out").join("node-2.pem")).expect("stored");
    assert!(matches!(authority.revoke(&der, NOW), Err(AuthorityError::AlreadyRevoked { .. })));
    let own = inspect::first_certificate(&world.path(CERTIFICATE)).expect("stored");
    assert!(matches!(authority.revoke(&own, NOW), Err(AuthorityError::OwnCertificate)));
    let other = World::new();
    let own = inspect::first_certificate(&other.path(CERTIFICATE)).expect("stored");
    assert!(matches!(authority.revoke(&own, NOW), Err(AuthorityError::OtherIssuer { .. })));
}

#[test]
fn concurrent_revocations_do_not_get_lost() {
    let world = World::new();
    let mut loaded = [0, 1].map(|_| Authority::load(&world.folder).expect("stored"));
    for (authority, id) in loaded.iter_mut().zip([2, 3]) {
        let files = world.issue(Name::Node(NodeId(id)), &[]).save(&world.path("out")).expect("new");
        let der = inspect::first_certificate(&files.certificate).expect("stored");
        authority.revoke(&der, NOW).expect("its own certificate");
    }
    let [first, second] = &mut loaded;
    first.save_revoked(&world.folder).expect("unchanged");
    assert!(matches!(second.save_revoked(&world.folder), Err(AuthorityError::Changed { .. })));
    assert_eq!(revoked(&world.path(REVOKED)).len(), 1);
    assert!(!world.path("revoked.pem.next").exists());
    fs::write(world.path("revoked.pem.next"), "").expect("writable");
    assert!(matches!(first.save_revoked(&world.folder), Err(AuthorityError::Exists { .. })));
}

#[test]
fn files_of_different_authorities_do_not_load() {
    let (world, other) = (World::new(), World::new());
    fs::copy(other.path(REVOKED), world.path(REVOKED)).expect("writable");
    assert!(matches!(Authority::load(&world.folder), Err(AuthorityError::List { .. })));
    let key = fs::read_to_string(other.path(KEY)).expect("stored");
    write_secret(&world.path(KEY), &key);
    assert!(matches!(Authority::load(&world.folder), Err(AuthorityError::NotAnAuthority)));
    fs::set_permissions(world.path(KEY), fs::Permissions::from_mode(0o644)).expect("ours");
    let error = Authority::load(&world.folder).expect_err("others can read the key");
    assert!(matches!(error, AuthorityError::File(TrustError::Permissions { .. })), "{error}");
}

#[test]
fn keys_are_shown_by_their_public_half() {
    let world = World::new();
    let (pem, public) = pronto_trust::authority::new_key().expect("random numbers");
    let path = world.path("1.key");
    save_key(&path, &pem).expect("new");
    let shown = |path: &Path| inspect::file(path).expect("readable").swap_remove(0);
    assert!(matches!(shown(&path), Part::PrivateKey(Some(key)) if key == public));
    let text = world.path("1.pub");
    fs::write(&text, format!("{public}\n")).expect("writable");
    assert!(matches!(shown(&text), Part::PublicKey(key) if key == public));
    fs::write(&text, "hello").expect("writable");
    assert!(matches!(inspect::file(&text), Err(TrustError::Missing { .. })));
}
