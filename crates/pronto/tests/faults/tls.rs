//! Nodes that use TLS, and peers with the wrong identity.

use pronto::admin::FIRST_VISITOR;
use pronto::credentials::rustls::{AlertDescription, Error as TlsError};
use pronto::credentials::{Name, Source, Timestamp};
use pronto::{DownCause, Event, Node, NodeId, Peer, WaitPolicy};
use pronto_core::session::{Evidence, Identity, Limits, greet};
use pronto_fabric_tcp::{Handshake, SetupError};
use pronto_wire::greeting::MAX_GREETING;
use pronto_wire::{Greeting, GreetingFault, GreetingRefusal};

use crate::proxy::Proxy;
use crate::rig::{TIMEOUT, add, event, refused, server, shared_run, started, until};
use crate::secured::{Authorized, caller, dialling, failure, now, options_at, secured, start};

/// Shows: operations.trust-id
#[test]
fn nodes_are_known_by_their_certificates() {
    let _shared = shared_run();
    let world = Authorized::new();
    let (node, address) = secured(world.node(1));
    let (caller, peer) = caller(2, &address, world.node(2));
    add(&peer);
    for (node, other) in [(&node, 2), (&caller, 1)] {
        let status = node.status();
        let peer = status.peers.iter().find(|peer| peer.node == NodeId(other)).unwrap();
        assert_eq!(peer.info.unwrap().evidence, Evidence::Certificate);
        let choice = peer.choice.as_ref().unwrap();
        assert!(choice.ends_with(&format!("TLS, known by its certificate: node {other}")), "{choice}");
    }
    assert!(node.status().trust.starts_with("TLS with certificates: node 1, "), "{}", node.status().trust);
    // The files of another node do not do.
    let error = Node::builder(3).trust(world.node(2)).start().unwrap_err().to_string();
    assert!(error.contains("node 2"), "{error}");
}

/// A node with a good certificate greets as another one. It has no link, the real node has, and it cannot take over the session.
///
/// Shows: operations.trust-id
#[test]
fn an_id_needs_a_certificate_with_it() {
    let _shared = shared_run();
    let world = Authorized::new();
    let (node, address) = secured(world.node(1));
    let (_two, peer) = caller(2, &address, world.node(2));
    add(&peer);
    let session = node.status().peers[0].info.unwrap().session;
    let socket = address.strip_prefix("tcp:").unwrap().parse().unwrap();
    for resumed in [None, Some(session)] {
        let options = options_at(&world.node(3), 3, now());
        let mut handshake = Handshake::dial(socket, TIMEOUT, options).unwrap();
        let epoch = node.status().peers[0].info.unwrap().epoch;
        let me = Identity { node: NodeId(2), epoch, name: String::new(), types: Vec::new() };
        handshake.send(&greet(&me, &Limits::default(), NodeId(1), resumed).encode()).unwrap();
        let refusal = Greeting::decode(&handshake.receive(MAX_GREETING).unwrap()).unwrap_err();
        let (refused, by) = (GreetingRefusal::NotPermitted, NodeId(1));
        assert_eq!(refusal, GreetingFault::Refused { refusal: refused, by });
    }
    until("the refusals are counted", || refused(&node, "untrusted") == 2);
    add(&peer);
}

/// The dialled node has another identity than the one that the dialler expects there.
///
/// Shows: operations.trust-id
#[test]
fn a_dialler_leaves_a_node_with_another_certificate() {
    let _shared = shared_run();
    let world = Authorized::new();
    let (_three, address) = start(server(3, "tcp:127.0.0.1:0").trust(world.node(3)));
    let two = dialling(2, &address).trust(world.node(2)).start().unwrap();
    let reason = failure(&two);
    assert!(reason.contains("the identity of node 3, and not of node 1"), "{reason}");
}

