//! The files of an authority, and what it issues and refuses.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::world::{NOW, World, write_secret};
use pronto_trust::authority::{
    Authority, AuthorityError, CERTIFICATE, Delivered, ISSUED, KEY, REVOKED, Request, save_key,
};
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

/// Returns the paths of all files in a folder, sorted.
fn listed(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("readable").file_name();
    let mut names: Vec<_> = entries.map(|entry| name(entry).into_string().expect("text")).collect();
    names.sort_unstable();
    names
}

#[test]
fn a_node_gets_all_that_it_needs_and_the_authority_keeps_a_copy() {
    let world = World::new();
    let (out, mut authority) = (world.path("out"), Authority::load(&world.folder).expect("stored"));
    let issued = world.issue(Name::Node(NodeId(2)), &[]);
    let files = authority.deliver(&issued, &world.folder, &out).expect("new");
    let expected = Delivered {
        certificate: out.join("node-2.pem"),
        key: out.join("node-2.key"),
        authorities: out.join(CERTIFICATE),
        revoked: out.join(REVOKED),
    };
    assert_eq!(files, expected);
    assert_eq!((mode(&files.authorities), mode(&files.revoked)), (0o644, 0o644));
    let copy = format!("node-2-{}.pem", certificate(&files.certificate).serial);
    assert_eq!(listed(&world.path(ISSUED)), [copy.as_str()]);
    let again = authority.deliver(&world.issue(Name::Node(NodeId(2)), &[]), &world.folder, &out);
    assert!(matches!(again, Err(AuthorityError::Exists { .. })));
    assert_eq!(listed(&world.path(ISSUED)), [copy.as_str()], "nobody has the second one");

    let der = inspect::first_certificate(&world.path(ISSUED).join(copy)).expect("stored");
    authority.revoke(&der, NOW).expect("its own certificate");
    authority.save_revoked(&world.folder).expect("unchanged");
    assert!(revoked(&files.revoked).is_empty(), "an older copy");
    authority.deliver(&world.issue(Name::Node(NodeId(3)), &[]), &world.folder, &out).expect("new");
    assert_eq!(revoked(&files.revoked).len(), 1, "a newer copy");
    let names = ["authority.pem", "node-2.key", "node-2.pem", "node-3.key", "node-3.pem", "revoked.pem"];
    assert_eq!(listed(&out), names);
    // Its own folder has these files already.
    let key = fs::read(world.path(KEY)).expect("stored");
    let own = authority.deliver(&world.issue(Name::Node(NodeId(4)), &[]), &world.folder, &world.folder);
    assert_eq!(own.expect("new").authorities, world.path(CERTIFICATE));
    assert_eq!(fs::read(world.path(KEY)).expect("stored"), key);
}

#[test]
fn files_of_another_authority_are_not_replaced() {
    let (world, other) = (World::new(), World::new());
    let issued = world.issue(Name::Node(NodeId(2)), &[]);
    let refused = |out: &Path, file: &Path| {
        let result = world.authority.deliver(&issued, &world.folder, out);
        assert!(matches!(&result, Err(AuthorityError::NotACopy { path }) if path == file), "{result:?}");
        assert!(!world.path(ISSUED).exists() && !out.join("node-2.key").exists(), "nothing is written");
    };
    refused(&other.folder, &other.path(KEY));
    let out = world.path("out");
    fs::create_dir(&out).expect("writable");
    let (authorities, revoked) = (out.join(CERTIFICATE), out.join(REVOKED));
    let both = [&world, &other].map(|world| fs::read(world.path(CERTIFICATE)).expect("stored")).concat();
    fs::write(&authorities, both).expect("writable");
    refused(&out, &authorities);
    fs::remove_file(&authorities).expect("stored");
    for lists in [vec![&other], vec![&world, &other]] {
        let lists: Vec<_> =
            lists.iter().map(|world| fs::read(world.path(REVOKED)).expect("stored")).collect();
        fs::write(&revoked, lists.concat()).expect("writable");
        refused(&out, &revoked);
    }
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
