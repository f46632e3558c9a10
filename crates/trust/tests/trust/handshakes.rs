//! Handshakes between nodes with certificates: accepted ones, and each reason to reject one, as both sides see it.

use crate::world::{Configs, NOW, Pair, World, handshake, issued, load, load_at, rejected};
use pronto_trust::authority::{Authority, CERTIFICATE, REVOKED, Request};
use pronto_trust::inspect::{self, Certificate, Part};
use pronto_trust::rustls::AlertDescription::{
    CertificateExpired, CertificateRequired, CertificateRevoked, CertificateUnknown, UnknownCA,
    UnsupportedCertificate,
};
use pronto_trust::rustls::{AlertDescription, ClientConfig, HandshakeKind, ProtocolVersion, RootCertStore};
use pronto_trust::{
    ALPN, CertificateDer, Credentials, Denied, FIRST_VISITOR, Name, NameFault, Source, Timestamp, TrustError,
    alert_reason,
};
use pronto_wire::id::NodeId;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType};
use rustls_pki_types::pem::PemObject as _;
use std::sync::Arc;

fn node(id: u16) -> Name {
    Name::Node(NodeId(id))
}

/// Returns credentials with a right certificate.
fn credentials(world: &World, id: u16) -> Credentials {
    load(&world.source(node(id)), id).expect("right credentials")
}

/// Checks that node 1 rejects this certificate in both roles, and that a node does not load it. Returns the reason.
fn rejects(world: &World, bad: &Source, alert: AlertDescription) -> Denied {
    let good = credentials(world, 1);
    let [by_server, by_client] = rejected(&good, &Configs::presenting(&good, bad), alert);
    assert_eq!(by_server, by_client);
    match load(bad, 2) {
        // Only here the issuer is known.
        Err(TrustError::Own { reason: Denied::OtherAuthority { issuer }, .. }) => {
            assert_eq!((&by_server, issuer.is_empty()), (&Denied::UnknownAuthority, false));
        }
        Err(TrustError::Own { reason, .. }) => assert_eq!(reason, by_server),
        other => panic!("{other:?}"),
    }
    by_server
}

/// Returns the content of a right certificate for node 2, valid from today on, whose names are these.
fn params(uris: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::default();
    let uri = |uri: &&str| SanType::URI((*uri).try_into().expect("ASCII"));
    params.subject_alt_names = uris.iter().map(uri).collect();
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params
}

#[test]
fn two_nodes_identify_each_other() {
    let world = World::new();
    let one = credentials(&world, 1);
    let two = load(&world.stored(&world.issue(node(2), &["b", "a"])), 2).expect("right credentials");
    let mut pair = Pair::new(&one, &two);
    let ends = pair.run();
    assert!(ends.client.is_ok() && ends.server.is_ok(), "{ends:?}");
    let chain = pair.server.peer_certificates().expect("the client has one");
    let client = two.identify(chain).expect("known");
    assert_eq!((&client.name, client.not_after), (&node(1), Some(NOW.plus_days(100))));
    assert_eq!(&client, one.identity());
    let chain = pair.client.peer_certificates().expect("the server has one");
    let server = one.identify(chain).expect("known");
    assert_eq!((server.name, server.roles), (node(2), vec!["a".to_owned(), "b".to_owned()]));
}

#[test]
fn every_handshake_is_a_full_one_of_tls_13() {
    let world = World::new();
    let (one, two) = (credentials(&world, 1), credentials(&world, 2));
    for _ in 0..2 {
        let mut pair = Pair::new(&one, &two);
        assert!(pair.run().client.is_ok());
        assert_eq!(pair.client.protocol_version(), Some(ProtocolVersion::TLSv1_3));
        assert_eq!(pair.client.handshake_kind(), Some(HandshakeKind::Full));
        assert_eq!((pair.client.alpn_protocol(), pair.server.alpn_protocol()), (Some(ALPN), Some(ALPN)));
        assert_eq!(pair.client.tls13_tickets_received(), 0);
        assert_eq!(pair.server.server_name(), None, "it is not sent");
        assert!(pair.client.early_data().is_none());
    }
}