/// Shows: operations.trust-reasons, operations.untrusted
#[test]
fn both_sides_say_why_a_certificate_is_refused() {
    let _shared = shared_run();
    let (world, other) = (Authorized::new(), Authorized::new());
    let day = 24 * 60 * 60;
    // Valid at all times that the clocks of the peers show.
    let one = world.issue(Name::Node(NodeId(1)), &[], (now().0 - 10 * day, now().0 + 10 * day));
    let (node, address) = secured(one);
    let socket = address.strip_prefix("tcp:").unwrap().parse().unwrap();
    let two = || Name::Node(NodeId(2));
    let (past, future) = (Timestamp(now().0 - 5 * day), Timestamp(now().0 + 5 * day));
    let revoked = world.node(2);
    world.revoke(&revoked);
    node.reload_trust().unwrap();
    let mut stranger = other.node(2);
    let Source::Certificates { authorities, revoked: lists, .. } = &mut stranger else { unreachable!() };
    // The stranger trusts both authorities, so that only node 1 refuses.
    let both = ["authority.pem"]
        .map(|name| [&world, &other].map(|world| std::fs::read(world.folder.join(name)).unwrap()).concat());
    *authorities = other.folder.join("both.pem");
    *lists = None;
    std::fs::write(&*authorities, &both[0]).unwrap();
    let unlisted = |mut source: Source| {
        // The peer itself does not know yet that it is revoked.
        let Source::Certificates { revoked, .. } = &mut source else { unreachable!() };
        *revoked = None;
        source
    };
    for (what, source, clock, alert) in [
        (
            "expired",
            unlisted(world.issue(two(), &[], (past.0 - day, past.0 + day))),
            past,
            AlertDescription::CertificateExpired,
        ),
        (
            "not yet valid",
            unlisted(world.issue(two(), &[], (future.0 - day, future.0 + day))),
            future,
            AlertDescription::CertificateExpired,
        ),
        ("revoked", unlisted(revoked), now(), AlertDescription::CertificateRevoked),
        ("another authority", stranger, now(), AlertDescription::UnknownCA),
    ] {
        let before = refused(&node, "untrusted");
        let dialled = Handshake::dial(socket, TIMEOUT, options_at(&source, 2, clock)).map(drop);
        assert_eq!(dialled, Err(SetupError::Tls(TlsError::AlertReceived(alert))), "{what}");
        until("the refusal is counted", || refused(&node, "untrusted") == before + 1);
    }
}

/// Shows: operations.trust-reload, operations.untrusted-cause
#[test]
fn a_reload_ends_the_links_of_revoked_peers_and_no_others() {
    let _shared = shared_run();
    let world = Authorized::new();
    let (node, address) = secured(world.node(1));
    let revoked = world.node(2);
    let (two, peer) = caller(2, &address, revoked.clone());
    let (_three, other) = caller(3, &address, world.node(3));
    add(&peer);
    add(&other);
    assert_eq!(node.reload_trust().unwrap(), 0);
    add(&peer);
    let events = node.events();
    world.revoke(&revoked);
    assert_eq!(node.reload_trust().unwrap(), 1);
    let down = event(&events, TIMEOUT, |event| matches!(event, Event::PeerDown { peer: NodeId(2), .. }));
    assert!(matches!(down, Event::PeerDown { cause: DownCause::Untrusted, .. }), "{down:?}");
    add(&other);
    let reason = failure(&two);
    assert!(reason.contains("this node's certificate revoked"), "{reason}");
    // The dialler may learn of it first.
    until("the refusal is counted", || refused(&node, "untrusted") >= 1);
    // A new certificate is as good as the first one was.
    drop(two);
    let (_two, peer) = caller(2, &address, world.node(2));
    add(&peer);
}

/// Shows: operations.trust-reload
#[test]
fn wrong_files_change_nothing_at_a_reload() {
    let _shared = shared_run();
    let world = Authorized::new();
    let source = world.node(1);
    let (node, address) = secured(source.clone());
    let (_two, peer) = caller(2, &address, world.node(2));
    let Source::Certificates { certificate, .. } = &source else { unreachable!() };
    std::fs::write(certificate, "nonsense").unwrap();
    let error = node.reload_trust().unwrap_err().to_string();
    assert!(error.contains(&certificate.display().to_string()), "{error}");
    add(&peer);
    let (_three, other) = caller(3, &address, world.node(3));
    add(&other);
}

/// Shows: operations.trust-keys
#[test]
fn nodes_are_known_by_the_keys_in_their_configurations() {
    let _shared = shared_run();
    let world = Authorized::new();
    let [(key_1, one), (key_2, two), (key_3, _)] = ["1", "2", "3"].map(|name| world.key(name));
    let (node, address) = secured(Source::Keys { key: key_1, peers: vec![(NodeId(2), two)] });
    let pinned = || vec![(NodeId(1), one.clone())];
    let (_two, peer) = caller(2, &address, Source::Keys { key: key_2.clone(), peers: pinned() });
    add(&peer);
    assert_eq!(node.status().peers[0].info.unwrap().evidence, Evidence::Key);
    let stranger = dialling(3, &address).trust(Source::Keys { key: key_3, peers: pinned() }).start().unwrap();
    let reason = failure(&stranger);
    assert!(reason.contains("does not trust this node"), "{reason}");
    // The key of node 2 is that of node 2 alone, whichever id its owner takes.
    let other = dialling(4, &address).trust(Source::Keys { key: key_2, peers: pinned() }).start().unwrap();
    let reason = failure(&other);
    assert!(reason.contains("is that of another node"), "{reason}");
}

