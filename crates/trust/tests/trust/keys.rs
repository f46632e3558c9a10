//! Handshakes between nodes that know each other by their public keys, and between these and nodes with certificates.

use std::path::PathBuf;

use crate::world::{Configs, Pair, World, folder, handshake, load, rejected, write_secret};
use pronto_trust::authority::{new_key, save_key};
use pronto_trust::rustls::AlertDescription::{CertificateUnknown, HandshakeFailure};
use pronto_trust::rustls::Error as TlsError;
use pronto_trust::{Credentials, Denied, FIRST_VISITOR, Name, PublicKey, Source, TrustError};
use pronto_wire::id::NodeId;
use rcgen::{KeyPair, PublicKeyData as _};

/// A key in a file of its own.
struct Key {
    folder: PathBuf,
    file: PathBuf,
    public: PublicKey,
}

impl Drop for Key {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Key {
    fn new() -> Self {
        let (pem, public) = new_key().expect("random numbers");
        let folder = folder();
        let file = folder.join("node.key");
        save_key(&file, &pem).expect("the folder is empty");
        Self { folder, file, public }
    }

    fn source(&self, peers: &[(u16, &Self)]) -> Source {
        let peers = peers.iter().map(|(node, key)| (NodeId(*node), key.public.clone())).collect();
        Source::Keys { key: self.file.clone(), peers }
    }

    fn load(&self, node: u16, peers: &[(u16, &Self)]) -> Credentials {
        load(&self.source(peers), node).expect("right credentials")
    }
}

#[test]
fn two_nodes_identify_each_other() {
    let (a, b) = (Key::new(), Key::new());
    let (one, two) = (a.load(1, &[(2, &b)]), b.load(2, &[(1, &a)]));
    let mut pair = Pair::new(&one, &two);
    let ends = pair.run();
    assert!(ends.client.is_ok() && ends.server.is_ok(), "{ends:?}");
    let server = one.identify(pair.client.peer_certificates().expect("sent")).expect("known");
    let client = two.identify(pair.server.peer_certificates().expect("sent")).expect("known");
    assert_eq!((server.name, server.roles.len()), (Name::Node(NodeId(2)), 0));
    assert_eq!((client.name, client.not_after), (Name::Node(NodeId(1)), None));
}

#[test]
fn a_visitor_may_use_the_key_of_the_node() {
    let key = Key::new();
    let (node, visitor) = (key.load(1, &[]), key.load(1, &[]));
    let mut pair = Pair::new(&visitor, &node);
    assert!(pair.run().server.is_ok());
    let identity = node.identify(pair.server.peer_certificates().expect("sent")).expect("its own key");
    assert!(identity.may_be(NodeId(1)) && identity.may_be(FIRST_VISITOR) && !identity.may_be(NodeId(2)));
}

#[test]
fn a_p256_key_works_too() {
    let (a, b) = (Key::new(), Key::new());
    let pair = KeyPair::generate().expect("random numbers");
    write_secret(&b.file, &pair.serialize_pem());
    let public = PublicKey::from_der(&pair.subject_public_key_info()).expect("a P-256 key");
    assert!(public.to_string().starts_with("p256:"), "{public}");
    let one = Source::Keys { key: a.file.clone(), peers: vec![(NodeId(2), public)] };
    let (one, two) = (load(&one, 1).expect("right"), b.load(2, &[(1, &a)]));
    let ends = handshake(&one, &two);
    assert!(ends.client.is_ok() && ends.server.is_ok(), "{ends:?}");
}

#[test]
fn an_unknown_key_is_rejected() {
    let (a, b, c) = (Key::new(), Key::new(), Key::new());
    let one = a.load(1, &[(2, &b)]);
    let three = c.load(2, &[(1, &a)]);
    let reason = Denied::UnknownKey { key: c.public.clone() };
    let reasons = rejected(&one, &Configs::from(&three), CertificateUnknown);
    assert_eq!(reasons, [reason.clone(), reason]);
}

#[test]
fn the_key_of_another_node_has_the_identity_of_that_node() {
    let (a, b, c) = (Key::new(), Key::new(), Key::new());
    let one = a.load(1, &[(2, &b), (3, &c)]);
    // Node 3 with its own key, whatever id it is going to claim.
    let three = c.load(2, &[(1, &a)]);
    let mut pair = Pair::new(&three, &one);
    assert!(pair.run().server.is_ok());
    let identity = one.identify(pair.server.peer_certificates().expect("sent")).expect("known");
    assert!(identity.may_be(NodeId(3)) && !identity.may_be(NodeId(2)));
}

#[test]
fn a_key_whose_private_half_is_missing_is_rejected() {
    use pronto_trust::CertificateDer;
    use pronto_trust::rustls::pki_types::PrivateKeyDer;
    use pronto_trust::rustls::pki_types::pem::PemObject as _;
    use pronto_trust::rustls::{client, crypto::ring, server, sign::CertifiedKey};
    use std::sync::Arc;

    let (a, b, c) = (Key::new(), Key::new(), Key::new());
    let one = a.load(1, &[(2, &b)]);
    // The public key of node 2, with another private key.
    let private = PrivateKeyDer::from_pem_file(&c.file).expect("stored");
    let private = ring::sign::any_supported_type(&private).expect("a key");
    let public = CertificateDer::from(b.public.der().to_vec());
    let key = Arc::new(CertifiedKey::new(vec![public], private));
    let (mut client, mut server) = ((*one.client()).clone(), (*one.server()).clone());
    client.client_auth_cert_resolver = Arc::new(client::AlwaysResolvesClientRawPublicKeys::new(key.clone()));
    server.cert_resolver = Arc::new(server::AlwaysResolvesServerRawPublicKeys::new(key));
    let thief = Configs { client: Arc::new(client), server: Arc::new(server) };
    assert!(handshake(&thief, &one).server.is_err());
    assert!(handshake(&one, &thief).client.is_err());
}

#[test]
fn certificates_and_keys_do_not_mix() {
    let world = World::new();
    let certificates = load(&world.source(Name::Node(NodeId(1))), 1).expect("right");
    let (a, b) = (Key::new(), Key::new());
    let keys = a.load(2, &[(1, &b)]);
    for (client, server) in [(&certificates, &keys), (&keys, &certificates)] {
        let ends = handshake(client, server);
        let (reasons, alerts): (Vec<_>, Vec<_>) = (
            [&ends.client, &ends.server]
                .into_iter()
                .filter_map(|end| Denied::from_tls(end.as_ref().err()?))
                .collect(),
            [&ends.client, &ends.server]
                .into_iter()
                .filter(|end| matches!(end, Err(TlsError::AlertReceived(HandshakeFailure))))
                .collect(),
        );
        assert_eq!((reasons, alerts.len()), (vec![Denied::OtherMode], 1), "{ends:?}");
    }
}

#[test]
fn two_nodes_cannot_have_one_key() {
    let (a, b) = (Key::new(), Key::new());
    for peers in [&[(2, &b), (3, &b)][..], &[(2, &a)]] {
        let error = load(&a.source(peers), 1).expect_err("the same key twice");
        assert!(matches!(error, TrustError::SharedKey { .. }), "{error}");
    }
    assert!(load(&a.source(&[(2, &b), (1, &a), (2, &b)]), 1).is_ok());
}