#[test]
fn an_operator_may_visit_only() {
    let world = World::new();
    let source = world.source(Name::Operator("alice".to_owned()));
    let alice = load(&source, FIRST_VISITOR.0).expect("a visitor");
    assert!(matches!(load(&source, 2), Err(TrustError::OtherNode { .. })));
    let one = credentials(&world, 1);
    let mut pair = Pair::new(&alice, &one);
    assert!(pair.run().server.is_ok());
    let identity = one.identify(pair.server.peer_certificates().expect("sent")).expect("known");
    assert!(identity.may_be(FIRST_VISITOR) && !identity.may_be(NodeId(2)));
}

#[test]
fn an_expired_certificate_is_rejected() {
    let world = World::new();
    let later = NOW.plus_days(101);
    let request = Request::for_days(node(1), Vec::new(), NOW, 200);
    let long = world.stored(&world.authority.issue(&request).expect("a valid request"));
    let good = load_at(&long, 1, later).expect("still valid");
    let short = world.source(node(2));
    let bad = load(&short, 2).expect("valid today");
    let reason = Denied::Expired { now: later, not_after: NOW.plus_days(100) };
    let [by_server, by_client] = rejected(&good, &Configs::from(&bad), CertificateExpired);
    assert_eq!((&by_server, &by_client), (&reason, &reason));
    assert!(alert_reason(CertificateExpired).is_some_and(|text| text.contains("expired")));
    let own = load_at(&short, 2, later).expect_err("expired");
    assert!(own.to_string().contains("expired on 2027-04-25"), "{own}");
    // With an open connection, at a reload.
    let chain = bad_chain(&short);
    assert_eq!(good.identify(&chain), Err(reason));
}

fn bad_chain(source: &Source) -> Vec<CertificateDer<'static>> {
    let Source::Certificates { certificate, .. } = source else { panic!("certificates") };
    vec![CertificateDer::from_pem_file(certificate).expect("stored")]
}

#[test]
fn a_certificate_that_is_not_yet_valid_is_rejected() {
    let world = World::new();
    let earlier = Timestamp(NOW.0 - 2 * 60 * 60);
    let request =
        Request { name: node(1), roles: Vec::new(), not_before: Timestamp(0), not_after: NOW.plus_days(1) };
    let long = world.stored(&world.authority.issue(&request).expect("a valid request"));
    let good = load_at(&long, 1, earlier).expect("valid in the past");
    let source = world.source(node(2));
    let bad = load(&source, 2).expect("valid today");
    let reason = Denied::NotYetValid { now: earlier, not_before: Timestamp(NOW.0 - 60 * 60) };
    let [by_server, by_client] = rejected(&good, &Configs::from(&bad), CertificateExpired);
    assert_eq!((&by_server, &by_client), (&reason, &reason));
    assert!(
        matches!(load_at(&source, 2, earlier), Err(TrustError::Own { reason: own, .. }) if own == reason)
    );
}

#[test]
fn a_revoked_certificate_is_rejected() {
    let mut world = World::new();
    let source = world.source(node(2));
    let before = load(&source, 2).expect("not yet revoked");
    let one = world.source(node(1));
    let chain = bad_chain(&source);
    assert!(load(&one, 1).expect("right").identify(&chain).is_ok());
    // The authority in the world was made, not loaded.
    world.authority = Authority::load(&world.folder).expect("stored");
    world.authority.revoke(&chain[0], NOW).expect("its own certificate");
    world.authority.save_revoked(&world.folder).expect("unchanged");
    assert_eq!(rejects(&world, &source, CertificateRevoked), Denied::Revoked);
    let after = load(&one, 1).expect("right");
    assert_eq!(after.identify(&chain), Err(Denied::Revoked), "at a reload");
    assert_eq!(rejected(&after, &Configs::from(&before), CertificateRevoked)[0], Denied::Revoked);
}