/// Shows: operations.trust-same-mode
#[test]
fn nodes_with_different_modes_say_so() {
    let _shared = shared_run();
    let world = Authorized::new();
    let (_plain, plain) = started(1, "tcp", "trust-plain");
    let (_secure, secure) = secured(world.node(1));
    let without = dialling(2, &secure).start().unwrap();
    let with = dialling(3, &plain).trust(world.node(3)).start().unwrap();
    for (node, text) in
        [(&without, "the other side requires TLS"), (&with, "the other side does not use TLS")]
    {
        let reason = failure(node);
        assert!(reason.contains(text) && reason.contains("[trust]"), "{reason}");
    }
    let (key, _) = world.key("one");
    let keys = dialling(4, &secure).trust(Source::Keys { key, peers: Vec::new() }).start().unwrap();
    let reason = failure(&keys);
    assert!(reason.contains("[trust] mode"), "{reason}");
}

/// Shows: operations.trust-operator, operations.allow-roles
#[test]
fn a_role_of_a_certificate_permits_types() {
    let _shared = shared_run();
    let world = Authorized::new();
    let rules =
        server(1, "tcp:127.0.0.1:0").allow(&["role:admin"], &["pronto.*", "faults.*"]).trust(world.node(1));
    let (_node, address) = start(rules);
    let valid = (now().0 - 100, now().0 + 10_000);
    let alice = world.issue(Name::Operator("alice".into()), &["admin"], valid);
    let bob = world.issue(Name::Operator("bob".into()), &["reader"], valid);
    for (source, permitted) in [(alice, true), (bob.clone(), false)] {
        let visitor =
            Node::visitor().wait(WaitPolicy::Block).peer(1, &address).trust(source).start().unwrap();
        assert!(visitor.id() >= FIRST_VISITOR);
        let peer = visitor.wait_for_peer(1, TIMEOUT).unwrap();
        let status = peer.call(&pronto::admin::StatusRequest {});
        assert_eq!(status.is_ok(), permitted, "{status:?}");
        if let Ok(status) = status {
            let own = status.peers.iter().find(|peer| peer.node == visitor.id().0).unwrap();
            assert!(
                own.choice.as_ref().is_some_and(|choice| choice.ends_with("operator alice (admin)")),
                "{own:?}"
            );
        }
    }
    // An operator runs no node.
    let error = Node::builder(5).trust(bob).start().unwrap_err().to_string();
    assert!(error.contains("operator bob"), "{error}");
}

/// Shows: operations.trust-resume
#[test]
fn a_session_resumes_over_a_new_encrypted_connection() {
    let _shared = shared_run();
    let world = Authorized::new();
    let (node, address) = secured(world.node(1));
    let wire = Proxy::to(&address);
    let (caller, peer) = caller(2, &wire.address(), world.node(2));
    resumes(&node, &caller, &peer, &wire);
}

/// Any identity may have the id of a visitor.
///
/// Shows: operations.trust-resume
#[test]
fn the_session_of_a_visitor_resumes_for_the_same_operator() {
    let _shared = shared_run();
    let world = Authorized::new();
    let rules = server(1, "tcp:127.0.0.1:0").allow(&["role:admin"], &["faults.*"]).trust(world.node(1));
    let (node, address) = start(rules);
    let wire = Proxy::to(&address);
    let alice = world.issue(Name::Operator("alice".into()), &["admin"], (now().0 - 100, now().0 + 10_000));
    let visitor =
        Node::visitor().wait(WaitPolicy::Block).peer(1, &wire.address()).trust(alice).start().unwrap();
    let peer = visitor.wait_for_peer(1, TIMEOUT).unwrap();
    resumes(&node, &visitor, &peer, &wire);
}

/// Cuts the links of a caller, whose session with the node has to resume each time.
fn resumes(node: &Node, caller: &Node, peer: &Peer, wire: &Proxy) {
    let session = || node.status().peers[0].info.map(|info| info.session);
    // The caller may have its link before the node has.
    add(peer);
    let first = session();
    let events = caller.events();
    for _ in 0..3 {
        add(peer);
        assert!(wire.cut() > 0);
        event(&events, TIMEOUT, |event| matches!(event, Event::LinkResumed { .. }));
        add(peer);
    }
    assert_eq!(session(), first);
}