/// Shows: operations.trust-no-list
#[test]
fn an_expired_or_missing_revocation_list_rejects_everybody() {
    let (world, other) = (World::new(), World::new());
    let Source::Certificates { certificate, key, authorities, .. } = world.source(node(2)) else {
        panic!("certificates")
    };
    let with = |revoked| Source::Certificates {
        certificate: certificate.clone(),
        key: key.clone(),
        authorities: authorities.clone(),
        revoked,
    };
    let wrong = load(&with(Some(other.path(REVOKED))), 2).expect_err("another authority's list");
    assert!(matches!(wrong, TrustError::Own { reason: Denied::NoRevocationList, .. }), "{wrong}");
    assert!(load(&with(None), 2).is_ok(), "without any list nothing is revoked");
    let mut authority = Authority::load(&world.folder).expect("stored");
    let der = CertificateDer::from_pem_file(&certificate).expect("stored");
    authority.revoke(&der, NOW).expect("its own certificate");
    authority.save_revoked(&world.folder).expect("unchanged");
    assert!(load(&with(Some(world.path(REVOKED))), 2).is_err() && load(&with(None), 2).is_ok());
    // The list ends with the authority. A certificate that lives longer can only be made by another program.
    let source = world.odd(&params(&["spiffe://example.org/pronto/node/2"]));
    let later = NOW.plus_days(1_001);
    let expired = load_at(&source, 2, later).expect_err("the list has expired");
    assert!(
        matches!(expired, TrustError::Own { reason: Denied::RevocationListExpired { .. }, .. }),
        "{expired}"
    );
}

#[test]
fn a_certificate_of_another_authority_is_rejected() {
    let (world, other) = (World::new(), World::new());
    let Source::Certificates { certificate, key, .. } = other.source(node(2)) else { panic!("certificates") };
    let (authorities, revoked) = (world.path(CERTIFICATE), Some(world.path(REVOKED)));
    let source = Source::Certificates { certificate, key, authorities, revoked };
    assert_eq!(rejects(&world, &source, UnknownCA), Denied::UnknownAuthority);
    // Both authorities are of one domain: only the issuer tells them apart.
    let issuer = inspect::file(&other.path(CERTIFICATE)).expect("stored").swap_remove(0);
    let Part::Certificate(Certificate { subject, .. }) = issuer else { panic!("a certificate") };
    let own = load(&source, 2).expect_err("unknown").to_string();
    assert!(own.contains(&format!("names {subject:?} as its issuer")), "{own}");
    let chain = bad_chain(&source);
    let reason = Denied::OtherAuthority { issuer: subject };
    assert_eq!(credentials(&world, 1).identify(&chain), Err(reason), "at a reload");
}

#[test]
fn the_issuer_in_an_error_is_bounded_and_escaped() {
    let world = World::new();
    let key = KeyPair::generate().expect("random numbers");
    let mut params = params(&["spiffe://example.org/pronto/node/2"]);
    let name = format!("\u{1b}\"{}", "x".repeat(1_000));
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    let certificate = params.self_signed(&key).expect("valid parameters");
    let text = load(&world.stored(&issued(certificate.pem(), &key)), 2).expect_err("unknown").to_string();
    assert!(text.len() < 500 && text.contains("CN=\\\"xxx") && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn a_self_signed_certificate_is_rejected() {
    let world = World::new();
    let key = KeyPair::generate().expect("random numbers");
    let mut params = params(&["spiffe://example.org/pronto/node/2"]);
    let certificate = params.self_signed(&key).expect("valid parameters");
    let source = world.stored(&issued(certificate.pem(), &key));
    assert_eq!(rejects(&world, &source, UnknownCA), Denied::UnknownAuthority);
    // As `openssl req -x509` makes it.
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).expect("valid parameters");
    let source = world.stored(&issued(certificate.pem(), &key));
    let reason = rejects(&world, &source, CertificateUnknown);
    assert!(matches!(reason, Denied::Chain { .. }), "{reason:?}");
    assert!(reason.to_string().contains("is the certificate of an authority, or self-signed"), "{reason}");
}

#[test]
fn the_issuer_name_of_a_known_authority_is_not_enough() {
    let world = World::new();
    let key = KeyPair::generate().expect("random numbers");
    let forged = rcgen::Issuer::from_ca_cert_pem(world.authority.certificate_pem(), key).expect("a name");
    let key = KeyPair::generate().expect("random numbers");
    let params = params(&["spiffe://example.org/pronto/node/2"]);
    let certificate = params.signed_by(&key, &forged).expect("valid parameters");
    let source = world.stored(&issued(certificate.pem(), &key));
    assert_eq!(rejects(&world, &source, UnknownCA), Denied::UnknownAuthority);
}

#[test]
fn a_node_cannot_issue_certificates() {
    let world = World::new();
    let two = world.issue(node(2), &[]);
    let key = KeyPair::from_pem(&two.key_pem).expect("its key");
    let issuer = rcgen::Issuer::from_ca_cert_pem(&two.certificate_pem, key).expect("a name");
    let key = KeyPair::generate().expect("random numbers");
    let mut params = params(&["spiffe://example.org/pronto/node/2"]);
    params.is_ca = IsCa::ExplicitNoCa;
    let certificate = params.signed_by(&key, &issuer);
    let pem = certificate.expect("rcgen does not check it").pem() + &two.certificate_pem;
    let source = world.stored(&issued(pem, &key));
    let good = credentials(&world, 1);
    let bad = Configs::presenting(&good, &source);
    for end in [handshake(&bad, &good).server, handshake(&good, &bad).client] {
        let reason = Denied::from_tls(&end.expect_err("rejected"));
        assert!(matches!(reason, Some(Denied::Chain { .. } | Denied::UnknownAuthority)), "{reason:?}");
    }
}

#[test]
fn a_certificate_with_wrong_names_is_rejected() {
    let world = World::new();
    let names = |uris: &[&str]| match rejects(&world, &world.odd(&params(uris)), CertificateUnknown) {
        Denied::Names(fault) => fault,
        other => panic!("{other}"),
    };
    assert_eq!(names(&[]), NameFault::Missing);
    assert_eq!(names(&["spiffe://example.org/pronto/role/admin"]), NameFault::Missing);
    let two = names(&["spiffe://example.org/pronto/node/2", "spiffe://example.org/pronto/node/3"]);
    assert_eq!(two, NameFault::Several { first: node(2), second: node(3) });
    let visitor = names(&["spiffe://example.org/pronto/node/64000"]);
    assert!(matches!(visitor, NameFault::Malformed { .. }), "{visitor}");
    assert!(alert_reason(CertificateUnknown).is_some_and(|text| text.contains("name")));
}

#[test]
fn a_certificate_of_another_domain_is_rejected() {
    let world = World::new();
    let source = world.odd(&params(&["spiffe://example.com/pronto/node/2"]));
    let good = credentials(&world, 1);
    let other = load(&source, 2).expect("right in its own domain");
    let [reason, _] = rejected(&good, &Configs::presenting(&good, &source), CertificateUnknown);
    let expected = Denied::OtherDomain { own: "example.org".to_owned(), found: "example.com".to_owned() };
    assert_eq!(reason, expected);
    assert!(handshake(&good, &other).client.is_err());
}

#[test]
fn a_certificate_for_another_purpose_is_rejected() {
    let world = World::new();
    let mut params = params(&["spiffe://example.org/pronto/node/2"]);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
    assert_eq!(rejects(&world, &world.odd(&params), UnsupportedCertificate), Denied::WrongUsage);

    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let source = world.odd(&params);
    let own = load(&source, 2).expect_err("a node is also a server");
    assert!(matches!(own, TrustError::Own { reason: Denied::WrongUsage, .. }), "{own}");
    let good = credentials(&world, 1);
    let bad = Configs::presenting(&good, &source);
    assert!(handshake(&bad, &good).server.is_ok(), "as client it is right");
    assert_eq!(handshake(&good, &bad).client_reason(), Denied::WrongUsage);
    assert!(good.identify(&bad_chain(&source)).is_ok(), "its side is not known here");
}

#[test]
fn a_client_without_a_certificate_is_rejected() {
    let world = World::new();
    let good = credentials(&world, 1);
    let mut client = ClientConfig::clone(&good.client());
    let anonymous = ClientConfig::builder_with_provider(client.crypto_provider().clone())
        .with_safe_default_protocol_versions()
        .expect("TLS 1.3")
        .with_root_certificates(no_authorities())
        .with_no_client_auth();
    client.client_auth_cert_resolver = anonymous.client_auth_cert_resolver;
    let ends = handshake(&Configs { client: Arc::new(client), server: good.server() }, &good);
    assert_eq!((ends.server_reason(), ends.client_alert()), (Denied::NoCertificate, CertificateRequired));
}

fn no_authorities() -> RootCertStore {
    RootCertStore::empty()
}
